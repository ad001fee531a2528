"""Is a tile program right? Specs for its inputs, a golden reference, comparators, and bitwise diffs between variants.

Serves scripts that say `from golden import …`: names, parameters and rules are those of the public library's package.
Works with NumPy alone; with torch where the script imports it.
"""

from npuscope.tile.golden.comparators import (
    error_distribution,
    mapped_pool_ratio_allclose,
    ratio_allclose,
    ratio_reldiff,
    topk_pair_compare,
)
from npuscope.tile.golden.difference import Differences, TensorDifference, diff_runs, differences
from npuscope.tile.golden.runner import Executed, Executor, RunConfig, RunResult, driven, run, run_jit
from npuscope.tile.golden.spec import ScalarSpec, TensorSpec
from npuscope.tile.golden.validation import LastWriter, validate_golden

__all__ = [
    "Differences",
    "Executed",
    "Executor",
    "LastWriter",
    "RunConfig",
    "RunResult",
    "ScalarSpec",
    "TensorDifference",
    "TensorSpec",
    "diff_runs",
    "differences",
    "driven",
    "error_distribution",
    "mapped_pool_ratio_allclose",
    "ratio_allclose",
    "ratio_reldiff",
    "run",
    "run_jit",
    "topk_pair_compare",
    "validate_golden",
]
