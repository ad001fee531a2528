"""Trace (the five shared tables), and the registry of formats that are read and written."""

from npuscope.trace.core import Meta, Trace
from npuscope.trace.formats import read, write

Trace.writer = write
__all__ = ["Meta", "Trace", "read", "write"]
