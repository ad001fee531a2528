"""What the simulator says to every row of rows.toml: one number, or one before and one after a change."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from validation.public import Value

from npuscope.chip.devices import Device
from npuscope.lower.program import Program
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script
from npuscope.time.change_job import with_jitter
from npuscope.time.chip.job import AIC, AIV, MIX, NONE, SLOW
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


def idle_with_ready(simulated: Simulated) -> dict[str, float]:
    """Percent of the makespan by AIC, AIV, chip and any."""
    job, times, machine = simulated.prepared.job, simulated.times, simulated.prepared.machine
    tasks = len(job.shape)
    ended, last_start = np.zeros(tasks), np.zeros(tasks)
    np.maximum.at(ended, job.task_of, times.end)
    np.maximum.at(last_start, job.task_of, times.start)
    ready = times.submitted.copy()
    for task in range(tasks):  # in order of submission: what does no work passes on when its own producers ended
        ended[task] = max(ended[task], ready[task]) if job.shape[task] == NONE else ended[task]
        for n in range(job.first_out[task], job.first_out[task + 1]):
            ready[job.out[n]] = max(ready[job.out[n]], ended[task])
    shape = job.shape[job.task_of]
    changes: list[tuple[float, int, int]] = []  # time, what, by how much
    for begin, end, kind in zip(times.start, times.end, shape, strict=True):
        for what, count in ((0, int(kind != AIV)), (1, 2 if kind == MIX else int(kind == AIV))):
            changes += [(begin, what, count), (end, what, -count)] if count else []
    for task in range(tasks):
        kinds = {MIX: (2, 3), AIC: (2,), AIV: (3,)}.get(int(job.shape[task]), ())
        if last_start[task] > ready[task]:
            changes += [(t, what, by) for what in kinds for t, by in ((ready[task], 1), (last_start[task], -1))]
    first, last = float(np.min(times.start)), float(np.max(times.end))
    now, state = first, [0, 0, 0, 0]
    spent = dict.fromkeys(("AIC", "AIV", "chip", "any"), 0.0)
    for when, what, by in sorted(changes):
        if when > now:
            cube = state[0] < machine.clusters and state[2] > 0
            vector = state[1] < 2 * machine.clusters and state[3] > 0
            whole = state[0] == 0 and state[1] == 0 and state[2] + state[3] > 0
            for name, holds in (("AIC", cube), ("AIV", vector), ("chip", whole), ("any", cube or vector)):
                spent[name] += (when - now) * holds
            now = when
        state[what] += by
    return {name: 100 * span / (last - first) for name, span in spent.items()}


MODELS = Path(__file__).resolve().parents[2] / "models"
SEEDS = """            # The MLP's zeros are put down while attention runs.
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_seed", deps=[hidden_tids]) as down_seed_tid:
                down = zero_down(down)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_seed", deps=[hidden_tids]) as gate_seed_tid:
                gate = zero_mlp(gate)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="up_seed", deps=[hidden_tids]) as up_seed_tid:
                up = zero_mlp(up)
"""
# name -> file, what stands there, what stands there in the variant
CHANGES: dict[str, list[tuple[str, str, str]]] = {
    "rope_late": [("layer.py", 'name_hint="rope_qkv", allow_early_resolve=True,', 'name_hint="rope_qkv",')],
    "dcr_tasks": [  # as #558 found it: a parallel task with two outputs waits for its siblings
        ("layer.py", '        with pl.spmd(SLABS, name_hint="dcr_xgamma", deps=[down_tids]) as dcr_tid:\n'
         "            c = pl.get_block_idx() * SLAB\n",
         "        for slab in pl.parallel(SLABS):\n"
         '          with pl.at(level=pl.Level.CORE_GROUP, name_hint="dcr_xgamma", deps=[down_tids]) as dcr_tid:\n'
         "            c = slab * SLAB\n"),
    ],
    "attention_fused": [  # as #756 left it: three launches are one, whose phases are separated by barriers
        ("layer.py", """            with pl.spmd(
                ROPE_BLOCKS, name_hint="rope_qkv", allow_early_resolve=True, deps=[qk_tids, v_tids, rms_tid]
            ) as rope_tid:
                block = pl.get_block_idx()
                for i in pl.pipeline(ROPE_ITEMS, stage=2):
                    item = block * ROPE_ITEMS + i
