"""The score in lines for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from published_changes.score import Prediction, Score

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
