"""Forward passes: found in a trace, cut into layers, judged, exported; one rank or many."""

from npuscope.explain.passes.found import Passes, passes

__all__ = ["Passes", "passes"]
