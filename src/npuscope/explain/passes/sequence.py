"""The kernels of one rank in the order of its forward passes, and which stretches of them separate two passes.

Rows are those that count: kind task and comm, none listed twice. They are ordered by step where steps are marked, then
by start. A kernel is a number, its symbol. An anchor is a kernel that stands for a layer, mostly its attention. Which
stretches between two anchors hold the end of one pass and the begin of the next is decided by the first of these that
tells, and the answer says which one it was:

* steps: the two anchors are in different steps;
* sampling or embedding: a kernel ran that ends or begins a pass. Types that run in most stretches are a layer's;
* novelty: the stretch is of a kind that does not recur every few layers, and holds kernels a layer does not have;
* pause: the device stood still far longer than between any other anchors.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import Landmark, landmark_of, rule_of
from npuscope.explain.extent import marked_steps
from npuscope.explain.waits import launches_of
from npuscope.explain.work import CORE_KINDS, TYPES, kernel_group, on_ai_cpu
from npuscope.table.formats import short
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Ints, largest
from npuscope.trace.schema import counts_once

Flags = NDArray[np.bool_]
FEWEST_ANCHORS = 4  # of a kernel that may stand for a layer
REPETITION = "repetition"
MOSTLY = 0.6  # of the rows between such kernels are in equal stretches


@dataclass(frozen=True)
class Sequence:
    """Arrays with an entry per row; `row` is the row's place in the trace's slices, `step` is -1 for none."""

    row: Ints
    start: Ints
    end: Ints
    lane: Ints
    step: Ints  # a place in `steps`
    steps: list[int]  # as the capture numbers them, in order
    symbol: Ints
    names: list[str]  # of symbols
    on_device: Flags  # false for AI CPU work, which is not the device's time
    is_comm: Flags

    @staticmethod
    def of(trace: Trace) -> Sequence:
        ai_cpu_lanes = trace.lanes.filter(pl.col("unit") == "AICPU")["lane"].implode()
        known = [name for name in (*TYPES, *CORE_KINDS, "run") if name in trace.slices.columns]
        work = trace.slices.lazy().with_row_index("row").filter(counts_once())
        rows = work.select(
            "row", "start", "dur", "lane", "step", "task", "kernel", "kind", *dict.fromkeys(known)
        ).collect()
        beside = pl.col("lane").is_in(ai_cpu_lanes) | on_ai_cpu(rows)
        rows = rows.select(
            "start",
            "dur",
            pl.col("lane", "row").cast(pl.Int64),
            "step",
            "task",
            *(name for name in ("run",) if name in known),
            kernel_group(rows),
            (pl.col("kind") == "comm").alias("is_comm"),
            (~beside).alias("on_device"),
        )
        step, told_steps = _steps(trace, rows)
        order = np.lexsort((rows["start"].to_numpy(), step))
        if not np.array_equal(order, np.arange(len(order))):
            rows, step = rows[order], step[order]
        symbol, names = _symbols(rows["kernel"])
        start = rows["start"].to_numpy()
        return Sequence(
            rows["row"].to_numpy(), start, start + rows["dur"].to_numpy(), rows["lane"].to_numpy(), step, told_steps,
            symbol, names, rows["on_device"].to_numpy(), rows["is_comm"].to_numpy(),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.row)

    @property
    def has_steps(self) -> bool:
        return bool((self.step >= 0).any())

    @cached_property
    def pause(self) -> Ints:
        """Nanoseconds before each row in which nothing ran; negative while something did; 0 for the first."""
        pause = np.zeros(len(self), dtype=np.int64)
        if len(self) > 1:
            pause[1:] = self.start[1:] - np.maximum.accumulate(self.end)[:-1]
        return pause

    def landmarks(self, *wanted: Landmark) -> Flags:
        """Rows of kernels that are one of the landmarks."""
        return self._named([landmark_of(name) in wanted for name in self.names])

    def _named(self, wanted: list[bool]) -> Flags:
        return np.array(wanted, dtype=bool)[self.symbol] if wanted else np.zeros(0, dtype=bool)

    def anchors(self, pattern: str | None) -> tuple[Ints, str]:
        """Places of the kernels that stand for layers, and how they were found: by a pattern or by repetition."""
        if pattern is not None:
            try:
                named = pl.Series(self.names, dtype=pl.String).str.contains(pattern)
                places = np.flatnonzero(self._named(named.to_list()) & self.on_device)
            except pl.exceptions.ComputeError as error:
                what = f"--anchor '{short(pattern)}' is no regular expression"
                raise NpuscopeError(what, remedy="See Rust's regex syntax.") from error
            if not len(places):
                known = ", ".join(short(name, 40) for name in sorted(self.names)[:8])
                what = f"no kernel matches the anchor '{short(pattern)}'"
                raise NpuscopeError(what, remedy=f"The capture has {known} ….")
            return places, f"anchor {pattern}"
        places = np.flatnonzero(self.landmarks("attention") & self.on_device)
        if len(places):
            found = dict.fromkeys(self.names[symbol] for symbol in self.symbol[places])
            return places, "attention " + ", ".join(found)
        return self._repeating()

    def _repeating(self) -> tuple[Ints, str]:
        """Of the kernels with mostly equal stretches between their occurrences, the most frequent one."""
        main = np.flatnonzero(self.lane == busiest(self.lane)) if len(self) else self.row
        symbols = self.symbol[main]
        counts = np.bincount(symbols) if len(symbols) else np.zeros(0, dtype=np.int64)
        # what a stretch adds up to tells at once that two are not equal: most kernels are out before any is looked into
        weights = np.arange(1, len(self.names) + 1, dtype=np.uint64) ** np.uint64(3) * np.uint64(0x9E3779B97F4A7C15)
        summed = np.cumsum(weights[symbols])
        for symbol in np.argsort(-counts, kind="stable").tolist():
            if counts[symbol] < FEWEST_ANCHORS:
                break
            places = np.flatnonzero(symbols == symbol)
            if places[-1] - places[0] < len(symbols) / 2:
                continue
            length = np.diff(places)
            if np.median(length) < FEWEST_ANCHORS:
                continue
            _, alike = np.unique(np.diff(summed[places]), return_inverse=True)
            if np.max(np.bincount(alike, length)) < MOSTLY * length.sum():
                continue
            which = kinds(symbols, places)
            if length[which == int(np.argmax(np.bincount(which)))].sum() / length.sum() >= MOSTLY:
                return main[places], f"{REPETITION} of {self.names[symbol]}"
        return np.zeros(0, dtype=np.int64), "none"


def kinds(symbols: Ints, places: Ints) -> Ints:
    """A number per stretch between two neighbouring places, the same for equal stretches of symbols."""
    small, seen = symbols.astype(np.int32), dict[bytes, int]()
    numbers = [seen.setdefault(small[a:b].tobytes(), len(seen)) for a, b in pairwise(places.tolist())]
    return np.array(numbers, dtype=np.int64)


def busiest(lane: Ints) -> int:
    """The lane of most rows."""
    values, counts = np.unique(lane, return_counts=True)
    return int(values[int(np.argmax(counts))])


def _symbols(kernels: pl.Series) -> tuple[Ints, list[str]]:
    """A number per kernel type; names that differ only in digits are one, as counters in names are."""
    names = kernels.unique(maintain_order=True).to_list()
    bare: dict[str, int] = {}
    places = [bare.setdefault(re.sub(r"(?<=_)\d+", "#", name), len(bare)) for name in names]
    codes = kernels.cast(pl.Enum(names)).to_physical().to_numpy()
    first = {place: name for name, place in reversed(list(zip(names, places, strict=True)))}  # each as it is first told
    return np.array(places, dtype=np.int64)[codes], [first[place] for place in range(len(bare))]


def _steps(trace: Trace, rows: pl.DataFrame) -> tuple[Ints, list[int]]:
    """The step of each row, counted from 0 in order of its number, and the numbers; -1 for none."""
    if rows["step"].null_count() == rows.height:
        return np.full(rows.height, -1), []
    step = marked_steps(rows, launches_of(trace, rows["task"]))
    numbers = step.drop_nulls().unique().sort()
    code = step.replace_strict(numbers, pl.int_range(len(numbers), eager=True), default=-1)
    return code.fill_null(-1).cast(pl.Int64).to_numpy(), numbers.to_list()


NEAR = 4  # stretches of one kind this close to one another belong to layers
NOVEL = 3  # kernels that no layer has
LONGER = 3.0  # times the pauses of layers
MOST_LAYERS = 0.5  # share of stretches above which a mark is a layer's own kernel
STANDSTILL = 5.0  # times the next shorter pause
# families that tell what a layer computes, beside its attention
PRODUCTS = ("gemm", "quant_matmul", "grouped_matmul", "moe_exchange", "moe_routing", "mla_prolog")


@dataclass(frozen=True)
class Stretches:
    """The stretches between neighbouring anchors of the main lane; `kind` numbers equal ones."""

    sequence: Sequence
    anchors: Ints  # places in the sequence, on the main lane
    kind: Ints
    boundary: Flags
    rule: str  # what told passes apart

    @property
    def starts(self) -> Ints:
        """The anchor that each pass begins with, as a number of anchors."""
        return np.append(0, np.flatnonzero(self.boundary) + 1)

    @property
    def sizes(self) -> Ints:
        """Anchors of each pass."""
        return np.diff(np.append(self.starts, len(self.anchors)))

    @cached_property
    def usual_pause(self) -> float:
        """A pause that most layers have none longer than, in nanoseconds."""
        pauses = _longest_pauses(self.sequence, self.anchors)[~self.boundary]
        return float(np.quantile(pauses, 0.75)) if len(pauses) else 0.0

    @cached_property
    def products(self) -> Ints:
        """As `kind`, for the products alone, whatever their sizes: one for layers that differ in their attention."""
        families = [rule_of(name).family for name in self.sequence.names]
        wanted = [PRODUCTS.index(family) if family in PRODUCTS else -1 for family in families]
        symbol = np.array(wanted, dtype=np.int64)[self.sequence.symbol[self.main]]
        return kinds(symbol[symbol >= 0], np.append(0, np.cumsum(symbol >= 0))[self.main_place])

    def shared(self, stretch: int) -> tuple[int, int]:
        """Of a boundary: the last row its begin shares with a layer before, the first row its end does with one after.

        Shared are equal kernels of the main lane, counted from the anchors. Without such layers: the anchors.
        """
        here = self._main(stretch)
        before = [self._main(i) for i in range(stretch - NEAR, stretch) if i >= 0 and not self.boundary[i]]
        after = [
            self._main(i) for i in range(stretch + 1, min(stretch + 1 + NEAR, len(self.kind))) if not self.boundary[i]
        ]
        symbol = self.sequence.symbol
        head = max((agreeing(symbol[here], symbol[other]) for other in before), default=0)
        tail = max((agreeing(symbol[here][::-1], symbol[other][::-1]) for other in after), default=0)
        low = int(self.anchors[stretch]) if head == 0 else int(here[head - 1])
        high = int(self.anchors[stretch + 1]) if tail == 0 else int(here[-tail])
        return low, high

    @cached_property
    def main(self) -> Ints:
        """Rows of the lane the anchors ran on."""
        return np.flatnonzero(self.sequence.lane == self.sequence.lane[self.anchors[0]])

    @cached_property
    def main_place(self) -> Ints:
        """The place of each anchor among the rows of the main lane."""
        return np.searchsorted(self.main, self.anchors)

    def _main(self, stretch: int) -> Ints:
        """Rows of the main lane in a stretch."""
        return self.main[self.main_place[stretch] : self.main_place[stretch + 1]]


def stretches(sequence: Sequence, anchors: Ints, of_attention: bool = True) -> Stretches:
    """The stretches between anchors, with those that separate passes told apart."""
    lane = busiest(sequence.lane[anchors])
    anchors = anchors[sequence.lane[anchors] == lane]
    main = np.flatnonzero(sequence.lane == lane)
    kind = kinds(sequence.symbol[main], np.searchsorted(main, anchors))
    boundary, rule = _boundaries(sequence, anchors, kind, of_attention)
    return Stretches(sequence, anchors, kind, boundary, rule)


def _boundaries(sequence: Sequence, anchors: Ints, kind: Ints, of_attention: bool) -> tuple[Flags, str]:
    new_step = np.diff(sequence.step[anchors]) != 0
    marked = _marked(sequence, anchors)
    if sequence.has_steps:
        # a mark between attentions of one step: a draft's pass beside the main one, or many passes of one answer
        inner = new_step | (marked & of_attention)
        again = _iterations(inner, _novel(sequence, anchors, kind), kind)
        return inner | again, "step and kernels that layers do not have" if again.any() else "step"
    if marked.any():
        return marked, "sampling and embedding"
    novel = _novel(sequence, anchors, kind)
    if novel.any():
        return novel, "kernels that layers do not have"
    paused = _paused(_longest_pauses(sequence, anchors))
    return paused, "pauses" if paused.any() else "whole capture"


def _iterations(inner: Flags, novel: Flags, kind: Ints) -> Flags:
    """Of the novel stretches those that part equal runs of layers: the steps of a diffusion, not layers of one pass."""
    found = np.zeros(len(inner), dtype=bool)
    edges = np.concatenate([[-1], np.flatnonzero(inner), [len(inner)]])
    for low, high in pairwise((edges + 1).tolist()):  # anchors low to high - 1 are of one step or pass
        cuts = low + np.flatnonzero(novel[low : high - 1])
        pieces = [kind[a : b - 1] for a, b in pairwise([low, *(cuts + 1).tolist(), high])]
        size, times = Counter(len(piece) for piece in pieces).most_common(1)[0]
        first, second = ([piece for piece in pieces if len(piece) == size] * 2)[:2]
        if times > 1 and times * (size + 1) >= MOSTLY * (high - low) and np.mean(first == second) >= MOSTLY:
            found[cuts] = True
    return found


def _marked(sequence: Sequence, anchors: Ints) -> Flags:
    """Stretches with a sampling kernel, or with an embedding that is not a layer's."""
    result = _holds(sequence.landmarks("sampling"), anchors)
    for symbol, name in enumerate(sequence.names):
        if landmark_of(name) == "embedding":
            rows = sequence.symbol == symbol
            if not in_most(rows, anchors):
                result |= _holds(rows, anchors)
    return result