""", SEEDS + """            with pl.spmd(
                CUBES, name_hint="attention", sync_start=True, deps=[qk_tids, v_tids, rms_tid, work_tid]
            ) as softmax_tid:
                block = pl.get_block_idx()
                for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                  for item in pl.range(2 * block + lane, ROWS * KV_HEADS, 2 * CUBES):
"""),
        ("layer.py", SEEDS + """
            with pl.spmd(
                CUBES, name_hint="fa_fused", optimizations=[pl.split(pl.SplitMode.UP_DOWN)], deps=[work_tid, rope_tid]
            ) as fa_tid:
                block = pl.get_block_idx()
""", "                pl.system.syncall()\n"),
        ("layer.py", """            with pl.spmd(2 * CUBES, name_hint="online_softmax", deps=[fa_tid]) as softmax_tid:
                block = pl.get_block_idx()
                for item in pl.range(block, ROWS * KV_HEADS, 2 * CUBES):
""", """                pl.system.syncall()
                for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                  for item in pl.range(2 * block + lane, ROWS * KV_HEADS, 2 * CUBES):
"""),
        ("parts.py", """        scores = pl.mul(pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32), scale)
        scores = pl.fillpad(pl.set_validshape(scores, Q_PAD, valid), pad_value=pl.PadValue.min)
        top = pl.row_max(scores)
        weights = pl.exp(pl.row_expand_sub(scores, top))
        total = pl.row_sum(weights)
        values = v_cache[cache_row : cache_row + tokens, :]
        out = pl.matmul(pl.cast(weights, target_type=store), values, out_dtype=pl.FP32)
        outs = pl.assemble(outs, pl.set_validshape(out, group, dim), [part_row, 0])
        tops = pl.assemble(tops, pl.set_validshape(top, group, 1), [part_row, 0])
        sums = pl.assemble(sums, pl.set_validshape(total, group, 1), [part_row, 0])
""", """        product = pl.matmul(query, keys, b_trans=True, out_dtype=pl.FP32)
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            mine = part_row + lane * (Q_PAD // 2)
            scores = pl.mul(pl.aiv_shard(product), scale)
            scores = pl.fillpad(pl.set_validshape(scores, Q_PAD // 2, valid), pad_value=pl.PadValue.min)
            top = pl.row_max(scores)
            weights = pl.exp(pl.row_expand_sub(scores, top))
            total = pl.row_sum(weights)
            both = pl.aic_gather(pl.cast(weights, target_type=store))
            tops = pl.assemble(tops, top, [mine, 0])
            sums = pl.assemble(sums, total, [mine, 0])
        values = v_cache[cache_row : cache_row + tokens, :]
        out = pl.matmul(both, values, out_dtype=pl.FP32)
        outs = pl.assemble(outs, pl.set_validshape(out, group, dim), [part_row, 0])
"""),
    ],
}  # fmt: skip


@cache
def folder(name: str) -> Path:
    """Where the Qwen3-14B programs are in a variant; the empty name is the folder itself."""
    if not name:
        return MODELS / "qwen3_14b"
    made = Path(mkdtemp(prefix=f"npuscope_{name}_")) / "qwen3_14b"
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    shutil.copytree(MODELS / "qwen3_14b", made, ignore=shutil.ignore_patterns("__pycache__"))
    for file, stands, instead in reversed(CHANGES[name]):
        text = (made / file).read_text()
        if text.count(stands) != 1:
            raise SystemExit(f"{file} has changed: the variant {name!r} does not find what it replaces")
        (made / file).write_text(text.replace(stands, instead))
    return made
