"""Clocks of ranks come out as planted, within what is stated; what cannot be aligned is said and not compared."""

import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from planted_ranks import TICK_NS, US, Planted, log_of
from tiers import examples

from npuscope.base.errors import NpuscopeError
from npuscope.chip.kernels import exchange_of
from npuscope.explain.doctor import symptoms_of
from npuscope.explain.ranks import explain_ranks
from npuscope.trace.clocks import check_one_clock, clock_notes, not_aligned
from npuscope.trace.core import Trace
from npuscope.trace.formats import read

COLLECTIVE = ("stage", "__builtin_all_to_all_v__int8", "consume")


def read_planted(run: Planted, logs: dict[int, str] | None = None, older_us: int | None = None) -> Trace:
    with TemporaryDirectory() as folder:
        run.write(Path(folder), older_us)
        for pid, text in (logs or {}).items():
            (Path(folder) / f"host.{pid}.log").write_text(text)
        return read(folder)


@given(st.sampled_from([2, 3, 5, 8, 17, 64]), st.integers(0, 2**30))
@examples(40)
def test_clocks_are_within_the_stated_error_and_the_late_rank_is_found(count: int, seed: int) -> None:
    rng = random.Random(seed)
    late = rng.randrange(count)
    rounds = rng.randrange(1, 4)
    arrivals = [rng.randrange(100, 150) for _ in range(count)]
    arrivals[late] += rng.randrange(500, 900)
    missing = tuple(rank for rank in range(count) if rank != late and count > 3 and rng.random() < 0.1)
    jitter = {
        (rank, turn): rng.randrange(0, 500 // TICK_NS) * TICK_NS for rank in range(count) for turn in range(rounds)
    }
    run = Planted(arrivals, [rng.randrange(1, 10**6) for _ in range(count)], kernels=COLLECTIVE, rounds=rounds,
                  jitter_ns=jitter, missing=missing)  # fmt: skip
    trace = read_planted(run, older_us=rng.choice([None, 7_000_000]))
    here = [rank for rank in range(count) if rank not in missing]
    first = here[0]
    clocks = clock_notes(trace.meta)
    assert sorted(clocks) == here[1:]
    for rank, clock in clocks.items():
        true = (run.offsets_us[first] - run.offsets_us[rank]) * US
        assert abs(clock["offset_ns"] - true) <= clock["error_ns"]
    cause = explain_ranks(trace).diagnosis.causes[0]
    assert cause.kind == "rank"
    assert f"rank {late} " in cause.sentence


@given(st.integers(2, 8), st.integers(0, 2**30))
@examples(16)
def test_one_sided_collectives_say_nothing_of_clocks(count: int, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(["put", "remote_store", "dispatch_notify", "__builtin_broadcast__fp32", "halo_get"])
    arrivals = [rng.randrange(100, 900) for _ in range(count)]
    run = Planted(arrivals, [rng.randrange(1, 10**6) for _ in range(count)], kernels=("stage", name, "consume"),
                  rounds=3, one_sided=True)  # fmt: skip
    trace = read_planted(run)
    assert not clock_notes(trace.meta)
    assert sorted(not_aligned(trace.meta)) == list(range(1, count))
    with pytest.raises(NpuscopeError, match="not aligned"):
        check_one_clock(trace)
    assert set(explain_ranks(trace).waits.wait_ns.values()) == {0}


def test_a_query_of_moments_refuses_clocks_that_are_not_aligned(tmp_path: Path) -> None:
    Planted([100, 400], [0, 7000], kernels=("stage", "x_put", "consume"), one_sided=True).write(tmp_path)
    first = "SELECT MIN(start) AS first FROM slices"
    refused = npuscope("sql", tmp_path, first)
    assert refused.returncode == 2
    assert "the clock of rank 1 is not aligned with the others: it shares no collective" in refused.stderr
    assert npuscope("sql", tmp_path, first, "--rank", "1").returncode == 0
    assert npuscope("sql", tmp_path, "SELECT SUM(dur) AS core_ns FROM slices").returncode == 0
    assert [one.id for one in symptoms_of(read(tmp_path)).symptoms if "apart" in one.id] == ["clock-apart"]


def test_a_wait_hidden_in_a_kernel_of_another_name_is_seen_by_its_ends() -> None:
    """The barrier is inside a norm: it ends together again and again while ranks begin it apart."""
    late = [[0, 300], [250, 0], [0, 40]]
    run = Planted([100, 100], [5, 40_000], kernels=("stage", "post_rms_norm", "consume"), rounds=3, late_us=late)
    trace = read_planted(run)
    assert clock_notes(trace.meta)[1]["kernel"] == "post_rms_norm"
    assert clock_notes(trace.meta)[1]["offset_ns"] == (5 - 40_000) * US
    assert explain_ranks(trace).waits.wait_ns == {"rank 0": 340 * US, "rank 1": 250 * US}


def test_collectives_of_other_ranks_are_left_out_or_refused() -> None:
    """Two pairs that each meet alone: the ends of different pairs have nothing to do with one another."""
    run = Planted([100, 100], [5, 40_000], kernels=COLLECTIVE, rounds=4)
    run.jitter_ns = {(1, 0): 0, (1, 1): 90 * US, (1, 2): 410 * US, (1, 3): 777 * US}
    trace = read_planted(run)
    assert not clock_notes(trace.meta)
    assert "contradict" in not_aligned(trace.meta)[1]
    run.jitter_ns = {(1, 1): 90 * US}
    clock = clock_notes(read_planted(run).meta)[1]
    assert (clock["offset_ns"], clock["pairs"], clock["left_out"]) == ((5 - 40_000) * US, 3, 1)


def test_counters_of_different_rates_are_followed() -> None:
    run = Planted([100, 100], [5, 40_000], kernels=COLLECTIVE, rounds=50)
    slow = 90  # parts of a million
    run = replace(run, cost_us=5_000)
    run.jitter_ns = {(1, turn): round(turn * run.period_us * US * slow / 1e6) for turn in range(50)}
    trace = read_planted(run)
    clock = clock_notes(trace.meta)[1]
    assert abs(clock["rate_ppb"] + slow * 1000) < 1000
    assert clock["spread_ns"] <= 4 * TICK_NS
    met = trace.slices.filter(trace.slices["kind"] == "comm").join(trace.lanes.select("lane", "rank"), on="lane")
    first, second = ((met["start"] + met["dur"]).filter(met["rank"] == rank).sort() for rank in (0, 1))
    assert (first - second).abs().max() <= clock["error_ns"]


def ticks(run: Planted, rank: int, begin_us: int, end_us: int) -> str:
    begin, end = ((10**8 + us + run.offsets_us[rank]) * US // TICK_NS for us in (begin_us, end_us))
    return f"dev_id={rank} dev_start_cycle={begin} dev_end_cycle={end} dev_cnt_hz={10**9 // TICK_NS}"


@pytest.mark.parametrize("stamped", [True, False])
def test_without_collectives_the_hosts_log_aligns_within_its_slack(stamped: bool) -> None:
    run = Planted([100, 160], [5, 900_000], kernels=("stage", "put", "consume"), rounds=3, one_sided=True)
    zero = 10**12  # of the host, at the true zero
    logs = {}
    for rank, late_us in enumerate([3, 9]):
        # the device begins at 60 us, `late_us` after its launch, and its scheduler runs from 80 to 420 us
        launch = zero + (60 - late_us) * US
        stamps = ticks(run, rank, 60, 460) if stamped else ""
        logs[11 + rank] = log_of(11 + rank, launch, 340 * US, drained_ns=(7 + late_us) * US, ticks=stamps)
    trace = read_planted(run, logs)
    clock = clock_notes(trace.meta)[1]
    assert clock["by"] == ("device ticks in the host's log" if stamped else "containment in the host's span")
    true = (5 - 900_000) * US
    assert abs(clock["offset_ns"] - true) <= clock["error_ns"]
    if stamped:
        assert clock["error_ns"] <= 20 * US
    check_one_clock(trace)


def test_a_log_that_places_a_run_nowhere_in_particular_aligns_nothing() -> None:
    run = Planted([100, 160], [5, 900_000], kernels=("stage", "put", "consume"), one_sided=True)
    logs = {11 + rank: log_of(11 + rank, 10**12, 300 * US, drained_ns=100_000 * US) for rank in (0, 1)}
    trace = read_planted(run, logs)
    assert not clock_notes(trace.meta)
    assert "more than" in not_aligned(trace.meta)[1]


def test_names_tell_how_ranks_meet() -> None:
    kinds = {
        "all": ["__builtin_all_to_all_v__int8", "allreduce_mesh", "moe_all_gather", "barrier", "hcom_allReduce__1_0_1"],
        "wait": ["dispatch_wait", "combine_wait", "wait_peers", "moe_wait_2"],
        "one-sided": ["x_notify", "put", "allgather_put", "__builtin_broadcast__fp32", "remote_load"],
        "pairs": ["hcom_send_", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8", "hcom_batchSendRecv__1_0_1"],
        None: ["rms_norm", "gather_rows", "matmul", "await_free", "output", "hc_post"],
    }  # fmt: skip
    for kind, names in kinds.items():
        for name in names:
            assert exchange_of(name) == kind, name
