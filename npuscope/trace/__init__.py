"""Trace (the four shared tables), and one reader or writer per format."""

from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta
from npuscope.trace.readers import read
from npuscope.trace.writers import write

__all__ = ["Meta", "Trace", "read", "write"]
