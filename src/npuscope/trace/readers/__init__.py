"""Readers, a module per format; each registers itself with `npuscope.trace.formats`."""
