"""A run over several ranks: planted clocks, late ranks, host logs, old records; the truth is what was planted."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from real_data import DATA
from tiers import examples

from npuscope.explain.ranks import explain_ranks
from npuscope.explain.step import parts_of
from npuscope.trace.formats import read
from npuscope.trace.readers.host_log import HostLog

TICK_NS = 20
US = 1000
RING = 1 << 32


@dataclass
class Planted:
    """A run of three tasks a rank: stage, a collective that ends for all at once, consume."""

    arrivals_us: list[int]  # when each rank reaches the collective, on the true clock
    offsets_us: list[int]  # what each rank's clock shows at the true zero
    cost_us: int = 6
    runs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end_us(self) -> int:
        return max(self.arrivals_us) + self.cost_us

    def rows(self, rank: int, shift_us: int = 0) -> list[list[int]]:
        def ticks(us: int) -> int:
            return (10**8 + us + shift_us + self.offsets_us[rank]) * US // TICK_NS

        arrival = self.arrivals_us[rank]
        spans = [(0, arrival - 4, arrival - 2), (1, arrival, self.end_us), (2, self.end_us + 1, self.end_us + 2)]
        return [[24 + n, RING + n, n, ticks(a), ticks(b), 5] for n, a, b in spans]

    def write(self, root: Path, older_us: int | None = None, dispatch: int = 3, run: int = 7) -> Path:
        for rank in range(len(self.arrivals_us)):
            folder = root / f"rank{rank}" / f"d{dispatch}"
            folder.mkdir(parents=True)
            rows = self.rows(rank) + ([] if older_us is None else self.rows(rank, -older_us))
            records = {
                "chip_swimlane_level": 1,
                "metadata": {
                    "clock_freq_hz": 10**9 // TICK_NS,
                    "num_cores": 72,
                    "core_types": ["aic"] * 24 + ["aiv"] * 48,
                },
                "aicore_tasks": rows,
            }
            (folder / "chip_swimlane_records.json").write_text(json.dumps(records))
            identity = {"run_id": run, "endpoint_dispatch_id": run, "pipeline_slot": 0, "pipeline_generation": run}
            (folder / "dispatch_identity.json").write_text(json.dumps({**identity, "chip_rank": rank}))
        return root


def span(name: str, depth: int, ts: int, dur: int, pid: int, more: str = "") -> str:
    head = f"[mono_ns={ts + dur}][T0x1][TIMING] emit_host_span: "
    return f"{head}[STRACE] v=1 pid={pid} tid={pid} inv=7 hid=ab depth={depth} name={name} ts={ts} dur={dur} {more}"


def log_of(pid: int, launched_ns: int, sched_ns: int, run: int = 7) -> str:
    """A call with every part; bind 40 us, a gap of 9 us, the launch, 12 us of copying back, 1 us between."""
    device, wall = "chip.run.runner_run.device_wall", sched_ns + 60 * US
    begin, drained = launched_ns - 50 * US, wall + 500 * US
    lines = [
        span("chip.run.bind.args", 2, begin + US, 30 * US, pid),
        span("chip.run.bind", 1, begin + US, 40 * US, pid),
        span("chip.run.runner_run", 1, launched_ns, drained, pid),
        span("chip.run.validate", 1, launched_ns + drained, 12 * US, pid),
        span(device, 2, 0, wall, pid, "clk=dev"),
        span(f"{device}.graph_build", 3, 10 * US, sched_ns + 30 * US, pid, "clk=dev"),
        span(f"{device}.orch", 3, 15 * US, 3 * US, pid, "clk=dev"),
        span(f"{device}.sched", 3, 20 * US, sched_ns, pid, "clk=dev"),
        span(f"{device}.post_orch", 3, sched_ns + 42 * US, 10 * US, pid, "clk=dev"),
        span("chip.run", 0, begin, 50 * US + drained + 13 * US, pid,
             f"run_id={run} dispatch_id={run} slot_id=0 generation={run} run_epoch={run}"),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


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
        rank: (run.end_us - arrival) * US for rank, arrival in enumerate(arrivals)
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
    assert steps["runs"][-1] == {"run": 7, "ranks": 2, "wall_ns": 1_273_000, "skew_ns": 620_000, "last": "rank 1"}
    named = {row["part"].strip(): row["slowest_ns"] for row in steps["parts"]}
    assert named["waiting for later ranks"] == 600 * US
    assert named["collective itself"] == 6 * US


def check_adds_up(parts: list) -> None:
    """Every part equals the sum of those one level below it."""
    for number, part in enumerate(parts):
        below = []
        for other in parts[number + 1 :]:
            if other.level <= part.level:
                break
            if other.level == part.level + 1:
                below.append(other.dur_ns)
        assert not below or sum(below) == part.dur_ns, part


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
    assert "950540 ns from rank 0's, spread 40 ns" in trace.meta.notes["clocks"][1]
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
