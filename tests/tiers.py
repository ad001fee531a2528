"""Two tiers of tests. `make test` runs every kind of protection on small cases; `make test-all` runs the rest as well.

`@pytest.mark.full` leaves a test to `make test-all`. `examples(n)` gives a property test n examples there and an eighth
of them, at least five, in `make test`.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

ALL_TESTS = os.environ.get("NPUSCOPE_ALL_TESTS") == "1"


def examples(number: int, **others: Any) -> settings:
    """Settings of a property test."""
    return settings(max_examples=number if ALL_TESTS else max(5, number // 8), **others)
