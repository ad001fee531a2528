"""Every rule, listed by hand: what is not here does not run. docs/rules.md describes them."""

from __future__ import annotations

from npuscope.lower.lint import fragile_assert, retired_spelling, rounding_mode, stale_constant, variance
from npuscope.lower.lint.rule import Rule

ALL_RULES: tuple[Rule, ...] = (
    variance.RULE,
    retired_spelling.RULE,
    rounding_mode.RULE,
    stale_constant.RULE,
    fragile_assert.RULE,
)
