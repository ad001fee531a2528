"""Comparators that bound how far values may be off: all of them (`allclose`), or all but a share (`ratio_…`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden.arrays import Array, fp32, is_float
from npuscope.tile.golden.comparator import Comparator, Situation, Verdict, label, listed, named
from npuscope.tile.golden.misuse import check_number, misuse, told

SMALLEST = 2.0**-14  # below this over diff_thd a value counts as that large: relative errors of zeros mean nothing
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]


def close(actual: Array, expected: Array, rtol: float, atol: float) -> Bools:
    """Where |actual - expected| ≤ atol + rtol·|expected|, or both are equal; never where one is NaN.

    Halves and bf16 are compared in fp32, integers exactly.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf, and beyond the largest float
        if is_float(actual) or is_float(expected):
            x, y = (_wide(one) for one in (actual, expected))
            off = np.abs(x - y)
            return np.asarray((x == y) | (np.isfinite(off) & (off <= atol + np.abs(rtol * y))))
        a, e = (one if one.dtype == np.uint64 else one.astype(np.int64) for one in (actual, expected))
        apart = (np.maximum(a, e) - np.minimum(a, e)).astype(np.uint64)  # wraps to the right number
        return np.asarray((a == e) | (apart <= atol + np.abs(rtol * e.astype(np.float64))))


def _wide(array: Array) -> npt.NDArray[np.floating]:
    return array.astype(np.float64, copy=False) if array.dtype == np.float64 else array.astype(np.float32)


def allclose(actual: Array, expected: Array, situation: Situation, show: int = 20) -> Verdict:
    """The rule for outputs that have no comparator of their own: every element `close`."""
    rtol, atol = situation.rtol, situation.atol
    bad = np.flatnonzero(~close(actual, expected, rtol, atol))
    if not bad.size:
        return True, ""
    a, e = actual.reshape(-1), expected.reshape(-1)
    return False, (
        f"    Mismatched elements: {bad.size}/{a.size}  rtol={rtol} atol={atol}\n"
        + listed(
            bad[:show], lambda i: f"{label(i, actual.shape)}actual={a[i]!s}, expected={e[i]!s}{situation.written_by(i)}"
        )
    )


def ratio_allclose(
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
    max_show: int = 10,
    valid_rows: int | None = None,
    valid_axis: int = 0,
    zero_tail: bool = False,
) -> Comparator:
    """Pass if |a - e| > atol + rtol·|e| for at most round(max_error_ratio · n) of n elements, in fp32.

    NaN or Inf on either side fails. Tolerances left out are the run's. `valid_rows` compares only the first rows
    along `valid_axis` (0: nothing, passes); with `zero_tail` the rest must be zero.
    """
    check_number("max_error_ratio", max_error_ratio, most=1)
    for name, value in (("atol", atol), ("rtol", rtol)):
        if value is not None:
            check_number(name, value)
    _check_rows(valid_rows, valid_axis)

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        inside = compared_part(actual, expected, valid_rows, valid_axis, zero_tail)
        if not isinstance(inside, Part):
            return inside
        a, e = inside.actual, inside.expected
        absolute = situation.atol if atol is None else atol
        relative = situation.rtol if rtol is None else rtol
        off, allowed = np.abs(a - e), absolute + relative * np.abs(e)
        bad = np.flatnonzero(off > allowed)
        most = round(max_error_ratio * a.size)
        if bad.size <= most:
            return True, ""
        worst = int(np.argmax(off))
        place = inside.place(worst)
        return False, (
            f"    ratio_allclose fail: error_count={bad.size}/{a.size} (ratio={bad.size / a.size:.4%}, "
            f"allowed<={max_error_ratio:.4%}, threshold={most} pts)\n"
            f"    atol={absolute} rtol={relative}\n"
            f"    max abs diff={off[worst]:.6g} at {place} (tol={allowed[worst]:.6g})\n"
        ) + inside.listed(bad[:max_show], lambda i: f"diff={off[i]:.4g}, tol={allowed[i]:.4g}", situation)

    return Comparator(
        named(
            "ratio_allclose",
            atol=atol,
            rtol=rtol,
            max_error_ratio=max_error_ratio,
            valid_rows=valid_rows,
            valid_axis=valid_axis,
            zero_tail=zero_tail,
        ),
        judge,
    )


