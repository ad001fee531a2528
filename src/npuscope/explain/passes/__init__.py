"""Forward passes: found in a trace, cut into layers, judged, exported; one rank or many."""

from npuscope.explain.passes.found import Passes, passes
from npuscope.explain.passes.statistics import Statistics, statistics

__all__ = ["Passes", "Statistics", "passes", "statistics"]
