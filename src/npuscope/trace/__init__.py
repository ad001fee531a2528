"""Trace (the five shared tables), and the registry of formats that are read and written."""

import os

# Polars' allocator keeps what is freed for a while. Giving it back at once lowers the peak of a large JSON trace by 8%
# (337 against 367 MB for 2.16 M events) and of a large kernel table by 12%, and costs the table 25% more CPU time
# (3.6 against 2.9 s for a million rows). It counts only before Polars loads; set the variable to choose otherwise.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")

from npuscope.trace.core import Meta, Trace
from npuscope.trace.formats import read, write

Trace.writer = write
__all__ = ["Meta", "Trace", "read", "write"]
