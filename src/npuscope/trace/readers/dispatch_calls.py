"""Which call of the host a dispatch is: by its identity, by stamps of the device, by whose window fits closest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.trace.clocks import LONG_NS, HostWindow
from npuscope.trace.core import Trace
from npuscope.trace.readers.host_log import DEVICE_WALL, LAUNCH, RUNNER, HostCall, HostLog

Number = Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]  # one that fits a column


class Identity(msgspec.Struct):
    """Which call of the host a dispatch is."""

    schema_version: Number | None = None
    task_slot: Number | None = None
    group_index: Number | None = None
    local_capture_index: Number | None = None
    callable_digest: str | None = None
    run_id: Number | None = None
    endpoint_dispatch_id: Number | None = None
    pipeline_slot: Number | None = None
    pipeline_generation: Number | None = None
    chip_rank: Number | None = None
    group_size: Number | None = None
    host_pid: Number | None = None


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

    @property
    def run(self) -> int:
        """Which run of the host it belongs to, as far as that is recorded."""
        return self.identity.run_id if self.identity.run_id is not None else self.number

    @property
    def what(self) -> str:
        """Which program it ran: equal on all ranks."""
        return self.program or self.identity.callable_digest or ""


def length_of(one: Dispatch) -> int:
    assert one.trace is not None
    began, ended = one.trace.span
    return ended - began


def contained_window(one: Dispatch, call: HostCall) -> HostWindow | None:
    """A dispatch's tasks lie after its launch, and between its scheduler's first moment and its last where those are
    recorded; and it has ended before the host knows."""
    launch, wall = call.by_name.get(RUNNER), call.by_name.get(DEVICE_WALL)
    if launch is None or one.trace is None:
        return None
    earliest, latest = max(launch.start_ns, _launched_at(call)), launch.end_ns
    sched = call.by_name.get(f"{DEVICE_WALL}.sched")
    if wall is not None and sched is not None and sched.end_ns <= wall.dur_ns:
        earliest += sched.start_ns
        latest -= wall.dur_ns - sched.end_ns
    began, ended = one.trace.slices.filter(pl.col("kind") == "task").select(
        pl.col("start").min(), (pl.col("start") + pl.col("dur")).max().alias("end")
    ).row(0)  # fmt: skip
    if began is None or latest - earliest < ended - began:
        return None
    return HostWindow(one.rank, began, ended, earliest, latest)


def stamped_window(rank: int, call: HostCall) -> HostWindow | None:
    """A call whose device wall carries the ticks at which it began and ended."""
    wall, launch = call.by_name.get(DEVICE_WALL), call.by_name.get(RUNNER)
    if wall is None or launch is None:
        return None
    begin, end, hertz = (wall.number(name) for name in ("dev_start_cycle", "dev_end_cycle", "dev_cnt_hz"))
    if not begin or not end or not hertz or end < begin:  # zero is a stamp that was not taken
        return None
    earliest, latest = max(launch.start_ns, _launched_at(call)), launch.end_ns
    began, ended = (ticks * 1_000_000_000 // hertz for ticks in (begin, end))
    return None if latest - earliest < ended - began else HostWindow(rank, began, ended, earliest, latest, exact=True)


def _launched_at(call: HostCall) -> int:
    """When the host launched it, as exactly as the log says; 0 where it does not."""
    point = call.by_name.get(LAUNCH)
    return 0 if point is None else point.start_ns


def pids_of_ranks(log: HostLog, dispatches: Sequence[Dispatch], notes: dict[str, object]) -> dict[int, int]:
    """rank -> process: as the identity says, else by the device's stamps, else whose device windows fit closest.

    A process that an identity names and no log knows, or that two ranks claim, says nothing.
    """
    calls = log.calls
    here = {call.pid for call in calls}
    claims = {(one.rank, one.identity.host_pid) for one in dispatches if one.identity.host_pid is not None}
    claimed = Counter(pid for _, pid in claims)
    of_rank = Counter(rank for rank, _ in claims)
    known = {rank: pid for rank, pid in claims if pid in here and claimed[pid] == 1 and of_rank[rank] == 1 and pid}
    if wrong := len(claims) - len(known):
        notes["host_pids_wrong"] = wrong
    ranks = sorted({one.rank for one in dispatches} - set(known))
    pids = sorted(here - set(known.values()))
    misfit: dict[tuple[int, int], list[int]] = {}
    for one in dispatches:
        if one.trace is None or one.rank not in ranks:
            continue
        for call in calls:
            if call.pid in pids and same_call(one, call) and (gap := _misfit(one, call)) is not None:
                misfit.setdefault((one.rank, call.pid), []).append(gap)
    if not misfit:
        return known
    return known | _closest(ranks, pids, {pair: sum(gaps) / len(gaps) for pair, gaps in misfit.items()}, notes)


def _closest(
    ranks: Sequence[int], pids: Sequence[int], misfit: Mapping[tuple[int, int], float], notes: dict[str, object]
) -> dict[int, int]:
    """The pairs that leave the least over in all."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    far = 1e15
    costs = np.array([[misfit.get((rank, pid), far) for pid in pids] for rank in ranks])
    found = {ranks[row]: pids[column] for row, column in zip(*linear_sum_assignment(costs), strict=True)
             if costs[row, column] < far}  # fmt: skip
    near = [
        (rank, other)
        for rank, pid in found.items()
        for other, theirs in found.items()
        if rank < other
        and misfit.get((rank, theirs), far) + misfit.get((other, pid), far)
        <= misfit[rank, pid] + misfit[other, theirs] + LONG_NS / 2
    ]
    if near:
        notes["host_pids_unsure"] = sorted({rank for pair in near for rank in pair})
    return found


def _misfit(one: Dispatch, call: HostCall) -> int | None:
    """How much longer the device's window of a call is than what the dispatch spans; None where it does not fit."""
    assert one.trace is not None
    began, ended = one.trace.span
    stamped = stamped_window(one.rank, call)
    if stamped is not None:  # of the counter of one card: a call of another one is far away
        inside = stamped.begin_ns <= began and ended <= stamped.end_ns
        return 0 if inside else None
    window = call.by_name.get(f"{DEVICE_WALL}.sched") or call.by_name.get(DEVICE_WALL)
    if window is None or window.dur_ns < ended - began:
        return None
    return window.dur_ns - (ended - began)


def same_call(one: Dispatch, call: HostCall) -> bool:
    """Whether the numbers of a dispatch and a call agree, as far as both have them."""
    own = one.identity
    numbers = {
        "run_id": own.run_id, "dispatch_id": own.endpoint_dispatch_id, "slot_id": own.pipeline_slot,
        "generation": own.pipeline_generation,
    }  # fmt: skip
    pairs = [(mine, call.attribute(name)) for name, mine in numbers.items()]
    known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
    return bool(known) and all(mine == theirs for mine, theirs in known)