def in_most(rows: Flags, anchors: Ints) -> bool:
    """True when most stretches have such a row: then it is a layer's."""
    there = _holds(rows, anchors)
    return bool(there.sum() > MOST_LAYERS * len(there))


def _holds(rows: Flags, anchors: Ints) -> Flags:
    """Stretches in which any of the rows is."""
    before = np.append(0, np.cumsum(rows))
    there: Flags = before[anchors[1:]] > before[anchors[:-1]]
    return there


def _novel(sequence: Sequence, anchors: Ints, kind: Ints) -> Flags:
    result = np.zeros(len(kind), dtype=bool)
    recurring = np.zeros(largest(kind) + 1, dtype=bool)
    for distance in range(1, NEAR + 1):
        recurring[kind[distance:][kind[distance:] == kind[:-distance]]] = True
    odd = np.flatnonzero(~recurring[kind])
    known = np.unique(kind[recurring[kind]])
    if not len(odd) or not len(known):
        return result

    def counts(stretch: int) -> Ints:
        return np.bincount(sequence.symbol[anchors[stretch] : anchors[stretch + 1]], minlength=len(sequence.names))

    layers = np.stack([counts(int(np.argmax(kind == k))) for k in known[:8]])
    novelty = np.array([np.maximum(counts(i) - layers, 0).sum(axis=1).min() for i in odd.tolist()])
    pause = _longest_pauses(sequence, anchors)
    usual = float(np.quantile(pause[recurring[kind]], 0.95))
    paused = pause[odd] > LONGER * max(usual, 1.0)
    enough = novelty >= NOVEL
    if (enough & paused).any():
        enough &= paused
    elif enough.any():  # a model's only dense layer is novel too, but has no head and no tail
        enough &= novelty >= novelty.max() / 2
    result[odd[enough]] = True
    return result


