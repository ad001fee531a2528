"""A run over several ranks as PyPTO leaves it: rank<r>/d<k>/ with the k-th dispatch of each card, and the host's logs.

Every card has a clock of its own. Ranks are brought onto the clock of the first by collectives that end for all at
once; how far several of them disagree is the error. The host's lanes are laid where the first card's device window
fits into its call. A dispatch without records, and records of older runs, are counted and not mixed in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput
from npuscope.trace.core import Meta, Trace, add_counts, combine, with_depth
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.readers import swimlane
from npuscope.trace.readers.host_log import CHIP, DEVICE_WALL, ON_DEVICE, HostCall, HostLog, host_slices, read_logs
from npuscope.trace.readers.root import TASKS_PER_RANK, merge
from npuscope.trace.readers.swimlane_file import records_in
from npuscope.trace.source import decode_object

_RANK = re.compile(r"rank_?(\d{1,6}|local)$")
_DISPATCH = re.compile(r"d(\d{1,9})$")
OUTPUTS = "dfx_outputs"
IDENTITY, PROGRAM = "dispatch_identity.json", "dispatch_program.json"
# Collectives whose kernels end with a barrier over all ranks; puts, gets and broadcasts let some go earlier.
ENDS_FOR_ALL = re.compile(r"all_?to_?all|all_?reduce|reduce_?scatter|all_?gather|barrier", re.IGNORECASE)
ANONYMOUS = "task"  # the kernel of tasks without a name map
MUCH_LONGER, LONG_NS = 3, 10_000  # a task without a name that waits on one rank and not on another


class Identity(msgspec.Struct):
    """Which call of the host a dispatch is."""

    schema_version: int | None = None
    task_slot: int | None = None
    group_index: int | None = None
    local_capture_index: int | None = None
    callable_digest: str | None = None
    run_id: int | None = None
    endpoint_dispatch_id: int | None = None
    pipeline_slot: int | None = None
    pipeline_generation: int | None = None
    chip_rank: int | None = None
    group_size: int | None = None
    host_pid: int | None = None


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of one rank; `trace` None where it left no records."""

    rank: int
    number: int
    folder: Path
    identity: Identity
    program: str
    trace: Trace | None
    older: pl.DataFrame


@dataclass(frozen=True)
class ClockOffset:
    """How a rank's clock stands to the first one's: to be added to its times."""

    offset_ns: int
    spread_ns: int  # between the collectives that say it
    collectives: int
    by: str  # the kernel whose ends were compared


def recognises(sample: Sample) -> bool:
    return sample.is_folder and any(True for _ in _folders(sample.path))


def _folders(root: Path) -> Iterator[tuple[int, int, Path]]:
    """rank, dispatch and folder of every dispatch below a root, in their order."""
    top = root / OUTPUTS if (root / OUTPUTS).is_dir() else root
    found = []
    for rank in top.iterdir() if top.is_dir() else ():
        named = _RANK.match(rank.name)
        for folder in rank.iterdir() if named and rank.is_dir() else ():
            number = _DISPATCH.match(folder.name)
            if named and number and folder.is_dir() and ((folder / IDENTITY).is_file() or records_in(folder)):
                found.append((0 if named[1] == "local" else int(named[1]), int(number[1]), folder))
    yield from sorted(found)


def logs_of(root: Path) -> list[Path]:
    """The host's logs beside the ranks."""
    top = root / OUTPUTS if (root / OUTPUTS).is_dir() else root
    return sorted({*top.glob("host.*.log"), *root.glob("host.*.log")})


