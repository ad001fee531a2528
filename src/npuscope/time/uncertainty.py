"""How sure a predicted time is: an interval, and of two programs the probability that the second is faster.

Both come from the misses on published changes: `misses.csv` has a row per change, written by `benchmarks/changes.py …
--learn`. A miss is ln(measured / predicted). A commit counts as one, however many rows it has. What is learnt from the
misses of some commits must hold for a commit that is not among them: the new one counts as one more whose miss may be
anything (hierarchical conformal prediction), so a share of S is reached where the rows so far reach S · (commits + 1).

A ratio's miss is as likely in either direction, so that A against B and B against A say the same; the interval of a
ratio leaves out 1 just where the probability is decided.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TextIO

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.base.interval import COVERAGE, NOISE, Against, Basis, Interval, never_certain
from npuscope.table.formats import TIMES, Form, figures, interval, interval_text
from npuscope.time.bound import KIND_OF
from npuscope.time.chip.job import Floats

FILE = Path(__file__).with_name("misses.csv")
COLUMNS = ("commit", "quantity", "bound_before", "bound_after", "change", "ratio", "before", "after")
QUANTITIES = ("wall", "cube", "vector")  # of a run; of a kernel with products, and of one of vector cores alone
UNKNOWN = ""  # the bound of a run that was simulated before bounds were kept
SHIFTED = "shifted"  # the kind of a change with another bound after than before
LEAST = 10  # commits of a kind of bound; fewer say too little, so that all kinds are taken
STEPS = np.arange(0, 1.005, 0.01)  # of the growth of a miss with the change


@cache
def known_misses() -> Misses:
    """The misses that come with npuscope."""
    with FILE.open(newline="", encoding="utf-8") as source:
        return read_misses(source)


def time_estimate(time: float, quantity: str, bound: str, misses: Misses | None = None) -> Interval:
    """A time in any unit: `quantity` is one of QUANTITIES, `bound` the kind of what limits the run."""
    low, high, basis = (misses or known_misses()).time(quantity, bound, COVERAGE)
    return Interval(time, time * math.exp(low), time * math.exp(high), COVERAGE, basis)


def against(
    a: float,
    b: float,
    bound_a: str,
    bound_b: str,
    misses: Misses | None = None,
    quantity: str = "wall",
    of: float = 1.0,
) -> Against:
    """The time B against the time A, each with what limits its run. Both times are above 0.

    B was chosen by its predicted time among several, and so looks better than it is: at worst all of them that were
    missed by as much are among the chosen. So misses that were met count `of` times (`answer/improve.py` says how
    often), and the interval leaves out that much fewer. That a program is like none that was measured counts once: it
    is the same in all of them.
    """
    return _compared(math.log(b / a), quantity, kind_of(bound_a, bound_b), misses or known_misses(), of)


def kernel_quantity(cores: Container[str]) -> str:
    """What a kernel's time is learnt as, by the cores that it runs on."""
    return "cube" if "AIC" in cores or "MIX" in cores else "vector"


def time_after(time: float, change: Against) -> Interval:
    """A predicted time that stands on a measured one: all that is unknown is the change between them.

    A published ratio's miss is the miss of the time after, foretold from the measured time before.
    """
    ratio = change.ratio
    low, high = (time * end / ratio.value for end in (ratio.low, ratio.high))
    return replace(ratio, value=time, low=low, high=high)


def _compared(change: float, quantity: str, kind: str, misses: Misses, of: float = 1.0) -> Against:
    spread, basis = misses.ratio(quantity, kind)
    size = misses.size(change)
    left_out = max(1 - COVERAGE - spread.unseen, 0.0) * (1 - 1 / of)
    width = spread.at(COVERAGE + left_out) * size
    ratio = Interval(math.exp(change), math.exp(change - width), math.exp(change + width), COVERAGE, basis)
    beyond = 1 - spread.share(abs(change) / size)
    seen = max(beyond - spread.unseen, 0.0)
    beyond += min(seen * (of - 1), 1 - beyond)  # at worst nobody knows
    return Against(ratio, 0.5 - math.copysign(0.5 - 0.5 * beyond, change))


def ratio_inside(misses: Misses, row: Miss) -> list[bool]:
    """Whether the measured ratio of a row lies in the interval that other rows teach."""
    ratio = _compared(row.change, row.quantity, row.kind, misses).ratio
    return [ratio.low <= math.exp(row.change + row.ratio) <= ratio.high]


def time_inside(misses: Misses, row: Miss) -> list[bool]:
    """The same for the times of its sides."""
    found = []
    for bound, miss in row.times():
        one = time_estimate(1.0, row.quantity, bound, misses)
        found.append(one.low <= math.exp(miss) <= one.high)
    return found


