"""deps.json of the simpler runtime: tasks, and why one waits for another.

It usually comes from another run of the same program, so only ids are joined, and only when every task of
the swimlane is known here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.trace import source
from npuscope.trace.json_file import decode_object


class DepsTask(msgspec.Struct):
    task_id: str
    kernel_ids: list[int] = []  # function of the cube, of vector 0, of vector 1; -1 for none


class DepsEdge(msgspec.Struct):
    pred: str
    succ: str
    source: str = "explicit"


class DepsFile(msgspec.Struct):
    """The file's own keys; tensors and their places are not read."""

    tasks: list[DepsTask]
    edges: list[DepsEdge]
    tensors: msgspec.Raw = msgspec.Raw()
    runtime: str | None = None


@dataclass(frozen=True)
class Deps:
    tasks: list[DepsTask]
    edges: list[DepsEdge]
    unknown: Counter[str]

    def edge_table(self) -> pl.DataFrame:
        """One row per (src, dst, source); several arguments of one task often repeat an edge."""
        ends = {"src": [e.pred for e in self.edges], "dst": [e.succ for e in self.edges]}
        table = pl.DataFrame(
            {**ends, "source": [e.source for e in self.edges]}, schema_overrides=dict.fromkeys(ends, pl.String)
        )
        return table.with_columns(pl.col("src", "dst").cast(pl.Int64)).unique(maintain_order=True)

    def functions(self) -> pl.DataFrame:
        """task, and its function on a cube, on vector 0 and on vector 1; -1 for none."""
        places = {
            name: [t.kernel_ids[n] if n < len(t.kernel_ids) else -1 for t in self.tasks]
            for n, name in enumerate(("cube", "vector_0", "vector_1"))
        }
        table = pl.DataFrame({"task": [t.task_id for t in self.tasks], **places}, schema_overrides={"task": pl.String})
        return table.with_columns(pl.col("task").cast(pl.Int64)).unique("task", keep="last")


def read_deps(path: Path) -> Deps:
    """The file, checked; ids are whole numbers that fit 64 bits."""
    unknown: Counter[str] = Counter()
    file = decode_object(
        source.read_all(path), DepsFile, "a deps.json of the simpler runtime", path, unknown, "key of deps.json"
    )
    ids = pl.Series(
        [*(t.task_id for t in file.tasks), *(id for e in file.edges for id in (e.pred, e.succ))], dtype=pl.String
    )
    strange = ids.filter(~ids.str.contains(r"^[0-9]{1,19}$") | ids.str.to_integer(strict=False).is_null())
    if len(strange):
        raise BadInput(f"task id '{strange[0]}' is not a number of 63 bits", path=path)
    function = next((n for t in file.tasks for n in t.kernel_ids if not -(2**31) <= n < 2**31), None)
    if function is not None:
        raise BadInput(f"function id {function} is not a number of 32 bits", path=path)
    return Deps(file.tasks, file.edges, unknown)
