"""A run over several ranks: planted clocks, late ranks, host logs, old records; the truth is what was planted."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from adds_up import check_adds_up
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from planted_ranks import US, Planted, log_of, write_json, write_records
from real_data import DATA
from tiers import examples

from npuscope.explain.ranks import explain_ranks
from npuscope.explain.step_parts import parts_of
from npuscope.trace.clocks import clock_notes
from npuscope.trace.formats import read
from npuscope.trace.readers.host_log import HostLog


@given(st.integers(2, 6), st.integers(0, 2**30))
@examples(15)
def test_clocks_and_late_ranks_come_out_as_planted(count: int, seed: int) -> None:
    rng = random.Random(seed)
    arrivals = [rng.randrange(100, 150) for _ in range(count)]
    late = rng.randrange(count)
    arrivals[late] = 100 + rng.randrange(500, 900)
    run = Planted(arrivals, [rng.randrange(1, 10**6) for _ in range(count)])
    with TemporaryDirectory() as folder:
        trace = read(run.write(Path(folder), older_us=rng.choice([None, 7_000_000])))
    met = trace.slices.filter(trace.slices["kind"] == "comm").join(trace.lanes.select("lane", "rank"), on="lane")
    ends = (met["start"] + met["dur"]).unique()
    assert len(ends) == 1  # all at once, on one clock
    assert dict(met.select("rank", "dur").iter_rows()) == {
        rank: (run.end_us() - arrival) * US for rank, arrival in enumerate(arrivals)
    }
    ranks = explain_ranks(trace)
    waited = {name: ns for name, ns in ranks.waits.wait_ns.items() if ns}
    assert waited == {
        f"rank {rank}": (arrivals[late] - arrival) * US for rank, arrival in enumerate(arrivals) if rank != late
    }
    assert ranks.diagnosis.causes[0].kind == "rank"


def test_an_older_run_in_a_reused_buffer_is_set_aside_and_counted(tmp_path: Path) -> None:
    run = Planted([100, 700], [5, 900_000])
    alone = read(run.write(tmp_path / "alone"))
    both = read(run.write(tmp_path / "both", older_us=7_000_000))
    assert both.slices.height == alone.slices.height == 6
    assert sum(both.meta.dropped.values()) == 6
    assert both.span[1] - both.span[0] == alone.span[1] - alone.span[0]


def test_dispatches_of_one_card_are_steps_on_its_cores(tmp_path: Path) -> None:
    Planted([100, 700], [5, 900_000]).write(tmp_path, dispatch=3, run=7)
    trace = read(Planted([2_100, 2_200], [5, 900_000]).write(tmp_path, dispatch=4, run=8))
    assert trace.lanes.filter(trace.lanes["unit"] == "AIV").height == 2 * 48
    assert trace.slices["step"].unique().sort().to_list() == [3, 4]
    assert trace.slices["task"].n_unique() == 12


def test_the_host_that_launches_a_rank_late_is_the_first_cause(tmp_path: Path) -> None:
    run = Planted([100, 700], [5, 900_000])
    run.write(tmp_path)
    (tmp_path / "host.11.log").write_text(log_of(11, 10**9, 650 * US))
    (tmp_path / "host.12.log").write_text(log_of(12, 10**9 + 620 * US, 20 * US))
    found = json.loads(npuscope("report", tmp_path, "--json").stdout)
    cause = found["causes"][0]
    assert cause["kind"] == "launch-order"
    assert "rank 1" in cause["sentence"]
    steps = json.loads(npuscope("step", tmp_path, "--json").stdout)
    run_7 = {"run": 7, "ranks": 2, "wall_ns": 1_273_000, "slowest": "rank 0", "period_ns": None, "overlap_ns": None}
    assert steps["runs"][-1] == {**run_7, "skew_ns": 620_000, "last": "rank 1"}
    assert {"bind", "copies"} <= {cause["kind"] for cause in found["causes"]}
    named = {row["part"].strip(): row["slowest_ns"] for row in steps["parts"]}
    assert named["waiting for later ranks"] == 600 * US
    assert named["collective itself"] == 6 * US


def test_dispatches_that_name_no_card_lie_where_their_identity_says(tmp_path: Path) -> None:
    run = Planted([100, 700], [5, 900_000])
    run.write(tmp_path)
    (tmp_path / "rank1").rename(tmp_path / "rank_local")
    trace = read(tmp_path)
    assert trace.lanes["rank"].unique().sort().to_list() == [0, 1]
    assert "rank_local" not in trace.meta.notes
    write_json(tmp_path / "rank_local" / "d3" / "dispatch_identity.json", {"run_id": 7})
    trace = read(tmp_path)
    assert trace.lanes["rank"].unique().sort().to_list() == [0, 1]
    assert trace.meta.notes["rank_local"] == "which card it ran on is not recorded; it counts as rank 1"


def test_nodes_that_count_their_ranks_from_zero_are_counted_through(tmp_path: Path) -> None:
    run = Planted([100, 120, 700, 130], [5, 900_000, 70, 31])
    run.write(tmp_path / "flat")
    for node in (0, 1):
        for rank in (0, 1):
            place = tmp_path / "all" / f"node{node}" / f"rank{rank}"
            place.parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "flat" / f"rank{2 * node + rank}").rename(place)
    ranks = explain_ranks(read(tmp_path / "all"))
    assert [part.name for part in ranks.parts] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert ranks.waits.wait_ns == {"rank 0": 600 * US, "rank 1": 580 * US, "rank 2": 0, "rank 3": 570 * US}


def test_a_collective_that_the_host_dispatches_is_known_by_its_program(tmp_path: Path) -> None:
    """Stage, collective and consume are programs of their own, whose functions all count from zero."""
    for rank, (arrival, offset) in enumerate([(100, 5), (700, 900_000)]):
        ends = {
            "stage": (arrival - 4, arrival - 2),
            "__builtin_all_reduce__fp32": (arrival, 706),
            "consume": (710, 712),
        }
        for number, (program, times) in enumerate(ends.items()):
            folder = tmp_path / f"rank{rank}" / f"d{number}"
            start, end = ((10**8 + us + offset) * US // 20 for us in times)
            write_records(folder, [[24, 1 << 32, 0, start, end, 5]])
            write_json(folder / "dispatch_program.json", {"program": program})
            write_json(folder / "dispatch_identity.json", {"run_id": 7, "chip_rank": rank})
    trace = read(tmp_path)
    assert clock_notes(trace.meta)[1]["kernel"] == "__builtin_all_reduce__fp32"
    assert clock_notes(trace.meta)[1]["offset_ns"] == (5 - 900_000) * US
    assert explain_ranks(trace).waits.wait_ns == {"rank 0": 600 * US, "rank 1": 0}


def test_a_stray_record_of_another_program_is_none_of_the_run(tmp_path: Path) -> None:
    Planted([100, 700], [5, 900_000]).write(tmp_path)
    file = tmp_path / "rank0" / "d3" / "chip_swimlane_records.json"
    records = json.loads(file.read_text())
    records["aicore_tasks"].append([30, (2 << 32) + 9, 4, 1000, 1400, 0])  # two seconds before, of no task of this run
    file.write_text(json.dumps(records))
    trace = read(tmp_path)
    assert trace.slices.height == 6
    assert sum(trace.meta.dropped.values()) == 1


def test_a_rank_whose_records_cannot_be_read_is_named(tmp_path: Path) -> None:
    run = Planted([100, 700, 120], [5, 900_000, 17])
    run.write(tmp_path)
    (tmp_path / "rank2" / "d3" / "chip_swimlane_records.json").write_text('{"chip_swimlane_level": 1, "meta')
    ranks = explain_ranks(read(tmp_path))
    assert len(ranks.parts) == 2
    assert any("rank2" in line for line in ranks.absent)


def test_a_step_adds_up_to_the_nanosecond(tmp_path: Path) -> None:
    log = tmp_path / "host.11.log"
    text = log_of(11, 10**9, 650 * US).splitlines()
    # as forked ranks write it: two records on a line, and one that was cut
    log.write_text("\n".join([text[0] + text[1], *text[2:], "[STRACE] v=1 pid=11 tid=11 inv=8 hid=ab depth=1 na"]))
    found = HostLog().read(log)
    (call, *rest) = found.calls
    assert not rest
    parts = parts_of(call)
    check_adds_up(parts)
    assert {part.name: part.dur_ns for part in parts if part.level == 1} == {
        "bind arguments and runtime image": 40 * US,
        "launch until drained": 1_210 * US,
        "copy back and check": 12 * US,
        "between these": 11 * US,
    }
    assert sum(found.ledger.dropped.values()) == 1


@pytest.mark.parametrize("text", ["", "no span\n", "[STRACE] v=1 pid=1 depth=0\n", "[STRACE] v=9 pid=1 tid=1\n"])
def test_a_log_without_a_whole_call_says_so(tmp_path: Path, text: str) -> None:
    log = tmp_path / "server.log"
    log.write_text(text)
    done = npuscope("step", log)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.skipif(not (DATA / "simpler_ranks").is_dir(), reason="the real captures are not here")
def test_the_public_run_over_two_cards() -> None:
    """Truths of the data's README: clocks, waits, sums, and which rank was launched late."""
    root = DATA / "simpler_ranks" / "p2_managed-l2_uniform_1024" / "dfx_outputs"
    trace = read(root)
    clock = clock_notes(trace.meta)[1]
    assert (clock["offset_ns"], clock["spread_ns"], clock["pairs"], clock["by"]) == (950_540, 40, 2, "collectives")
    ranks = explain_ranks(trace)
    assert ranks.waits.wait_ns == {"rank 0": 580_000, "rank 1": 0}
    cause = ranks.diagnosis.causes[0]
    assert cause.kind == "launch-order"
    assert "604 µs" in cause.sentence
    walls = {}
    for log in sorted(root.glob("host.*.log")):
        for call in HostLog().read(log).calls:
            parts = parts_of(call)
            check_adds_up(parts)
            if parts:
                walls[call.pid, call.number] = {part.name: part.dur_ns for part in parts}
    whole = walls[2988511, 1]
    assert (whole["call"], whole["launch until drained"], whole["device"]) == (116_240_983, 114_758_225, 519_579)
    assert whole["orchestration and scheduling"] == 397_680
    assert walls[2988511, 22]["orchestration and scheduling"] == 599_620
    assert walls[2988588, 22]["orchestration and scheduling"] == 18_880
    rest = [part.dur_ns for part in parts_of(HostLog().read(root / "host.2988511.log").calls[0]) if part.level == 1][-1]
    assert rest == 1_200_446
