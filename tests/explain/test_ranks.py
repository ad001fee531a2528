"""A root of ranks: each is explained alone, then mean, worst and spread, and who waits for whom."""

import json
from pathlib import Path

import command
import polars as pl
import pytest
from builders import kernel_row, write_events, write_kernel_table, x
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope import NpuscopeError
from npuscope import explain as analysis
from npuscope.explain import many as statistics
from npuscope.explain.choosing import choose_rank, split_ranks
from npuscope.explain.diagnosis import Gain
from npuscope.trace import Trace

Work = tuple[str, int, int]  # kernel, start and duration in microseconds
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


def write_root(root: Path, *ranks: list[Work]) -> Path:
    """A torch profile per rank: products on stream 7, collectives on stream 20."""
    root.mkdir(exist_ok=True)
    for rank, work in enumerate(ranks):
        events = [
            x(name, start, dur, pid=0, tid=20 if name.startswith("nccl") else 7, cat="kernel")
            for name, start, dur in work
        ]
        write_events(root / f"rank{rank}.json", events, deviceProperties=[], distributedInfo={"rank": rank})
    return root


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """While one rank computes, the other communicates, and the other way round: each has all of it exposed."""
    return write_root(
        tmp_path / "two",
        [("gemm", 0, 40), (REDUCE, 40, 60)],
        [(REDUCE, 0, 40), ("gemm", 40, 50), ("rope", 92, 8)],
    )


def test_one_ranks_compute_does_not_hide_anothers_communication(two: Path) -> None:
    found = analysis.explain_ranks(npuscope.read(two))
    rows = found.table.select("rank", "compute_ns", "comm_ns", "exposed_ns", "running", "bound").rows()
    assert rows == [
        ("rank 0", 40_000, 60_000, 60_000, 1.0, "communication"),
        ("rank 1", 58_000, 40_000, 40_000, 0.98, "communication"),
    ]
    assert found.overview == (
        "2 ranks, all limited by communication; busy 99.0% of the window in the mean, worst 98.0% (rank 1); "
        "exposed communication 50.0% of the window in the mean, worst 60.0% (rank 0)."
    )


def test_the_rank_that_comes_late_is_a_cause(two: Path) -> None:
    # GIVEN a collective that takes 60 µs on rank 0 and 40 on rank 1: rank 1 came 20 µs later
    found = analysis.explain_ranks(npuscope.read(two)).diagnosis
    # THEN the slowest rank's own causes and the late rank share one list, and no time is claimed twice
    kinds = [cause.kind for cause in found.causes]
    assert kinds == ["communication", "rank", "core"]
    assert found.causes[0].sentence == (
        "rank 0: Communication that no compute hides takes 60 µs (60.0% of the time), nearly all of it in "
        "`ncclDevKernel_AllReduce_Sum_bf16_RING_LL`; 20 µs of it counts for the late rank."
    )
    assert found.causes[1].sentence == (
        "rank 1 comes late to 1 of 1 collectives, and another rank waits 20 µs for it (20.0% of the time)."
    )
    assert (found.causes[1].gain, found.wall_ns) == (Gain(20_000, 0, 21_000), 100_000)
    assert sum(cause.share for cause in found.causes) <= 1


def test_mean_worst_and_spread(two: Path) -> None:
    summary = analysis.explain_ranks(npuscope.read(two)).summary
    told = summary.select("rank", "compute_ns", "exposed_ns", "running").rows()
    assert told[0] == ("mean", 49_000, 50_000, 0.99)
    assert told[1] == ("worst", 58_000, 60_000, 0.98)  # the most of times, the least of what should run
    assert told[2] == ("spread", 18_000, 20_000, pytest.approx(0.02))


