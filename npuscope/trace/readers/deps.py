"""deps.json of the simpler runtime: tasks, and why one waits for another.

It usually comes from another run of the same program, so only ids are joined, and only when every task of
the swimlane is known here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from npuscope.errors import BadInput
from npuscope.trace.json_file import read_json, whole_number


class DepsTask(msgspec.Struct):
    task_id: str
    kernel_ids: list[int] = []  # function of the cube, of vector 0, of vector 1; -1 for none


class DepsEdge(msgspec.Struct):
    pred: str
    succ: str
    source: str = "explicit"


class Deps(msgspec.Struct):
    tasks: list[DepsTask]
    edges: list[DepsEdge]

    def edge_table(self) -> pl.DataFrame:
        """One row per (src, dst, source); several arguments of one task often repeat an edge."""
        rows = {(int(e.pred), int(e.succ), e.source): None for e in self.edges}
        return pl.DataFrame(list(rows), schema={"src": pl.Int64, "dst": pl.Int64, "source": pl.String}, orient="row")


def read_deps(path: Path) -> Deps:
    """The file, checked; ids are whole numbers that fit 64 bits."""
    deps = read_json(path, Deps, "a deps.json of the simpler runtime")
    ids = [task.task_id for task in deps.tasks] + [id for edge in deps.edges for id in (edge.pred, edge.succ)]
    for id in ids:
        if whole_number(id) is None:
            raise BadInput(f"task id '{id}' is not a number of 63 bits", path=path)
    return deps
