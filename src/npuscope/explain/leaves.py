"""What tuners of CANN's own PyPTO ask of a run, in their order: is every core used, which leaves take the time and from
which lines they come, which chains of small vector leaves could be one, how unevenly the cores are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.waits import dependencies
from npuscope.explain.work import CORES, Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import BYTES, COUNT, FLOPS, MEAN_TIME, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.readers.cann_run import FORMAT

UNEVEN = 0.2  # above the mean of its kind: the busiest core is worth a sentence
SMALL_NS = 5_000  # a vector leaf whose task is shorter hands on more than it computes; a rule of thumb
LEAVES = Columns(
    "report.leaves",
    "A leaf of CANN's own PyPTO under its label, the one with most core time first.",
    Column("kernel", TEXT, "its label, or its function's name", title="leaf"),
    Column("unit", TEXT, "the kind of core"),
    Column("cores_used", COUNT, "cores that ran a task of it"),
    Column("cores", COUNT, "cores of this kind", title="of cores"),
    Column("tasks", COUNT, "its tasks"),
    Column("core_ns", TIME, "over all cores", title="core time"),
    Column("share", SHARE, "of all core time"),
    Column("mean_ns", MEAN_TIME, "of a task", title="mean"),
    Column("place", TEXT, "file and lines of what it computes", title="from", optional=True),
    Column("pipe", TEXT, "the pipe that works longest in it, of its core time", optional=True),
    Column("flops", FLOPS, "of a task's products, on average", optional=True, wide=True),
    Column("bytes", BYTES, "a task moves from and to global memory, on average", optional=True, wide=True),
    Column("functions", COUNT, "functions under this label", wide=True),
    Column("ops", TEXT, "operations of a task, the most frequent first", optional=True, wide=True),
    Column("memory", TEXT, "buffers that a task fills at most", optional=True, wide=True),
)


@dataclass(frozen=True, repr=False)
class Leaves(Tabular):
    """The leaves of a run, and sentences in the order of the questions."""

    table: pl.DataFrame
    sentences: tuple[str, ...]

    in_json = ("sentences",)

    def tables(self) -> dict[str, Table]:
        return {"table": Table(LEAVES, self.table)}

    def title(self) -> str:
        return "\n".join(self.sentences)


def leaves_of(work: Work) -> Leaves | None:
    """Of a run of CANN's own PyPTO; None of any other capture."""
    if work.trace.meta.format != FORMAT or not work.on_cores:
        return None
    wanted = [name for name in ("leaf",) if name in work.trace.slices.columns]
    rows = work.with_columns(*wanted).with_columns(
        pl.Series("lane", work.lane), (pl.Series(work.end) - pl.Series(work.start)).alias("ns"),
        pl.Series("unit", work.units[work.lane]),
    ).filter(pl.col("unit").is_in(CORES))  # fmt: skip
    cores = {unit: int((work.units == unit).sum()) for unit in CORES}
    table = (
        rows.group_by("kernel", "unit")
        .agg(
            cores_used=pl.col("lane").n_unique(),
            tasks=pl.len(),
            core_ns=pl.col("ns").sum(),
            mean_ns=pl.col("ns").mean(),
            functions=pl.col("leaf").n_unique() if wanted else pl.lit(1),
            leaf=pl.col("leaf") if wanted else pl.lit([]),
        )
        .with_columns(
            pl.col("unit").replace_strict(cores, return_dtype=pl.Int64).alias("cores"),
            (pl.col("core_ns") / max(int(rows["ns"].sum()), 1)).alias("share"),
        )
        .sort("core_ns", "kernel", descending=[True, False])
    )
    notes = work.trace.meta.notes
    known, pipes = notes.get("leaves", {}), notes.get("pipes_ns", {})
    cells = [_cells(row, known, pipes) for row in table.iter_rows(named=True)]
    table = table.with_columns(
        pl.Series(key, [one[key] for one in cells], dtype=dtype, strict=False) for key, dtype in _CELLS.items()
    )
    sentences = (*_simulated(notes), *_fullness(table), *_chains(work, table), *_balance(rows, cores))
    return Leaves(table.select(LEAVES.keys), sentences)


_CELLS = {
    "place": pl.String,
    "pipe": pl.String,
    "flops": pl.Int64,
    "bytes": pl.Int64,
    "ops": pl.String,
    "memory": pl.String,
}


