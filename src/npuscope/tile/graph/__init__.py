"""The task graph of a recording, by the runtime's rules, and beside it the exact regions that tasks touched.

`task_graph` answers what the runtime would order; `exact_edges` what really depends on what. Where the first has an
edge and the second none, work is serialised for nothing; where the second has one and no path of the first orders the
two tasks, they race.
"""

from __future__ import annotations

from npuscope.tile.graph.boxes import Box, overlaps
from npuscope.tile.graph.exact import Touched, exact_accesses, exact_edges
from npuscope.tile.graph.task_graph import Edge, Graph, task_graph

__all__ = ["Box", "Edge", "Graph", "Touched", "exact_accesses", "exact_edges", "overlaps", "task_graph"]
