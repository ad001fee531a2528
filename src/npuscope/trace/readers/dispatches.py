"""A run over several ranks as PyPTO leaves it: rank<r>/d<k>/ with the k-th dispatch of each card, and the host's logs.

Every card has a clock of its own; `trace/clocks.py` brings them onto the first one's. The host's lanes are laid where
the device's windows fit into their calls. Dispatches without records, and records of older runs, are counted and not
mixed in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import exchange_of
from npuscope.trace.clocks import (
    COLLECTIVES,
    ENDS,
    LONG_NS,
    MUCH_LONGER,
    ClockOffset,
    HostWindow,
    between,
    by_collectives,
    by_host,
    end_together,
    on_first_clock,
    who_meet,
)
from npuscope.trace.core import Meta, Trace, arrays_of, combine
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.intervals import one_group, union
from npuscope.trace.readers import swimlane
from npuscope.trace.readers.dispatch_calls import (
    Dispatch,
    Identity,
    contained_window,
    length_of,
    pids_of_ranks,
    same_call,
    stamped_window,
)
from npuscope.trace.readers.host_log import ON_DEVICE, RUNNER, HostCall, HostLog, host_slices, read_logs
from npuscope.trace.readers.root import TASKS_PER_RANK, merge
from npuscope.trace.readers.run_files import phase_files, read_phases
from npuscope.trace.readers.swimlane_file import records_in
from npuscope.trace.source import NO_JSON, decode_object

_NODE = re.compile(r"node_?(\d{1,6})$")
_RANK = re.compile(r"rank_?(\d{1,6}|local)$")
_DISPATCH = re.compile(r"d(\d{1,9})$")
OUTPUTS = "dfx_outputs"
IDENTITY, PROGRAM = "dispatch_identity.json", "dispatch_program.json"
ANONYMOUS = "task"  # the kernel of tasks without a name map
MOST_MEETINGS = 4096  # of a kernel and dispatch: ranks meet a few times a layer, and what runs more often is work
LOCAL = "rank_local"  # dispatches that name no card: the runtime placed them


class Place(NamedTuple):
    """Where a dispatch lies: `rank` None where its folder names no card."""

    node: int | None
    rank: int | None
    number: int
    folder: Path


def is_run_over_ranks(folder: Path) -> bool:
    return any(True for _ in _places(folder))


def recognises(sample: Sample) -> bool:
    return sample.is_folder and is_run_over_ranks(sample.path)


def _top(root: Path) -> Path:
    return root / OUTPUTS if (root / OUTPUTS).is_dir() else root


def _places(root: Path) -> Iterator[Place]:
    """Every dispatch below a root, in the order of nodes, ranks and dispatches."""
    found: list[Place] = []
    for node, folder in [(None, _top(root)), *_numbered(_top(root), _NODE)]:
        if node is not None:  # a node may have its dispatches at once, or ranks
            found += [Place(node, None, number, one) for number, one in _dispatches(folder)]
        for rank, below in _numbered(folder, _RANK):
            found += [Place(node, rank, number, one) for number, one in _dispatches(below)]
    yield from sorted(found, key=lambda one: (one.node or 0, one.rank is None, one.rank or 0, one.number))


def _numbered(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int | None, Path]]:
    """Folders whose names match, with their numbers; None for `local`."""
    if not folder.is_dir():
        return []
    named = [(pattern.match(child.name), child) for child in folder.iterdir()]
    return [
        (int(match[1]) if match[1].isdecimal() else None, child) for match, child in named if match and child.is_dir()
    ]


def _dispatches(folder: Path) -> list[tuple[int, Path]]:
    """Those of a rank; one whose records lie in its own folder is its only one."""
    found = [(number or 0, one) for number, one in _numbered(folder, _DISPATCH) if _is_one(one)]
    return found or ([(0, folder)] if (folder / IDENTITY).is_file() and _is_one(folder) else [])


def _is_one(folder: Path) -> bool:
    return (folder / IDENTITY).is_file() or records_in(folder) is not None


def logs_of(root: Path) -> list[Path]:
    """The host's logs beside the ranks, and those of every node."""
    folders = [root, _top(root), *(folder for _, folder in _numbered(_top(root), _NODE))]
    return sorted({log for folder in folders for log in folder.glob("host.*.log")})