@dataclass(frozen=True)
class Miss:
    """One published change: the predicted ln(after / before), and the misses of the ratio and of both times."""

    commit: str
    quantity: str
    bound_before: str
    bound_after: str
    change: float
    ratio: float
    before: float | None = None
    after: float | None = None

    @property
    def kind(self) -> str:
        """The bound of both sides, or SHIFTED."""
        return kind_of(self.bound_before, self.bound_after)

    def times(self) -> list[tuple[str, float]]:
        """Kind, as it is learnt, and miss of each side with a known time."""
        sides = ((self.bound_before, self.before), (self.bound_after, self.after))
        return [(learnt_as(bound), miss) for bound, miss in sides if miss is not None]


def learnt_as(kind: str) -> str:
    """A tail is learnt as a dependency: both are waits for the blocks that run, and apart they are too few."""
    return "dependency" if kind == "tail" else kind


def kind_of(bound_a: str, bound_b: str) -> str:
    """Of a change, as it is learnt."""
    a, b = learnt_as(bound_a), learnt_as(bound_b)
    return a if a == b else SHIFTED


@dataclass(frozen=True, eq=False)
class Spread:
    """Scores in order, each with the share of all commits and one more that has no larger one."""

    scores: Floats
    reached: Floats

    @staticmethod
    def of(scores: Sequence[float], commits: Sequence[str]) -> Spread:
        rows = Counter(commits)
        weight = np.array([1 / rows[commit] for commit in commits])
        order = np.argsort(scores, kind="stable")
        return Spread(np.array(scores, float)[order], np.cumsum(weight[order]) / (len(rows) + 1))

    @property
    def unseen(self) -> float:
        """The share of new ones that may be beyond all that are known."""
        return 1 - float(self.reached[-1])

    def at(self, share: float) -> float:
        """The score that this share of new ones does not exceed; between two known ones in proportion."""
        return float(np.interp(share, self.reached, self.scores))

    def share(self, score: float) -> float:
        """The share of new scores up to this one, of scores from 0 up; none is up to 0."""
        return 0.0 if score <= 0 else float(np.interp(score, [0.0, *self.scores], [0.0, *self.reached]))


@dataclass(frozen=True)
class Misses:
    """All that is known; every answer is learnt from these rows alone."""

    rows: tuple[Miss, ...]

    def without(self, commit: str) -> Misses:
        return Misses(tuple(row for row in self.rows if row.commit != commit))

    def time(self, quantity: str, bound: str, coverage: float) -> tuple[float, float, Basis]:
        """Lowest and highest likely ln(measured / predicted) of a time."""
        bound = learnt_as(bound)
        key = ("time", quantity, bound)
        if key not in self._known:
            misses = [(r.commit, r.quantity, kind, miss) for r in self.rows for kind, miss in r.times()]
            self._known[key] = _chosen(misses, quantity, bound)
        spread, basis = self._known[key]
        tail = (1 - coverage) / 2
        return min(spread.at(tail), 0.0), max(spread.at(1 - tail), 0.0), basis

    def ratio(self, quantity: str, kind: str) -> tuple[Spread, Basis]:
        """The spread of |miss| in units of `size`, which is the same for both directions of a change."""
        key = ("ratio", quantity, kind)
        if key not in self._known:
            misses = [(r.commit, r.quantity, r.kind, abs(r.ratio) / self.size(r.change)) for r in self.rows]
            self._known[key] = _chosen(misses, quantity, kind)
        return self._known[key]

    def size(self, change: float) -> float:
        """The typical |miss| of a predicted change: larger changes are missed by more."""
        least, growth = self.scale
        return least + growth * abs(change)

    @cached_property
    def _known(self) -> dict[tuple[str, str, str], tuple[Spread, Basis]]:
        return {}

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Least absolute deviations of |miss| from a + b · |change|; a is at least the noise of what is published."""
        commits = Counter(row.commit for row in self.rows)
        weight = np.array([1 / commits[row.commit] for row in self.rows])
        size, change = (np.array([abs(v) for v in values]) for values in zip(*map(_pair, self.rows), strict=True))
        found = []
        for growth in STEPS.tolist():
            least = max(_median(size - growth * change, weight), NOISE)
            found.append((float(np.sum(weight * np.abs(size - least - growth * change))), growth, least))
        _, growth, least = min(found)
        return least, growth


def _pair(row: Miss) -> tuple[float, float]:
    return row.ratio, row.change


def _median(values: Floats, weight: Floats) -> float:
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(weight[order]), np.sum(weight) / 2)])


def _chosen(misses: Sequence[tuple[str, str, str, float]], quantity: str, kind: str) -> tuple[Spread, Basis]:
    """Of commit, quantity, kind and score those that fit best: the first choice with enough commits, else all."""
    alike = [one for one in misses if one[1] == quantity]
    of_kind = [one for one in alike if one[2] == kind]
    choices = ((of_kind, quantity, kind), (alike, quantity, None), (misses, "any", None))
    chosen, name, bound = next((one for one in choices if len({row[0] for row in one[0]}) >= LEAST), choices[-1])
    commits = [one[0] for one in chosen]
    return Spread.of([one[3] for one in chosen], commits), Basis(name, bound, len(chosen), len(set(commits)))


@dataclass(frozen=True)
class Covered:
    """Of left-out rows, how many were in their interval, a commit weighing one."""

    rows: int
    commits: int
    share: float


def left_out(
    misses: Misses, inside: Callable[[Misses, Miss], Iterable[bool]], chosen: Callable[[Miss], bool] = lambda row: True
) -> Covered:
    """Leave-one-commit-out: each commit's rows are judged by what the other commits teach."""
    shares, rows = [], 0
    for commit in dict.fromkeys(row.commit for row in misses.rows):
        others = misses.without(commit)
        hits = [hit for row in misses.rows if row.commit == commit and chosen(row) for hit in inside(others, row)]
        if hits:
            shares.append(sum(hits) / len(hits))
            rows += len(hits)
    return Covered(rows, len(shares), sum(shares) / len(shares) if shares else math.nan)


