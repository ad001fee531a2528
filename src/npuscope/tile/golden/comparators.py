"""Comparators: is an output close enough to its golden? Each can name the op behind a bad element.

A user's comparator is any `f(actual, expected, *, actual_outputs, expected_outputs, inputs, rtol, atol) -> (ok,
message)`. Ours are `Comparator`s: the same call, around a rule on NumPy arrays that also gets `written_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden.spec import Array, array_of, check_number, described, fp32, is_float, misuse

SMALLEST = 2.0**-14  # below this over diff_thd a value counts as that large: relative errors of zeros mean nothing
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Verdict = tuple[bool, str]  # passed, and else what is wrong, in lines indented by four


@dataclass(frozen=True)
class Situation:
    """What a comparator may look at besides the two tensors. `written_by`: an element's last writer, for the line."""

    rtol: float = 1e-5
    atol: float = 1e-5
    actual_outputs: Mapping[str, object] = field(default_factory=dict)
    expected_outputs: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, object] = field(default_factory=dict)
    written_by: Callable[[int], str] = lambda flat_index: ""


@dataclass(frozen=True)
class Comparator:
    """A named rule."""

    name: str
    judge: Callable[[Array, Array, Situation], Verdict]

    @property
    def __name__(self) -> str:
        """As a function's, which is how a verdict is labelled."""
        return self.name

    def __call__(self, actual: object, expected: object, **context: Any) -> Verdict:
        return self.judge(array_of(actual), array_of(expected), Situation(**context))


