"""Where ranks meet: who waits for whom, what the collective itself takes, and what made the late one late."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import polars as pl
import pytest
from adds_up import check_adds_up
from builders import kernel_row, write_events, write_kernel_table, x
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from planted_ranks import RING, TICK_NS, US, Planted, Programs, write_json, write_large, write_records
from tiers import examples

from npuscope.explain.meetings import REASONS
from npuscope.explain.ranks import Ranks, explain_ranks
from npuscope.explain.step import steps_at
from npuscope.report.captures import ranks as report_ranks
from npuscope.trace.clocks import clock_notes
from npuscope.trace.formats import read

NAMES = {0: "matmul", 1: "__builtin_all_reduce__fp32", 2: "post_norm", 3: "halo_wait"}


def write_ranks(root: Path, ranks: list[list[tuple[int, int, int]]]) -> Ranks:
    """Ranks with tasks (function, start, end in us, on the true clock) on clocks of their own."""
    for rank, tasks in enumerate(ranks):
        folder = root / f"rank{rank}" / "d0"
        ticks = [[(10**8 + rank * 5_000 + us) * US // TICK_NS for us in times] for _, *times in tasks]
        write_records(folder, [[24, RING + n, n, begin, end, 0] for n, (begin, end) in enumerate(ticks)])
        deps = [{"task_id": str(RING + n), "kernel_ids": [-1, name, -1]} for n, (name, *_) in enumerate(tasks)]
        write_json(folder / "deps.json", {"tasks": deps, "edges": [], "tensors": []})
        write_json(folder / "name_map.json", {"callable_id_to_name": {str(n): name for n, name in NAMES.items()}})
        write_json(folder / "dispatch_identity.json", {"run_id": 1, "chip_rank": rank})
    return explain_ranks(read(root))


@pytest.mark.parametrize(
    ("late", "reason", "word"),
    [
        ([(0, 0, 10), (1, 12, 20), (0, 22, 72), (1, 74, 80)], "compute_ns", "computes 40 µs longer"),
        ([(0, 0, 10), (1, 12, 20), (0, 62, 72), (1, 74, 80)], "idle_ns", "stands idle 40 µs longer"),
        ([(0, 2, 12), (1, 14, 20), (0, 22, 32), (1, 74, 80)], "idle_ns", "stands idle 40 µs longer"),
    ],
)
def test_the_late_rank_is_followed_back(
    tmp_path: Path, late: list[tuple[int, int, int]], reason: str, word: str
) -> None:
    early = [(0, 0, 10), (1, 12, 20), (0, 22, 32), (1, 34, 80)]
    ranks = write_ranks(tmp_path, [early, late])
    row = ranks.waits.table.filter(pl.col("rank") == "rank 0").row(0, named=True)
    assert row[reason] == 40 * US
    assert sum(row[name] for name in REASONS) == row["wait_ns"]
    cause = next(cause for cause in ranks.diagnosis.causes if cause.kind == "rank")
    assert word in cause.sentence
    assert ("`matmul`" in cause.sentence) == (reason == "compute_ns")


def test_a_rank_that_begins_late_is_told_without_a_log(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path, [[(0, 0, 10), (1, 12, 90)], [(0, 70, 80), (1, 82, 90)]])
    cause = ranks.diagnosis.causes[0]
    assert cause.kind == "rank"
    assert "it began 70 µs later" in cause.sentence
    assert (ranks.waits.wait_ns, ranks.waits.cost_ns) == (
        {"rank 0": 70_000, "rank 1": 0},
        {"rank 0": 8_000, "rank 1": 8_000},
    )


def test_a_barrier_hidden_in_a_norm_is_no_slow_norm(tmp_path: Path) -> None:
    """Collectives of a name give the clock; the norm then ends at one moment, whoever began it when."""
    early = [(0, 0, 10), (1, 12, 20), (2, 22, 120), (1, 122, 130)]
    late = [(0, 0, 10), (1, 12, 20), (0, 22, 110), (2, 112, 120), (1, 122, 130)]
    early.insert(2, (0, 20, 21))
    ranks = write_ranks(tmp_path, [early, late])
    assert ranks.waits.wait_ns["rank 0"] == 90 * US
    first = ranks.diagnosis.causes[0]
    assert first.kind == "rank"
    for cause in ranks.diagnosis.causes:
        assert cause.kind in ("rank", "communication") or "post_norm" not in cause.sentence


@given(st.integers(2, 12), st.integers(0, 2**30))
@examples(40)
def test_time_in_collectives_is_waiting_and_cost_to_the_nanosecond(count: int, seed: int) -> None:
    rng = random.Random(seed)
    rounds = rng.randrange(1, 5)
    late = [[rng.randrange(0, 300) for _ in range(count)] for _ in range(rounds)]
    name = rng.choice(["dispatch_wait", "__builtin_all_gather__fp16", "hcom_allReduce_"])
    run = Planted([100] * count, [rng.randrange(10**6) for _ in range(count)], kernels=("stage", name, "consume"),
                  rounds=rounds, late_us=late)  # fmt: skip
    with TemporaryDirectory() as folder:
        ranks = explain_ranks(read(run.write(Path(folder))))
    waits = ranks.waits
    assert waits.matched == rounds
    true = {f"rank {n}": sum(max(turn) - turn[n] for turn in late) * US for n in range(count)}
    assert waits.wait_ns == true
    assert set(waits.cost_ns.values()) == {rounds * run.cost_us * US}
    assert int(waits.table["wait_ns"].sum()) == sum(true.values())
    assert (waits.table.select(pl.sum_horizontal(REASONS) == pl.col("wait_ns")).to_series()).all()


def late_computing(kernel: str, collective: str, rounds: int = 6) -> list[list[tuple[str, int, int]]]:
    """Two ranks: rank 1's product takes 30 us longer in every round, so rank 0 waits 30 us in the collective."""
    ranks: list[list[tuple[str, int, int]]] = [[], []]
    for turn in range(rounds):
        begin = 100 * turn
        ranks[0] += [(kernel, begin, 20), (collective, begin + 22, 40)]
        ranks[1] += [(kernel, begin, 50), (collective, begin + 52, 10)]
    return ranks


