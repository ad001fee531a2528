"""What the simulator says to every row of rows.toml: one number, or one before and one after a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from validation.idle import idle_with_ready
from validation.public import Value
from validation.variants import MODELS, folder

from npuscope.chip.devices import Device
from npuscope.lower.program import Program
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script
from npuscope.time.change_job import with_jitter
from npuscope.time.chip.job import MIX, SLOW
from npuscope.time.chip.prepare import STEPS
from npuscope.time.core.pipes import time_block
from npuscope.time.run import Simulated, simulate

HERE = Path(__file__).parent
PIPES = {"MTE2": 0, "MTE1": 1, "M": 2, "FIXP": 3}
DECODE = {"qkv": (5120, 768), "o": (512, 5120), "gate_up": (5120, 3200), "down": (1600, 5120), "lm_head": (5120, 9496)}
A8W8_CONTEXT = "128"
A8W8_CHANGES = {"npair": ("--fuse-out-proj-npair",), "qk_norm": ("--fused-qkv-dequant", "--fused-qk-norm")}
US = 1e3  # nanoseconds

_recordings: dict[tuple[str, ...], Recording] = {}


def recorded(file: Path, *argv: str) -> Recording:
    """A program's recording in shapes mode, made once."""
    key = (str(file), *argv)
    if key not in _recordings:
        _recordings[key] = run_script(file, argv, "shapes").recordings[0]
    return _recordings[key]


@dataclass
class Bench:
    """Simulations on one device, each made once."""

    device: Device
    done: dict[tuple[str, ...], Simulated] = field(default_factory=dict)

    def run(self, file: Path, *argv: str) -> Simulated:
        key = (str(file), *argv)
        if key not in self.done:
            self.done[key] = simulate(Program(recorded(file, *argv), self.device))
        return self.done[key]

    def own(self, name: str, *argv: str) -> Simulated:
        return self.run(HERE / name, *argv)

    def layer(self, variant: str = "", *argv: str) -> Simulated:
        return self.run(folder(variant) / "decode_layer.py", "--max-seq", "4096", *argv)

    def wall(self, name: str, *argv: str) -> float:
        return self.own(name, *argv).wall / US


def kernel_time(run: Simulated) -> float:
    """µs from the first hand-out to the last end: what a kernel profiler times."""
    return float(np.max(run.times.end) - np.min(run.times.dispatch)) / US


def mean_wall(run: Simulated) -> float:
    """µs, the mean of runs with noise: of a program so short that a scheduler's round of polling is a tenth of it."""
    return float(np.mean([with_jitter(run, seed).wall for seed in range(32)])) / US


def rows_of(run: Simulated, kernel: str) -> np.ndarray:
    tasks = [task.id for task in run.prepared.program.recording.tasks if task.kernel == kernel]
    return np.flatnonzero(np.isin(run.prepared.job.task_of, tasks))


def mean_run(run: Simulated, kernel: str = "") -> float:
    """µs a block runs; without a kernel, records as a capture has them: a mixed block is one per core."""
    rows = rows_of(run, kernel) if kernel else np.arange(len(run.times.start))
    return float(np.average(run.times.end[rows] - run.times.start[rows], weights=_records(run)[rows])) / US


def _records(run: Simulated) -> np.ndarray:
    return np.where(run.prepared.job.shape[run.prepared.job.task_of] == MIX, 3, 1)


def on_core(run: Simulated, kernel: str) -> float:
    """µs in which at least one core had the kernel, from hand-out to completion as the runtime's own slices have it."""
    rows = rows_of(run, kernel)
    spent, until = 0.0, -1.0
    for start, end in sorted(zip(run.times.dispatch[rows], run.times.finish[rows], strict=True)):
        spent += max(0.0, end - max(start, until))
        until = max(until, end)
    return spent / US


def span(run: Simulated, kernel: str, blocks: int) -> float:
    """µs from the first start to the last end of the first blocks of a kernel: those of the first layer."""
    rows = rows_of(run, kernel)[:blocks]
    return float(np.max(run.times.end[rows]) - np.min(run.times.start[rows])) / US


