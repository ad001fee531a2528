"""A simulated trace keeps what every capture keeps, and what only a simulated one must: no overlap, no edge back."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest
from adds_up import check
from hypothesis import given
from hypothesis import strategies as st
from random_programs import arguments, module, source
from tiers import examples

import npuscope
from npuscope.base.errors import NpuscopeError
from npuscope.check.run import unfit
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import record
from npuscope.tile.script.run import run_script
from npuscope.time.change_job import with_jitter
from npuscope.time.chip.job import AIC, AIV, MIX, NONE
from npuscope.time.chip.prepare import Prepared, prepare
from npuscope.time.run import Simulated, run
from npuscope.trace.core import READY_QUEUES

MODELS = Path(__file__).resolve().parents[2] / "models"
PROGRAMS = {
    "qwen3_14b/decode_layer.py": ["--small"],
    "qwen3_14b/decode_layer_a8w8.py": ["--small"],
    "paged_attention.py": [],
    "basics/rms_norm.py": [],
}
CHIP = load("910b1")


def keeps(simulated: Simulated) -> None:
    """All invariants of the analyses, and those of a run that could happen."""
    trace = simulated.trace
    explained = check(trace)
    work = trace.slices.filter(pl.col("kind") == "task")
    end = work["start"] + work["dur"]
    assert (work["dispatch"] <= work["start"]).all()
    assert (work["dur"] > 0).all()
    assert (end <= work["finish"]).all()
    for lane in trace.slices.sort("lane", "start", "dur").partition_by("lane"):
        assert ((lane["start"] + lane["dur"])[:-1] <= lane["start"][1:]).all(), "two things at once on a lane"
    # every block of the program is there, a mixed one on three lanes
    job = simulated.prepared.job
    blocks = work.select("task", "block").unique()
    assert blocks.height == len(job.task_of)
    # edges go forward, also through tasks that do nothing and have no slice
    starts, done, longest = (
        dict(work.group_by("task").agg(what).iter_rows())
        for what in (pl.col("start").min(), pl.col("finish").max(), pl.col("dur").max())
    )
    before: dict[int, list[int]] = defaultdict(list)
    for src, dst in trace.edges.select("src", "dst").iter_rows():
        before[dst].append(src)
    ended: dict[int, int] = {}
    chain: dict[int, int] = {}
    for task in range(len(job.shape)):
        ended[task] = max([done.get(task, 0), *(ended[src] for src in before[task])])
        chain[task] = longest.get(task, 0) + max((chain[src] for src in before[task]), default=0)
        assert job.shape[task] == NONE or all(starts[task] >= ended[src] for src in before[task])
    # the critical path is as long as the window, which no chain of blocks outlasts; nor does it run longer
    path = explained.path
    assert max(chain.values()) <= explained.work.wall <= simulated.wall_ns + 1
    assert path.by_part()["run"] <= explained.work.wall
    assert explained.work.wall <= int(np.max(simulated.times.finish)) + 1


def counts(simulated: Simulated) -> None:
    """Counters say what the run's slices and blocks say."""
    trace, job = simulated.trace, simulated.prepared.job
    samples = {str(name): rows for (name,), rows in trace.counters.partition_by("name", as_dict=True).items()}
    assert trace.meta.records == trace.slices.height + trace.counters.height
    for name, rows in samples.items():
        assert (rows["time"].diff().drop_nulls() > 0).all(), name
        assert (rows["value"] >= 0).all(), name
    # the integral of the bandwidth is the bytes that blocks move, and never above what HBM gives
    hbm = samples["HBM GB/s"]
    moved = float((hbm["value"][:-1] * hbm["time"].diff().drop_nulls()).sum())
    assert moved == pytest.approx(float((job.draws[:, 0] * job.run[:, 0])[job.block_class].sum()), rel=1e-9)
    assert hbm["value"].to_numpy().max() <= simulated.prepared.machine.limit * (1 + 1e-6)
    # in flight are the blocks whose dispatch and finish are around a moment
    work = trace.slices.filter(pl.col("kind") == "task").unique(["task", "block"])
    dispatch, finish = (np.sort(work[c].to_numpy()) for c in ("dispatch", "finish"))
    time, flying = (samples["blocks in flight"][c].to_numpy() for c in ("time", "value"))
    slices = np.searchsorted(dispatch, time, "right") - np.searchsorted(finish, time, "right")
    assert np.array_equal(flying, slices)
    assert set(np.unique(np.concatenate([dispatch, finish]))) >= set(time) - {0}
    # a queue is never longer than there are tasks of its kind, and empty at the end
    for name, shape in zip(READY_QUEUES, (AIC, AIV, MIX), strict=True):
        if name in samples:
            assert samples[name]["value"].to_numpy().max() <= np.sum(job.shape == shape)
            assert samples[name]["value"][-1] == 0
    if "ring entries" in samples:
        assert samples["ring entries"]["value"].to_numpy().max() <= job.rings.first_entry[-1]


@pytest.fixture(scope="module", params=PROGRAMS)
def prepared(request: pytest.FixtureRequest) -> Prepared:
    (recording, *_) = run_script(MODELS / request.param, PROGRAMS[request.param], "shapes").recordings
    return prepare(Program(recording, CHIP))


def test_models_keep_every_invariant(prepared: Prepared) -> None:
    keeps(run(prepared))
    counts(run(prepared))


@pytest.mark.parametrize("seed", range(5))
def test_so_they_do_with_other_times_and_noise_on_other_chips(prepared: Prepared, seed: int) -> None:
    # GIVEN kinds of blocks up to a hundred times as short or long, more that starts early or together, another chip
    draw = np.random.default_rng(seed)
    job, tasks = prepared.job, len(prepared.job.shape)
    factor = np.exp(draw.uniform(-5, 5, (len(job.run), 1)))
    other = job._replace(
        run=job.run * factor,
        draws=job.draws / factor * draw.uniform(0, 3),
        early=(draw.random(tasks) < 0.3).astype(np.int64),
        together=((draw.random(tasks) < 0.1) & (job.shape != NONE)).astype(np.int64),
    )
    chip = prepared.machine._replace(clusters=int(draw.integers(1, 25)), limit=draw.uniform(50, 2000))
    # THEN
    simulated = with_jitter(run(prepared, other, chip), seed)
    keeps(simulated)
    counts(simulated)


@given(st.integers(0, 2**32), st.integers(1, 24))
@examples(25)
def test_random_programs_keep_every_invariant(
    tmp_path_factory: pytest.TempPathFactory, seed: int, clusters: int
) -> None:
    path: Path = tmp_path_factory.mktemp("random") / f"timed_{seed}.py"
    try:
        recording = record(module(source(Random(seed)), path).main, *arguments(), mode="shapes").recording
    except NpuscopeError:  # what shapes mode refuses
        return
    program = Program(recording, CHIP)
    if unfit(program):  # a move that the chip does not have
        return
    made = prepare(program)
    if len(made.job.task_of):
        simulated = run(made, machine=made.machine._replace(clusters=clusters))
        keeps(simulated)
        counts(simulated)


def test_a_written_trace_is_the_same_when_read_again(tmp_path: Path, prepared: Prepared) -> None:
    trace = run(prepared).trace
    trace.write(tmp_path / "run.npu")
    back = npuscope.read(tmp_path / "run.npu")
    columns = ["lane", "start", "dur", "task", "block", "dispatch", "finish"]
    assert back.slices.select(columns).equals(trace.slices.select(columns))
    assert back.edges.select("src", "dst").equals(trace.edges.select("src", "dst"))
    assert back.counters.equals(trace.counters)
