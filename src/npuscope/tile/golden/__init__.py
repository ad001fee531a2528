"""Is a tile program right? Specs for its inputs, a golden reference, comparators, and variants side by side.

Serves scripts that say `from golden import …`: names, parameters and rules are those of the public library's package.
Works with NumPy alone; with torch where the script imports it.
"""

from npuscope.tile.golden.comparators import (
    error_distribution,
    mapped_pool_ratio_allclose,
    mapped_pool_ratio_reldiff,
    ratio_allclose,
    ratio_reldiff,
    rowwise_ratio_reldiff,
    topk_pair_compare,
)
from npuscope.tile.golden.runner import RunConfig, RunResult, driven, run, run_jit
from npuscope.tile.golden.spec import ScalarSpec, TensorSpec
from npuscope.tile.golden.traced import diff_runs
from npuscope.tile.golden.validation import validate_golden

__all__ = [
    "RunConfig",
    "RunResult",
    "ScalarSpec",
    "TensorSpec",
    "diff_runs",
    "driven",
    "error_distribution",
    "mapped_pool_ratio_allclose",
    "mapped_pool_ratio_reldiff",
    "ratio_allclose",
    "ratio_reldiff",
    "rowwise_ratio_reldiff",
    "run",
    "run_jit",
    "topk_pair_compare",
    "validate_golden",
]