def read(root: Path) -> Trace:
    """All ranks on one clock, with the host's lanes."""
    dispatches, broken = [], {}
    unknown: Counter[str] = Counter()
    folders = list(_folders(root))
    for number, (rank, dispatch, folder) in enumerate(folders):
        progress.report(f"reading {root.name}", number, len(folders))
        try:
            dispatches.append(_dispatch(rank, dispatch, folder, unknown))
        except BadInput as error:
            broken[str(folder)] = error.what
    with_records = [one for one in dispatches if one.trace is not None]
    if not with_records:
        if broken:
            raise BadInput(next(iter(broken.values())), path=next(iter(broken)))
        why = f"{len(dispatches)} dispatches, none of which left records"
        raise BadInput(why, path=root, remedy="Run it with the swimlane switched on.")
    ranks = {rank: _one_rank([d for d in with_records if d.rank == rank]) for rank in {d.rank for d in with_records}}
    offsets = clock_offsets(with_records)
    log = read_logs(logs_of(root))
    first = min(ranks)
    notes: dict[str, object] = {
        "dispatches_without_records": len(dispatches) - len(with_records),
        "files_not_read": broken,
        "ranks_recorded": sorted({d.rank for d in dispatches}),
        "clocks": {
            rank: f"{offset.offset_ns} ns from rank {first}'s, spread {offset.spread_ns} ns, by the end of {offset.by}"
            for rank, offset in offsets.items()
        },
    }
    if left := sorted(set(ranks) - set(offsets) - {first}):
        notes["clocks_not_aligned"] = left
    collectives = {offset.by for offset in offsets.values()}
    parts = [
        (rank, _ranked(_moved(trace, offsets[rank].offset_ns if rank in offsets else 0), rank, collectives))
        for rank, trace in sorted(ranks.items())
    ]
    trace = merge(parts)
    total = add_counts(trace.meta.unknown, unknown)
    meta = replace(trace.meta, format=f"dispatches of {len(parts)} ranks", unknown=total)
    trace = replace(trace, meta=meta)
    if log.spans:
        trace = _with_host(trace, log, with_records, first, notes)
    kept = {name: value for name, value in {**trace.meta.notes, **notes}.items() if value}
    return replace(trace, meta=replace(trace.meta, notes=kept))


