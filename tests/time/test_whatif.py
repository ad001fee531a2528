"""What each kernel, each cost of the scheduler and each finding of a program is worth, simulated again."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.check.rule import Finding, Waste
from npuscope.check.run import check, rules_of
from npuscope.chip.devices import load
from npuscope.explain.changes import EVERY_PRODUCER, Gains, OneChange
from npuscope.lower.program import Program
from npuscope.tile.script.run import run_script
from npuscope.time.change_job import COSTS
from npuscope.time.chip.job import AIC, AIV, MIX, Job
from npuscope.time.diagnosis import explained, with_findings
from npuscope.time.priced import NO_PRICE, Owners, Priced, named, priced, removal_of, without
from npuscope.time.run import Simulated, simulate
from npuscope.time.whatif import FEWER_BYTES, FEWEST, THREADS, whatif_each

# 24 vector tasks of `long` side by side, then one `last` that reads what they wrote
SCRIPT = """
import numpy as np
import npuscope.tile as pl

@pl.jit
def layer(x: pl.Tensor[[384, 256], pl.FP32], y: pl.Out[pl.Tensor[[384, 256], pl.FP32]],
          z: pl.Out[pl.Tensor[[16, 256], pl.FP32]]):
    for n in pl.parallel(24):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="long"):
            part = x[n * 16 : n * 16 + 16, :]
            for _ in pl.range(120):
                part = pl.exp(part)
            y[n * 16 : n * 16 + 16, :] = part
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="last"):
        part = y[0:16, :]
        for _ in pl.range(120):
            part = pl.exp(part)
        z[0:16, :] = part
    return z

layer(np.ones((384, 256), np.float32), np.zeros((384, 256), np.float32), np.zeros((16, 256), np.float32))
"""

CHAIN = """
import npuscope.tile as pl