@dataclass
class RunOverRanks:
    """What a root holds, before its ranks are laid onto one clock."""

    root: Path
    dispatches: list[Dispatch] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)
    notes: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def of(root: Path) -> RunOverRanks:
        """Every dispatch read; one that cannot be is named and left out."""
        found = RunOverRanks(root)
        places = list(_places(root))
        numbers = _rank_numbers(places)
        for number, place in enumerate(places):
            progress.report(f"reading {root.name}", number, len(places))
            try:
                found.dispatches.append(_dispatch(numbers, place, found.unknown))
            except BadInput as error:
                found.broken[str(place.folder)] = error.what
        found.dispatches.sort(key=lambda one: (one.rank, one.number))
        unplaced = sorted({one.rank for one in found.dispatches if one.folder.parent.name == LOCAL
                           and one.identity.chip_rank is None})  # fmt: skip
        if unplaced and len({one.rank for one in found.dispatches}) > 1:
            found.notes["rank_local"] = f"which card it ran on is not recorded; it counts as rank {unplaced[0]}"
        return found

    @property
    def recorded(self) -> list[Dispatch]:
        return [one for one in self.dispatches if one.trace is not None]

    @cached_property
    def log(self) -> HostLog:
        log = read_logs(logs_of(self.root))
        log.spans += read_phases(phase_files(_top(self.root)), log.ledger)
        return log

    @cached_property
    def calls(self) -> dict[tuple[int, int], HostCall]:
        return {(call.pid, call.number): call for call in self.log.calls}

    @cached_property
    def pids(self) -> dict[int, int]:
        """rank -> process."""
        return pids_of_ranks(self.log, self.recorded, self.notes)

    def call_of(self, one: Dispatch) -> HostCall | None:
        """The host's call of a dispatch."""
        pid = self.pids.get(one.rank)
        return next((call for (p, _), call in self.calls.items() if p == pid and same_call(one, call)), None)

    @cached_property
    def clocks(self) -> tuple[dict[int, ClockOffset], dict[int, str]]:
        """Offsets of ranks to the first one, and of those that keep their own clock why."""
        ranks = sorted({one.rank for one in self.recorded})
        found, why = by_collectives(self.ends, ranks)
        if why and self.log.spans:
            placed, longest = by_host(self.host_windows), max(length_of(one) for one in self.recorded)
            for rank in list(why):
                if rank in placed and ranks[0] in placed:
                    offset = between(placed[ranks[0]], placed[rank], longest)
                    if isinstance(offset, str):
                        why[rank] = offset if "contradict" not in why[rank] else why[rank]
                    else:
                        found[rank] = offset
                        del why[rank]
        return found, why

    @cached_property
    def host_windows(self) -> list[HostWindow]:
        """Where the host's log says that dispatches, and calls with the device's own stamps, lay."""
        windows = [contained_window(one, call) for one in self.recorded if (call := self.call_of(one)) is not None]
        ranks = {pid: rank for rank, pid in self.pids.items()}
        stamped = [stamped_window(ranks[call.pid], call) for call in self.calls.values() if call.pid in ranks]
        return [one for one in (*windows, *stamped) if one is not None]

    @cached_property
    def ends(self) -> pl.DataFrame:
        """Of the tasks that ranks may meet in."""
        return _ends(self.dispatches) if self.recorded else pl.DataFrame(schema=ENDS)

    @cached_property
    def numbers(self) -> pl.DataFrame:
        """rank, run and step of every dispatch: what it is called here, and alike on every rank."""
        rows = [(one.rank, run_key(one, nth), one.number) for one, nth in _in_runs(self.dispatches)]
        return pl.DataFrame(rows, schema={"rank": pl.Int64, "run": pl.String, "step": pl.Int64}, orient="row")

    @cached_property
    def meetings(self) -> pl.DataFrame:
        """rank, step, token and meeting of the tasks that ranks do meet in; one of a single rank is none."""
        meets = [one for one in self.ends["kernel"].unique().to_list() if exchange_of(one) or one in self.meets_in]
        ends, error = self.ends.filter(pl.col("kernel").is_in(meets)), None
        offsets, _ = self.clocks
        if ends["rank"].n_unique() == 1 + len(offsets) and all(one.by == COLLECTIVES for one in offsets.values()):
            error = max((one.error_ns for one in offsets.values()), default=0)
            ends = on_first_clock(ends, offsets)
        found = _meetings(ends, self.numbers, error)
        return found.filter(pl.col("rank").n_unique().over("meeting") > 1)

    @cached_property
    def meets_in(self) -> set[str]:
        """The kernels that ranks were seen to meet in, by their ends, whatever they are called."""
        offsets, _ = self.clocks
        aligned = {rank: one for rank, one in offsets.items() if one.by == COLLECTIVES}
        first = min((one.rank for one in self.recorded), default=0)
        here = self.ends.filter(pl.col("rank").is_in([first, *aligned]))
        return {one.kernel for one in aligned.values()} | set(end_together(here, aligned) if aligned else ())


