"""What a trace says: `explain(trace)` has the answer to each question, a small typed result, under its name.

A result prints as a table, shows as one in a notebook, and has `frame()` for Polars. docs/understand/numbers.md
defines each number with a drawn example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuscope.explain.changes import Change, whatif
    from npuscope.explain.comparison import compare, trend
    from npuscope.explain.explanation import explain
    from npuscope.explain.ranks import explain_ranks
    from npuscope.explain.summary import counters

__all__ = [
    "Change",
    "compare",
    "counters",
    "explain",
    "explain_ranks",
    "trend",
    "whatif",
]
_HOMES = {"Change": "changes", "compare": "comparison", "counters": "summary", "explain_ranks": "ranks",
          "trend": "comparison", "whatif": "changes"}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Each question loads when it is first asked: a report needs no comparison and no what-if."""
    if name not in __all__:
        raise AttributeError(f"module 'npuscope.explain' has no attribute {name!r}")
    return getattr(import_module(f"npuscope.explain.{_HOMES.get(name, 'explanation')}"), name)
