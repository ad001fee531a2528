"""A comparator that measures and does not judge: how the errors of an output are distributed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden.arrays import Array, fp32
from npuscope.tile.golden.closeness import relative_differences
from npuscope.tile.golden.comparator import Comparator, Situation, Verdict


def error_distribution(
    diff_thds: Sequence[float] = (1e-3, 3e-3, 5e-3, 1e-2, 3e-2, 5e-2),
    quantiles: Sequence[float] = (0.5, 0.9, 0.99, 0.999, 0.9999, 1.0),
    always_pass: bool = True,
) -> Comparator:
    """Prints ‖a - e‖ / ‖e‖, the cosine, the share of elements over each threshold, and percentiles.

    Shares as `ratio_reldiff` counts. It passes, except with `always_pass=False` where the actual output has NaN or Inf.
    """

    def judge(actual: Array, expected: Array, situation: Situation) -> Verdict:
        if actual.shape != expected.shape:
            return False, f"    shape mismatch: actual {actual.shape}, expected {expected.shape}"
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


def _report(
    a: npt.NDArray[np.float32], e: npt.NDArray[np.float32], thresholds: Sequence[float], quantiles: Sequence[float]
) -> list[str]:
    off, length = np.abs(a - e), float(np.linalg.norm(e))
    lengths = max(float(np.linalg.norm(a)) * length, 1e-12)
    lines = [
        f"rel-L2 = {float(np.linalg.norm(off)) / max(length, 1e-12):.4%}  "
        f"cosine = {float(np.dot(a, e)) / lengths:.7f}  numel={a.size}"
    ]
    for threshold in thresholds:
        relative = relative_differences(a, e, threshold)
        bad = relative[relative > threshold]
        share = bad.size / max(a.size, 1)
        lines.append(f"  diff_thd={threshold:.0e}  frac>thd={share:.4%}  worst={np.max(bad, initial=0.0):.3g}")
    size = np.maximum(np.maximum(np.abs(a), np.abs(e)), np.float32(1e-6))
    for label, values in (
        ("rel-diff percentiles", off / size),
        ("abs-diff percentiles", off),
        ("|golden| percentiles", np.abs(e)),
    ):
        finite = values[np.isfinite(values)]
        if not finite.size:
            lines.append(f"  {label}: (no finite values)")
            continue
        points = np.quantile(finite, list(quantiles))
        lines.append(
            f"  {label}: " + "  ".join(f"p{q * 100:g}={v:.3g}" for q, v in zip(quantiles, points, strict=True))
        )
    return lines
