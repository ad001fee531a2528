"""Trace (the four shared tables), and one reader or writer per format."""

import os

# Polars' allocator keeps what is freed for a while; a reader frees as much as it keeps. Takes effect if Polars is
# not loaded yet, costs a few per cent of time and saves a quarter of the memory of a large JSON trace.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")

from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta
from npuscope.trace.readers import read
from npuscope.trace.writers import write

__all__ = ["Meta", "Trace", "read", "write"]