def _rank_numbers(places: Sequence[Place]) -> dict[tuple[int | None, int | None], int]:
    """A number for each place of a rank. Nodes that each count their ranks from zero are counted through; dispatches of
    no card get the next free number, which their identity may overrule."""
    named = sorted({(place.node, place.rank) for place in places if place.rank is not None}, key=lambda one: (
        -1 if one[0] is None else one[0], one[1] or 0))  # fmt: skip
    distinct = len({rank for _, rank in named}) == len(named)
    numbers: dict[tuple[int | None, int | None], int] = {}
    for number, (node, rank) in enumerate(named):
        numbers[node, rank] = rank if distinct and rank is not None else number
    for place in places:
        if place.rank is None and (place.node, None) not in numbers:
            taken = set(numbers.values())
            wanted = place.node if place.node is not None else 0
            free = wanted if wanted not in taken else max(taken) + 1
            numbers[place.node, None] = free
    return numbers


def read(root: Path) -> Trace:
    """All ranks on one clock, with the host's lanes."""
    run = RunOverRanks.of(root)
    recorded = run.recorded
    if not recorded:
        if run.broken:
            raise BadInput(next(iter(run.broken.values())), path=next(iter(run.broken)))
        why = f"{len(run.dispatches)} dispatches, none of which left records"
        raise BadInput(why, path=root, remedy="Run it with the swimlane switched on.")
    offsets, apart = run.clocks
    ranks = {rank: _one_rank([d for d in recorded if d.rank == rank]) for rank in sorted({d.rank for d in recorded})}
    first = min(ranks)
    notes = run.notes | {
        "dispatches_without_records": len(run.dispatches) - len(recorded),
        "files_not_read": run.broken,
        "ranks_recorded": sorted({d.rank for d in run.dispatches}),
        "clocks": {rank: offset.as_note() for rank, offset in offsets.items()},
        "clocks_not_aligned": apart,
        "meets_in": sorted(run.meets_in),
        "rings": _fullest(recorded),
    }
    parts = [(rank, _ranked(_moved(trace, offsets.get(rank)), rank, run.meetings)) for rank, trace in ranks.items()]
    trace = merge(parts)
    meta = replace(trace.meta.plus(unknown=run.unknown), format=f"dispatches of {len(parts)} ranks")
    trace = replace(trace, meta=meta)
    if run.log.spans:
        trace = _with_host(trace, run, first, notes)
    kept = {name: value for name, value in {**trace.meta.notes, **notes}.items() if value}
    return replace(trace, meta=replace(trace.meta, notes=kept))