def test_who_comes_last_makes_the_others_wait(tmp_path: Path) -> None:
    # GIVEN three collectives that end together on three ranks, and one that only rank 0 has
    root = write_root(
        tmp_path / "three",
        [(REDUCE, 0, 30), (REDUCE, 40, 12), (REDUCE, 60, 5), ("ncclDevKernel_Broadcast", 80, 9)],
        [(REDUCE, 10, 20), (REDUCE, 50, 2), (REDUCE, 62, 3)],
        [(REDUCE, 28, 2), (REDUCE, 42, 10), (REDUCE, 63, 2)],
    )
    # WHEN
    waits = analysis.explain_ranks(npuscope.read(root)).waits
    # THEN rank 2 came last in the first and the third, rank 1 in the second
    assert waits.table.rows() == [
        # the last three: began later, computed longer, stood idle longer since both left their last meeting
        ("rank 0", "rank 2", 31_000, 2, 28_000, 0, 3_000),
        ("rank 1", "rank 2", 19_000, 2, 18_000, 0, 1_000),
        ("rank 0", "rank 1", 10_000, 1, 0, 0, 10_000),
        ("rank 2", "rank 1", 8_000, 1, 0, 0, 8_000),
    ]
    assert waits.last == {"rank 0": 0, "rank 1": 1, "rank 2": 2}
    assert waits.wait_ns == {"rank 0": 41_000, "rank 1": 19_000, "rank 2": 8_000}
    assert (waits.matched, waits.left_out) == (3, 1)
    assert waits.title().startswith("rank 2 makes the others wait 50 µs in all: it comes last in 2 of 3 collectives")


def test_what_is_about_one_rank_refuses_several(two: Path) -> None:
    trace = npuscope.read(two)
    with pytest.raises(NpuscopeError, match=r"holds 2 ranks \(0, 1\)"):
        analysis.explain(trace)
    assert analysis.explain(choose_rank(trace, 1)).work.wall == 100_000
    with pytest.raises(NpuscopeError, match="no rank or device 7"):
        choose_rank(trace, 7)


def test_devices_of_one_capture_are_kept_apart_and_keep_the_hosts_threads(tmp_path: Path) -> None:
    events = [x("ProfilerStep#1", 0, 100, cat="user_annotation"), x("cudaLaunchKernel", 1, 1, cat="cuda_runtime")]
    for device in (0, 1):
        events.append(x("gemm", 10 + 40 * device, 40, pid=device, tid=7, cat="kernel"))
        events.append(x(REDUCE, 50 - 40 * device, 40, pid=device, tid=20, cat="kernel"))
    found = analysis.explain_ranks(npuscope.read(write_events(tmp_path / "t.json", events, deviceProperties=[])))
    assert found.table.select("rank", "exposed_ns", "window_ns").rows() == [
        ("device 0", 40_000, 100_000),
        ("device 1", 40_000, 100_000),
    ]
    assert all(part.trace.select(kind="host").slices.height == 1 for part in found.parts)


