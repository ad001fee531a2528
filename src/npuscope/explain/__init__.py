"""What a trace says: each question is a pure function from a Trace to a small typed result.

Each question about a `Trace` is one function here; its result prints as a table, shows as one in a notebook, and
has `frame()` for Polars. docs/understand/numbers.md defines each number with a drawn example.
"""

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
