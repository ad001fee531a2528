"""Ranks run together: who waits is let go by the signal that he waits for, whatever else the chips do meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.explain import explain_ranks
from npuscope.forward.llm.tpot import decode_step
from npuscope.lower.chip import chip_to_lower_for
from npuscope.models import FOLDER
from npuscope.table.formats import duration
from npuscope.time.change_job import scaled
from npuscope.time.core.costs import link_constant
from npuscope.time.ranks.result import RanksResult, waiting_time
from npuscope.time.run import Simulated, run
from npuscope.trace.formats import read, write
from npuscope.trace.intervals import one_group, union

PROGRAM = """
import sys
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

RANKS = int(sys.argv[1])
WORK = 64

@pl.jit.incore
def work(x: pl.Tensor[[WORK, 256], pl.FP32], out: pl.Out[pl.Tensor[[WORK, 256], pl.FP32]]):
    return pl.store(pl.exp(pl.load(x, [0, 0], [WORK, 256])), [0, 0], out)

@pl.jit.incore
def meet(x: pl.Tensor[[WORK, 256], pl.FP32], out: pl.Out[pl.Tensor[[WORK, 256], pl.FP32]],
         data: pld.DistributedTensor[[WORK, 256], pl.FP32],
         signal: pld.DistributedTensor[[RANKS, 1], pl.INT32], me: pl.Scalar[pl.INT32]):
    mine = pl.load(x, [0, 0], [WORK, 256])
    data = pl.store(mine, [0, 0], data)
    for peer in pl.range(RANKS):
        if peer != me:
            pld.system.notify(signal, peer=peer, offsets=[me, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    for src in pl.range(RANKS):
        if src != me:
            pld.system.wait(signal=signal, offsets=[src, 0], expected=EXPECTED, cmp=pld.WaitCmp.Ge)
    for src in pl.range(RANKS):
        if src != me:
            mine = pl.add(mine, pld.tile.remote_load(data, peer=src, offsets=[0, 0], shape=[WORK, 256]))
    return pl.store(mine, [0, 0], out)

@pl.jit
def step(x: pl.Tensor[[WORK, 256], pl.FP32], out: pl.Out[pl.Tensor[[WORK, 256], pl.FP32]],
         data: pld.DistributedTensor[[WORK, 256], pl.FP32],
         signal: pld.DistributedTensor[[RANKS, 1], pl.INT32], me: pl.Scalar[pl.INT32]):
    y = pl.create_tensor([WORK, 256], dtype=pl.FP32)
    y = work(x, y)
    return meet(y, out, data, signal, me)

@pl.jit.host
def everyone(x: pl.Tensor[[RANKS, WORK, 256], pl.FP32], out: pl.Out[pl.Tensor[[RANKS, WORK, 256], pl.FP32]]):
    data_buf = pld.alloc_window_buffer([WORK, 256], dtype=pl.FP32)
    signal_buf = pld.alloc_window_buffer([RANKS, 1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        data = pld.window(data_buf, [WORK, 256], dtype=pl.FP32)
        signal = pld.window(signal_buf, [RANKS, 1], dtype=pl.INT32)
        step(x[r], out[r], data, signal, r, device=r)

x = np.zeros([RANKS, WORK, 256], np.float32)
everyone(x, np.zeros_like(x), config=DistributedConfig(device_ids=list(range(RANKS)), num_sub_workers=0))
"""


def predicted(folder: Path, ranks: int, skew: float | None, expected: int = 1) -> Prediction:
    file = folder / "everyone.py"
    file.write_text(PROGRAM.replace("EXPECTED", str(expected)))
    return Prediction(Request(str(file), (str(ranks),), skew=skew))


@pytest.mark.parametrize(("ranks", "skew"), [(2, 0.0), (3, 5e3), (4, 50e3)])
def test_every_wait_ends_when_its_signal_is_there(tmp_path: Path, ranks: int, skew: float) -> None:
    simulated = predicted(tmp_path, ranks, skew).simulated
    latency = link_constant(chip_to_lower_for("ascend910b1"), "signal_latency")
    sent = {}
    for one in simulated.ranks:
        assert one.begin == one.rank * skew
        for message, reached in zip(one.prepared.messages, one.times.reached, strict=True):
            if not message.waits:
                sent[one.rank, message.peer] = one.begin + reached
    assert len(sent) == ranks * (ranks - 1)
    for one in simulated.ranks:
        senders = (rank for rank in range(ranks) if rank != one.rank)
        for message, reached, release in zip(
            one.prepared.messages, one.times.reached, one.prepared.job.stops.release, strict=True
        ):
            if message.waits:
                there = sent[next(senders), one.rank] + latency
                assert one.begin + release == pytest.approx(max(there, one.begin + reached), abs=1e-3)
        assert np.max(one.times.end) <= one.wall


def test_the_last_to_be_launched_waits_least_and_is_told_of(tmp_path: Path) -> None:
    simulated = predicted(tmp_path, 3, 20e3).simulated
    assert simulated.prepared.peers is not None
    assert simulated.prepared.peers.own == (2, 0)
    waits = [waiting_time(one) for one in simulated.ranks]
    assert waits[0] == pytest.approx(waits[1] + 20e3, abs=500)
    assert waits[1] > waits[2]
    rows = RanksResult(simulated.ranks).rows
    assert [row["rank"] for row in rows] == [0, 1, 2]
    assert rows[0]["signals"] == 2
    assert rows[0]["longest"] == "meet"


def test_a_decode_step_waits_for_later_ranks_as_a_measured_one_does(tmp_path: Path) -> None:
    # GIVEN three ranks, each launched 20 us after the one before
    simulated = predicted(tmp_path, 3, 20e3).simulated
    # WHEN / THEN the step's parts are of the rank that takes longest, the first, and add up to when any block ran
    step = decode_step(simulated, 1)
    first = simulated.ranks[0]
    assert step.rank_ms == first.wall / 1e6 == max(one.wall for one in simulated.ranks) / 1e6
    assert step.waiting_ms == pytest.approx(waiting_time(first) / 1e6)
    ran = union(one_group(*(np.round(moment).astype(np.int64) for moment in (first.times.start, first.times.end))))
    assert step.computing_ms + step.waiting_ms + step.collective_ms == pytest.approx(ran.length / 1e6)
    assert min(step.computing_ms, step.collective_ms) > 0


def test_the_trace_has_every_rank_by_one_clock(tmp_path: Path) -> None:
    prediction = predicted(tmp_path, 2, 30e3)
    trace = prediction.trace
    assert trace.lanes["rank"].drop_nulls().unique().sort().to_list() == [0, 1]
    ranks = explain_ranks(trace)
    first, second = (one.trace.slices.filter(kind="task")["start"].min() for one in ranks.parts)
    assert second - first == 30_000  # type: ignore[operator]
    assert ranks.parts[1].trace.slices["start"].min() == 30_000  # its threads are not there before
    assert prediction.answer().time is not None


def test_every_variant_shows_the_same_rank_with_the_wall_that_simulate_says(tmp_path: Path) -> None:
    """Whoever waits for whom: launched together the first waits least, launched apart the last."""
    for skew in (0.0, 30e3):
        one = predicted(tmp_path, 2, skew)
        ranks = explain_ranks(one.trace)
        assert ranks.named("run") == "run (rank 1, launched last of 2)"
        assert ranks.explained[ranks.shown].work.wall == one.simulated.wall_ns
        assert str(ranks.diagnosis.verdict) == f"rank 1: {one.diagnosis.verdict}"


@pytest.mark.parametrize(("ranks", "skew"), [(2, 30e3), (4, 8e3), (3, 0.0)])
def test_the_trace_says_who_waited_for_which_late_peer(tmp_path: Path, ranks: int, skew: float) -> None:
    """Until the last signal was sent it waits for the peer; what the signal takes on its way is the collective's."""
    one = predicted(tmp_path, ranks, skew)
    latency = link_constant(one.chip, "signal_latency")
    found = explain_ranks(one.trace)
    told = {row["rank"]: row for row in found.waits.table.iter_rows(named=True)}
    for rank in one.simulated.ranks:
        waited = waiting_time(rank)
        name = f"rank {rank.rank}"
        late = found.waits.wait_ns[name]
        assert late <= round(waited) <= late + (ranks - 1) * latency + 1
        assert sum(told[name][why] for why in ("began_ns", "compute_ns", "idle_ns")) == late if late else True
        if skew and rank.rank < ranks - 1:
            assert told[name]["waits_for"] == f"rank {ranks - 1}"
            assert told[name]["began_ns"] == pytest.approx((ranks - 1 - rank.rank) * skew, abs=2)
        task = found.explained[rank.rank].work.slices.filter(kernel="meet")
        assert found.waits.cost_ns[name] == int(task["dur"].sum()) - late
    assert found.waits.matched == 1
    if skew:
        assert found.waits.last[f"rank {ranks - 1}"] == 1


def test_what_ranks_meet_in_is_communication_in_the_trace(tmp_path: Path) -> None:
    # GIVEN the trace that a simulation of two ranks writes
    simulated = predicted(tmp_path, 2, 30e3).simulated
    write(simulated.trace_of_ranks, tmp_path / "run.npu")
    # WHEN it is read as any capture is
    ranks = explain_ranks(read(tmp_path / "run.npu"))
    # THEN its collective is communication, and what no compute hides of it a cause
    for one, run_of_rank in zip(ranks.explained, simulated.ranks, strict=True):
        kinds = one.work.slices.group_by("kernel").agg(pl.col("kind").unique())
        assert dict(kinds.iter_rows()) == {"work": ["task"], "meet": ["comm"]}
        times = run_of_rank.times  # one block each: `work`, then `meet`, which waits for it
        took = [round(end) - round(start) for start, end in zip(times.start, times.end, strict=True)]
        comm = one.communication
        assert comm is not None
        assert (comm.compute_ns, comm.on_core_ns, comm.exposed_ns) == pytest.approx((took[0], took[1], took[1]), abs=1)
    assert "communication" in {cause.kind for cause in ranks.explained[0].diagnosis.causes}


def test_what_makes_one_rank_faster_makes_all_of_them(tmp_path: Path) -> None:
    simulated: Simulated = predicted(tmp_path, 2, 0.0).simulated
    job = simulated.prepared.job
    half = simulated.trials.wall(scaled(job, np.arange(len(job.run)), 0.5, 0.5))
    assert 0.5 < half / simulated.wall < 1
    assert simulated.trials.wall() == simulated.wall


def test_a_ring_that_had_to_grow_on_every_rank_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = predicted(tmp_path, 2, 0.0).simulated
    assert not wide.grave
    monkeypatch.setenv("PTO2_RING_TASK_WINDOW", "2")
    narrow = predicted(tmp_path, 2, 0.0).simulated
    (notice,) = narrow.grave
    assert "3 tasks are submitted in one scope" in notice.message
    assert narrow.wall == wide.wall


def test_a_hang_is_named_with_who_waits_for_whom(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError) as hang:
        _ = predicted(tmp_path, 2, 0.0, expected=2).simulated
    said = str(hang.value)
    assert "no rank can go on" in said
    path, line = hang.value.path, hang.value.line
    assert path is not None
    assert line is not None
    assert "system.wait(" in Path(path).read_text().splitlines()[line - 1]
    assert f"rank 0 (meet, line {line}) waits" in said
    assert f"rank 1 (meet, line {line}) waits" in said
    assert ">= 2 that is 1, which nobody changes any more" in said


CROWD = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

BLOCKS = 16

@pl.jit
def push(x: pl.Tensor[[BLOCKS, 256], pl.INT8], target: pld.DistributedTensor[[BLOCKS, 256], pl.INT8],
         me: pl.Scalar[pl.INT32]):
    with pl.spmd(BLOCKS, name_hint="push"):
        block = pl.tile.get_block_idx()
        for turn in pl.range(20):
            place = [block, 0]
            pld.tensor.put(dst=target, peer=1 - me, src=x, dst_offsets=place, src_offsets=place, shape=[1, 256])

@pl.jit.host
def everyone(x: pl.Tensor[[2, BLOCKS, 256], pl.INT8]):
    buffer = pld.alloc_window_buffer([BLOCKS, 256], dtype=pl.INT8)
    for r in pl.range(pld.world_size()):
        push(x[r], pld.window(buffer, [BLOCKS, 256], dtype=pl.INT8), r, device=r)

everyone(np.zeros([2, BLOCKS, 256], np.int8), config=DistributedConfig(device_ids=[0, 1], num_sub_workers=0))
"""


def test_a_crowd_of_blocks_gets_through_no_more_transfers_than_a_rank_does(tmp_path: Path) -> None:
    file = tmp_path / "crowd.py"
    chip = chip_to_lower_for("ascend910b1")
    least = 20 * 16 / link_constant(chip, "remote_issue")
    alone = 20 * (link_constant(chip, "put_remote") + 256 / link_constant(chip, "put_rate"))
    found = {}
    for blocks in (1, 16):
        file.write_text(CROWD.replace("BLOCKS = 16", f"BLOCKS = {blocks}"))
        one = Prediction(Request(str(file), skew=0.0)).simulated
        found[blocks] = float(np.mean(one.times.end - one.times.start))
    assert found[1] == pytest.approx(alone, rel=0.15)
    assert found[16] == pytest.approx(least, rel=0.1)
    assert least > 2 * alone


LATE = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

CORES = 64

@pl.jit
def step(x: pl.Tensor[[64, 256], pl.FP32], out: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
         gated: pl.Out[pl.Tensor[[CORES, 16], pl.FP32]], after: pl.Out[pl.Tensor[[CORES, 16], pl.FP32]],
         signal: pld.DistributedTensor[[2], pl.INT32], me: pl.Scalar[pl.INT32]):
    ready = pl.create_tensor([64, 256], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="tell"):
        ready = pl.store(pl.load(x, [0, 0], [64, 256]), [0, 0], ready)
        pld.system.notify(signal, peer=1 - me, offsets=[0], value=1, op=pld.NotifyOp.Set)
    for block in pl.spmd(CORES, name_hint="gate"):
        pld.system.WAIT(signal=signal, offsets=[0], expected=1, cmp=pld.WaitCmp.Ge)
        gated = pl.store(pl.full([1, 16], pl.FP32, 1.0), [block, 0], gated)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):
        out = pl.store(pl.exp(pl.load(ready, [0, 0], [64, 256])), [0, 0], out)
    for block in pl.spmd(CORES, name_hint="consume"):
        after = pl.store(pl.mul(pl.load(gated, [block, 0], [1, 16]), 2.0), [block, 0], after)
    return after

@pl.jit.host
def both(x: pl.Tensor[[2, 64, 256], pl.FP32], out: pl.Out[pl.Tensor[[2, 64, 256], pl.FP32]],
         gated: pl.Out[pl.Tensor[[2, CORES, 16], pl.FP32]], after: pl.Out[pl.Tensor[[2, CORES, 16], pl.FP32]]):
    signals = pld.alloc_window_buffer([2], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        step(x[r], out[r], gated[r], after[r], pld.window(signals, [2], dtype=pl.INT32), r, device=r)

x, small = np.zeros([2, 64, 256], np.float32), np.zeros([2, CORES, 16], np.float32)
both(x, np.zeros_like(x), small, np.zeros_like(small), config=DistributedConfig(device_ids=[0, 1], num_sub_workers=0))
"""


@pytest.mark.parametrize("runtime", ["tmr", "hbg"])
def test_a_deferred_wait_holds_its_task_and_frees_its_core(tmp_path: Path, runtime: str) -> None:
    skew = 100e3
    for wait in ("wait", "defer_wait"):
        file = tmp_path / f"{wait}.py"
        file.write_text(LATE.replace("WAIT(", f"{wait}("))
        first, second = Prediction(Request(str(file), skew=skew, runtime=runtime)).simulated.ranks
        kernels = [task.kernel for task in first.prepared.program.recording.tasks]
        of = {name: first.prepared.job.task_of == n for n, name in enumerate(kernels)}
        sent = second.times.reached[0] + skew
        assert min(first.times.start[of["consume"]]) > sent, "who needs what the task makes waits for the signal"
        assert (max(first.times.end[of["gate"]]) < skew / 2) == (wait == "defer_wait"), "its cores are free"


def test_a_deferred_wait_that_nobody_answers_is_named(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text(LATE.replace("WAIT(", "defer_wait(").replace("expected=1", "expected=2"))
    with pytest.raises(
        NpuscopeError,
        match=r"\(gate, line 18\) waits for a counter >= 2 that is 1, which nobody changes any more\. ",
    ):
        _ = Prediction(Request(str(file))).simulated


RETIRED = """
import numpy as np
import pypto.language as pl
import pypto.language.distributed as pld
from pypto.ir.distributed_compiled_program import DistributedConfig

CORE = pl.Level.CORE_GROUP

@pl.jit
def step(x: pl.Tensor[[64, 256], pl.FP32], y: pl.Out[pl.Tensor[[64, 256], pl.FP32]],
         signal: pld.DistributedTensor[[1], pl.INT32], me: pl.Scalar[pl.INT32]):
    made = pl.create_tensor([64, 256], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="make"):
        made = pl.store(pl.exp(pl.load(x, [0, 0], [64, 256])), [0, 0], made)
        pld.system.notify(signal, peer=1 - me, offsets=[0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=CORE, name_hint="take"):
        y = pl.store(pl.exp(pl.exp(pl.load(made, [0, 0], [64, 256]))), [0, 0], y)
        pld.system.wait(signal=signal, offsets=[0], expected=1, cmp=pld.WaitCmp.Ge)
    with pl.at(level=CORE, name_hint="retire"):
        first = pl.read(y, [0, 0])
        pld.system.notify(signal, peer=me, offsets=[0], value=-1, op=pld.NotifyOp.AtomicAdd)
    return y

@pl.jit.host
def both(x: pl.Tensor[[2, 64, 256], pl.FP32], y: pl.Out[pl.Tensor[[2, 64, 256], pl.FP32]]):
    signals = pld.alloc_window_buffer([1], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        step(x[r], y[r], pld.window(signals, [1], dtype=pl.INT32), r, device=r)

x = np.zeros([2, 64, 256], np.float32)
both(x, np.zeros_like(x), config=DistributedConfig(device_ids=[0, 1], num_sub_workers=0))
"""


def test_a_change_that_makes_ranks_wait_for_ever_buys_nothing(tmp_path: Path) -> None:
    file = tmp_path / "retired.py"
    file.write_text(RETIRED)
    prediction = Prediction(Request(str(file), skew=0.0))
    simulated, job = prediction.simulated, prediction.simulated.prepared.job
    loose = job._replace(
        producers=np.zeros_like(job.producers), first_out=np.zeros_like(job.first_out), out=job.out[:0]
    )
    with pytest.raises(NpuscopeError, match="no rank can go on"):
        run(simulated.prepared, loose)
    assert simulated.trials.wall(loose) == simulated.wall
    assert prediction.gains.tables()


def test_variants_are_compared_by_all_that_a_rank_does_and_told_which_program_is_explained() -> None:
    one = Prediction(Request(str(FOLDER / "deepseek_v4/expert_parallel.py")))
    ranks = explain_ranks(one.trace)
    own = [run for run in one.simulated.ranks if run.rank == 1]
    assert one.brief().wall_ns == ranks.explained[ranks.shown].work.wall == round(own[-1].end - own[0].begin)
    assert one.estimate.value == one.simulated.wall_ns > one.simulated.program_wall == max(run.wall for run in own)
    assert "compute@1" in one.told
    assert one.told in one.brief().message
    assert ranks.clocks == ({}, {})  # a simulation has one clock, whatever ranks have in common


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("rank_windows_ns", {"0": [0, 5], "1": [9, 2]}),
        ("rank_windows_ns", [1]),
        ("simulated", None),
        ("simulated", {"wall": {}, "diagnosis": {}, "rank": 1}),
        ("simulated", {"wall": {}, "diagnosis": {}, "rank": "last"}),
    ],
)
def test_a_written_trace_with_damaged_notes_is_refused_in_a_sentence(tmp_path: Path, key: str, note: object) -> None:
    trace = predicted(tmp_path, 2, 8e3).trace
    damaged = replace(trace, meta=replace(trace.meta, notes={**trace.meta.notes, key: note}))
    damaged.write(tmp_path / "run.npu")
    with pytest.raises(NpuscopeError, match=r"not a whole npuscope folder|is damaged"):
        _ = explain_ranks(read(tmp_path / "run.npu")).diagnosis


UNLIKE = """
from types import SimpleNamespace
import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.tile.golden import TensorSpec, run_jit

RANKS, TURNS = 3, 20

@pl.jit
def turn(x: pl.InOut[pl.Tensor[[16, 256], pl.FP32]], signal: pl.InOut[pld.DistributedTensor[[RANKS, 1], pl.INT32]],
         rank: pl.Scalar[pl.INT32]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):
        for t in pl.range(1 + rank % 2 * TURNS):
            x[:, :] = pl.add(x[:, :], x[:, :])
        pld.system.notify(signal, peer=(rank + 1) % RANKS, offsets=[rank, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="meet"):
        x[:, :] = pl.add(x[:, :], x[:, :])
        pld.system.wait(signal, offsets=[(rank + RANKS - 1) % RANKS, 0], expected=1, cmp=pld.WaitCmp.Ge)
    return x

@pl.jit.host
def host(x: pl.InOut[pl.Tensor[[RANKS, 16, 256], pl.FP32]]):
    signals = pld.alloc_window_buffer(RANKS * 4)
    for rank in pl.range(RANKS):
        turn(x[rank], pld.window(signals, [RANKS, 1], dtype=pl.INT32), rank, device=rank)

run_jit(fn=host, specs=[TensorSpec("x", [RANKS, 16, 256], pl.FP32, init_value=1.0, is_output=True)],
        compile_cfg={"distributed_config": SimpleNamespace(device_ids=list(range(RANKS)))})
"""


def test_a_rank_that_does_more_is_named_where_another_ones_time_is_told(tmp_path: Path) -> None:
    """Each waits for the one before it in a ring: rank 2 for rank 1, which has most to do, and rank 0 for rank 2."""
    file = tmp_path / "unlike.py"
    file.write_text(UNLIKE)
    one = Prediction(Request(str(file)))
    runs = {run.rank: run for run in one.simulated.ranks}
    later = runs[1].end - runs[2].end
    assert later > 0.05 * one.simulated.wall
    assert f"rank 1 is done {duration(later)} later than rank 2, whose time this is" in one.notices
    # AND in a ring a rank is late for the one that waits for it, though another one comes later yet
    waits = explain_ranks(one.trace).waits
    assert waits.last == {"rank 0": 0, "rank 1": 1, "rank 2": 1}
    # WHEN the chip is changed in what does not matter, THEN each rank keeps its own times
    prepared, trials = one.simulated.prepared, one.simulated.trials
    machine = prepared.machine
    assert trials.wall(machine=machine._replace(limit=2 * machine.limit)) == one.simulated.wall
    # WHEN all do the same, THEN there is nothing to say
    file.write_text(UNLIKE.replace("TURNS = 3, 20", "TURNS = 3, 0"))
    assert Prediction(Request(str(file))).notices == ""


MORE = """    if rank == 1:
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="more"):
            x[:, :] = pl.add(x[:, :], x[:, :])
"""


@pytest.mark.parametrize("more", ["", MORE])
def test_a_change_of_a_kernel_is_made_on_every_rank_from_its_own_times(tmp_path: Path, more: str) -> None:
    """Also where that rank has other tasks beside it."""
    file, work = tmp_path / "unlike.py", '    with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):'
    file.write_text(UNLIKE.replace(work, more + work))
    simulated = Prediction(Request(str(file))).simulated
    job = simulated.prepared.job
    half = run(simulated.prepared, scaled(job, np.arange(len(job.run)), 0.5, 0.5))

    def took(whole: Simulated, rank: int) -> dict[str, float]:
        (one,) = (one for one in whole.ranks if one.rank == rank)
        kernels = [task.kernel for task in one.prepared.program.recording.tasks]
        waits = np.zeros(len(kernels))
        rows = np.searchsorted(one.prepared.job.stops.first, np.arange(len(one.waited)), "right") - 1
        np.add.at(waits, one.prepared.job.task_of[rows], one.waited)
        return dict(zip(kernels, one.times.end - one.times.start - waits, strict=True))

    for rank in range(3):
        before, after = took(simulated, rank), took(half, rank)
        assert before.keys() == after.keys()
        for kernel, time in before.items():
            assert after[kernel] == pytest.approx(time if kernel == "more" else time / 2, rel=0.05), (rank, kernel)
    assert took(simulated, 1)["work"] > 2 * took(simulated, 2)["work"]


SLOW_LINK = """
name = "slow"
inherits = "ascend910b1"
[[link]]
name = "slow"
ranks = { value = 3, unit = "ranks", confidence = "guessed", source = "none" }
bandwidth = { value = 1e8, unit = "B/s", confidence = "guessed", source = "none" }
latency = { value = 0.5e-6, unit = "s", confidence = "guessed", source = "none" }
"""


def test_nobody_is_told_of_data_that_a_slow_link_still_carries(tmp_path: Path) -> None:
    file, slow = tmp_path / "put.py", tmp_path / "slow.toml"
    slow.write_text(SLOW_LINK)
    file.write_text(
        UNLIKE.replace("TURNS = 3, 20", "TURNS = 3, 0")
        .replace("signal: pl", "box: pl.InOut[pld.DistributedTensor[[16, 256], pl.FP32]], signal: pl")
        .replace("        pld.system.notify(", "        pld.tensor.put(box, peer=(rank + 1) % RANKS, src=x)\n"
                 "        pld.system.notify(")
        .replace("    signals =", "    boxes = pld.alloc_window_buffer(16 * 256 * 4)\n    signals =")
        .replace("turn(x[rank], ", "turn(x[rank], pld.window(boxes, [16, 256], dtype=pl.FP32), ")
    )  # fmt: skip
    for one in Prediction(Request(str(file), device=str(slow), skew=0.0)).simulated.ranks:
        (sent,) = (n for n, message in enumerate(one.prepared.messages) if not message.waits)
        began, done = one.times.start[0], one.times.end[0]
        assert done - began > 16 * 256 * 4 / 0.1
        assert one.times.reached[sent] > began + 0.9 * (done - began)
