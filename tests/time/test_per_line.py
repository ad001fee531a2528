"""What lines take: every moment of a block is some line's, and what the chain says is what a change does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.explain import explain
from npuscope.lower.program import Program
from npuscope.tile.record.summary import summarise
from npuscope.time.change_job import with_jitter
from npuscope.time.core.pipes import time_block, trace_block
from npuscope.time.core.stream import FIXED, stream_of
from npuscope.time.inside import ARRIVING, PLACES, chain_of
from npuscope.time.per_line import kinds_of, line_times
from npuscope.time.run import Simulated, simulate
from tests.lower.kernels import lowered, tensor
from tests.report.memory_programs import written
from tests.time.test_pipes import mixed

MODELS = Path(__file__).resolve().parents[2] / "models"
E = 0.125  # ns by which an instruction is made longer: exact in binary


def mixed_program() -> Program:
    program, _ = lowered(mixed, tensor((16, 256), "BF16"), tensor((256, 128), "BF16"), tensor((16, 128), "FP32"))
    return program


@pl.jit
def phases(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Two blocks that meet: one draws roots before the barrier, the other after it."""
    for block in pl.spmd(2, name_hint="phases"):
        tile = x[0:16, :]
        for _ in pl.range(21 if block == 0 else 1):
            tile = pl.sqrt(tile)
        pl.system.syncall(core_type="aiv_only")
        for _ in pl.range(1 if block == 0 else 31):
            tile = pl.sqrt(tile)
        out = pl.assemble(out, tile, [block * 16, 0])
    return out


def layer() -> Simulated:
    return Prediction(Request(str(MODELS / "qwen3_14b" / "decode_layer.py"))).simulated


def test_a_block_is_tiled_by_its_chain() -> None:
    program = mixed_program()
    stream = stream_of(next(iter(program.planned.values())), program.device)
    timing, lane = trace_block(stream, 2.0)
    chain = chain_of(stream, timing, lane)
    assert chain.end[0] == timing.duration
    assert chain.start[-1] == 0.0
    np.testing.assert_array_equal(chain.start[:-1], chain.end[1:])
    assert chain.by_site(len(program.recording.sites)).sum() == pytest.approx(timing.duration)
    # the hand-over from cube to vector core is on it: its time is a result on its way, not a pipe at work
    assert ARRIVING in chain.place


def test_longer_instructions_of_the_chain_make_the_block_longer_by_just_that() -> None:
    program = mixed_program()
    stream = stream_of(next(iter(program.planned.values())), program.device)
    timing, lane = trace_block(stream)
    chain = chain_of(stream, timing, lane)
    at_work = chain.instruction[chain.place < len(PLACES) - 2]
    times = np.bincount(lane.row[at_work], minlength=len(stream.costs))
    for row in np.unique(lane.row).tolist():
        costs = stream.costs.copy()
        costs[row, FIXED] += E
        longer = time_block(replace(stream, costs=costs)).duration - timing.duration
        assert longer >= times[row] * E - 1e-6, stream.names[row]
    on_chain = np.flatnonzero(times)
    assert len(on_chain) > 3  # several instructions decide, not one


@pytest.mark.parametrize(
    "make", [mixed_program, lambda: lowered(phases, tensor((16, 64), "FP32"), tensor((32, 64), "FP32"))[0]]
)
def test_lines_add_up_to_the_core_time(make) -> None:
    simulated = simulate(make())
    explained = explain(simulated.trace)
    found = line_times(simulated, explained)
    core = float(np.sum(simulated.times.end - simulated.times.start))
    assert found.rows["core_ns"].sum() == pytest.approx(core)
    assert found.core_ns == pytest.approx(core)
    assert found.path_ns == pytest.approx(explained.path.by_part()["run"], abs=2)


def test_waiting_at_a_barrier_is_the_barrier_s() -> None:
    program, _ = lowered(phases, tensor((16, 64), "FP32"), tensor((32, 64), "FP32"))
    rows = line_times(simulate(program)).rows
    barrier = rows.filter(rows["place"] == "barrier")
    lines = Path(__file__).read_text().splitlines()
    assert [lines[line - 1].strip().split("(")[0] for line in barrier["line"]] == ["pl.system.syncall"]
    # 20 roots of 14 + 2 * 16 + 25 cycles that the second block waits for, and 30 that the first has behind it no more
    assert barrier["core_ns"][0] == pytest.approx(20 * (14 + 2 * 16 + 25) / 1.85, rel=0.05)


def test_a_layer_s_lines_have_its_time_its_bytes_and_its_work() -> None:
    simulated = layer()
    explained = explain(simulated.trace)
    found = line_times(simulated, explained)
    work = summarise([simulated.prepared.program.recording])
    assert found.core_ns == pytest.approx(float(np.sum(simulated.times.end - simulated.times.start)))
    assert found.path_ns == pytest.approx(explained.path.by_part()["run"], rel=1e-6)
    assert found.rows["flops"].sum() == work.total("flops")
    assert found.rows["bytes"].sum() == work.total("gm_read") + work.total("gm_written")
    submitted = simulated.times.submitted - simulated.times.began
    assert found.rows["submit_ns"].sum() == pytest.approx(float(np.sum(submitted)))


def test_noise_changes_kinds_and_not_that_lines_add_up(tmp_path: Path) -> None:
    program = Prediction(Request(str(written(tmp_path / "layer.py")))).program
    noisy = with_jitter(simulate(program), 3)
    kinds = list(kinds_of(noisy))
    assert sum(kind.blocks for kind in kinds) == len(noisy.prepared.job.block_class)
    core = float(np.sum(noisy.times.end - noisy.times.start))
    assert line_times(noisy).core_ns == pytest.approx(core)