def pipe_share(run: Simulated, pipe: str) -> float:
    """Percent of the kernel's time in which a pipe of a core was busy."""
    job, classes = run.prepared.job, run.prepared.classes
    kind = int(job.block_class[-1])
    slow = float(np.interp(np.mean(run.times.end - run.times.start), job.run[kind], SLOW))
    stream, share = classes.entries[kind]
    timing = time_block(classes.streams[stream], slow, share=share / STEPS)
    return 100 * float(timing.busy[PIPES[pipe]]) / US / kernel_time(run)


def predict(key: str, bench: Bench) -> Value:
    """The row's prediction."""
    for start, found in FAMILIES.items():
        if key.startswith(start):
            return found(key, bench)
    return ROWS[key](bench)


def _gemm(key: str, bench: Bench) -> Value:
    _, size, *pipe = key.split("_")
    run = bench.own("gemm.py", "--size", size)
    return pipe_share(run, pipe[0]) if pipe else kernel_time(run)


def _decode(key: str, bench: Bench) -> Value:
    k, n = DECODE[key.removeprefix("decode_")]
    return kernel_time(bench.own("decode_gemm.py", "--k", str(k), "--n", str(n)))


def _idle(key: str, bench: Bench) -> Value:
    return idle_with_ready(bench.layer())[key.removeprefix("layer_idle_")]


def _step(bench: Bench) -> Simulated:
    return bench.run(folder("") / "decode.py", "--layers", "40", "--max-seq", "4096")


def _fused(bench: Bench) -> Value:
    """The step, and the step with what four layers save ten times over: barriers take long to record."""
    before, after = (bench.layer(variant, "--layers", "4").wall / US for variant in ("", "attention_fused"))
    return _step(bench).wall / US, _step(bench).wall / US - 10 * (before - after)


def _a8w8(bench: Bench, *argv: str) -> Simulated:
    """The step of the tracking issue; the row's form is the serialised one."""
    return bench.run(folder("") / "decode_a8w8.py", "--layers", "40", "--context", A8W8_CONTEXT, *argv)


def _a8w8_row(key: str, bench: Bench) -> Value:
    name = key.removeprefix("a8w8_apart_").removeprefix("a8w8_")
    serialised = () if key.startswith("a8w8_apart_") else ("--serialised",)
    run = _a8w8(bench, *serialised)
    if name in A8W8_CHANGES:
        return run.wall / US**2, _a8w8(bench, *serialised, *A8W8_CHANGES[name]).wall / US**2
    return A8W8[name](run)


def _in_flight(run: Simulated) -> float:
    """Records from hand-out to completion at any one time."""
    return float(np.sum((run.times.finish - run.times.dispatch) * _records(run))) / run.wall


def _dispatch_finish(run: Simulated) -> float:
    return float(np.average(run.times.finish - run.times.dispatch, weights=_records(run))) / US


def _high(bench: Bench) -> float:
    run = bench.run(MODELS / "paged_attention_highperf.py", "--case", "b16_h40_kv8_s4096_bs128_fp16")
    return on_core(run, "paged_attention")


def _in_layer(bench: Bench) -> float:
    return on_core(bench.layer("", "--context", "4096"), "fa_fused")


def _standalone(bench: Bench) -> float:
    file = MODELS / "paged_attention.py"
    return bench.run(file, "--batch", "16", "--heads", "40", "--context", "4096", "--even").wall / US


def _scope(bench: Bench, *argv: str) -> Simulated:
    return bench.own("scope3.py", *argv)


def _k_chunk(bench: Bench) -> Value:
    """Scope 3 is simulated, the rest of the layer is what the measurement leaves."""
    before, after = (_scope(bench, "--model", "14b", "--chunk", chunk).wall / US for chunk in ("128", "256"))
    return 121553.0, 121553.0 - 40 * (before - after)