def _cells(row: Mapping[str, Any], known: Mapping[str, Any], pipes: Mapping[str, Any]) -> dict[str, object]:
    """What the program says of the tasks of one row."""
    facts = [known[leaf] for leaf in row["leaf"] if leaf in known]
    distinct = list({id(one): one for one in facts}.values())
    busy = pipes.get(row["kernel"], {})
    longest = max(busy, key=busy.get, default=None)
    ops: dict[str, int] = {}
    memory: dict[str, int] = {}
    for one in distinct:
        for name, count in one["ops"].items():
            ops[name] = max(ops.get(name, 0), count)
        for name, size in one["memory"].items():
            memory[name] = max(memory.get(name, 0), size)
    most = sorted(ops.items(), key=lambda item: -item[1])
    return {
        "place": ", ".join(dict.fromkeys(one["place"] for one in distinct if one["place"])) or None,
        "pipe": None if longest is None else f"{longest} {percent(busy[longest] / max(row['core_ns'], 1))}",
        "flops": sum(one["cube_flops"] for one in facts) // len(facts) or None if facts else None,
        "bytes": sum(one["bytes"] for one in facts) // len(facts) or None if facts else None,
        "ops": ", ".join(f"{name} ×{n}" if n > 1 else name for name, n in most) or None,
        "memory": ", ".join(f"{name} {BYTES.with_unit(size)}" for name, size in memory.items()) or None,
    }


def _simulated(notes: Mapping[str, Any]) -> Iterator[str]:
    if "simulator_ns" in notes:
        cycles, ns = notes["simulator_cycles"], notes["simulator_ns"]
        yield (
            f"The simulator's own total is {cycles:,} cycles = {duration(ns)}: with its dispatch before the first task "
            "and after the last."
        )


def _fullness(table: pl.DataFrame) -> Iterator[str]:
    used = [
        f"`{k}` {n} of {of} {unit}" for k, n, of, unit in table.select("kernel", "cores_used", "cores", "unit").rows()
    ]
    if used:
        yield f"Cores used: {', '.join(used[:6])}{', …' if len(used) > 6 else ''}."
    for few in table.filter(pl.col("tasks") < pl.col("cores")).head(1).iter_rows(named=True):
        tasks, unit = many(few["tasks"], "task"), few["unit"]
        yield f"`{few['kernel']}` is {tasks} for {few['cores']} {unit} cores: smaller tiles make more tasks of it."


def _chains(work: Work, table: pl.DataFrame) -> Iterator[str]:
    """Small vector leaves whose tasks only feed one another: one scope would keep their data on the core."""
    vector = table.filter((pl.col("unit") == "AIV") & (pl.col("mean_ns") < SMALL_NS))["kernel"]
    kernel = work.slices.select("task", "kernel").unique("task")
    edges = dependencies(work.trace).join(kernel.rename({"task": "src", "kernel": "from"}), on="src")
    edges = edges.join(kernel.rename({"task": "dst", "kernel": "to"}), on="dst").filter(pl.col("from") != pl.col("to"))
    feeds = edges.group_by("from").agg(pl.col("to").unique()).filter(pl.col("to").list.len() == 1)
    fed = edges.group_by("to").agg(pl.col("from").unique()).filter(pl.col("from").list.len() == 1)["to"].to_list()
    small = set(vector)
    after = {a: b[0] for a, b in feeds.iter_rows() if a in small and b[0] in small and b[0] in fed}
    for first in sorted(after.keys() - set(after.values())):
        chain = [first]
        while chain[-1] in after:
            chain.append(after[chain[-1]])
        names = " → ".join(f"`{name}`" for name in chain)
        spent = int(table.filter(pl.col("kernel").is_in(chain) & (pl.col("unit") == "AIV"))["core_ns"].sum())
        yield (
            f"{many(len(chain), 'small vector leaf', 'small vector leaves')} in a chain, {names} ({duration(spent)} of "
            "core time): one scope (sg_set_scope) keeps their data on the core."
        )


def _balance(rows: pl.DataFrame, cores: Mapping[str, int]) -> Iterator[str]:
    for unit, count in cores.items():
        loads = rows.filter(pl.col("unit") == unit).group_by("lane").agg(pl.col("ns").sum())["ns"]
        if not len(loads):
            continue
        mean, most = float(loads.sum()) / len(loads), int(loads.max())  # type: ignore[arg-type]
        gap = most / mean - 1 if mean else 0.0
        advice = ": rebalance, more than 20% apart" if gap > UNEVEN else ""
        yield (
            f"{unit}: the busiest of {len(loads)} used cores (of {count}) works {duration(most)}, {percent(gap)} above "
            f"their mean{advice}."
        )