@pl.jit
def program(x: pl.Tensor, w: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 512, 64):
        p = pl.create_tensor([64, 128], pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            both = pl.slice(x, [64, 128], [i, 0]), pl.slice(w, [128, 128], [0, 0])
            p = pl.assemble(p, pl.matmul(*both, out_dtype=pl.FP32), [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="total"):
            y = pl.assemble(y, pl.add(pl.slice(p, [64, 128], [0, 0]), 1.0), [i, 0])
    return y

x, w, y = ((512, 128), pl.BF16), ((128, 128), pl.BF16), ((512, 128), pl.FP32)
program(*(pl.Placeholder(*one) for one in (x, w, y)))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    return simulated(SCRIPT, tmp_path_factory.mktemp("whatif") / "layer.py")


def simulated(script: str, file: Path) -> Simulated:
    file.write_text(script)
    (recording,) = run_script(file, [], "shapes").recordings
    return simulate(Program(recording, load("ascend910b1")))


def found(gains: Gains) -> dict[str, OneChange]:
    return {gain.what: gain for gain in gains.gains}


NOTHING = Priced(0, ())


def finding(kernel: str, id: str = "many-tasks", **cost: int) -> Finding:
    (rule,) = rules_of((id,))
    return Finding(id, "hint", "dir/layer.py", 9, "", "", kernel, waste=Waste(**cost), without=rule.without)


def taken(finding: Finding, owner: Owners) -> tuple[str, Job]:
    """How a finding is taken away, and the job then."""
    removal = removal_of(finding, owner)
    assert removal is not None
    job = without([removal], owner)
    assert job is not None
    return "; ".join(removal.how), job


def test_kernels_and_costs_are_ranked_by_what_they_are_worth(base: Simulated) -> None:
    gains = whatif_each(base, NOTHING)
    by_name = found(gains)
    others = {"submit", THREADS, "all of the scheduler", "HBM shared by blocks", FEWEST, FEWER_BYTES, EVERY_PRODUCER}
    assert {"long", "last", *COSTS, *others} == by_name.keys()
    walls = [gain.nothing_ns for gain in gains.gains]
    assert walls == sorted(walls)
    for kernel in ("long", "last"):
        gain = by_name[kernel]
        assert gain.half_ns is not None
        assert gain.nothing_ns <= gain.half_ns < base.wall_ns  # at half, `long` is no longer what is waited for
    assert by_name["last"].nothing_ns < (by_name["last"].half_ns or 0)
    # `last` is one block at the very end: the run is shorter by what it takes, within a round of polling (24 cores)
    times, task = base.times, base.prepared.job.task_of
    took = float((times.end - times.start)[task == task.max()][0])
    assert base.wall_ns - by_name["last"].nothing_ns == pytest.approx(took, abs=24 * base.prepared.machine.poll)
    # `last` waits for all of `long`; without that it runs beside them
    assert by_name[EVERY_PRODUCER].half_ns is None
    assert by_name[EVERY_PRODUCER].nothing_ns < base.wall_ns
    everything = by_name["all of the scheduler"].nothing_ns
    assert everything <= min(by_name[name].nothing_ns for name in (*COSTS, "submit"))


def test_equal_tasks_become_blocks_of_one_launch(base: Simulated) -> None:
    how, job = taken(finding("long", tasks=23), Owners(base.prepared))
    assert how == "24 tasks of long as blocks of 1 launch"
    assert sorted(job.blocks.tolist()) == [1, 24]


def test_bytes_and_flops_shorten_blocks_and_zeros_are_gone(base: Simulated) -> None:
    owner = Owners(base.prepared)
    moved = 2 * 24 * 16 * 256 * 4  # read once and written once, whole lines of 512 B
    assert owner.bytes["long"] == moved
    how, job = taken(finding("long", "shared-load", bytes=moved // 4), owner)
    assert how == "25.0% of the bytes of long taken away"
    (number,) = owner.classes["long"].tolist()[:1]
    assert 0 < job.run[number, 0] < base.prepared.job.run[number, 0]
    assert taken(finding("long", "tile-size", flops=10**9), owner)[0].endswith("µs of each block of long taken away")
    how, job = taken(finding("long", "zero-fill", tasks=24), owner)
    assert (how, len(job.block_class)) == ("24 tasks of long taken away", 1)


def test_false_waits_are_taken_away_and_true_ones_kept(base: Simulated) -> None:
    """`last` reads the first 16 rows, which one task of 24 wrote; the runtime makes it wait for all."""
    how, job = taken(finding("last", "false-serialisation", waits=1), Owners(base.prepared))
    assert how == "tasks of last wait for nothing but what they touch"
    assert base.prepared.job.producers.tolist() == [0] * 24 + [24]
    assert job.producers.tolist() == [0] * 24 + [1]


def test_what_has_no_price_or_no_kernel_is_listed(base: Simulated) -> None:
    gains = whatif_each(base, priced(base, [finding("long", "rounding-mode"), finding("nobody", tasks=3)]))
    assert gains.not_expressed == (
        ("rounding-mode layer.py:9 long", NO_PRICE),
        ("many-tasks layer.py:9 nobody", NO_PRICE),
    )


def test_the_findings_of_a_check_are_tried(base: Simulated) -> None:
    told = check(base.prepared.program, rules_of(races=False)).findings
    gains = whatif_each(base, priced(base, told))
    tried = [gain for gain in gains.gains if gain.kind == "finding"]
    assert len(tried) + len(gains.not_expressed) == len(told)
    assert any(gain.what.startswith("false-serialisation layer.py") for gain in tried), told


def test_two_runs_give_the_same_answer(base: Simulated, tmp_path: Path) -> None:
    assert whatif_each(base, NOTHING) == whatif_each(base, NOTHING)


def test_a_chain_of_every_turn_becomes_one_task(tmp_path: Path) -> None:
    """Eight turns of a product on a cube core and a sum on a vector core, which hand over through `p`."""
    base = simulated(CHAIN, tmp_path / "chain.py")
    assert base.prepared.job.shape.tolist() == [AIC, AIV] * 8
    found = check(base.prepared.program, rules_of(races=False)).findings
    (halves,) = (one for one in found if one.id == "split-halves")
    how, job = taken(halves, Owners(base.prepared))
    assert how.endswith("taken away; 16 tasks as 8")
    assert job.shape.tolist() == [MIX] * 8
    assert len(job.out) == 0, "what they waited for is inside them now"
    # a block takes as long as both did, less what passed through GM
    product, total = (base.prepared.job.run[base.prepared.job.block_class[n], 0] for n in (0, 1))
    assert 0.5 * (product + total) < job.run[job.block_class[0], 0] < product + total
    assert whatif_each(base, priced(base, [halves])).gains[0].nothing_ns < base.wall_ns


def test_all_that_saves_time_is_also_taken_away_together(base: Simulated) -> None:
    # GIVEN three findings that save time, one that has no price
    told = [
        finding("long", tasks=23),
        finding("last", "tile-size", flops=10**8),
        finding("last", "false-serialisation", waits=1),
        finding("long", "rounding-mode"),
    ]
    prices = priced(base, told)
    assert sorted(one.id for one in prices.savers) == sorted(one.id for one in told[:3])
    # THEN all of them together are simulated once, and save more than the best alone
    alone = [one.price.wall_ns for one in prices.savers if one.price]
    assert prices.together_ns is not None
    assert prices.together_ns < min(wall for wall in alone if wall is not None)
    together = with_findings(base, explained(base).diagnosis, prices).together
    assert together is not None
    assert (together.findings, together.gain.ns) == (3, base.wall_ns - prices.together_ns)
    assert together.gain.low_ns <= together.gain.ns <= together.gain.high_ns
    # AND of one there is no together
    assert priced(base, told[:1]).together_ns is None
    assert with_findings(base, explained(base).diagnosis, priced(base, told[:1])).together is None


def test_findings_that_share_tasks_go_together(tmp_path: Path) -> None:
    """Eight turns of two tasks: each turn as one task, and the eight as blocks of one, are a task of 8 blocks."""
    base = simulated(CHAIN, tmp_path / "chain.py")
    owner = Owners(base.prepared)
    found = check(base.prepared.program, rules_of(races=False)).findings
    (halves,) = (one for one in found if one.id == "split-halves")
    equal = finding(base.prepared.program.recording.tasks[0].kernel, tasks=7)
    removals = [removal_of(one, owner) for one in (halves, equal)]
    job = without([one for one in removals if one is not None], owner)
    assert job is not None
    assert (job.shape.tolist(), job.blocks.tolist(), len(job.out)) == ([MIX], [8], 0)
    _, chained = taken(halves, owner)
    assert job.run[job.block_class].tolist() == chained.run[chained.block_class].tolist()


def test_a_cause_is_worth_at_least_what_its_remedy_saves(base: Simulated) -> None:
    told = check(base.prepared.program, rules_of(races=False)).findings
    prices = priced(base, told)
    for cause in with_findings(base, explained(base).diagnosis, prices).causes:
        for one in prices.savers:
            if named(one) in cause.remedy:
                assert cause.gain is not None
                assert one.saves_ns is not None
                assert cause.gain.high_ns >= one.saves_ns
