"""deps.json of the simpler runtime: tasks, and why one waits for another.

It usually comes from another run of the same program, so only ids are joined, and only when every task of
the swimlane is known here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl

from npuscope.errors import BadInput
from npuscope.trace import source


class DepsTask(msgspec.Struct):
    task_id: str
    kernel_ids: list[int] = []  # function of the cube, of vector 0, of vector 1; -1 for none
    block_num: int = 1
    early_dispatch: bool = False


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
    try:
        deps = msgspec.json.decode(source.read_all(path), type=Deps)
        for edge in deps.edges:
            if max(int(edge.pred), int(edge.succ)) >= 2**63:
                raise ValueError(f"task id {edge.pred} or {edge.succ} does not fit 63 bits")
        return deps
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"not a deps.json of the simpler runtime ({error})", path=path) from error
