"""What a trace says: each question is a pure function from a Trace to a small typed result.

Each question about a `Trace` is one function here; its result prints as a table, shows as one in a notebook, and
has `frame()` for Polars. docs/understand/numbers.md defines each number with a drawn example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npuscope.explain.changes import Change, whatif
    from npuscope.explain.comparison import compare, trend
    from npuscope.explain.explanation import bubbles, busy, critical_path, explain, fan_out, overlap, scheduling, steps
    from npuscope.explain.ranks import explain_ranks
    from npuscope.explain.summary import counters

__all__ = [
    "Change",
    "bubbles",
    "busy",
    "compare",
    "counters",
    "critical_path",
    "explain",
    "explain_ranks",
    "fan_out",
    "overlap",
    "scheduling",
    "steps",
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
