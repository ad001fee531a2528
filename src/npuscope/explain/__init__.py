"""One question per module: a pure function from a Trace to a small typed result.

Each question about a `Trace` is one function here; its result prints as a table, shows as one in a notebook, and
has `frame()` for Polars. docs/understand/numbers.md defines each number with a drawn example.
"""

from npuscope.explain.busy_idle import busy, fan_out
from npuscope.explain.changes import Change, whatif
from npuscope.explain.comparison import compare, trend
from npuscope.explain.explanation import explain
from npuscope.explain.hidden_exposed import overlap
from npuscope.explain.idle_reasons import bubbles
from npuscope.explain.ledger import scheduling
from npuscope.explain.path import critical_path
from npuscope.explain.ranks import explain_ranks
from npuscope.explain.repetition import steps
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
