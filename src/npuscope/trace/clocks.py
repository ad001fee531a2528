"""Clocks of several cards brought onto one: by collectives that end for all at once, or by the host's spans.

Each card counts by itself. A collective that everybody leaves when the last one has arrived ends at one moment, so the
difference of its ends is the difference of the clocks; how far several of them disagree is the error. Where ranks share
none, the host's log says between which moments the device's part lay: where in between is unknown, and that slack is
the error. A rank that neither brings onto the first one's clock keeps its own, and whoever compares moments is told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import exchange_of
from npuscope.trace.core import Meta, Trace
from npuscope.trace.intervals import Ints

TRAVEL_NS = 1_000  # a notification's way to another card: assumed, and more than any spread seen
TOGETHER_NS = 5_000  # collectives that disagree by more are not of the same ranks, or do not end for all
RATE = 100e-6  # by which two counters may differ
LONG_NS, MUCH_LONGER = 10_000, 3  # a task without a name that waits on one rank and not on another
MEETING = ("run", "kernel", "nth")
NOT_OF_ALL = ("one-sided", "pairs")  # kernels whose names do not say that all ranks meet in them
MOST = 0.8  # of the meetings of two ranks in a kernel: the others may be lost or mistaken
COLLECTIVES, TICKS, CONTAINED = "collectives", "device ticks in the host's log", "containment in the host's span"
ENDS = {
    "rank": pl.Int64, "run": pl.String, "older": pl.Int64, "kernel": pl.String, "task": pl.Int64, "nth": pl.Int64,
    "start": pl.Int64, "end": pl.Int64,
}  # fmt: skip


@dataclass(frozen=True)
class ClockOffset:
    """How a rank's clock stands to the first one's: to be added to its times; by `rate_ppb` more after `since_ns`.

    `spread_ns` is how far the pairs that say it disagree, `error_ns` how far off it may be.
    """

    offset_ns: int
    spread_ns: int
    error_ns: int
    by: str
    pairs: int  # collectives or calls that say it
    kernel: str = ""  # whose ends were compared
    left_out: int = 0  # collectives that say something else: of other ranks, or of another run
    rate_ppb: int = 0
    since_ns: int = 0
    least_ns: int = 0  # the smallest of the offsets that say it; the largest is by the spread more

    def as_note(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value or name in ("offset_ns", "spread_ns")}

    def moved(self, times: pl.Expr) -> pl.Expr:
        """Times of the rank on the first one's clock."""
        if not self.rate_ppb:
            return times + self.offset_ns
        # seconds and the rest by themselves: the product of nanoseconds and parts of a billion would not fit
        since = times - self.since_ns
        whole, rest = since // 1_000_000_000, since % 1_000_000_000
        return times + self.offset_ns + whole * self.rate_ppb + rest * self.rate_ppb // 1_000_000_000


@dataclass(frozen=True)
class HostWindow:
    """Between which two moments of the host's clock a stretch of a rank's own clock lay."""

    rank: int
    begin_ns: int  # of the device
    end_ns: int
    earliest_ns: int  # of the host
    latest_ns: int
    exact: bool = False  # by the device's own stamps, not by what its tasks span

    @property
    def least(self) -> int:
        """Of host minus device."""
        return self.earliest_ns - self.begin_ns

    @property
    def most(self) -> int:
        return self.latest_ns - self.end_ns


# --- by collectives


def by_collectives(ends: pl.DataFrame, ranks: Sequence[int]) -> tuple[dict[int, ClockOffset], dict[int, str]]:
    """Each rank's clock against the first one's, and of those that cannot be brought onto it why.

    `ends` has the columns ENDS: every task of a kernel that ranks may meet in, `older` 0 for the run itself and else
    how many runs before it the record is left of.
    """
    first, *others = ranks
    named = [name for name in ends["kernel"].unique().to_list() if exchange_of(name) == "all"]
    found: dict[int, ClockOffset] = {first: ClockOffset(0, 0, 0, COLLECTIVES, 0)}
    why: dict[int, str] = {}
    meets = ends.filter(pl.col("kernel").is_in(named)) if named else _seem_to_meet(ends)
    by_rank = {int(key[0]): part for key, part in meets.partition_by("rank", as_dict=True).items()}
    waiting = list(others)
    for reference in (first, *others):  # a rank may share collectives with another one than the first
        if reference not in found or reference not in by_rank:
            continue
        for rank in list(waiting):
            if rank in found or rank not in by_rank:
                continue
            offset = _offset(by_rank[reference], by_rank[rank])
            if isinstance(offset, str):
                why.setdefault(rank, offset)
            elif offset is not None:
                found[rank] = _chained(found[reference], offset)
                waiting.remove(rank)
    del found[first]
    return found, {rank: why.get(rank, "it shares no collective that ends for all with the others") for rank in waiting}


