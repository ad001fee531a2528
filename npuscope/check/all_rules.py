"""Every rule, listed by hand: what is not here does not run. docs/rules.md describes them."""

from __future__ import annotations

from npuscope.check.rule import Rule
from npuscope.check.rules import (
    accumulate,
    cast_chain,
    false_serialisation,
    fragile_assert,
    gm_accumulate,
    gm_round_trip,
    l2_overflow,
    padded_rows,
    partial_wave,
    pipeline_depth,
    retired_spelling,
    ring,
    rounding_mode,
    serialised,
    shared_line,
    shared_load,
    short_rows,
    stale_constant,
    task_size,
    tile_size,
    uninitialised,
    unpipelined,
    unused,
    variance,
    zeros,
)

ALL_RULES: tuple[Rule, ...] = (
    # safety
    ring.RULE,
    uninitialised.RULE,
    shared_line.RULE,
    # between tasks
    *gm_round_trip.RULES,
    gm_accumulate.RULE,
    shared_load.RULE,
    *serialised.RULES,
    false_serialisation.RULE,
    *task_size.RULES,
    partial_wave.RULE,
    l2_overflow.RULE,
    # inside a task
    zeros.RULE,
    accumulate.RULE,
    padded_rows.RULE,
    unpipelined.RULE,
    pipeline_depth.RULE,
    short_rows.RULE,
    tile_size.RULE,
    cast_chain.RULE,
    unused.RULE,
    # the source
    variance.RULE,
    retired_spelling.RULE,
    rounding_mode.RULE,
    stale_constant.RULE,
    fragile_assert.RULE,
)