@pytest.mark.parametrize("profiler", ["torch", "ascend"])
def test_profilers_roots_are_split_alike(tmp_path: Path, profiler: str) -> None:
    """Clocks differ by 40 ms; the wait, its reason and the offset come out of durations and ends."""
    for rank, work in enumerate(late_computing("gemm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")):
        ahead = 40_000 * rank
        if profiler == "torch":
            events = [x(name, start + ahead, dur, pid=0, tid=20 if "nccl" in name else 7, cat="kernel")
                      for name, start, dur in work]  # fmt: skip
            write_events(tmp_path / f"rank{rank}.json", events, deviceProperties=[], distributedInfo={"rank": rank})
            continue
        rows = []
        for number, (name, start, dur) in enumerate(work):
            is_comm = "nccl" in name
            named = f"hcom_allReduce__868_{number}_1" if is_comm else "MatMulV3"
            core = "COMMUNICATION" if is_comm else "AI_CORE"
            at = f"17794408057{10000 + start + ahead}.000"
            kind = "allReduce" if is_comm else "MatMulV3"
            rows.append(kernel_row(name=named, type=kind, start=at, dur=f"{dur}.000", core=core))
        folder = tmp_path / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        write_kernel_table(folder / "kernel_details.csv", rows)
    found = explain_ranks(read(tmp_path))
    assert found.waits.wait_ns == {"rank 0": 180 * US, "rank 1": 0}
    assert found.waits.cost_ns == {"rank 0": 60 * US, "rank 1": 60 * US}
    row = found.waits.table.row(0, named=True)
    assert (row["compute_ns"], row["began_ns"], row["idle_ns"]) == (180 * US, 0, 0)
    offsets, apart = found.clocks
    assert not apart
    assert (offsets[1].offset_ns, offsets[1].spread_ns, offsets[1].pairs) == (-40_000 * US, 0, 6)
    assert "40,000.00 µs" in npuscope("report", tmp_path).stdout


SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


@given(st.sampled_from(["all", "halves", "neighbours"]), st.sampled_from([SEND, REDUCE]), st.integers(0, 2**30))
@examples(24)
def test_who_takes_part_is_seen_by_the_ends(among: str, kernel: str, seed: int) -> None:
    """A kernel's name does not say whether four ranks exchange with all, in halves, or along a pipeline, and torch of
    2023 does not record it: those meet whose ends agree, whatever their clocks show."""
    rng = random.Random(seed)
    named: dict[str, list[tuple[int, ...]]] = {"all": [(0, 1, 2, 3)], "halves": [(0, 1), (2, 3)], "neighbours": []}
    groups = named[among]
    turns = [[rng.randrange(0, 800) for _ in range(4)] for _ in range(14)]  # when each rank arrives
    members = {rank: group for group in groups for rank in group}
    waited = dict.fromkeys((f"rank {rank}" for rank in range(4)), 0)
    with TemporaryDirectory() as folder:
        for rank in range(4):
            events = []
            for turn, arrivals in enumerate(turns):
                met = members.get(rank, (rank, (rank + 1) % 4))  # along a pipeline: until its neighbour is there
                latest = max(arrivals[one] for one in met)
                waited[f"rank {rank}"] += (latest - arrivals[rank]) * US if groups else 0
                begin = turn * 1000 + arrivals[rank] + rank * 7_000
                events.append(x(kernel, begin, latest + 10 - arrivals[rank], pid=0, tid=20, cat="kernel"))
            write_events(Path(folder, f"rank{rank}.json"), events, deviceProperties=[], distributedInfo={"rank": rank})
        waits = explain_ranks(read(folder)).waits
    assert waits.matched == 14 * len(groups)
    assert waits.wait_ns == waited
    assert waits.left_out == (0 if groups else 56)


