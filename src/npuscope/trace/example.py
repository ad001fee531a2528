"""Two small captures of our own making, for the demo and for tests; every run writes the same bytes.

`write_decode_steps`: three decode steps of a four-layer model as Ascend's profiler lists them, with the traps of real
files: collectives listed twice, tiling on the AI CPU, two streams, a slow first step. Its matmuls move their weights at
86 to 88 % of the 1.76 TB/s of an Ascend 910C's die (A3), as good ones do. `write_decode_run`: two layers of a decode
step for two half batches, as the simpler runtime records one. A plain greedy scheduler hands tasks to 24 cube and 48
vector cores, one at a time, and sees ends a little late; one half's attention hides behind the other's matmuls.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from dataclasses import field
from pathlib import Path

from npuscope.base.frozen import dataclass
from npuscope.trace.writers.atomic import whole_file

CUBES, VECTORS = 24, 48
HERTZ = 50_000_000  # 20 ns a tick
HAND_OUT, PICK_UP, SEE = 25, 45, 60  # ticks to hand out a task, for its core to start it, for its end to be seen
HALVES, RUN_LAYERS = 2, 2


def write_decode_steps(path: Path) -> None:
    """Write the kernel table, which lies beside this file."""
    with whole_file(path) as file:
        file.write(Path(__file__).with_name("example_steps.csv").read_bytes())


@dataclass(frozen=True)
class Stage:
    """Tasks of one kernel: their unit, number and ticks, and the stages they wait for.

    They wait for all tasks of a stage, or one by one (the nth for the nth, by share) where `paired`.
    """

    kernel: str
    unit: str
    tasks: int
    ticks: int
    after: tuple[str, ...]
    paired: bool = False


LAYER_STAGES = (
    Stage("rmsnorm", "aiv", 4, 300, ("residual",)),
    Stage("q_proj", "aic", 20, 900, ("rmsnorm",)),
    Stage("k_proj", "aic", 4, 800, ("rmsnorm",)),
    Stage("v_proj", "aic", 4, 800, ("rmsnorm",)),
    Stage("rope", "aiv", 16, 350, ("q_proj", "k_proj")),
    Stage("qk_matmul", "aic", 32, 700, ("rope",), paired=True),
    Stage("softmax", "aiv", 32, 500, ("qk_matmul",), paired=True),
    Stage("sv_matmul", "aic", 32, 700, ("softmax", "v_proj"), paired=True),
    Stage("out_proj", "aic", 20, 1_000, ("sv_matmul",)),
    Stage("gate_proj", "aic", 28, 1_500, ("out_proj",)),
    Stage("up_proj", "aic", 28, 1_500, ("out_proj",)),
    Stage("silu", "aiv", 28, 400, ("gate_proj", "up_proj"), paired=True),
    Stage("down_proj", "aic", 20, 1_300, ("silu",)),
    Stage("residual", "aiv", 4, 250, ("down_proj",)),
)


@dataclass
class ExampleTask:
    stage: Stage
    waits: int
    consumers: list[int] = field(default_factory=list)


def write_decode_run(folder: Path, hand_out: int = HAND_OUT) -> None:
    """Write chip_swimlane_records.json, deps.json and a name map; every run gives the same bytes.

    `hand_out` is what the scheduler takes for a task, in ticks of 20 ns.
    """
    tasks, edges = _program()
    rows, seen = _scheduled(tasks, hand_out)
    kernels = [stage.kernel for stage in LAYER_STAGES]
    cores = {"clock_freq_hz": HERTZ, "num_cores": CUBES + VECTORS, "core_types": ["aic"] * CUBES + ["aiv"] * VECTORS}
    records = {"chip_swimlane_level": 2, "metadata": cores, "aicore_tasks": rows, "aicpu_tasks": seen}
    functions = [
        [kernels.index(t.stage.kernel), -1, -1] if t.stage.unit == "aic" else [-1, kernels.index(t.stage.kernel), -1]
        for t in tasks
    ]
    deps = {
        "tasks": [{"task_id": str(n), "kernel_ids": ids} for n, ids in enumerate(functions)],
        "edges": [{"pred": str(a), "succ": str(b), "source": "tensormap"} for a, b in edges],
    }
    names = {"level": 2, "callable_id_to_name": {str(n): name for n, name in enumerate(kernels)}}
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("chip_swimlane_records", records), ("deps", deps), ("name_map_decode", names)):
        with whole_file(folder / f"{name}.json") as file:
            file.write(json.dumps(data, separators=(",", ":")).encode())


def _program() -> tuple[list[ExampleTask], list[tuple[int, int]]]:
    """The tasks in the order of their submission, and who waits for whom."""
    tasks: list[ExampleTask] = []
    edges: list[tuple[int, int]] = []
    last: list[dict[str, range]] = [{} for _ in range(HALVES)]
    for _ in range(RUN_LAYERS):
        for half in range(HALVES):
            for stage in LAYER_STAGES:
                mine = range(len(tasks), len(tasks) + stage.tasks)
                before = [last[half][name] for name in stage.after if name in last[half]]
                for place, task in enumerate(mine):
                    producers = [p for r in before for p in ([r[place * len(r) // stage.tasks]] if stage.paired else r)]
                    tasks.append(ExampleTask(stage, len(producers)))
                    edges += [(producer, task) for producer in producers]
                last[half][stage.kernel] = mine
    for producer, consumer in edges:
        tasks[producer].consumers.append(consumer)
    return tasks, edges


def _scheduled(tasks: list[ExampleTask], hand_out: int) -> tuple[list[list[int]], list[list[int]]]:
    """Hand out ready tasks in order, one every `hand_out` ticks, to the lowest free core of their unit."""
    free = {"aic": list(range(CUBES)), "aiv": list(range(CUBES, CUBES + VECTORS))}
    ready: dict[str, deque[int]] = {"aic": deque(), "aiv": deque()}
    for number, task in enumerate(tasks):
        if task.waits == 0:
            ready[task.stage.unit].append(number)
    events: list[tuple[int, int, int]] = []  # when an end is seen, task, core
    used = [0] * (CUBES + VECTORS)
    rows, seen = [], []
    now = 1_000
    while events or any(ready.values()):
        unit = next((unit for unit in ("aic", "aiv") if ready[unit] and free[unit]), None)
        if unit is None or (events and events[0][0] <= now):
            now, done, core = max(events[0][0], now), events[0][1], events[0][2]
            heapq.heappop(events)
            heapq.heappush(free[tasks[done].stage.unit], core)
            for consumer in tasks[done].consumers:
                tasks[consumer].waits -= 1
                if tasks[consumer].waits == 0:
                    ready[tasks[consumer].stage.unit].append(consumer)
            continue
        number, core = ready[unit].popleft(), heapq.heappop(free[unit])
        now += hand_out
        used[core] += 1
        start = now + PICK_UP
        end = start + tasks[number].stage.ticks + (number * 37) % 90  # no two alike
        finish = end + SEE + (number * 13) % 40
        rows.append([core, number, used[core], start, end, 0])
        seen.append([core, used[core], now, finish])
        heapq.heappush(events, (finish, number, core))
    return rows, seen