def _dispatch(numbers: Mapping[tuple[int | None, int | None], int], place: Place, unknown: Counter[str]) -> Dispatch:
    folder, identity, program = place.folder, Identity(), ""
    if (folder / IDENTITY).is_file():
        raw = (folder / IDENTITY).read_bytes()
        identity = decode_object(raw, Identity, "readable as the identity of a dispatch", folder / IDENTITY, unknown)
    if (folder / PROGRAM).is_file():
        try:
            program = str(msgspec.json.decode((folder / PROGRAM).read_bytes(), type=dict).get("program", ""))
        except NO_JSON as error:
            raise BadInput(f"no JSON: {error}", path=folder / PROGRAM) from error
    trace, older = None, pl.DataFrame(schema=dict.fromkeys(("task", "start", "end", "older"), pl.Int64))
    if records_in(folder) is not None:
        trace, older = swimlane.read_with_older(folder, one_dispatch=True)
        trace = replace(trace, slices=trace.slices.with_columns(_named_by_number(program, trace.slices)))
    rank = numbers[place.node, place.rank]
    if place.rank is None and identity.chip_rank is not None and identity.chip_rank >= 0:
        rank = identity.chip_rank
    return Dispatch(rank, place.number, folder, identity, program, trace, older)


def _named_by_number(program: str, slices: pl.DataFrame) -> pl.Expr:
    """Tasks without a name are called by ring and number, as r1t2: the same one on every rank. A program that is one
    collective, as the host's own are, gives its name to its only task."""
    ring, number = pl.col("task") // 2**32 % 256, pl.col("task") % 2**32
    name = pl.format("r{}t{}", ring, number)
    tasks = slices.filter(pl.col("kind") == "task")["task"]
    if exchange_of(program) is not None and tasks.n_unique() == 1:
        name = pl.lit(program)
    return (
        pl.when((pl.col("kernel") == ANONYMOUS) & (pl.col("kind") == "task"))
        .then(name)
        .otherwise("kernel")
        .alias("kernel")
    )


def _one_rank(dispatches: list[Dispatch]) -> Trace:
    """The dispatches of one card, which share its cores and its clock: each is a step with tasks of its own."""
    lanes: dict[str, dict[str, object]] = {}
    slices, edges, counters, metas = [], [], [], {}
    for number, one in enumerate(dispatches):
        assert one.trace is not None
        places = {}
        for lane in one.trace.lanes.iter_rows(named=True):
            kept = lanes.setdefault(str(lane["name"]), {**lane, "lane": len(lanes)})
            places[lane["lane"]] = kept["lane"]
        placed = pl.col("lane").replace_strict(places, default=None, return_dtype=pl.UInt32)
        shift = number * TASKS_PER_RANK
        slices.append(
            one.trace.slices.with_columns(
                placed, pl.col("task") + shift, step=pl.lit(one.number, dtype=pl.Int64), run=pl.lit(one.run)
            )
        )
        edges.append(one.trace.edges.with_columns(pl.col("src", "dst") + shift))
        counters.append(one.trace.counters.with_columns(placed))
        metas[f"dispatch {one.number}{f', {one.program}' if one.program else ''}"] = one.trace.meta
    meta: Meta = next(iter(metas.values())) if len(metas) == 1 else combine(metas, "swimlane")
    return Trace.of(
        pl.concat(slices, how="diagonal_relaxed"),
        pl.DataFrame(list(lanes.values()), infer_schema_length=None),
        meta,
        pl.concat(edges, how="diagonal_relaxed"),
        pl.concat(counters, how="diagonal_relaxed"),
    )


def _fullest(dispatches: Sequence[Dispatch]) -> dict[str, object]:
    """How full each ring was at most over all dispatches, and in which."""
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    lost = 0
    sizes: dict[str, object] = {}
    for one in dispatches:
        rings = one.trace.meta.notes.get("rings", {}) if one.trace is not None else {}
        lost += rings.get("dropped", 0)
        sizes = rings.get("capacities", sizes)
        for use in rings.get("uses", ()):
            key, where = (use["resource"], use["ring"]), f"rank {one.rank}, d{one.number}"
            if key not in found or use["high_water"] > found[key]["high_water"]:
                found[key] = {**use, "where": where}
    return {"uses": list(found.values()), "dropped": lost, "capacities": sizes} if found else {}


