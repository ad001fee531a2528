"""How well predicted changes agree with measured ones.

r is measured after over before, p the predicted, e = |ln p - ln r|. A row weighs 1 / (rows of its commit), so that a
commit with many rows counts as one. Direction: a row with |ln r| < 0.03 is neutral and is right where |ln p| < 0.05;
otherwise the sign must agree and |ln p| must be at least 0.01. A row that does not run is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from published_changes.rows import Row, set_aside

NEUTRAL, STILL_NEUTRAL, NOTICED = 0.03, 0.05, 0.01
CLOSE = math.log(1.15)
LARGE = 0.85  # a change that makes it faster by over 15 %


@dataclass(frozen=True)
class Prediction:
    """A row with what the simulator says of both sides, in nanoseconds, or why it says nothing."""

    row: Row
    before: float | None = None
    after: float | None = None
    reason: str = ""
    bounds: tuple[str, str] = ("", "")  # what limits the run before and after, where that is known

    @property
    def ran(self) -> bool:
        return self.before is not None and self.after is not None

    @property
    def change(self) -> float:
        """ln of the predicted ratio."""
        assert self.before is not None
        assert self.after is not None
        return math.log(self.after / self.before)

    @property
    def ratio(self) -> float:
        return math.exp(self.change)

    @property
    def error(self) -> float:
        """e: how far the predicted ratio is from the measured one."""
        return abs(self.change - self.row.change) if self.ran else math.inf

    @property
    def right(self) -> bool:
        """Whether the direction is right."""
        if not self.ran:
            return False
        measured, predicted = self.row.change, self.change
        if abs(measured) < NEUTRAL:
            return abs(predicted) < STILL_NEUTRAL
        return abs(predicted) >= NOTICED and (predicted > 0) == (measured > 0)


@dataclass(frozen=True)
class Score:
    """Shares are weighted; those of rows that do not run count as wrong. Errors are medians over rows that ran."""

    rows: int
    ran: int
    direction: float
    direction_of_ran: float
    median_error: float  # exp(e) - 1
    within_15: float
    rho: float

    def as_dict(self) -> dict[str, float | None]:
        return {name: None if value != value else value for name, value in vars(self).items()}


def score(predictions: Sequence[Prediction], weights: dict[str, float]) -> Score:
    """The score of some rows with the weights of all of them."""
    weight = [weights[one.row.id] for one in predictions]
    ran = [(one, w) for one, w in zip(predictions, weight, strict=True) if one.ran]
    total, total_ran = sum(weight), sum(w for _, w in ran)
    right = sum(w for one, w in ran if one.right)
    near = sum(w for one, w in ran if one.error <= CLOSE)
    middle = weighted_median([one.error for one, _ in ran], [w for _, w in ran])
    return Score(
        rows=len(predictions),
        ran=len(ran),
        direction=right / total if total else math.nan,
        direction_of_ran=right / total_ran if total_ran else math.nan,
        median_error=math.exp(middle) - 1,
        within_15=near / total if total else math.nan,
        rho=spearman([one.row.change for one, _ in ran], [one.change for one, _ in ran], [w for _, w in ran]),
    )


def weights_of(rows: Sequence[Row]) -> dict[str, float]:
    """A row's weight: one over the rows of its commit."""
    rows_of: dict[str, int] = {}
    for row in rows:
        rows_of[row.commit] = rows_of.get(row.commit, 0) + 1
    return {row.id: 1 / rows_of[row.commit] for row in rows}


def guessed(rows: Sequence[Row], ratio: float) -> list[Prediction]:
    """What somebody says who says the same of every change."""
    return [Prediction(row, 1.0, ratio) for row in rows]


SPLITS: dict[str, Callable[[Row], bool]] = {
    "wall": lambda row: row.quantity in ("wall", "corespan"),
    "span": lambda row: row.quantity == "span",
    "task": lambda row: row.quantity == "task",
    "busy": lambda row: row.quantity == "busy",
    "a2a3": lambda row: row.platform == "a2a3",
    "a5": lambda row: row.platform == "a5",
    "neutral or slower": lambda row: row.change > -NEUTRAL,
    "faster by over 15 %": lambda row: row.ratio < LARGE,
}


