"""The price of a kernel call: FLOPs and bytes from its shapes, and the time a chip needs for them at its limits."""

from npuscope.forward.work.amount import Work
from npuscope.forward.work.limit import Limit, limit_ns
from npuscope.forward.work.pricing import work_of

__all__ = ["Limit", "Work", "limit_ns", "work_of"]