def _moved(trace: Trace, offset: ClockOffset | None) -> Trace:
    if offset is None:
        return trace
    times = [c for c in ("start", "dispatch", "finish", "receive") if c in trace.slices.columns]
    return replace(
        trace,
        slices=trace.slices.with_columns(offset.moved(pl.col(time)).alias(time) for time in times),
        counters=trace.counters.with_columns(offset.moved(pl.col("time")).alias("time")),
    )


def _ranked(trace: Trace, rank: int, meetings: pl.DataFrame) -> Trace:
    """Lanes of a rank, where what ranks meet in counts as communication, and which meeting each is."""
    meet = [name for name in trace.slices["kernel"].unique().to_list() if exchange_of(name)]
    slices = trace.slices
    if meetings.height:
        here = meetings.filter(pl.col("rank") == rank).select("step", "token", "meeting").cast({"step": pl.Int64})
        slices = slices.with_columns(token=pl.col("task") % TASKS_PER_RANK).join(
            here, on=["step", "token"], how="left", maintain_order="left"
        )
        work = pl.col("kind") == "task"
        slices = slices.with_columns(meeting=pl.when(work).then("meeting")).drop("token")
    else:
        slices = slices.with_columns(meeting=pl.lit(None, dtype=pl.String))
    meets = (pl.col("kind") == "task") & (pl.col("kernel").is_in(meet) | pl.col("meeting").is_not_null())
    kind = pl.when(meets).then(pl.lit("comm")).otherwise(pl.col("kind").cast(pl.String))
    lanes = trace.lanes.with_columns(pl.lit(rank, dtype=pl.Int32).alias("rank"))
    return Trace.of(slices.with_columns(kind.alias("kind")), lanes, trace.meta, trace.edges, trace.counters)


def _meetings(ends: pl.DataFrame, numbers: pl.DataFrame, error_ns: int | None) -> pl.DataFrame:
    """Which meeting each task of a rank is, by its run and program: the same task on every rank, or where ranks number
    their tasks differently and have equally many, the same one by order. rank, step, token, meeting; without tasks that
    ranks do not leave together, as those of a ring, in which each waits for its neighbour only."""
    here = ends.filter(pl.col("older") == 0).join(numbers, on=("rank", "run"))
    key = ["run", "kernel"]
    times = pl.len().over(*key, "rank")
    tasks, often = pl.col("task").n_unique().over(key), times.max().over(key)
    by_order = (tasks > often) & (times.min().over(key) == often)
    which = pl.when(by_order).then(pl.format("#{}", "nth")).otherwise(pl.col("task").cast(pl.String))
    here = here.with_columns(key=pl.concat_str("run", "kernel", which, separator=" "), sure=pl.lit(True))
    here = here.with_columns(who_meet(here, error_ns)).drop_nulls("among")
    return here.select("rank", "step", token="task", meeting=pl.concat_str("key", "among", separator=" of ranks "))


def _ends(dispatches: Sequence[Dispatch]) -> pl.DataFrame:
    """When tasks ended that ranks may meet in, those of older runs that files still hold too: of kernels whose names
    say it, and of those that take much longer on some rank than on another."""
    tables = [(one, nth, _tasks(one)) for one, nth in _in_runs(dispatches) if one.trace is not None]
    names = {name for _, _, table in tables for name in table["kernel"].unique().to_list()}
    wanted = [name for name in names if exchange_of(name) in ("all", "wait")]
    wanted += _uneven([table for _, _, table in tables])
    parts = []
    for one, nth, table in tables:
        rows = table.filter(pl.col("kernel").is_in(wanted)).sort("start", maintain_order=True)
        parts.append(
            rows.with_columns(
                rank=pl.lit(one.rank, dtype=pl.Int64),
                run=pl.lit(run_key(one, nth)),
                nth=pl.int_range(pl.len(), dtype=pl.Int64).over("older", "kernel"),
            ).select(pl.col(name).cast(type) for name, type in ENDS.items())
        )
    return pl.concat(parts)