def _chained(reference: ClockOffset, offset: ClockOffset) -> ClockOffset:
    if not reference.pairs:
        return offset
    return ClockOffset(
        reference.offset_ns + offset.offset_ns, reference.spread_ns + offset.spread_ns,
        reference.error_ns + offset.error_ns, COLLECTIVES, offset.pairs, offset.kernel, offset.left_out,
        reference.rate_ppb + offset.rate_ppb, offset.since_ns, reference.least_ns + offset.least_ns,
    )  # fmt: skip


def _offset(reference: pl.DataFrame, other: pl.DataFrame) -> ClockOffset | str | None:
    """The offset by all meetings of two ranks; a sentence where they contradict one another, None without any."""
    both = _met(reference, other)
    if both.is_empty():
        return None
    now = both.filter(pl.col("older") == 0)
    sure = now if now.height else both
    offsets = (sure["end"] - sure["end_other"]).to_numpy()
    times = sure["end_other"].to_numpy()
    rate, offsets = _without_drift(times, offsets)
    kept = _together(offsets)
    if 2 * int(kept.sum()) <= len(offsets) and len(offsets) > 1:
        apart = int(offsets.max() - offsets.min())
        return f"its collectives contradict one another by {apart / 1000:,.2f} µs: they are not of the same ranks"
    middle = int(np.sort(offsets[kept])[int(kept.sum()) // 2])
    # what a buffer still holds of a run before is the same run only where the clocks have not moved in between
    before = both.filter(pl.col("older") > 0) if now.height else both.clear()
    ago = (before["end"] - before["end_other"]).to_numpy() - middle
    allowed = TOGETHER_NS + RATE * np.abs(before["end_other"].to_numpy() - int(times.max()))
    same = ago[np.abs(ago) <= allowed] if len(ago) else ago
    every = np.concatenate([offsets[kept] - middle, same])
    spread = int(every.max() - every.min())
    names = sure["kernel"].gather(np.flatnonzero(kept))
    left_out = len(offsets) - int(kept.sum()) + len(ago) - len(same)
    return ClockOffset(
        middle, spread, spread + TRAVEL_NS, COLLECTIVES, len(every), str(names.mode().sort()[0]), left_out, rate,
        int(times.min()) if rate else 0, middle + int(every.min()),
    )  # fmt: skip


def _met(reference: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The meetings that both have: by the task's own number where programs are the same, else by their order."""
    key = ["run", "older", "kernel"]
    both = reference.join(other, on=[*key, "task"], suffix="_other")
    if both.height:
        return both
    often = [part.with_columns(times=pl.len().over(key)) for part in (reference, other)]
    return often[0].join(often[1], on=[*key, "nth", "times"], suffix="_other")


def _without_drift(times: Ints, offsets: Ints) -> tuple[int, Ints]:
    """The rate by which the other clock runs slower, in parts of a billion, and the offsets at the first moment; no
    rate where the offsets agree without one."""
    if len(offsets) < 3 or int(offsets.max() - offsets.min()) <= TOGETHER_NS:
        return 0, offsets
    since = (times - times.min()).astype(np.float64)
    far = since.max()
    if far <= 0:
        return 0, offsets
    rate, _ = np.polyfit(since, (offsets - offsets[0]).astype(np.float64), 1)
    flat = offsets - np.round(rate * since).astype(np.int64)
    better = int(flat.max() - flat.min()) <= TOGETHER_NS
    return (round(rate * 1e9), flat) if better and abs(rate) <= 2 * RATE else (0, offsets)


def _together(offsets: Ints) -> NDArray[np.bool_]:
    """Which of them lie in the densest stretch of TOGETHER_NS."""
    order = np.sort(offsets)
    last = np.searchsorted(order, order + TOGETHER_NS, side="right")
    begin = int(np.argmax(last - np.arange(len(order))))
    return np.asarray((offsets >= order[begin]) & (offsets <= order[begin] + TOGETHER_NS))


def _seem_to_meet(ends: pl.DataFrame) -> pl.DataFrame:
    """Where no name says it: the kernels that end together again and again while ranks begin them apart, as a wait does
    that is hidden inside a kernel; else, of tasks without names, the one that waits on some ranks and not on others."""
    may_meet = [name for name in ends["kernel"].unique().to_list() if exchange_of(name) not in NOT_OF_ALL]
    ends = ends.filter(pl.col("kernel").is_in(may_meet))
    if ends.is_empty() or ends["rank"].n_unique() < 2:
        return ends.clear()
    first = int(ends["rank"].min())  # type: ignore[arg-type]
    both = ends.join(
        ends.filter(pl.col("rank") == first), on=["run", "older", "kernel", "task"], suffix="_first"
    ).filter(pl.col("rank") != first)
    by_end, by_start = pl.col("end_first") - pl.col("end"), pl.col("start_first") - pl.col("start")
    again = both.group_by("rank", "kernel").agg(
        ends=by_end.max() - by_end.min(), starts=by_start.max() - by_start.min(), meetings=pl.len()
    )
    proven = (pl.col("ends") <= TOGETHER_NS) & (pl.col("starts") >= LONG_NS) & (pl.col("starts") >= 10 * pl.col("ends"))
    proven_kernels = again.group_by("kernel").agg(
        all=proven.all() & (pl.col("meetings") > 1).all(), starts=pl.col("starts").max()
    )
    kernels = proven_kernels.filter("all")["kernel"].to_list()
    if not kernels:
        dur = pl.col("end") - pl.col("start")
        spread = ends.filter(pl.col("kernel").str.contains(r"^r\d+t\d+$")).group_by(*MEETING, "older")
        waits = spread.agg(least=dur.min(), most=dur.max()).filter(
            (pl.col("most") >= MUCH_LONGER * pl.col("least")) & (pl.col("most") - pl.col("least") >= LONG_NS)
        )
        waits = waits.with_columns(more=pl.col("most") - pl.col("least"))
        kernels = waits.sort("more", "kernel", descending=[True, False])["kernel"].head(1).to_list()
    return ends.filter(pl.col("kernel").is_in(kernels))


def on_first_clock(ends: pl.DataFrame, offsets: Mapping[int, ClockOffset]) -> pl.DataFrame:
    """The rows of ENDS with every rank's moments on the first one's clock, in no order."""
    none = ClockOffset(0, 0, 0, COLLECTIVES, 0)
    parts = ends.partition_by("rank", as_dict=True, include_key=True).items()
    moved = [(rows, offsets.get(int(key[0]), none)) for key, rows in parts]
    return pl.concat([rows.with_columns(by.moved(pl.col("start")), by.moved(pl.col("end"))) for rows, by in moved])


def end_together(ends: pl.DataFrame, offsets: Mapping[int, ClockOffset]) -> list[str]:
    """Kernels that say nothing of it and yet end at one moment on all ranks of one clock while ranks begin them apart:
    somewhere inside ranks wait for one another."""
    named = [name for name in ends["kernel"].unique().to_list() if exchange_of(name)]
    others = ends.filter((pl.col("older") == 0) & ~pl.col("kernel").is_in(named))
    if others["rank"].n_unique() < 2:
        return []
    error = max((offset.error_ns for offset in offsets.values()), default=0)
    begin, end = (pl.col(one).max() - pl.col(one).min() for one in ("start", "end"))
    apart = on_first_clock(others, offsets).group_by("run", "kernel", "task").agg(begin=begin, end=end, ranks=pl.len())
    apart = apart.filter((pl.col("ranks") > 1) & (pl.col("begin") >= LONG_NS))
    meets = (pl.col("end") <= TOGETHER_NS + error) & (4 * pl.col("end") <= pl.col("begin"))
    return apart.group_by("kernel").agg(meets.all().alias("meets")).filter("meets")["kernel"].sort().to_list()


def who_meet(ends: pl.DataFrame, error_ns: int | None = None) -> pl.Series:
    """Of each row the ranks that it meets, as one name for them; null where it meets none.

    `ends`: rank, kernel, `key` (which of its kind, alike on all ranks), start, end and `sure`, whether the name says
    that all meet. Clocks need not agree: two ranks meet in a kernel whose ends lie equally far apart again and again
    although they begin it now sooner, now later. A sure one is taken at its name until its ends contradict it: then
    those meet whose ends agree, as groups of ranks do; in a ring, where each waits for its neighbour only, nobody does.
    Where moments are of one clock but for `error_ns`, a single one tells.
    """
    rows = ends.with_columns(
        pl.col("key").rank("dense").over("kernel").cast(pl.Int64), among=pl.lit(None, dtype=pl.String)
    ).with_row_index("row")
    among = np.full(rows.height, None, dtype=object)
    for kernel in rows.unique(["rank", "kernel", "key"], keep="first", maintain_order=True).partition_by("kernel"):
        sure = bool(kernel["sure"].all())
        groups: list[tuple[list[str], pl.DataFrame]] = []
        of_rank = {
            str(key[0]): part for key, part in kernel.partition_by("rank", as_dict=True, maintain_order=True).items()
        }
        for rank, part in of_rank.items():
            for names, first in groups:
                agree = _agree(first, part, error_ns)
                if agree or (agree is None and sure):
                    names.append(rank)
                    break
            else:
                groups.append(([rank], part))
        for names, _ in groups:
            if len(names) > 1:
                for name in names:
                    among[of_rank[name]["row"].to_numpy()] = ",".join(names)
    return pl.Series("among", among.tolist(), dtype=pl.String)


def _agree(one: pl.DataFrame, other: pl.DataFrame, error_ns: int | None) -> bool | None:
    """Whether two ranks leave a kernel together; None where its stamps do not tell."""
    both = one.select("key", "start", "end").join(other.select("key", "start", "end"), on="key", suffix="_other")
    if both.height < (2 if error_ns is None else 1):
        return None
    starts, ends = ((both[at] - both[f"{at}_other"]).to_numpy() for at in ("start", "end"))
    took = pl.min_horizontal(pl.col("end") - pl.col("start"), pl.col("end_other") - pl.col("start_other"))
    # a ring hands on chunk by chunk, so ranks leave an exchange of all apart by some of what it takes
    some = max(LONG_NS, float(both.select(took.median()).item()) / 4)
    if error_ns is not None:
        apart = int(np.sort(np.abs(ends))[int(np.ceil(MOST * len(ends))) - 1])
        if apart > some + error_ns:
            return False
    began, left = _narrowest(starts), _narrowest(_without_drift(both["end_other"].to_numpy(), ends)[1])
    if left <= TOGETHER_NS:
        return True if began >= LONG_NS and began >= 10 * left else None
    return False if both.height > 2 and left > max(some, began / 10) else None


def _narrowest(values: Ints) -> int:
    """How long the shortest stretch is that holds MOST of the values."""
    order, least = np.sort(values), int(np.ceil(MOST * len(values)))
    return int((order[least - 1 :] - order[: len(order) - least + 1]).min())


# --- by the host


def by_host(windows: Iterable[HostWindow]) -> dict[int, tuple[int, int, bool, int]]:
    """By rank: the least host minus device, how much more it may be, whether stamps of the device say it, by how many
    calls. A rank whose windows contradict one another is left out."""
    found: dict[int, tuple[int, int, bool, int]] = {}
    for rank, those in _by_rank(windows).items():
        those = [one for one in those if one.exact] or those
        newest = max(one.end_ns for one in those)

        def drift(one: HostWindow, newest: int = newest) -> int:
            return round(RATE * (newest - one.end_ns))

        least = max(one.least - drift(one) for one in those)
        most = min(one.most + drift(one) for one in those)
        if most >= least:
            found[rank] = (least, most - least, those[0].exact, len(those))
    return found


def _by_rank(windows: Iterable[HostWindow]) -> dict[int, list[HostWindow]]:
    found: dict[int, list[HostWindow]] = {}
    for one in windows:
        found.setdefault(one.rank, []).append(one)
    return found


def between(first: tuple[int, int, bool, int], other: tuple[int, int, bool, int], window_ns: int) -> ClockOffset | str:
    """The clock of a rank against the first one's by the host's clock, or why that says nothing.

    Both lie at their earliest place, so what the one is off and what the other is off count against each other.
    """
    error = max(first[1], other[1])
    if error > window_ns:
        return (
            f"the host's log places it within {error / 1000:,.0f} µs only, more than the {window_ns / 1000:,.0f} µs "
            "that the run takes"
        )
    by = TICKS if first[2] and other[2] else CONTAINED
    offset = other[0] - first[0]
    return ClockOffset(offset, error, error, by, min(first[3], other[3]), least_ns=offset - error)


# --- for those who compare


def clock_notes(meta: Meta) -> dict[int, Mapping[str, Any]]:
    """What is known of each rank's clock but the first one's."""
    notes = meta.notes.get("clocks")
    return {int(rank): note for rank, note in notes.items()} if isinstance(notes, Mapping) else {}


def not_aligned(meta: Meta) -> dict[int, str]:
    """The ranks that keep a clock of their own, and why."""
    notes = meta.notes.get("clocks_not_aligned")
    return {int(rank): str(why) for rank, why in notes.items()} if isinstance(notes, Mapping) else {}


def check_one_clock(trace: Trace) -> None:
    """Refuse to compare moments of ranks whose clocks are not aligned."""
    here = set(trace.lanes["rank"].drop_nulls().to_list())
    apart = {rank: why for rank, why in not_aligned(trace.meta).items() if rank in here}
    if apart and len(here) > 1:
        rank, why = next(iter(apart.items()))
        more = f", and {len(apart) - 1} more" if len(apart) > 1 else ""
        raise NpuscopeError(
            f"the clock of rank {rank}{more} is not aligned with the others: {why}",
            remedy="`--rank N` looks at one rank; what ranks wait in collectives needs no common clock.",
        )
