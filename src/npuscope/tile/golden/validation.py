"""Outputs against goldens: every output is judged, then one AssertionError names those that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from npuscope.tile.golden.arrays import UserTensor, array_of
from npuscope.tile.golden.checks import check_rules
from npuscope.tile.golden.closeness import allclose, ratio_allclose, ratio_reldiff
from npuscope.tile.golden.comparator import Comparator, LastWriter, Situation, Verdict
from npuscope.tile.golden.distribution import error_distribution
from npuscope.tile.golden.misuse import misuse_of, told
from npuscope.tile.golden.pool import mapped_pool_ratio_allclose
from npuscope.tile.golden.top_k import topk_pair_compare

__all__ = [
    "error_distribution",
    "mapped_pool_ratio_allclose",
    "ratio_allclose",
    "ratio_reldiff",
    "topk_pair_compare",
    "validate_golden",
]


def validate_golden(
    outputs: Mapping[str, UserTensor],
    golden: Mapping[str, object],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compare_fn: Mapping[str, Callable[..., Verdict]] | None = None,
    inputs: Mapping[str, object] | None = None,
    run: LastWriter | None = None,
) -> None:
    """Print one line per output; raise AssertionError with the first mismatches of each that failed.

    An output is judged by its comparator in `compare_fn`, else by `allclose`. With the `run` that made them, a mismatch
    names the op that last wrote the element.
    """
    check_rules(rtol, atol, compare_fn, outputs)
    failures = {}
    for name, actual in outputs.items():
        situation = Situation(rtol, atol, outputs, golden, inputs or {}, _ending(run, name))
        compare = (compare_fn or {}).get(name)
        label = "" if compare is None else f" ({getattr(compare, '__name__', 'custom')})"
        ok, detail = _judged(actual, golden, name, compare, situation)
        about = f"shape={tuple(actual.shape)} dtype={actual.dtype}"
        print(f"[RUN]   '{name}' {'PASS' if ok else 'FAIL'}  {about}{label}", flush=True)
        if not ok:
            failures[name] = f"  '{name}' FAIL{label}  {about}\n{detail}"
    if failures:
        raise AssertionError("\n".join([f"Output(s) does not match golden: {list(failures)}", *failures.values()]))


def _judged(
    actual: UserTensor,
    golden: Mapping[str, object],
    name: str,
    compare: Callable[..., Verdict] | None,
    situation: Situation,
) -> Verdict:
    if name not in golden:
        return False, f"    the golden has no '{name}', only {list(golden)}"
    expected = golden[name]
    if isinstance(compare, Comparator):
        return compare.judge(array_of(actual), array_of(expected), situation)
    if compare is not None:
        verdict = compare(
            actual,
            expected,
            actual_outputs=situation.actual_outputs,
            expected_outputs=situation.expected_outputs,
            inputs=situation.inputs,
            rtol=situation.rtol,
            atol=situation.atol,
        )
        try:
            ok, detail = verdict
            return bool(ok), str(detail)
        except (TypeError, ValueError):
            title = getattr(compare, "__name__", "custom")
            what = f"the comparator {title} of '{name}' returned {told(verdict)}, not (ok, message)"
            raise misuse_of(compare, what) from None
    a, e = array_of(actual), array_of(expected)
    if a.shape != e.shape:
        return False, f"    shape mismatch: actual {a.shape}, expected {e.shape}"
    return allclose(a, e, situation)


def _ending(run: LastWriter | None, name: str) -> Callable[[int], str]:
    def ending(flat_index: int) -> str:
        writer = None if run is None else run.last_writer(name, flat_index)
        return "" if run is None else f", last written by {writer}" if writer is not None else ", never written"

    return ending