def run_key(one: Dispatch, nth: int) -> str:
    """Names a dispatch alike on every rank."""
    return f"{one.run} {one.what} {nth}"


def _in_runs(dispatches: Sequence[Dispatch]) -> Iterator[tuple[Dispatch, int]]:
    """Each with which dispatch of its program it is in its run and rank: the same one on every rank."""
    seen: Counter[tuple[object, ...]] = Counter()
    for one in dispatches:
        key = (one.rank, one.run, one.what)
        yield one, seen[key]
        seen[key] += 1


def _tasks(one: Dispatch) -> pl.DataFrame:
    """task, kernel, older, first start and last end of its blocks."""
    assert one.trace is not None
    tasks = one.trace.slices.filter(pl.col("kind") == "task").select(
        "task", "kernel", "start", end=pl.col("start") + pl.col("dur"), older=pl.lit(0, dtype=pl.Int64)
    )
    if one.older.height:
        names = tasks.select("task", "kernel").unique("task", keep="first")
        before = one.older.join(names, on="task").select("task", "kernel", "start", "end", "older")
        tasks = pl.concat([tasks, before])
    return tasks.group_by("task", "kernel", "older", maintain_order=True).agg(
        pl.col("start").min(), pl.col("end").max()
    )


def _uneven(tables: Sequence[pl.DataFrame]) -> list[str]:
    """Kernels that take much longer at times: who waits inside one does."""
    dur = pl.col("end") - pl.col("start")
    each = [table.group_by("kernel").agg(least=dur.min(), most=dur.max(), times=pl.len()) for table in tables]
    if not each:
        return []
    both = pl.concat(each).group_by("kernel").agg(pl.col("least").min(), pl.col("most", "times").max())
    much = (pl.col("most") >= MUCH_LONGER * pl.col("least")) & (pl.col("most") - pl.col("least") >= LONG_NS)
    return both.filter(much & (pl.col("times") <= MOST_MEETINGS))["kernel"].to_list()


# --- the host


def _with_host(trace: Trace, run: RunOverRanks, first: int, notes: dict[str, object]) -> Trace:
    """The host's lanes beside the cards, and when it launched each rank."""
    launches: dict[int, dict[int, int]] = {}  # of each rank the first launch of each run
    for one in run.recorded:
        call = run.call_of(one)
        launch = None if call is None else call.by_name.get(RUNNER)
        if launch is not None:
            launches.setdefault(one.rank, {}).setdefault(one.run, launch.start_ns)
    if len({log.parent for log in logs_of(run.root)} - {run.root, _top(run.root)}) > 1:
        # each node counts by itself: without anchors to the wall clock nobody knows who was launched first
        walls = {rank: {number: run.log.wall_ns(run.pids[rank], ns) for number, ns in each.items()}
                 for rank, each in launches.items()}  # fmt: skip
        known = None not in {ns for each in walls.values() for ns in each.values()}
        launches = {rank: {n: ns for n, ns in each.items() if ns is not None} for rank, each in walls.items()
                    if known}  # fmt: skip
    offset, slack = _host_offset(run, first)
    if launches:
        notes["launched_ns"] = launches
    if offset is None:
        notes["host_clock"] = "no call of the log could be joined to a dispatch: the host's lanes keep its clock"
    else:
        notes["host_slack_ns"] = slack
    lanes, slices = host_slices(run.log, {pid: rank for rank, pid in run.pids.items()})
    highest = int(trace.slices["task"].max() or 0) + 1  # type: ignore[arg-type]
    slices = slices.with_columns(
        pl.col("lane") + len(trace.lanes), pl.col("start") + (offset or 0), pl.col("task") + highest
    )
    ledger = run.log.ledger
    ledger.dropped[ON_DEVICE] += sum(span.on_device for span in run.log.spans)
    meta = trace.meta.plus(ledger.records, dropped=ledger.dropped, marked=ledger.marked)
    return Trace.of(
        pl.concat([trace.slices, slices], how="diagonal_relaxed"),
        pl.concat([trace.lanes, lanes.with_row_index("lane", len(trace.lanes))], how="diagonal_relaxed"),
        meta,
        trace.edges,
        trace.counters,
    )