def close(actual: Array, expected: Array, rtol: float, atol: float) -> Bools:
    """Where |actual - expected| ≤ atol + rtol·|expected|, or both are equal; never where one is NaN.

    Halves and bf16 are compared in fp32, integers exactly.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # inf - inf, and beyond the largest float
        if is_float(actual) or is_float(expected):
            x, y = _wide(actual), _wide(expected)
            off = np.abs(x - y)
            return np.asarray((x == y) | (np.isfinite(off) & (off <= atol + np.abs(rtol * y))))
        a, e = (one if one.dtype == np.uint64 else one.astype(np.int64) for one in (actual, expected))
        distance = (np.maximum(a, e) - np.minimum(a, e)).astype(np.uint64)  # wraps to the right number
        return np.asarray((a == e) | (distance <= atol + np.abs(rtol * e.astype(np.float64))))


def _wide(array: Array) -> npt.NDArray[np.floating]:
    return array.astype(np.float64, copy=False) if array.dtype == np.float64 else array.astype(np.float32)


def allclose(actual: Array, expected: Array, situation: Situation, show: int = 20) -> Verdict:
    """The rule for outputs that have no comparator of their own: every element `close`."""
    if actual.shape != expected.shape:
        return _shapes_differ(actual, expected)
    rtol, atol = situation.rtol, situation.atol
    bad = np.flatnonzero(~close(actual, expected, rtol, atol))
    if not bad.size:
        return True, ""
    a, e = actual.reshape(-1), expected.reshape(-1)

    def line(i: int) -> str:
        return f"{_position(i, actual.shape)}actual={a[i]!s}, expected={e[i]!s}{situation.written_by(i)}"

    return False, (
        f"    Mismatched elements: {bad.size}/{a.size}  rtol={rtol} atol={atol}\n" + _mismatches(bad[:show], line)
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
    name = _call("ratio_allclose", locals())
    check_number("max_error_ratio", max_error_ratio, most=1)
    check_number("atol", atol or 0)
    check_number("rtol", rtol or 0)
    _check_rows(valid_rows, valid_axis)

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        part = _compared(actual, expected, valid_rows, valid_axis, zero_tail)
        if not isinstance(part, ComparedPart):
            return part
        a, e = part.actual, part.expected
        absolute = situation.atol if atol is None else atol
        relative = situation.rtol if rtol is None else rtol
        off, allowed = np.abs(a - e), absolute + relative * np.abs(e)
        bad = np.flatnonzero(off > allowed)
        if bad.size <= round(max_error_ratio * a.size):
            return True, ""
        worst = int(np.argmax(off))
        return False, (
            f"    ratio_allclose fail: {part.too_many(bad.size, max_error_ratio)}\n"
            f"    atol={absolute} rtol={relative}\n"
            f"    max abs diff={off[worst]:.6g} at {part.place(worst)} (tol={allowed[worst]:.6g})\n"
        ) + part.mismatches(bad[:max_show], lambda i: f"diff={off[i]:.4g}, tol={allowed[i]:.4g}", situation)

    return Comparator(name, judge)


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
    name = _call("ratio_reldiff", locals())
    check_number("pct_thd", pct_thd, most=1)
    _check_rows(valid_rows, valid_axis)
    for option, value in (("diff_thd", diff_thd), ("max_diff_hd", max_diff_hd)):
        check_number(option, value)
        if value == 0:
            raise misuse(f"{option} must be more than 0")

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        part = _compared(actual, expected, valid_rows, valid_axis, zero_tail)
        if not isinstance(part, ComparedPart):
            return part
        a, e = part.actual, part.expected
        relative = relative_differences(a, e, diff_thd)
        bad = np.flatnonzero(relative > diff_thd)
        worst = float(np.max(relative[bad], initial=0.0))
        reasons = [part.too_many(bad.size, pct_thd)] if bad.size > round(pct_thd * a.size) else []
        if worst >= max_diff_hd:
            reasons.append(f"worst rdiff={worst:.4g} >= max_diff_hd={max_diff_hd:.4g}")
        if not reasons:
            return True, ""
        return False, (
            f"    ratio_reldiff fail: {' AND '.join(reasons)}\n"
            f"    diff_thd={diff_thd} pct_thd={pct_thd} max_diff_hd={max_diff_hd}\n"
        ) + part.mismatches(
            bad[:max_show], lambda i: f"abs_diff={abs(a[i] - e[i]):.4g}, rdiff={relative[i]:.4g}", situation
        )

    return Comparator(name, judge)


def rowwise_ratio_reldiff(
    output: str,
    *,
    row_shape: tuple[int, ...],
    mapping: str | None = None,
    diff_thd: float = 0.01,
    pct_thd: float = 0.05,
    max_diff_hd: float = float("inf"),
    expected_active_rows: int | None = None,
    aggregate_pct_thd: float | None = None,
) -> Comparator:
    """`ratio_reldiff` for each row by itself, the leading axes of `row_shape` being rows; of those that an input
    `mapping` names with -1 nothing is compared. `aggregate_pct_thd` is a limit for all rows together.
    """
    name = f"rowwise_ratio_reldiff({output}, row_shape={row_shape}, diff_thd={diff_thd}, pct_thd={pct_thd})"
    each = ratio_reldiff(diff_thd, pct_thd, max_diff_hd)
    together = None if aggregate_pct_thd is None else ratio_reldiff(diff_thd, aggregate_pct_thd, max_diff_hd)

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if actual.shape[: len(row_shape)] != tuple(row_shape):
            return False, f"    {output} has the shape {actual.shape}, which does not begin with the rows {row_shape}"
        if mapping is not None and mapping not in situation.inputs:
            return False, f"    compare_fn misconfigured: missing input '{mapping}'"
        count = int(np.prod(row_shape))
        named = np.zeros(count) if mapping is None else array_of(situation.inputs[mapping]).reshape(-1)
        if named.size != count:
            return False, f"    '{mapping}' names {named.size} rows, {output} has {count}"
        active = np.flatnonzero(named >= 0)
        if expected_active_rows is not None and active.size != expected_active_rows:
            return False, f"    {active.size} rows of {output} are active, {expected_active_rows} are expected"
        got_rows, wanted_rows = (one.reshape(count, -1)[active] for one in (actual, expected))
        for place, got, want in zip(active, got_rows, wanted_rows, strict=True):
            good, why = each.judge(got, want, situation)
            if not good:
                return False, f"    row {[int(n) for n in np.unravel_index(place, row_shape)]} of {output}:\n{why}"
        return (True, "") if together is None else together.judge(got_rows, wanted_rows, situation)

    return Comparator(name, judge)


def relative_differences(actual: Floats, expected: Floats, threshold: float) -> Floats:
    """d = |a - e| where that is below the threshold, else d / (max(|a|, |e|, 2⁻¹⁴ / threshold) + 1e-9)."""
    off = np.abs(actual - expected)
    size = np.maximum(np.maximum(np.abs(actual), np.abs(expected)), np.float32(SMALLEST / threshold)) + np.float32(1e-9)
    relative: Floats = np.where(off < threshold, off, off / size)
    return relative


def error_distribution(
    diff_thds: Sequence[float] = (1e-3, 3e-3, 5e-3, 1e-2, 3e-2, 5e-2),
    quantiles: Sequence[float] = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0),
    always_pass: bool = True,
) -> Comparator:
    """Measures and does not judge: prints ‖a - e‖ / ‖e‖, the cosine, the share over each threshold, and percentiles.

    Shares as `ratio_reldiff` counts. It passes, except with `always_pass=False` where the actual output has NaN or Inf.
    """

    def judge(actual: Array, expected: Array, _: Situation) -> Verdict:
        if actual.shape != expected.shape:
            return _shapes_differ(actual, expected)
        a, e = (fp32(x).reshape(-1) for x in (actual, expected))
        nan, inf = int(np.isnan(a).sum()), int(np.isinf(a).sum())
        if nan or inf:
            illegal = f"    illegal values in actual: NaN={nan} Inf={inf}"
            print(illegal)
            if not always_pass:
                return False, illegal
        with np.errstate(invalid="ignore", over="ignore"):
            print("\n".join(_report(a, e, diff_thds, quantiles)))
        return True, ""

    return Comparator(f"error_distribution(diff_thds={tuple(diff_thds)})", judge)


def _report(a: Floats, e: Floats, thresholds: Sequence[float], quantiles: Sequence[float]) -> list[str]:
    off, length = np.abs(a - e), float(np.linalg.norm(e))
    cosine = float(np.dot(a, e)) / max(float(np.linalg.norm(a)) * length, 1e-12)
    share = float(np.linalg.norm(off)) / max(length, 1e-12)
    lines = [f"rel-L2 = {share:.4%}  cosine = {cosine:.7f}  numel={a.size}"]
    for threshold in thresholds:
        relative = relative_differences(a, e, threshold)
        bad = relative[relative > threshold]
        share = bad.size / max(a.size, 1)
        lines.append(f"  diff_thd={threshold:.0e}  frac>thd={share:.4%}  worst={np.max(bad, initial=0.0):.3g}")
    size = np.maximum(np.maximum(np.abs(a), np.abs(e)), np.float32(1e-6))
    for label, values in (("rel-diff", off / size), ("abs-diff", off), ("|golden|", np.abs(e))):
        finite = values[np.isfinite(values)]
        points = np.quantile(finite, list(quantiles)) if finite.size else []
        shown = "  ".join(f"p{q * 100:g}={v:.3g}" for q, v in zip(quantiles, points, strict=False))
        lines.append(f"  {label} percentiles: {shown or '(no finite values)'}")
    return lines


def mapped_pool_ratio_allclose(
    mapping_name: str,
    *,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool = False,
    pool_name: str = "pool",
    atol: float | None = None,
    rtol: float | None = None,
    max_error_ratio: float = 0.005,
) -> Comparator:
    """For paged pools (KV caches): rows that the input `mapping_name` names by `ratio_allclose`, others unchanged."""
    name = f"mapped_pool_ratio_allclose({{}}, atol={atol}, rtol={rtol}, max_error_ratio={max_error_ratio})"
    rows = ratio_allclose(atol, rtol, max_error_ratio)
    return _mapped_pool(name, rows, mapping_name, mapping_shape, block_size, leading_rank_axis, pool_name)


def mapped_pool_ratio_reldiff(
    mapping_name: str,
    *,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool = False,
    pool_name: str = "pool",
    diff_thd: float = 0.01,
    pct_thd: float = 0.05,
    max_diff_hd: float = float("inf"),
) -> Comparator:
    """The same by `ratio_reldiff`."""
    name = f"mapped_pool_ratio_reldiff({{}}, diff_thd={diff_thd}, pct_thd={pct_thd}, max_diff_hd={max_diff_hd})"
    rows = ratio_reldiff(diff_thd, pct_thd, max_diff_hd)
    return _mapped_pool(name, rows, mapping_name, mapping_shape, block_size, leading_rank_axis, pool_name)


def _mapped_pool(
    name: str,
    compare_mapped: Comparator,
    mapping_name: str,
    mapping_shape: tuple[int, ...],
    block_size: int,
    leading_rank_axis: bool,
    pool_name: str,
) -> Comparator:
    """Rows that a mapping names as a comparator says, all others unchanged.

    The pool is [blocks, block_size, …], or [ranks, blocks, block_size, …] with `leading_rank_axis`; a mapping entry is
    block · block_size + row, or -1 for none. Entries out of range and, on one rank, twice the same row fail.
    """
    sizes = (*mapping_shape, block_size) if isinstance(mapping_shape, tuple | list) else (None,)
    if not all(isinstance(size, int) for size in sizes):
        raise misuse(f"mapping_shape and block_size must be whole numbers, got {mapping_shape} and {block_size}")
    if not mapping_shape or any(size <= 0 for size in mapping_shape):
        raise misuse(f"mapping_shape must contain positive dimensions, got {mapping_shape}")
    if block_size <= 0:
        raise misuse(f"block_size must be positive, got {block_size}")
    if leading_rank_axis and len(mapping_shape) < 2:
        wanted = "mapping_shape with a rank axis and an axis of entries"
        raise misuse(f"leading_rank_axis requires {wanted}, got {mapping_shape}")
    ranks = mapping_shape[0] if leading_rank_axis else 1
    block_axis = 2 if leading_rank_axis else 1

    def unusable(actual: Array, expected: Array, inputs: Mapping[str, object]) -> str:
        """What cannot be compared, if it cannot."""
        if actual.shape != expected.shape:
            return f"{pool_name} shape mismatch: actual={actual.shape} expected={expected.shape}"
        if actual.ndim <= block_axis or actual.shape[block_axis] != block_size:
            layout = f"[{'ranks, ' if leading_rank_axis else ''}blocks, {block_size}, ...]"
            return f"expected block-major {pool_name} layout {layout}, got {actual.shape}"
        if leading_rank_axis and actual.shape[0] != ranks:
            return f"leading rank count of {pool_name} must be {ranks}, got {actual.shape[0]}"
        if mapping_name not in inputs:
            return f"compare_fn misconfigured: missing input '{mapping_name}'"
        mapping = array_of(inputs[mapping_name])
        if not np.issubdtype(mapping.dtype, np.integer):
            return f"'{mapping_name}' must have an integer dtype, got {mapping.dtype}"
        if mapping.shape != tuple(mapping_shape):
            return f"'{mapping_name}' must have shape {mapping_shape}, got {mapping.shape}"
        wrong = _wrong_entry(mapping.astype(np.int64).reshape(ranks, -1), actual.shape[block_axis - 1] * block_size)
        return f"'{mapping_name}'{wrong}" if wrong else ""

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if reason := unusable(actual, expected, situation.inputs):
            return False, f"    {reason}"
        a, e = (x.reshape(ranks, actual.shape[block_axis - 1] * block_size, -1) for x in (actual, expected))
        entries = array_of(situation.inputs[mapping_name]).astype(np.int64).reshape(ranks, -1)
        mapped = np.zeros(a.shape[:2], bool)
        rank, entry = np.nonzero(entries >= 0)
        mapped[rank, entries[rank, entry]] = True
        equal = a == e
        stray = np.argwhere(~mapped & ~equal.all(axis=-1))
        if len(stray):
            where, row = map(int, stray[0])
            changed = np.flatnonzero(~equal[where, row])
            first = (where * a.shape[1] + row) * a.shape[2] + int(changed[0])
            rank_text = f" rank={where}" if leading_rank_axis else ""
            return False, (
                f"    unmapped physical {pool_name} row changed:{rank_text} row={row} "
                f"changed_values={changed.size} mapping='{mapping_name}'{situation.written_by(first)}"
            )
        return mapped_rows(a, e, mapped, situation) if mapped.any() else (True, "")

    def mapped_rows(a: Array, e: Array, mapped: Array, situation: Situation) -> Verdict:
        about = f"mapped rows in {pool_name} from '{mapping_name}'"
        for side, rows in (("actual", a[mapped]), ("expected", e[mapped])):
            if is_float(rows) and (illegal := int(np.count_nonzero(~np.isfinite(rows.astype(np.float32))))):
                return False, f"    {side} {about} contain {illegal} non-finite value(s)"
        elements = np.flatnonzero(np.repeat(mapped.reshape(-1), a.shape[2]))
        inside = replace(situation, written_by=lambda i: situation.written_by(int(elements[i])))
        ok, detail = compare_mapped.judge(a[mapped], e[mapped], inside)
        return ok, "" if ok else f"    {about}:\n{detail}"

    about = f"mapping={mapping_name}, shape={mapping_shape}, block_size={block_size}, "
    return Comparator(name.format(f"{about}leading_rank_axis={leading_rank_axis}"), judge)


def _wrong_entry(entries: Array, rows: int) -> str:
    """The first entry that no allocator would make, if there is one."""
    for bad, reason in (
        (entries < -1, "is invalid; only -1 is a negative sentinel"),
        (entries >= rows, f"is outside physical row range [0, {rows})"),
    ):
        if np.any(bad):
            rank, item = np.argwhere(bad)[0]
            return f"[{f'{rank}, ' if len(entries) > 1 else ''}{item}]={entries[rank, item]} {reason}"
    for rank, line in enumerate(entries):
        values, counts = np.unique(line[line >= 0], return_counts=True)
        if np.any(counts > 1):
            on = f" on rank {rank}" if len(entries) > 1 else ""
            return f" contains duplicate physical row {values[counts > 1][0]}{on}"
    return ""


def topk_pair_compare(vals_name: str, *, dim: int = -1, descending: bool = True, max_show: int = 10) -> Comparator:
    """Pass if wherever the indices differ the *actual* values stay ordered with both neighbours along `dim`.

    The values are the output `vals_name`. A swap of tied candidates keeps that order; a worse candidate breaks it.
    Whether the values themselves are right is for the comparison of that output to say.
    """

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if vals_name not in situation.actual_outputs:
            known = list(situation.actual_outputs)
            return False, f"    compare_fn misconfigured: vals_name='{vals_name}' not found in {known}"
        values = fp32(situation.actual_outputs[vals_name])
        if not actual.shape == expected.shape == values.shape:
            shapes = f"actual indices {actual.shape}, expected {expected.shape}, '{vals_name}' {values.shape}"
            return False, f"    shape mismatch: {shapes}"
        if not -actual.ndim <= dim < actual.ndim:
            return False, f"    dim={dim} out of range for shape {actual.shape}"
        places = np.argwhere((actual != expected) & ~_ordered(values, dim, descending))
        if not len(places):
            return True, ""
        order = "descending" if descending else "ascending"
        lines = [
            f"    top-k idx mismatch via '{vals_name}' (dim={dim}): {len(places)} position(s) where the actual values "
            f"break {order} order at the mismatch"
        ]
        for place in map(tuple, places[:max_show]):
            flat = int(np.ravel_multi_index(place, actual.shape))
            row, k = np.moveaxis(values, dim, -1)[*(np.delete(place, dim))], int(place[dim])
            near = ", ".join(f"{v:.6g}" for v in row[max(k - 1, 0) : k + 2])
            lines.append(
                f"      {[int(x) for x in place]} actual_idx={actual[place]} expected_idx={expected[place]} "
                f"actual_score={values[place]:.6g} neighbours=[{near}]{situation.written_by(flat)}"
            )
        if len(places) > max_show:
            lines.append(f"      ... and {len(places) - max_show} more")
        return False, "\n".join(lines)

    return Comparator("topk_pair_compare", judge)


def _ordered(values: Array, dim: int, descending: bool) -> Bools:
    """Where a value is in order with the one before it and the one after it."""
    rows = np.moveaxis(values, dim, -1)
    ok = np.ones(rows.shape, bool)
    pairs = rows[..., :-1] >= rows[..., 1:] if descending else rows[..., :-1] <= rows[..., 1:]
    ok[..., 1:] &= pairs
    ok[..., :-1] &= pairs
    return np.moveaxis(ok, -1, dim)


@dataclass(frozen=True)
class ComparedPart:
    """The part of two tensors that is compared, flat and in fp32, and where it lies in the whole."""

    actual: Floats
    expected: Floats
    shape: tuple[int, ...]
    whole: tuple[int, ...]

    def place(self, i: int) -> tuple[int, ...]:
        return tuple(int(x) for x in np.unravel_index(i, self.shape))

    def too_many(self, bad: int, allowed: float) -> str:
        size = self.actual.size
        share = f"ratio={bad / size:.4%}, allowed<={allowed:.4%}, threshold={round(allowed * size)} pts"
        return f"error_count={bad}/{size} ({share})"

    def mismatches(self, bad: npt.NDArray[np.int64], more: Callable[[int], str], situation: Situation) -> str:
        def line(i: int) -> str:
            flat = int(np.ravel_multi_index(self.place(i), self.whole))
            values = f"actual={self.actual[i]:.8g}, expected={self.expected[i]:.8g}"
            return f"{_position(flat, self.whole)}{values}, {more(i)}{situation.written_by(flat)}"

        return _mismatches(bad, line)


def _compared(actual: Array, expected: Array, rows: int | None, axis: int, zero_tail: bool) -> ComparedPart | Verdict:
    """The first `rows` along an axis (None: everything), or the verdict where a look at it settles the matter."""
    if actual.shape != expected.shape:
        return _shapes_differ(actual, expected)
    whole = actual.shape
    if rows is not None:
        if not -actual.ndim <= axis < actual.ndim:
            return False, f"    valid_axis={axis} out of range for shape {whole}"
        if not 0 <= rows <= whole[axis]:
            return False, f"    valid_rows={rows} out of range for axis {axis} of length {whole[axis]}"
        actual, tail = np.split(actual, [rows], axis=axis)
        expected, _ = np.split(expected, [rows], axis=axis)
        if zero_tail and np.any(tail):
            return False, f"    inactive tail contains {np.count_nonzero(tail)} nonzero values"
    if not actual.size:
        return True, ""
    a, e = (fp32(x).reshape(-1) for x in (actual, expected))
    if np.all(np.isfinite(a)) and np.all(np.isfinite(e)):
        return ComparedPart(a, e, actual.shape, whole)
    sides = (("actual", a), ("expected", e))
    counts = [f"{side}: NaN={np.isnan(x).sum()} Inf={np.isinf(x).sum()}" for side, x in sides]
    return False, f"    illegal values in comparison: {'; '.join(counts)}"


def _shapes_differ(actual: Array, expected: Array) -> Verdict:
    return False, f"    shape mismatch: actual {actual.shape}, expected {expected.shape}"


def _check_rows(rows: object, axis: object) -> None:
    for name, value in (("valid_rows", 0 if rows is None else rows), ("valid_axis", axis)):
        if not isinstance(value, int | np.integer):
            raise misuse(f"{name} must be a whole number, not {described(value)}")


def _call(name: str, parameters: Mapping[str, object]) -> str:
    """A comparator with its parameters, as a verdict is labelled."""
    return f"{name}({', '.join(f'{key}={value}' for key, value in parameters.items() if key != 'max_show')})"


def _position(flat_index: int, shape: tuple[int, ...]) -> str:
    """An element as lists name it: its flat index, and its place where the tensor has several axes."""
    place = tuple(int(x) for x in np.unravel_index(flat_index, shape)) if len(shape) > 1 else ""
    return f"[{flat_index}] {place} " if place else f"[{flat_index}] "


def _mismatches(bad: Iterable[int], line: Callable[[int], str]) -> str:
    lines = [f"    {line(int(i))}" for i in bad]
    return f"    first {len(lines)} mismatches:\n" + "\n".join(lines)