def _stages(kernel: str) -> Callable[[Bench], Value]:
    return lambda b: (
        mean_run(b.own("attention_stages.py", "--tile", "64"), kernel),
        mean_run(b.own("attention_stages.py", "--tile", "256"), kernel),
    )


A8W8: dict[str, Callable[[Simulated], float]] = {
    "step": lambda run: run.wall / US**2,
    "records": lambda run: float(np.sum(_records(run))),
    "run": mean_run,
    "dispatch_finish": _dispatch_finish,
    "in_flight": _in_flight,
}
FAMILIES = {"gemm_": _gemm, "decode_": _decode, "layer_idle_": _idle, "a8w8_": _a8w8_row}
ROWS: dict[str, Callable[[Bench], Value]] = {
    "layer": lambda b: b.layer().wall / US,
    "layers_2": lambda b: b.layer("", "--layers", "2").wall / US,
    "layers_4": lambda b: b.layer("", "--layers", "4").wall / US,
    "step": lambda b: _step(b).wall / US**2,
    "attention_cce": _high,
    "attention_in_layer": _in_layer,
    "attention_gap": lambda b: (_in_layer(b), _high(b)),
    "attention_standalone": lambda b: (_standalone(b), _high(b)),
    "c90": lambda b: (_scope(b, "--steps", "apart").wall / US, _scope(b).wall / US),
    "c90_before": lambda b: _scope(b, "--steps", "apart").wall / US,  # both times of c90, for the fit
    "c90_after": lambda b: _scope(b).wall / US,
    "c90_task_before": lambda b: mean_run(_scope(b, "--steps", "apart")),
    "c90_task_after": lambda b: mean_run(_scope(b)),
    "c662": lambda b: (b.wall("prefill_tasks.py", "--tasks", "many"), b.wall("prefill_tasks.py", "--tasks", "few")),
    "c275": _k_chunk,
    "c275_call": lambda b: (
        mean_run(_scope(b, "--model", "14b", "--chunk", "128"), "down"),
        mean_run(_scope(b, "--model", "14b", "--chunk", "256"), "down"),
    ),
    "c185_out": lambda b: (
        mean_run(_scope(b), "o_proj"),
        mean_run(_scope(b, "--out-chunk", "512"), "o_proj"),
    ),
    "c185_qk": _stages("qk"),
    "c185_sv": _stages("sv"),
    "c185_softmax": _stages("online_softmax"),
    "c94_gate_up": lambda b: (_scope(b).wall / US, _scope(b, "--together", "gate_up").wall / US),
    "c94_down": lambda b: (
        _scope(b, "--together", "gate_up").wall / US,
        _scope(b, "--together", "down").wall / US,
    ),
    # Three layers for the two that were measured: of two, the model's loop over all but the last has one turn, which
    # the compiler puts in the loop's place, and then siblings do not wait for one another.
    "c558": lambda b: (
        b.layer("dcr_tasks", "--layers", "3").wall / US,
        b.layer("", "--layers", "3").wall / US,
    ),
    "c558_writers": lambda b: (
        span(b.layer("dcr_tasks", "--layers", "3"), "dcr_xgamma", 5),
        span(b.layer("", "--layers", "3"), "dcr_xgamma", 5),
    ),
    "c602": lambda b: (
        b.layer("rope_late", "--layers", "4").wall / US,
        b.layer("", "--layers", "4").wall / US,
    ),
    "c602_heads": lambda b: (
        mean_run(b.own("rope_heads.py", "--heads", "apart"), "rope"),
        mean_run(b.own("rope_heads.py", "--heads", "together"), "rope"),
    ),
    "c756": _fused,
    "c719_task": lambda b: (
        mean_run(b.own("int8_store.py", "--tile", "256"), "quantise"),
        mean_run(b.own("int8_store.py", "--tile", "512"), "quantise"),
    ),
    "c719_wall": lambda b: (
        mean_wall(b.own("int8_store.py", "--tile", "256")),
        mean_wall(b.own("int8_store.py", "--tile", "512")),
    ),
}
