"""The smallest sizes of the runtime's rings: that do not fail, and that do not slow the program down.

A ring gives nothing back before the scope of its oldest entry closes: what is submitted until then must fit, else the
run stops. What does not slow down is found by simulating: store after store with ever less room, those before it as
small as found, as long as the run takes no longer than with endless rings; so it takes no longer with all of them. By
luck of the order of hand-outs a run may take no longer with less room than that, too. The dependency pool is not
simulated. It gets room back only when RECLAIMED entries of its ring are done since the last time, so that many more
count; what does not slow down is the most that is held in a run with endless rings, which is enough and may be more
than is needed. Where the host builds the graph all of it must fit, and no size in between is slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from npuscope.base import progress
from npuscope.lower.program import Program
from npuscope.lower.rings import RingEntry, entries_of, graph_calls, limits_of
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT
from npuscope.time.chip.job import BYTES, CLOSES, HEAP, RING, SLOTS, Ints, Rings, with_room, without_end
from npuscope.time.run import Simulated

SIZES = Columns(
    "simulate.rings",
    "A store of the runtime's rings, or the ring between cube and vector cores.",
    Column("ring", TEXT, "its number: a ring belongs to a depth of scopes; or cross-core"),
    Column("store", TEXT, "task window in slots, heap in bytes, dependency pool in entries, slots of a tile each"),
    Column("least", COUNT, "the smallest that does not fail", title="does not fail"),
    Column(
        "smooth",
        COUNT,
        "the smallest that does not slow the run down; none of runs that take long",
        title="does not slow down",
        absent="?",
    ),
    Column("has", COUNT, "what the run has"),
)
SLOWER = 1.001  # times the run with endless rings
RECLAIMED = 64  # PTO2_DEP_POOL_CLEANUP_INTERVAL of simpler's pto_runtime2_types.h
MOST_BLOCKS = 20_000  # of a run that is run again and again
STORES = {"task_window": SLOTS, "heap": HEAP}
Row = tuple[str, str, int, int | None, int]


def ring_sizes(simulated: Simulated) -> Table:
    """Of every ring that the program uses."""
    program = simulated.prepared.program
    limits = {name: limits_of(program, name) for name in (*STORES, "dep_pool")}
    entries = list(entries_of(program)) if limits["task_window"] else []
    if not entries:
        return SIZES.table([])
    if simulated.prepared.machine.hosted:
        return SIZES.table(_resident(program, entries, limits))
    job = simulated.prepared.job
    rings, many = job.rings, len(job.block_class) > MOST_BLOCKS
    edges = _edges(program, entries)
    found = smallest_rooms(rings, None if many else lambda tried: simulated.trials.wall(job._replace(rings=tried)))
    rows: list[Row] = []
    for ring in np.unique(rings.entry[RING]).tolist():
        for name, what in STORES.items():
            if (what, ring) in found:
                rows.append((str(ring), name, *found[what, ring], limits[name][ring]))
        if limits["dep_pool"] and (least := _least(rings, ring, edges, RECLAIMED - 1)):
            rows.append((str(ring), "dep_pool", least, _most_held(simulated, ring, edges), limits["dep_pool"][ring]))
    return SIZES.table(rows)


def smallest_rooms(
    rings: Rings, wall: Callable[[Rings], float] | None
) -> dict[tuple[int, int], tuple[int, int | None]]:
    """Of SLOTS and HEAP of each ring what does not fail, and what does not slow down; `wall`: of a run with rings."""
    found: dict[tuple[int, int], tuple[int, int | None]] = {}
    small = without_end(rings)
    most = wall(small) * SLOWER if wall is not None else 0.0
    used = np.unique(rings.entry[RING]).tolist()
    for done, ring in enumerate(used):
        progress.report("simulating rings", done, len(used))
        for what in STORES.values():
            size = np.ones_like(rings.entry[BYTES]) if what == SLOTS else rings.entry[BYTES]
            least = _least(rings, ring, size) + (what == SLOTS)  # one slot of a ring stays empty
            if not least:
                continue
            if wall is None:
                found[what, ring] = least, None
                continue

            def is_smooth(room: int, others: Rings = small, at: tuple[int, int] = (what, ring)) -> bool:
                return wall(with_room(others, *at, room)) <= most

            total = int(np.sum(size[rings.entry[RING] == ring])) + 1
            smooth = first_that(is_smooth, least, max(total, least))
            small = with_room(small, what, ring, smooth)
            found[what, ring] = least, smooth
    return found


def _resident(program: Program, entries: list[RingEntry], limits: dict[str, tuple[int, ...]]) -> list[Row]:
    """Where the host builds the graph: nodes of recorded graphs take no slots, their calls do."""
    calls = graph_calls(program)
    slots = len(entries) - sum(map(len, calls.values())) + len(calls)
    heap = sum(entry.bytes for entry in entries)
    return [
        ("0", "task_window", slots, slots, limits["task_window"][0]),
        ("0", "heap", heap, heap, limits["heap"][0]),
    ]


def _edges(program: Program, entries: list[RingEntry]) -> Ints:
    """Per entry of the rings the edges that it holds in the dependency pool."""
    waits = Counter(dst for src, dst in program.graph.pairs if src >= 0)
    return np.array([waits[entry.task] if entry.is_task else 0 for entry in entries], np.int64)


def _least(rings: Rings, ring: int, size: Ints, before_it: int = 0) -> int:
    """The most that must be there at once: from the oldest entry whose scope is open, and so many before it, to the
    task that is submitted."""
    mine = np.flatnonzero(rings.entry[RING] == ring)
    closes, sums = rings.entry[CLOSES, mine].tolist(), np.concatenate([[0], np.cumsum(size[mine])]).tolist()
    ends = np.searchsorted(mine, rings.first_entry[1:]).tolist()
    most = head = before = 0
    for task, end in enumerate(ends):
        while head < end and closes[head] <= task:
            head += 1
        head = min(head, before) if end > before else head  # what is submitted now cannot have been given back
        most = max(most, sums[end] - sums[max(min(head, end) - before_it, 0)])
        before = end
    return int(most)


def first_that(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number for which it holds, where it holds from some number on, at the latest from `high`."""
    if holds(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _most_held(simulated: Simulated, ring: int, size: Ints) -> int:
    """The most of `size` that entries of a ring hold at once in the run as it is, from submission to being given back:
    when their task and all before them are done and their scopes are closed."""
    rings, times, job = simulated.prepared.job.rings, simulated.times, simulated.prepared.job
    done = times.submitted.copy()
    np.maximum.at(done, job.task_of, times.finish)
    task_of = np.repeat(np.arange(len(job.shape)), np.diff(rings.first_entry))
    mine = np.flatnonzero(rings.entry[RING] == ring)
    closed = np.append(times.submitted, np.inf)[np.minimum(rings.entry[CLOSES, mine], len(job.shape))]
    freed = np.maximum.accumulate(np.maximum(done[task_of[mine]], closed))
    late = freed[RECLAIMED - 1 :]
    freed = np.append(late, np.full(len(freed) - len(late), np.inf))
    taken = times.began[task_of[mine]]
    moments = np.concatenate([taken, freed])
    change = np.concatenate([size[mine], -size[mine]])
    order = np.lexsort((change, moments))
    return int(np.max(np.cumsum(change[order]), initial=0))
