"""How far predictions of published changes were off, and the spread that they make likely for the next one.

`misses.csv` has a row per published change, written by `benchmarks/changes.py … --learn`. A miss is ln(measured /
predicted). A commit counts as one, however many rows it has. What is learnt from the misses of some commits must hold
for a commit that is not among them: the new one counts as one more whose miss may be anything (hierarchical conformal
prediction), so a share of S is reached where the rows so far reach S · (commits + 1).
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TextIO

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.time.bound import KIND_OF
from npuscope.time.chip.job import Floats

FILE = Path(__file__).with_name("misses.csv")
COLUMNS = ("commit", "quantity", "bound_before", "bound_after", "change", "ratio", "before", "after")
QUANTITIES = ("wall", "kernel")
UNKNOWN = ""  # the bound of a run that was simulated before bounds were kept
SHIFTED = "shifted"  # the kind of a change with another bound after than before
NOISE = 0.03  # of a published time
LEAST = 10  # commits of a kind of bound; fewer say too little, so that all kinds are taken
STEPS = np.arange(0, 1.005, 0.01)  # of the growth of a miss with the change


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

    def at(self, share: float) -> float:
        """The score that this share of new ones does not exceed; between two known ones in proportion."""
        return float(np.interp(share, self.reached, self.scores))

    def share(self, score: float) -> float:
        """The share of new scores up to this one, of scores from 0 up; none is up to 0."""
        return 0.0 if score <= 0 else float(np.interp(score, [0.0, *self.scores], [0.0, *self.reached]))


@dataclass(frozen=True)
class Basis:
    """What an interval was learnt from; without a `bound` from all of them, because the kind has too few commits."""

    quantity: str
    bound: str | None
    rows: int
    commits: int


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
            told = [(r.commit, r.quantity, kind, miss) for r in self.rows for kind, miss in r.times()]
            self._known[key] = _chosen(told, quantity, bound)
        spread, basis = self._known[key]
        tail = (1 - coverage) / 2
        return min(spread.at(tail), 0.0), max(spread.at(1 - tail), 0.0), basis

    def ratio(self, quantity: str, kind: str) -> tuple[Spread, Basis]:
        """The spread of |miss| in units of `size`, which is the same for both directions of a change."""
        key = ("ratio", quantity, kind)
        if key not in self._known:
            told = [(r.commit, r.quantity, r.kind, abs(r.ratio) / self.size(r.change)) for r in self.rows]
            self._known[key] = _chosen(told, quantity, kind)
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


def _chosen(told: Sequence[tuple[str, str, str, float]], quantity: str, kind: str) -> tuple[Spread, Basis]:
    """Of commit, quantity, kind and score those that fit best: the first choice with enough commits, else all."""
    alike = [one for one in told if one[1] == quantity]
    of_kind = [one for one in alike if one[2] == kind]
    choices = ((of_kind, quantity, kind), (alike, quantity, None), (told, "any", None))
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