def _host_offset(run: RunOverRanks, first: int) -> tuple[int | None, int]:
    """What to add to the host's times so that they lie beside the first rank's: at the earliest place that all ranks on
    its clock allow, and how much later it may be."""
    offsets, apart = run.clocks
    placed = by_host(run.host_windows)
    ours = [
        (least - offset, most)
        for rank, (least, most, _, _) in placed.items()
        if rank not in apart
        for offset in [offsets[rank].offset_ns if rank in offsets else 0]
    ]
    if not ours:
        return None, 0
    least = max(one for one, _ in ours)
    most = min(one + more for one, more in ours)
    if most < least and first in placed:  # the log and the collectives disagree: the first rank's own place counts
        least, most = placed[first][0], placed[first][0] + placed[first][1]
    return -least, max(most - least, 0)


@dataclass(frozen=True)
class DeviceTime:
    """What of a dispatch's time its device ran: collectives, split into waiting for ranks that came later and what the
    last one took, and everything else beside them."""

    wait_ns: int = 0
    cost_ns: int = 0
    compute_ns: int = 0

    def __add__(self, other: DeviceTime) -> DeviceTime:
        return DeviceTime(
            self.wait_ns + other.wait_ns, self.cost_ns + other.cost_ns, self.compute_ns + other.compute_ns
        )


DispatchKey = tuple[int, int, int | None]  # rank, run, and the number of the dispatch in the host's log


def steps_of_root(root: Path) -> tuple[HostLog, dict[int, int], dict[DispatchKey, DeviceTime]]:
    """The logs of a run over ranks, the rank of each process, and of every dispatch what its device ran."""
    run = RunOverRanks.of(root)
    ranks = {pid: rank for rank, pid in run.pids.items()}
    met = run.ends.filter(pl.col("older") == 0).join(run.numbers, on=("rank", "run"))
    met = met.join(run.meetings, left_on=["rank", "step", "task"], right_on=["rank", "step", "token"])
    met = met.with_columns(dur=pl.col("end") - pl.col("start"))
    cost = pl.col("dur").min().over("meeting")
    met = met.with_columns(cost=cost)
    by_place = {
        (int(key[0]), int(key[1])): rows for key, rows in met.partition_by("rank", "step", as_dict=True).items()
    }
    found: dict[DispatchKey, DeviceTime] = {}
    for one in run.recorded:
        time = _device_time(one, by_place.get((one.rank, one.number), met.clear()))
        key = (one.rank, one.run, one.identity.endpoint_dispatch_id)
        found[key] = found[key] + time if key in found else time
    return run.log, ranks, found


def _device_time(one: Dispatch, met: pl.DataFrame) -> DeviceTime:
    """By when anything of each kind ran: a moment counts once, and for a collective where one is under way."""
    assert one.trace is not None
    tasks = one.trace.slices.filter(pl.col("kind") == "task")
    meets = tasks["task"].is_in(met["task"].implode())
    _, start, dur = arrays_of(tasks)
    of_met = meets.to_numpy()
    together = union(one_group(start[of_met], (start + dur)[of_met])).length
    everything = union(one_group(start, start + dur)).length
    cost = min(int(met["cost"].sum()), together)
    return DeviceTime(together - cost, cost, everything - together)


READER = Reader(
    "dispatches",
    "a run over several ranks: rank*/d*/ with the records of each dispatch, and the host's logs",
    recognises,
    read,
    files=(IDENTITY,),
    tells=(*swimlane.READER.tells, "launches: with the host's logs", "communication", "steps"),
)
