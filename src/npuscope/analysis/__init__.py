"""One question per module: a pure function from a Trace to a small typed result.

Each question about a `Trace` is one function here; its result prints as a table, shows as one in a notebook, and
has `frame()` for Polars. docs/understand/numbers.md defines each number with a drawn example.
"""

from npuscope.analysis.busy_idle import busy
from npuscope.analysis.changes import Change, whatif
from npuscope.analysis.comparison import compare, trend
from npuscope.analysis.counter_levels import counters
from npuscope.analysis.explanation import explain
from npuscope.analysis.fan_out import fan_out
from npuscope.analysis.hidden_exposed import overlap
from npuscope.analysis.idle_reasons import bubbles
from npuscope.analysis.ledger import scheduling
from npuscope.analysis.path import critical_path
from npuscope.analysis.ranks import explain_ranks
from npuscope.analysis.repetition import steps

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
