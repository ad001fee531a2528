"""What each way of not running equal work twice saves in `shapes` mode, script by script, in one run.

    python benchmarks/shapes.py models/qwen3_14b/decode_layer.py "models/qwen3_14b/decode_layer.py --layers 40" …

Each argument is a script with its options. CPU seconds of recording (the script's own work left out), the best of
three, interleaved: every turn and task executed; lanes (turns and blocks of a task that behave alike run as one); lanes
and reuse (a task takes the record of one like it). All three record the same. `--no-turns` leaves the first out, which
takes long for long contexts.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from measure import table

from npuscope.tile.language import functions
from npuscope.tile.run import execute
from npuscope.tile.run.execute import EntryCall, every_loop_turn_by_turn, every_task_in_its_turn
from npuscope.tile.script.run import run_script

Way = Callable[[], AbstractContextManager[None]]
WAYS: dict[str, Way] = {
    "every turn": every_loop_turn_by_turn,
    "lanes": every_task_in_its_turn,
    "lanes and reuse": nullcontext,
}
RUNS = 3


class Clock:
    """CPU seconds inside programs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        run = execute.run_entry

        def timed(call: EntryCall) -> object:
            begin = time.process_time()
            try:
                return run(call)
            finally:
                self.seconds += time.process_time() - begin

        functions.run_entry = timed


def seconds(clock: Clock, file: str, options: list[str], ways: dict[str, Way]) -> tuple[list[float], int]:
    """The best of each way, and how many tasks there are."""
    best = [float("inf")] * len(ways)
    tasks = 0
    for _ in range(RUNS):
        for k, way in enumerate(ways.values()):
            clock.seconds = 0.0
            with way():
                recordings = run_script(file, options, "shapes").recordings
            best[k] = min(best[k], clock.seconds)
            tasks = sum(len(recording.tasks) for recording in recordings)
    return best, tasks


def main() -> None:
    scripts = [argument for argument in sys.argv[1:] if argument != "--no-turns"]
    ways = {name: way for name, way in WAYS.items() if name != "every turn" or "--no-turns" not in sys.argv}
    clock, rows = Clock(), []
    for script in scripts:
        file, *options = shlex.split(script)
        best, tasks = seconds(clock, file, options, ways)
        name = " ".join([*Path(file).parts[-2:], *options])
        rows.append([name, f"{tasks:,}", *(f"{s:.3f}" for s in best), f"{best[-2] / best[-1]:.1f}"])
    table("Recording in shapes mode, CPU seconds", ["script", "tasks", *ways, "reuse saves (x)"], rows)


if __name__ == "__main__":
    main()
