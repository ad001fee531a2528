"""What `npuscope check` costs, and by what it grows: by distinct bodies, hardly by tasks. All in one run.

    python benchmarks/check.py [--runs N]

Seconds are CPU seconds of this one process (the best of N runs, each anew from the script), so that others on the
machine do not count; the last table has whole commands, imports included, with the time on the clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from measure import cost, table

import npuscope.tile as pl
from npuscope.base.process_memory import collected_rarely
from npuscope.check.races import races
from npuscope.check.run import check
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script

MODELS = Path(__file__).resolve().parents[1] / "models" / "qwen3_14b"
PARTS = ("record", "graph", "fit", "races", "lint")
BOUND = 10.0  # seconds for forty layers
COMMAND = """
import sys
from npuscope.cli import main
sys.argv = ["npuscope", "check", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    sys.exit(end.code not in (0, 1))  # 1: it found something
"""
TASKS = 2000  # of the program whose bodies are varied


def parts_of(record: Callable[[], Recording]) -> tuple[Recording, list[float]]:
    """The CPU seconds of each part of a check."""
    marks = [time.process_time()]

    def done() -> None:
        marks.append(time.process_time())

    recording = record()
    done()
    program = Program(recording, load("ascend910b1"))
    _ = program.graph
    done()
    _ = program.kernels
    done()
    races(program)
    done()
    check(program)  # what is known already is not worked out again
    done()
    return recording, [after - before for before, after in pairwise(marks)]


def row(record: Callable[[], Recording], runs: int) -> tuple[Recording, list[float]]:
    """The parts of the best run, and their sum."""
    with collected_rarely():  # as the command does
        recording, best = min((parts_of(record) for _ in range(runs)), key=lambda found: sum(found[1]))
    return recording, [*best, sum(best)]


def recorded(script: str, layers: int) -> Recording:
    return run_script(MODELS / script, ["--layers", str(layers)], "shapes").recordings[0]


def by_layers(script: str, runs: int) -> None:
    rows, least = [], 0.0
    for layers in (1, 2, 4, 10, 40):
        recording, seconds = row(lambda n=layers: recorded(script, n), runs)
        least = least or seconds[-1]
        counts = [layers, f"{len(recording.tasks):,}", len(recording.bodies)]
        grown = [f"{layers}x", f"{seconds[-1] / least:.1f}x"]
        rows.append([*counts, *(f"{s:.2f}" for s in seconds), *grown])
    header = ["layers", "tasks", "bodies", *PARTS, "all", "layers grew", "seconds grew"]
    table(f"{script}, Qwen3-14B with batch 16 and contexts up to 4096", header, rows)


@pl.jit
def rows_of_widths(x: pl.Tensor, out: pl.Out[pl.Tensor], bodies: pl.Scalar):
    """A body to each width; many tasks to each body."""
    for i in pl.parallel(TASKS):
        width = 16 * (1 + i % bodies)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
            for k in pl.pipeline(4, stage=2):
                tile = pl.load(x, [i, k * width], [1, width])
                out = pl.store(pl.mul(pl.add(tile, 1.0), tile), [i, k * width], out)
    return out


def by_bodies(runs: int) -> None:
    rows = []
    for bodies in (50, 100, 200, 400):
        shape = (TASKS, 4 * 16 * 400)
        given = (pl.Placeholder(shape, pl.FP32), pl.Placeholder(shape, pl.FP32), bodies)
        recording, seconds = row(lambda given=given: rows_of_widths.record(*given, mode="shapes").recording, runs)
        each = seconds[-1] / bodies * 1e3
        rows.append([len(recording.bodies), *(f"{s:.2f}" for s in seconds), f"{each:.1f}"])
    table(f"{TASKS:,} tasks with ever more bodies", ["bodies", *PARTS, "all", "ms a body"], rows)


def commands(runs: int) -> None:
    rows = []
    for script in ("decode.py", "decode_a8w8.py"):
        found = cost([sys.executable, "-c", COMMAND, str(MODELS / script)], runs)
        held = "held" if found.cpu <= BOUND else "missed"
        rows.append([f"npuscope check {script}", f"{found.cpu:.1f}", f"{found.wall:.1f}", f"{BOUND:.0f} s: {held}"])
    table("Whole commands, 40 layers", ["", "CPU s", "s on the clock", "bound"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="What npuscope check costs")
    parser.add_argument("--runs", type=int, default=2, help="of each; the best counts")
    runs = parser.parse_args().runs
    parts_of(lambda: recorded("decode.py", 1))  # what is imported or read once does not count
    by_layers("decode.py", runs)
    by_layers("decode_a8w8.py", runs)
    by_bodies(runs)
    commands(runs)


if __name__ == "__main__":
    main()