def read_misses(source: TextIO, path: Path = FILE) -> Misses:
    """The rows of a file of misses, checked."""
    reader = csv.DictReader(line for line in source if not line.startswith("#"))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise BadInput(f"not a file of misses: its columns must be {', '.join(COLUMNS)}", path=path)
    rows = []
    for number, cells in enumerate(reader, 1):
        try:
            rows.append(_miss(cells))
        except (ValueError, TypeError) as error:
            raise BadInput(f"row {number} of the misses: {error}", path=path) from error
    if len({row.commit for row in rows}) < LEAST:
        raise BadInput(f"misses of fewer than {LEAST} commits teach no interval", path=path)
    return Misses(tuple(rows))


def _miss(cells: dict[str, str]) -> Miss:
    if cells["quantity"] not in QUANTITIES:
        raise ValueError(f"the quantity is '{cells['quantity']}', not one of {', '.join(QUANTITIES)}")
    for name in ("bound_before", "bound_after"):
        if cells[name] not in (*KIND_OF.values(), UNKNOWN):
            raise ValueError(f"{name} is '{cells[name]}', not one of {', '.join(dict.fromkeys(KIND_OF.values()))}")
    numbers = {name: float(cells[name]) if cells[name] else None for name in COLUMNS[4:]}
    change, ratio = numbers["change"], numbers["ratio"]
    if change is None or ratio is None or not all(math.isfinite(v) for v in numbers.values() if v is not None):
        raise ValueError("a change and the miss of its ratio must be numbers")
    words = {name: cells[name] for name in COLUMNS[:4]}
    return Miss(**words, change=change, ratio=ratio, before=numbers["before"], after=numbers["after"])


def write_misses(rows: Sequence[Miss], target: TextIO, head: str) -> None:
    """As `read_misses` reads it, after a line of `head`."""
    target.write(f"# {head}\n")
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        words = [getattr(row, name) for name in COLUMNS[:4]]
        numbers = [getattr(row, name) for name in COLUMNS[4:]]
        writer.writerow([*words, *("" if v is None else f"{v:.4f}" for v in numbers)])


def versus_text(one: Against) -> str:
    """A simulated change in a sentence."""
    return (
        f"Both are simulated: measured, the ratio of {figures(one.ratio.value)} lies from {interval_text(one.ratio)} "
        f"{one.ratio.coverage * 100:.0f}% of the time: {one}."
    )


def basis_text(wall: Interval, bound: str) -> str:
    """What the interval of a wall means, and those of kernels, which are wider."""
    cube, vector = (interval_text(time_estimate(1.0, quantity, bound)) for quantity in ("cube", "vector"))
    return (
        f"how sure: of {wall.basis.rows} published times that were predicted like this, {wall.coverage * 100:.0f}% lie "
        f"in such an interval; a single kernel may take {cube} times what is said here, one of vector cores alone "
        f"{vector} times"
    )


def _interval_text(value: object) -> str:
    return interval(value["low"], value["high"]) if isinstance(value, dict) else str(value)


def _compared_text(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    word = " undecided" if value["verdict"] == "undecided" else ""
    return f"{figures(value['low'])}–{figures(value['high'])}, {never_certain(value['probability_faster'])}{word}"


def _span(value: object) -> str:
    return " to ".join(figures(one) for one in value) if isinstance(value, list | tuple) else str(value)


INTERVAL = Form("text", "object", _interval_text)  # as Interval.as_dict() has it


COMPARED = Form("text", "object", _compared_text)  # as Against.as_dict() has it


SPAN = Form("text", "[low, high], ns", _span, TIMES)