def scores(predictions: Sequence[Prediction], weights: dict[str, float] | None = None) -> dict[str, Score]:
    """All rows, the two guesses on the same rows, and the splits; the weights are those of more rows, or of these."""
    rows = [one.row for one in predictions]
    weights = weights or weights_of(rows)
    found = {
        "all": score(predictions, weights),
        "always -10 %": score(guessed(rows, 0.9), weights),
        "no change": score(guessed(rows, 1.0), weights),
    }
    for name, chosen in SPLITS.items():
        mine = [one for one in predictions if chosen(one.row)]
        if mine:
            found[name] = score(mine, weights)
    return found


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value at which half of the weight is reached; between two values where it is reached exactly."""
    pairs = sorted(zip(values, weights, strict=True))
    if not pairs:
        return math.nan
    half, so_far = sum(weights) / 2, 0.0
    for n, (value, weight) in enumerate(pairs):
        so_far += weight
        if so_far > half + 1e-12:
            return value
        if abs(so_far - half) <= 1e-12:
            return (value + pairs[min(n + 1, len(pairs) - 1)][0]) / 2
    return pairs[-1][0]


def spearman(first: Sequence[float], second: Sequence[float], weights: Sequence[float]) -> float:
    """Correlation of ranks; equal values share the middle of their ranks."""
    if len(first) < 2:
        return math.nan
    a, b, total = _ranks(first), _ranks(second), sum(weights)

    def mean(values: Sequence[float]) -> float:
        return sum(w * v for w, v in zip(weights, values, strict=True)) / total

    a, b = [v - mean(a) for v in a], [v - mean(b) for v in b]
    spread = math.sqrt(mean([v * v for v in a]) * mean([v * v for v in b]))
    return mean([x * y for x, y in zip(a, b, strict=True)]) / spread if spread else math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [(order.index(v) + len(order) - 1 - order[::-1].index(v)) / 2 for v in values]


HEAD = f"{'':22}{'rows':>5}{'ran':>5}{'direction':>11}{'of ran':>8}{'median':>8}{'within 15 %':>13}{'rho':>7}"


def score_lines(found: dict[str, Score], mark: str = "") -> list[str]:
    return [HEAD, *(_line(f"{name}{mark}", one) for name, one in found.items())]


def side_by_side(now: dict[str, Score], other: dict[str, Score]) -> list[str]:
    lines = [HEAD]
    for name, one in now.items():
        lines.append(_line(name, one))
        if name in other and other[name] != one:
            lines.append(_line("  other version", other[name]))
    return lines


def row_lines(predictions: Sequence[Prediction], other: dict[str, Prediction] | None = None) -> list[str]:
    """Rows one below the other, times in µs as measured and as predicted."""
    more = f"{'other':>8}" if other else ""
    lines = [
        f"{'':10}{'quantity':14}{'measured before, after':>24}{'ratio':>7}  {'predicted before, after':>24}{'ratio':>7}"
        f"{'miss':>8}{more}  "
    ]
    for one in predictions:
        row = one.row
        measured = f"{_three(row.before)}, {_three(row.after)}"
        head = f"{row.id:10}{row.quantity_name:14}{measured:>24}{row.ratio:7.2f}  "
        if one.ran:
            assert one.before is not None
            assert one.after is not None
            said = f"{_three(one.before / 1e3)}, {_three(one.after / 1e3)}"
            rest = f"{said:>24}{one.ratio:7.2f}{math.expm1(one.error):8.0%}{_of(one, other)}"
            lines.append(f"{head}{rest}  {'' if one.right else 'wrong'}".rstrip())
        else:
            lines.append(f"{head}does not run: {one.reason}"[:200])
    return lines


def _of(one: Prediction, other: dict[str, Prediction] | None) -> str:
    if other is None:
        return ""
    before = other.get(one.row.id)
    return f"{'-' if before is None or not before.ran else f'{before.ratio:.2f}':>8}"


def to_look_at(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Without the rows that nobody may see while a mechanism or a constant is chosen."""
    return [one for one in predictions if not set_aside(one.row.commit)]


def worst(predictions: Sequence[Prediction], count: int) -> list[Prediction]:
    return sorted(predictions, key=lambda one: (-one.error, one.row.id))[:count]


def _line(name: str, one: Score) -> str:
    return (
        f"{name:22}{one.rows:5}{one.ran:5}{_share(one.direction):>11}{_share(one.direction_of_ran):>8}"
        f"{_share(one.median_error):>8}{_share(one.within_15):>13}{'-' if one.rho != one.rho else f'{one.rho:.2f}':>7}"
    )


def _share(value: float) -> str:
    return "-" if value != value else f"{value:.0%}"


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