@pytest.mark.parametrize("turns", [1, 2, 5])
@pytest.mark.parametrize("ring", [False, True])
def test_waits_of_a_ring_are_no_meeting_of_all(tmp_path: Path, ring: bool, turns: int) -> None:
    """In a ring a rank waits for its neighbour alone: what it waits there is not for the latest of all."""
    rng = random.Random(1)
    arrivals = [[rng.randrange(0, 300) for _ in range(4)] for _ in range(turns)]
    ranks: list[list[tuple[int, int, int]]] = [[] for _ in range(4)]
    for turn, at in enumerate(arrivals):
        for rank, tasks in enumerate(ranks):
            notified = max(at[rank], at[rank - 1]) if ring else max(at)
            tasks += [(1, 1000 * turn, 1000 * turn + 5)]
            tasks += [(3, 1000 * turn + 10 + at[rank], 1000 * turn + 12 + notified)]
    waits = write_ranks(tmp_path, ranks).waits
    if not ring:
        assert waits.matched == 2 * turns
        assert sum(waits.wait_ns.values()) == sum(max(at) - one for at in arrivals for one in at) * US
        return
    # two that leave together in every turn are seen to wait for one another, which in a ring is true of neighbours
    for rank in range(4):
        own = sum(max(at[rank - 1] - at[rank], 0) for at in arrivals) * US
        assert waits.wait_ns[f"rank {rank}"] in ((0,) if turns > 2 else (0, own))


@given(st.sampled_from([4, 8]), st.sampled_from(["host", "compute"]), st.booleans(), st.integers(0, 2**30))
@examples(12)
def test_runs_of_several_programs_are_followed_back_to_what_made_a_rank_late(
    cards: int, reason: str, nodes: bool, seed: int
) -> None:
    """The host launches three programs a run: a late launch of the first, or a long one, delays the collective.
    Pauses between runs belong to none of them, and what buffers hold of an older run does not count."""
    rng = random.Random(seed)
    late, runs = rng.randrange(cards), rng.randrange(1, 4)
    begins = [run * rng.randrange(2_000, 200_000) for run in range(runs)]
    launched = [[begin + rank for rank in range(cards)] for begin in begins]
    staged = [[100 + rng.randrange(8) for _ in range(cards)] for _ in range(runs)]
    for turn in range(runs):
        (launched if reason == "host" else staged)[turn][late] += 600
    names = "node{1}/rank{2}" if nodes else "rank{0}"
    offsets = [0, *(rng.randrange(-(10**6), 10**6) for _ in range(cards - 1))]
    run = Programs(launched, staged, offsets, names=names, pids=rng.random() < 0.7)
    with TemporaryDirectory() as folder:
        trace = read(run.write(Path(folder), older_us=3_000_000))
        found, steps = explain_ranks(trace), steps_at(Path(folder))
    # THEN clocks, waits and costs are the planted ones
    assert {rank: note["offset_ns"] for rank, note in clock_notes(trace.meta).items()} == {
        rank: -offset * US for rank, offset in enumerate(offsets) if rank
    }
    waits = [[run.wait_ns(turn, rank) for turn in range(runs)] for rank in range(cards)]
    assert found.waits.wait_ns == {f"rank {rank}": sum(each) for rank, each in enumerate(waits)}
    assert set(found.waits.cost_ns.values()) == {9 * US * runs}
    # THEN the late rank is the first cause, with what made it late
    verdict = found.diagnosis.verdict
    assert verdict.kind == ("launch-order" if reason == "host" else "rank")
    assert f"rank {late} " in verdict.sentence
    assert reason == "host" or "`qkv_proj`" in verdict.sentence
    wall = max(sum(run.dispatches(turn, rank)[-1][-1] - run.dispatches(turn, rank)[0][3] for turn in range(runs))
               for rank in range(cards)) * US  # fmt: skip
    assert found.diagnosis.wall_ns == wall
    # THEN a step of the slowest rank has the same wait and cost, and its parts add up
    check_adds_up(steps.ranks[0].parts)
    rank = int(steps.ranks[0].name.removeprefix("rank "))
    parts = {row["part"].strip(): row["slowest_ns"] for row in steps.parts.iter_rows(named=True)}
    assert parts["collective itself"] == 9 * US
    if run.pids:  # else ranks that do the same at once cannot be told apart
        assert parts["waiting for later ranks"] == waits[rank][-1]


def test_a_report_of_many_ranks_costs_no_more_than_reading_them_a_few_times(tmp_path: Path) -> None:
    """In CPU, as benchmarks/ranks.py measures it at full size: 64 ranks of 100,000 slices."""
    root = write_large(tmp_path / "run", 24, 4_000, 500)
    begin = process_time()
    trace = read(root)
    reading = process_time() - begin
    begin = process_time()
    found = explain_ranks(trace)
    parts = list(report_ranks("run", "run", found))
    explaining = process_time() - begin
    assert parts
    assert explaining <= 3 * reading
    # every rank is late in its turn, by 40 us each time
    turns = 4_000 // 500
    assert sum(found.waits.wait_ns.values()) == turns * 23 * 40 * US
    assert found.waits.matched == turns
