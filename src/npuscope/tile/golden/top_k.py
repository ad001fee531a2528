"""The comparator of top-k indices: near ties may be picked in another order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden.arrays import Array, fp32
from npuscope.tile.golden.comparator import Comparator, Situation, Verdict


def topk_pair_compare(vals_name: str, *, dim: int = -1, descending: bool = True, max_show: int = 10) -> Comparator:
    """Pass if wherever the indices differ the *actual* values stay ordered with both neighbours along `dim`.

    The values are the output `vals_name`. A swap of tied candidates keeps that order; a worse candidate breaks it.
    Whether the values themselves are right is for the comparison of that output to say.
    """

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if vals_name not in situation.actual_outputs:
            return (
                False,
                f"    compare_fn misconfigured: vals_name='{vals_name}' not found in {list(situation.actual_outputs)}",
            )
        values = fp32(situation.actual_outputs[vals_name])
        if not actual.shape == expected.shape == values.shape:
            return False, (
                f"    shape mismatch: actual indices {actual.shape}, expected {expected.shape}, "
                f"'{vals_name}' {values.shape}"
            )
        if not -actual.ndim <= dim < actual.ndim:
            return False, f"    dim={dim} out of range for shape {actual.shape}"
        bad = (actual != expected) & ~_ordered(values, dim, descending)
        places = np.argwhere(bad)
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


def _ordered(values: Array, dim: int, descending: bool) -> npt.NDArray[np.bool_]:
    """Where a value is in order with the one before it and the one after it."""
    rows = np.moveaxis(values, dim, -1)
    ok = np.ones(rows.shape, bool)
    pairs = rows[..., :-1] >= rows[..., 1:] if descending else rows[..., :-1] <= rows[..., 1:]
    ok[..., 1:] &= pairs
    ok[..., :-1] &= pairs
    return np.moveaxis(ok, -1, dim)
