"""Every rule, listed by hand: what is not here does not run. docs/rules.md describes them."""

from __future__ import annotations

from npuscope.lower.lint import (
    accumulate,
    cast_chain,
    false_serialisation,
    fragile_assert,
    padded_rows,
    pipeline_depth,
    retired_spelling,
    ring,
    rounding_mode,
    shared_line,
    short_rows,
    stale_constant,
    tile_size,
    uninitialised,
    unpipelined,
    unused,
    variance,
    zeros,
)
from npuscope.lower.lint.rule import Rule

ALL_RULES: tuple[Rule, ...] = (
    ring.RULE,
    uninitialised.RULE,
    shared_line.RULE,
    false_serialisation.RULE,
    zeros.RULE,
    accumulate.RULE,
    padded_rows.RULE,
    unpipelined.RULE,
    pipeline_depth.RULE,
    short_rows.RULE,
    tile_size.RULE,
    cast_chain.RULE,
    unused.RULE,
    variance.RULE,
    retired_spelling.RULE,
    rounding_mode.RULE,
    stale_constant.RULE,
    fragile_assert.RULE,
)