def _dispatch(rank: int, number: int, folder: Path, unknown: Counter[str]) -> Dispatch:
    identity, program = Identity(), ""
    if (folder / IDENTITY).is_file():
        raw = (folder / IDENTITY).read_bytes()
        identity = decode_object(raw, Identity, "readable as the identity of a dispatch", folder / IDENTITY, unknown)
    if (folder / PROGRAM).is_file():
        try:
            program = str(msgspec.json.decode((folder / PROGRAM).read_bytes(), type=dict).get("program", ""))
        except msgspec.DecodeError as error:
            raise BadInput(f"no JSON: {error}", path=folder / PROGRAM) from error
    trace, older = None, pl.DataFrame(schema={"task": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    if records_in(folder) is not None:
        trace, older = swimlane.read_with_older(folder)
        trace = replace(trace, slices=trace.slices.with_columns(_named_by_number()))
    return Dispatch(rank, number, folder, identity, program, trace, older)


def _named_by_number() -> pl.Expr:
    """Tasks without a name are called by ring and number, as r1t2: the same one on every rank."""
    ring, number = pl.col("task") // 2**32 % 256, pl.col("task") % 2**32
    name = pl.format("r{}t{}", ring, number)
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
                placed, pl.col("task") + shift, pl.lit(one.number, dtype=pl.Int64).alias("step")
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


def _moved(trace: Trace, offset: int) -> Trace:
    times = [c for c in ("start", "dispatch", "finish", "receive") if c in trace.slices.columns]
    return replace(
        trace,
        slices=trace.slices.with_columns(pl.col(times) + offset),
        counters=trace.counters.with_columns(pl.col("time") + offset),
    )


def _ranked(trace: Trace, rank: int, collectives: set[str]) -> Trace:
    """Lanes of a rank, where the kernels that ranks meet in count as communication."""
    meets = pl.col("kernel").is_in(list(collectives)) | pl.col("kernel").str.contains(f"(?i){ENDS_FOR_ALL.pattern}")
    kind = pl.when((pl.col("kind") == "task") & meets).then(pl.lit("comm")).otherwise(pl.col("kind").cast(pl.String))
    lanes = trace.lanes.with_columns(pl.lit(rank, dtype=pl.Int32).alias("rank"))
    return Trace.of(trace.slices.with_columns(kind.alias("kind")), lanes, trace.meta, trace.edges, trace.counters)


# --- clocks


def clock_offsets(dispatches: list[Dispatch]) -> dict[int, ClockOffset]:
    """Each rank's clock against the first one's, by the ends of collectives that let all ranks go at once."""
    ends = pl.concat([_ends(one) for one in dispatches]).filter(pl.col("members") == 1)
    ends = ends.filter(pl.col("kernel").is_in(_met_in(ends)))
    first = min(one.rank for one in dispatches)
    reference = ends.filter(pl.col("rank") == first)
    found: dict[int, ClockOffset] = {}
    for rank in sorted({one.rank for one in dispatches} - {first}):
        both = reference.join(ends.filter(pl.col("rank") == rank), on=("run", "kernel", "nth"), suffix="_other")
        if both.is_empty():
            continue
        offsets = both.select(pl.col("end") - pl.col("end_other")).to_series().sort()
        spread = int(offsets[-1]) - int(offsets[0])
        name = str(both["kernel"].mode().sort()[0])
        found[rank] = ClockOffset(int(offsets[len(offsets) // 2]), spread, len(offsets), name)
    return found


def _met_in(ends: pl.DataFrame) -> list[str]:
    """The kernels that ranks meet in: collectives by name; among tasks without names the one that waits on some ranks
    and not on others, if one does.
    """
    named = ends.filter(pl.col("kernel").str.contains(f"(?i){ENDS_FOR_ALL.pattern}"))["kernel"].unique().to_list()
    if named:
        return named
    least, most = pl.col("dur").min(), pl.col("dur").max()
    spread = ends.filter(pl.col("kernel").str.contains(r"^r\d+t\d+$")).group_by("run", "kernel", "nth")
    waits = spread.agg(more=most - least, waits=(most >= MUCH_LONGER * least) & (most - least >= LONG_NS)).filter(
        "waits"
    )
    return waits.sort("more", "kernel", descending=[True, False])["kernel"].head(1).to_list()


def _ends(one: Dispatch) -> pl.DataFrame:
    """When tasks of a dispatch ended, those of the older run it holds too: run, kernel, which of its kind, how long."""
    assert one.trace is not None
    keys = ["rank", "run", "kernel", "nth", "start", "end", "dur", "members"]
    run = one.identity.run_id if one.identity.run_id is not None else one.number
    tasks = one.trace.slices.filter(pl.col("kind") == "task").with_columns(end=pl.col("start") + pl.col("dur"))
    names = dict(tasks.select("task", "kernel").unique(keep="first", maintain_order=True).iter_rows())
    older = one.older.with_columns(
        kernel=pl.col("task").replace_strict(names, default=None, return_dtype=pl.String),
        dur=pl.col("end") - pl.col("start"),
    )
    parts = []
    for label, rows in ((f"{run}", tasks), (f"{run}, older", older)):
        grouped = rows.group_by("task", "kernel", maintain_order=True).agg(
            pl.col("start").min(), pl.col("end").max(), members=pl.len().cast(pl.Int64)
        )
        grouped = grouped.sort("start", maintain_order=True).with_columns(
            rank=pl.lit(one.rank, dtype=pl.Int64), run=pl.lit(label), dur=pl.col("end") - pl.col("start"),
            nth=pl.int_range(pl.len(), dtype=pl.Int64).over("kernel"),
        )  # fmt: skip
        parts.append(grouped.select(keys))
    return pl.concat(parts)


# --- the host


def steps_of_root(root: Path) -> tuple[HostLog, dict[int, int], dict[tuple[int, int], tuple[int, int]]]:
    """The logs of a run over ranks, the rank of each process, and by rank and run what its collectives took: waiting
    for ranks that came later, and the run of the last one.
    """
    logs = logs_of(root)
    if not logs:
        raise BadInput("no host.*.log in this folder", path=root, remedy="Keep the host's logs beside the ranks.")
    log = read_logs(logs)
    dispatches = [one for one in (_dispatch(*folder, Counter()) for folder in _folders(root)) if one.trace is not None]
    meets = {offset.by for offset in clock_offsets(dispatches).values()} if dispatches else set()
    if not meets:
        return log, {pid: rank for rank, pid in pids_of_ranks(log, dispatches).items()}, {}
    ends = pl.concat([_ends(one) for one in dispatches]).filter(pl.col("kernel").is_in(list(meets)))
    ends = ends.filter(~pl.col("run").str.contains("older"))
    cost = pl.col("dur").min().over("run", "kernel", "nth")
    took = (
        ends.with_columns(wait=pl.col("dur") - cost, cost=cost)
        .group_by("rank", "run")
        .agg(pl.col("wait", "cost").sum())
    )
    peers = {(int(rank), int(run)): (int(wait), int(cost)) for rank, run, wait, cost in took.iter_rows()}
    return log, {pid: rank for rank, pid in pids_of_ranks(log, dispatches).items()}, peers


def _with_host(trace: Trace, log: HostLog, dispatches: list[Dispatch], first: int, notes: dict[str, object]) -> Trace:
    """The host's lanes beside the cards, and when it launched each rank."""
    ranks = pids_of_ranks(log, dispatches)
    calls = {(call.pid, call.number): call for call in log.calls}
    launches: dict[int, int] = {}
    offset = None
    for one in dispatches:
        call = _call_of(one, ranks, calls)
        launch = None if call is None else call.by_name.get(f"{CHIP}.runner_run")
        if call is None or launch is None:
            continue
        launches[one.rank] = launch.start_ns  # of the newest dispatch: they come in order
        if one.rank == first and one.trace is not None:
            opened = call.by_name.get(f"{DEVICE_WALL}.sched")
            began = int(one.trace.slices["start"].min() or 0)  # type: ignore[arg-type]
            offset = began - launch.start_ns - (0 if opened is None else opened.start_ns)
            wall = call.by_name.get(DEVICE_WALL)
            notes["host_slack_ns"] = launch.dur_ns - (0 if wall is None else wall.dur_ns)
    if launches:
        notes["launched_ns"] = launches
    if offset is None:
        notes["host_clock"] = "no call of the log could be joined to a dispatch: the host's lanes keep its clock"
    rows, slices = host_slices(log, offset or 0, {pid: rank for rank, pid in ranks.items()})
    lanes = pl.DataFrame(rows).with_row_index("lane", len(trace.lanes))
    highest = int(trace.slices["task"].max() or 0) + 1  # type: ignore[arg-type]
    slices = slices.with_columns(
        pl.col("lane") + len(trace.lanes), task=pl.int_range(pl.len(), dtype=pl.Int64) + highest
    )
    on_device = sum(span.on_device for span in log.spans)
    ledger = log.ledger
    meta = replace(
        trace.meta,
        records=trace.meta.records + ledger.records,
        dropped=add_counts(trace.meta.dropped, ledger.dropped, {ON_DEVICE: on_device} if on_device else {}),
        marked=add_counts(trace.meta.marked, ledger.marked),
    )
    return Trace.of(
        pl.concat([trace.slices, with_depth(slices)], how="diagonal_relaxed"),
        pl.concat([trace.lanes, lanes], how="diagonal_relaxed"),
        meta,
        trace.edges,
        trace.counters,
    )


def pids_of_ranks(log: HostLog, dispatches: list[Dispatch]) -> dict[int, int]:
    """rank -> process: as the identity says, else the process whose device windows fit the rank's closest."""
    known = {one.rank: one.identity.host_pid for one in dispatches if one.identity.host_pid is not None}
    calls = log.calls
    pids = sorted({call.pid for call in calls} - set(known.values()))
    fits: list[tuple[int, int, int]] = []
    for one in dispatches:
        if one.trace is None or one.rank in known:
            continue
        began, ended = one.trace.span
        for call in calls:
            window = call.by_name.get(f"{DEVICE_WALL}.sched") or call.by_name.get(DEVICE_WALL)
            if call.pid in pids and window is not None and _same_call(one, call) and window.dur_ns >= ended - began:
                fits.append((window.dur_ns - (ended - began), one.rank, call.pid))
    for _, rank, pid in sorted(fits):
        if rank not in known and pid not in known.values():
            known[rank] = pid
    return known


def _same_call(one: Dispatch, call: HostCall) -> bool:
    """Whether the numbers of a dispatch and a call agree, as far as both have them."""
    own = one.identity
    numbers = {
        "run_id": own.run_id, "dispatch_id": own.endpoint_dispatch_id, "slot_id": own.pipeline_slot,
        "generation": own.pipeline_generation,
    }  # fmt: skip
    pairs = [(mine, call.attribute(name)) for name, mine in numbers.items()]
    known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return bool(known) and all(mine == theirs for mine, theirs in known)


def _call_of(one: Dispatch, ranks: dict[int, int], calls: dict[tuple[int, int], HostCall]) -> HostCall | None:
    pid = ranks.get(one.rank)
    return next((call for (p, _), call in calls.items() if p == pid and _same_call(one, call)), None)


READER = Reader(
    "dispatches",
    "a run over several ranks: rank*/d*/ with the records of each dispatch, and the host's logs",
    recognises,
    read,
    files=(IDENTITY,),
    tells=(*swimlane.READER.tells, "launches: with the host's logs", "communication", "steps"),
)