def agreeing(a: Ints, b: Ints) -> int:
    """How many symbols two stretches have in common at their begin."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def _longest_pauses(sequence: Sequence, anchors: Ints) -> NDArray[np.int64]:
    """The longest time without work in each stretch."""
    if len(anchors) < 2:
        return np.zeros(0, dtype=np.int64)
    pauses: NDArray[np.int64] = np.maximum.reduceat(sequence.pause[: anchors[-1] + 1], anchors[:-1] + 1)
    return np.maximum(pauses, 0)


def _paused(pause: NDArray[np.int64]) -> Flags:
    """Stretches whose pause is far above all shorter ones, if they make passes of one size."""
    if len(pause) < 2:
        return np.zeros(len(pause), dtype=bool)
    ordered = np.sort(np.maximum(pause, 1)).astype(np.float64)
    ratio = ordered[1:] / ordered[:-1]
    half = len(ordered) // 2  # most stretches are layers
    best = half + int(np.argmax(ratio[half:])) if len(ratio[half:]) else half
    if best >= len(ratio) or ratio[best] < STANDSTILL:
        return np.zeros(len(pause), dtype=bool)
    paused: Flags = pause >= ordered[best + 1]
    sizes = np.diff(np.concatenate([[-1], np.flatnonzero(paused), [len(pause)]]))
    inner = sizes[1:-1] if len(sizes) > 2 else sizes
    even = np.all(inner == inner[0]) and np.all(sizes <= inner[0])
    return paused if even else np.zeros(len(pause), dtype=bool)