spans = st.lists(
    st.tuples(st.sampled_from(["gemm", "rope", REDUCE]), st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=8
)


@given(st.lists(spans, min_size=2, max_size=4))
def test_a_rank_of_a_root_is_what_it_is_alone(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[list[Work]]
) -> None:
    root = write_root(tmp_path_factory.mktemp("r") / "root", *drawn)
    together = analysis.explain_ranks(npuscope.read(root))
    assert len(together.parts) == len(drawn)
    for number, found in enumerate(together.explained):
        alone = analysis.explain(npuscope.read(root / f"rank{number}.json"))
        assert found.communication == alone.communication
        assert found.busy.on_core_ns == alone.busy.on_core_ns
        told = [(cause.sentence, cause.share, cause.gain) for cause in found.diagnosis.causes]
        assert told == [(cause.sentence, cause.share, cause.gain) for cause in alone.diagnosis.causes]
        assert found.path.by_part() == alone.path.by_part()
    assert sum(together.waits.last.values()) == together.waits.matched


def test_every_form_of_the_report_tells_it(two: Path, tmp_path: Path) -> None:
    page, posted = tmp_path / "report.html", tmp_path / "report.md"
    text = command.npuscope("report", two, "--md", posted, "--html", page).stdout
    for told in (text, posted.read_text()):
        assert "exposed communication 50.0% of the window in the mean, worst 60.0% (rank 0)" in told
        assert "Communication that no compute hides takes 60 µs (60.0% of the time)" in told
        assert "rank 1 makes the others wait 20 µs" in told
    assert '"exposed_ns":60000' in page.read_text()
    told = json.loads(command.npuscope("report", two, "--json").stdout)
    assert [row["exposed_ns"] for row in told["ranks"]["table"]] == [60_000, 40_000]
    assert [row["what"] for row in told["ranks"]["summary"]] == ["mean", "worst", "spread"]
    assert [each["communication"]["exposed_ns"] for each in told["ranks"]["each"]] == [60_000, 40_000]
    assert told["waits"]["last"] == {"rank 0": 0, "rank 1": 1}
    one = json.loads(command.npuscope("report", two, "--rank", "1", "--json").stdout)
    assert one["communication"]["exposed_ns"] == 40_000


def test_comparing_roots_takes_the_slowest_rank_and_says_so(two: Path, tmp_path: Path) -> None:
    other = write_root(tmp_path / "other", [("gemm", 0, 10)], [("gemm", 0, 30)])
    told = command.npuscope("compare", two, other).stdout
    assert "two (rank 0, the slowest of 2)" in told
    assert "other (rank 1, the slowest of 2)" in told
    first = json.loads(command.npuscope("compare", two, other, "--rank", "0", "--json").stdout)
    assert first["totals"]["wall_ns"] == [100_000, 10_000]


def test_a_gate_holds_the_worst_rank_against_its_limits(two: Path, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(
        '[[limit]]\nmetric = "running"\nmin = 0.99\n[[limit]]\nmetric = "wall_us"\nmax = 100\n'
    )
    found = statistics.gate([npuscope.read(two)], statistics.read_budget(tmp_path / "b.toml"))
    assert found.table["value"].to_list() == [0.98, 100.0]


def test_ranks_of_kernel_tables(tmp_path: Path) -> None:
    """Ascend's folders: HCCL on its own stream, ranks by their folders' names."""
    for rank in (0, 1):
        out = tmp_path / f"rank{rank}" / "ASCEND_PROFILER_OUTPUT"
        out.mkdir(parents=True)
        reduce = {"name": "hcom_allReduce__1_1", "type": "hcom_allReduce_", "core": "HCCL", "stream": "5"}
        rows = [
            kernel_row(start="10.0", dur="20.0"),
            kernel_row(start=f"{15 + 10 * rank}.0", dur=f"{35 - 10 * rank}.0", **reduce),
        ]
        write_kernel_table(out / "kernel_details.csv", rows)
    found = analysis.explain_ranks(npuscope.read(tmp_path))
    assert found.table["exposed_ns"].to_list() == [20_000, 20_000]
    assert found.waits.wait_ns == {"rank 0": 10_000, "rank 1": 0}


def test_the_parts_of_a_trace_hold_all_of_its_work(two: Path) -> None:
    trace = npuscope.read(two)
    parts = split_ranks(trace)
    assert pl.concat([part.trace.slices["task"] for part in parts]).sort().equals(trace.slices["task"].sort())
    assert [part.name for part in parts] == ["rank 0", "rank 1"]
    assert split_ranks(Trace.of(trace.slices.clear(), trace.lanes, trace.meta))[0].name == "the capture"


def write_groups(root: Path, groups: dict[str, list[list[int]]], **header: object) -> Path:
    """A torch profile per rank, of which every row has the durations of its collectives by the group that has them."""
    root.mkdir()
    ranks = sorted({rank for group in groups for rank in json.loads(group)})
    for rank in ranks:
        events, now = [], 0
        for group, durations in groups.items():
            members = json.loads(group)
            for dur in durations[members.index(rank)] if rank in members else ():
                told = {"Process Group Ranks": group, "Collective name": "allreduce"}
                events.append(x(REDUCE, now, dur, pid=0, tid=20, cat="kernel", args=told))
                now += dur + 5
        info = {"rank": rank, **header}
        write_events(root / f"rank{rank}.json", events, deviceProperties=[], distributedInfo=info)
    return root


def test_collectives_are_matched_within_their_group(tmp_path: Path) -> None:
    # GIVEN 3 collectives of ranks 0 and 1, 3 of ranks 2 and 3, in each of which one comes 20 µs later, and 2 of all
    groups = {"[0, 1]": [[30, 30, 30], [10, 10, 10]], "[2, 3]": [[10, 10, 10], [30, 30, 30]]}
    root = write_groups(tmp_path / "r", {**groups, "[0, 1, 2, 3]": [[7, 7]] * 4})
    found = analysis.explain_ranks(npuscope.read(root)).waits
    # THEN 3 + 3 + 2 match, and nobody waits for a rank of another group
    assert (found.matched, found.left_out, found.grouped) == (8, 0, True)
    waits = found.table.filter(pl.col("wait_ns") > 0).select("rank", "waits_for", "wait_ns").rows()
    assert sorted(waits) == [("rank 0", "rank 1", 60_000), ("rank 3", "rank 2", 60_000)]


def test_ascends_groups_are_in_the_names_of_collectives(tmp_path: Path) -> None:
    # GIVEN ranks 0 and 1 in group 868, ranks 2 and 3 in group 170
    for rank, (group, dur) in enumerate([(868, 30), (868, 10), (170, 90), (170, 50)]):
        out = tmp_path / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        out.mkdir(parents=True)
        row = kernel_row(
            name=f"hcom_allReduce__{group}_0_1", type="hcom_allReduce_", core="HCCL", start="0.000", dur=f"{dur}.000"
        )
        write_kernel_table(out / "kernel_details.csv", [row])
    found = analysis.explain_ranks(npuscope.read(tmp_path)).waits
    assert found.matched == 2
    waits = found.table.filter(pl.col("wait_ns") > 0).select("rank", "waits_for", "wait_ns").rows()
    assert sorted(waits) == [("rank 0", "rank 1", 20_000), ("rank 2", "rank 3", 40_000)]


def test_what_is_missing_is_said_before_anyone_is_blamed(tmp_path: Path) -> None:
    # GIVEN two of four ranks, and the file of a third that cannot be read
    root = write_groups(tmp_path / "r", {"[0, 1]": [[90, 90], [10, 10]]}, world_size=4)
    (root / "rank2.json").write_text('{"traceEvents": [{"ph": "X", "ts": ')
    found = analysis.explain_ranks(npuscope.read(root))
    assert found.absent[0].startswith("2 of 4 ranks are here")
    assert str(root / "rank2.json") in found.absent[1]
    late = next(cause for cause in found.diagnosis.causes if cause.kind == "rank")
    assert late.sentence.startswith("Of the ranks that are here, rank 1 comes late")
    assert late.confidence == "likely"
    text = command.npuscope("report", root).stdout
    assert text.index("2 of 4 ranks are here") < text.index("comes late")


def test_nobody_is_asked_for_the_ranks_that_were_given(tmp_path: Path) -> None:
    # GIVEN one collective of many that takes far longer than usual, on both ranks alike
    durations = [[10] * 30 + [900]] * 2
    found = analysis.explain_ranks(npuscope.read(write_groups(tmp_path / "r", {"[0, 1]": durations})))
    assert any("as if it waited for another rank" in cause.sentence for cause in found.diagnosis.causes)
    assert not any("folder with all ranks" in cause.remedy for cause in found.diagnosis.causes)


def test_no_gain_is_known_exactly(two: Path) -> None:
    found = analysis.explain_ranks(npuscope.read(two)).diagnosis
    gains = [cause.gain for cause in found.causes if cause.gain is not None]
    assert gains
    assert all(gain.low_ns < gain.high_ns for gain in gains)
