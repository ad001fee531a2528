"""One question per module: a pure function from a Trace to a small typed result."""