def ratio_reldiff(
    diff_thd: float = 0.01,
    pct_thd: float = 0.05,
    max_diff_hd: float = float("inf"),
    max_show: int = 10,
    valid_rows: int | None = None,
    valid_axis: int = 0,
    zero_tail: bool = False,
) -> Comparator:
    """Pass if `relative_differences` exceed `diff_thd` for at most round(pct_thd · n) of n elements.

    And if none reaches `max_diff_hd`. NaN or Inf on either side fails; `valid_rows` and `zero_tail` as for
    `ratio_allclose`.
    """
    check_number("pct_thd", pct_thd, most=1)
    _check_rows(valid_rows, valid_axis)
    for name, value in (("diff_thd", diff_thd), ("max_diff_hd", max_diff_hd)):
        check_number(name, value)
        if value == 0:
            raise misuse(f"{name} must be more than 0")

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        inside = compared_part(actual, expected, valid_rows, valid_axis, zero_tail)
        if not isinstance(inside, Part):
            return inside
        a, e = inside.actual, inside.expected
        relative = relative_differences(a, e, diff_thd)
        bad = np.flatnonzero(relative > diff_thd)
        worst = float(np.max(relative[bad], initial=0.0))
        most = round(pct_thd * a.size)
        reasons = []
        if bad.size > most:
            reasons.append(
                f"error_count={bad.size}/{a.size} (ratio={bad.size / a.size:.4%}, allowed<={pct_thd:.4%}, "
                f"threshold={most} pts)"
            )
        if worst >= max_diff_hd:
            reasons.append(f"worst rdiff={worst:.4g} >= max_diff_hd={max_diff_hd:.4g}")
        if not reasons:
            return True, ""
        return False, (
            f"    ratio_reldiff fail: {' AND '.join(reasons)}\n"
            f"    diff_thd={diff_thd} pct_thd={pct_thd} max_diff_hd={max_diff_hd}\n"
        ) + inside.listed(
            bad[:max_show], lambda i: f"abs_diff={abs(a[i] - e[i]):.4g}, rdiff={relative[i]:.4g}", situation
        )

    return Comparator(
        named(
            "ratio_reldiff",
            diff_thd=diff_thd,
            pct_thd=pct_thd,
            max_diff_hd=max_diff_hd,
            valid_rows=valid_rows,
            valid_axis=valid_axis,
            zero_tail=zero_tail,
        ),
        judge,
    )


def relative_differences(actual: Floats, expected: Floats, threshold: float) -> Floats:
    """d = |a - e| where that is below the threshold, else d / (max(|a|, |e|, 2⁻¹⁴ / threshold) + 1e-9)."""
    off = np.abs(actual - expected)
    size = np.maximum(np.maximum(np.abs(actual), np.abs(expected)), np.float32(SMALLEST / threshold)) + np.float32(1e-9)
    relative: Floats = np.where(off < threshold, off, off / size)
    return relative


@dataclass(frozen=True)
class Part:
    """The part of two tensors that is compared, flat and in fp32, and where it lies in the whole."""

    actual: Floats
    expected: Floats
    shape: tuple[int, ...]
    whole: tuple[int, ...]

    def place(self, i: int) -> tuple[int, ...]:
        return tuple(int(x) for x in np.unravel_index(i, self.shape))

    def listed(self, bad: npt.NDArray[np.int64], more: Callable[[int], str], situation: Situation) -> str:
        def line(i: int) -> str:
            flat = int(np.ravel_multi_index(self.place(i), self.whole))
            values = f"actual={self.actual[i]:.8g}, expected={self.expected[i]:.8g}"
            return f"{label(flat, self.whole)}{values}, {more(i)}{situation.written_by(flat)}"

        return listed(bad, line)


def compared_part(actual: Array, expected: Array, rows: int | None, axis: int, zero_tail: bool) -> Part | Verdict:
    """The first `rows` along an axis (None: everything), or the verdict where a look at it settles the matter."""
    if actual.shape != expected.shape:
        return False, f"    shape mismatch: actual {actual.shape}, expected {expected.shape}"
    whole = actual.shape
    if rows is not None:
        if not -actual.ndim <= axis < actual.ndim:
            return False, f"    valid_axis={axis} out of range for shape {actual.shape}"
        length = actual.shape[axis]
        if not 0 <= rows <= length:
            return False, f"    valid_rows={rows} out of range for axis {axis} of length {length}"
        actual, tail = np.split(actual, [rows], axis=axis)
        expected, _ = np.split(expected, [rows], axis=axis)
        beyond = int(np.count_nonzero(tail)) if zero_tail else 0
        if beyond:
            return False, f"    inactive tail contains {beyond} nonzero values"
    if not actual.size:
        return True, ""
    a, e = (fp32(x).reshape(-1) for x in (actual, expected))
    illegal = not_finite(a, e)
    return (False, illegal) if illegal else Part(a, e, actual.shape, whole)


def not_finite(actual: Array, expected: Array) -> str:
    """What no comparison can judge, counted; empty where every value is finite."""
    if np.all(np.isfinite(actual)) and np.all(np.isfinite(expected)):
        return ""
    counts = [
        f"{side}: NaN={np.isnan(x).sum()} Inf={np.isinf(x).sum()}"
        for side, x in (("actual", actual), ("expected", expected))
    ]
    return f"    illegal values in comparison: {'; '.join(counts)}"


def _check_rows(rows: object, axis: object) -> None:
    for name, value in (("valid_rows", 0 if rows is None else rows), ("valid_axis", axis)):
        if not isinstance(value, int | np.integer):
            raise misuse(f"{name} must be a whole number, not {told(value)}")
