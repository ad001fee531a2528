"""Ascend's kernel table: torch_npu's kernel_details.csv, msprof's op_summary_*.csv and task_time_*.csv.

One row per device task. Columns are found by name, in every header generation; every cell is kept as
text under its own column name, so that the table can be written back character by character.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import is_comm
from npuscope.trace import schema
from npuscope.trace.core import BELOW_NANOSECOND, NEGATIVE, Ledger, Trace
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.names import QUEUE_ORDERS
from npuscope.trace.schema import LONGEST_US, needs_rounding, ns_from_us
from npuscope.trace.tables import CsvTable, header_of, read_csv

# our word -> the column's names over the generations
ALIASES = {
    "name": ("Name", "Op Name", "kernel_name"),
    "start": ("Start Time(us)", "Task Start Time(us)", "task_start(us)"),
    "dur": ("Duration(us)", "Task Duration(us)", "task_time(us)"),
    "type": ("Type", "OP Type"),
    "core": ("Accelerator Core", "Task Type", "kernel_type"),
    "stream": ("Stream ID", "stream_id"),
    "device": ("Device_id",),
    "step": ("Step Id",),
    "shapes": ("Input Shapes",),
    "counter": ("aicore_time(us)",),  # the one that every group of counters has
}
# the table's columns over the generations, beside what the hardware counted
KNOWN = {name for names in ALIASES.values() for name in names} | {
    "Model ID", "Task ID", "OP State", "Wait Time(us)", "Task Wait Time(us)", "Block Dim", "Block Num",
    "Mix Block Dim", "Mix Block Num", "HF32 Eligible", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Output Formats", "Context ID", "Model Name", "Infer ID", "Op Name", "Batch ID", "Attr Info",
    "task_id", "task_stop(us)", "batch_id", "subtask_id", "context_id",
}  # fmt: skip
# what a prediction adds to the columns when it is written as such a table
PREDICTED = ("part", "layer", "position", "role", "Source", "limit_ns")
PMU = re.compile(r"^(ai[cv]|aicore|cube|vector|ub|l2|main_mem|mac|vec|scalar|mte[123]|fixpipe|icache|r\d)[_ (]")
FORMATS = {"op_summary": "Op Name", "task_time": "kernel_name"}  # what the table is called, by a column only it has
AI_CPUS = ["AI_CPU", "KERNEL_AICPU"]  # task types of AI CPU work, older and newer
SAME_NAME = "AI_CPU row with the name of its kernel"
COMPUTE_CORES = ["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV"]
REQUIRED = ("name", "start", "dur")


@dataclass(frozen=True)
class ColumnNames:
    """Where the words we need are in this file; absent words are not in it."""

    by_word: dict[str, str]

    def get(self, word: str) -> pl.Expr:
        """The column's text without padding; `N/A` and absent are null."""
        if word not in self.by_word:
            return pl.lit(None, dtype=pl.String)
        text = pl.col(self.by_word[word]).str.strip_chars()
        return pl.when(text.is_in(["N/A", ""])).then(None).otherwise(text)


def recognises(sample: Sample) -> bool:
    """True for a CSV whose header has a name, a start and a duration under any of their names."""
    header = header_of(sample.head)
    return header is not None and all(set(ALIASES[word]) & set(header) for word in REQUIRED)


def read(path: Path) -> Trace:
    """The table as a Trace: one slice per row, in the file's order; `task` is the row's number."""
    table = read_csv(path)
    cells = _apart_from_ours(table.cells)
    # of columns with one name the first counts
    column_of = dict(zip(reversed(table.header), reversed(cells.columns), strict=True))
    columns = ColumnNames(
        {word: column_of[n] for word, names in ALIASES.items() for n in reversed(names) if n in column_of}
    )
    ledger = Ledger()
    ledger.records = cells.height + table.blank_lines
    ledger.dropped["blank line"] = table.blank_lines
    ledger.notes |= {
        "header": list(table.header),
        "columns": cells.columns,
        "line_end": table.line_end,
        "bom": table.bom,
    }
    for name in table.header:
        if name not in KNOWN and name not in PREDICTED and not PMU.match(name):
            ledger.count_unknown("column", name, cells.height)
    # the source's columns are wide: all work is on a narrow frame of our own, laid beside them at the end
    facts = _facts(cells, columns)
    _refuse_bad_times(facts, table, columns, path)
    ledger.repaired[BELOW_NANOSECOND] = int(facts["rounded"].sum())
    ledger.repaired[NEGATIVE] = int((facts["dur"] < 0).sum())
    facts, lanes = _with_lanes(facts.with_columns(pl.col("dur").clip(lower_bound=0)))
    facts = mark_duplicates(facts, ledger)
    if not facts["start"].is_sorted():
        ledger.notes["unsorted_rows"] = int((facts["start"].diff() < 0).sum())
    slices = pl.concat([facts.select(c for c in facts.columns if c in schema.SLICES), cells], how="horizontal")
    format_name = next((name for name, column in FORMATS.items() if column in table.header), "kernel_details")
    return Trace.of(slices, lanes, ledger.close(format_name, (str(path),), clock="epoch"))


def _apart_from_ours(cells: pl.DataFrame) -> pl.DataFrame:
    """Source columns that happen to have one of our names step aside."""
    taken = set(cells.columns)
    renamed = {}
    for name in cells.columns:
        if name in schema.SLICES:
            aside = f"source {name}"
            while aside in taken:
                aside = f"source {aside}"
            taken.add(aside)
            renamed[name] = aside
    return cells.rename(renamed)


def _facts(cells: pl.DataFrame, columns: ColumnNames) -> pl.DataFrame:
    """What slices, lanes and duplicates need to know of each row."""
    start, dur = (pl.col(columns.by_word[word]) for word in ("start", "dur"))
    type_, core = columns.get("type"), columns.get("core")
    # an order of the queue has no name but what it is
    kernel = pl.when(columns.get("name").is_null()).then(core).otherwise(None)
    kernel = pl.coalesce(kernel, pl.col(columns.by_word["name"]))
    facts = cells.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("task"),
        ns_from_us(start).alias("start"),
        pl.when(ns_from_us(dur) <= LONGEST_US * 1000).then(ns_from_us(dur)).alias("dur"),
        kernel.alias("kernel"),
        columns.get("step").cast(pl.Int64, strict=False).alias("step"),
        (needs_rounding(start) | needs_rounding(dur)).alias("rounded"),
        type_.alias("type"),
        core.alias("core"),
        columns.get("stream").alias("stream"),
        columns.get("shapes").is_not_null().alias("has_shapes"),
        columns.get("counter").is_not_null().alias("has_counters"),
        columns.get("device").cast(pl.Int32, strict=False).alias("device"),
    )
    comm = facts["core"].is_in(["HCCL", "COMMUNICATION"]).fill_null(False)
    comm |= is_comm(facts["type"]) | is_comm(facts["kernel"])
    copy = (facts["core"] == schema.COPY_CORE).fill_null(False)
    order = facts["core"].str.contains(QUEUE_ORDERS.pattern).fill_null(False)
    chosen = [(pl.lit(mask), kind) for mask, kind in ((comm, "comm"), (copy, "copy"), (order, "schedule"))]
    kind = schema.cases(*chosen, otherwise="task")
    return facts.with_columns(kind.cast(schema.KINDS).alias("kind"))


def _refuse_bad_times(facts: pl.DataFrame, table: CsvTable, columns: ColumnNames, path: Path) -> None:
    for word in ("start", "dur"):
        if facts[word].null_count():
            row, column = int(facts[word].is_null().arg_max() or 0), columns.by_word[word]
            cell = table.cells[row, column]
            what = f"'{cell}' in column {column} is not a time in microseconds"
            raise BadInput(what, path=path, line=int(table.lines[row]))


def _with_lanes(facts: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One lane per device and stream. Logical communication rows have no stream and share a `link` lane."""
    facts = facts.with_columns(on_link=pl.col("stream").is_null() & (pl.col("kind") == "comm"))
    place = ["device", "stream", "on_link"]
    lanes = facts.select(place).unique(maintain_order=True).with_row_index("lane")
    facts = facts.join(lanes, on=place, nulls_equal=True, maintain_order="left")
    elsewhere = pl.when("on_link").then(pl.lit("communication")).otherwise(pl.lit("device"))
    lanes = lanes.select(
        "lane",
        pl.coalesce(pl.concat_str(pl.lit("stream "), "stream"), elsewhere).alias("name"),
        pl.when("on_link").then(pl.lit("link")).otherwise(pl.lit("stream")).alias("unit"),
        "device",
    )
    return facts, lanes


def mark_duplicates(facts: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """The rows with `duplicate_of` set on every row that lists a piece of work again; none is dropped. Six kinds:

    * a collective listed logically (no stream) and physically (`AivKernel` on a stream) with equal start, duration and
      type: the logical row is the duplicate, and the physical row takes its name;
    * where `AivKernel` is the type of the physical row too, that row is the duplicate;
    * an `...AicpuKernel` row beside the collective it carries out, whose time includes waiting;
    * an AI_CPU row without shapes, of a type that also ran on a compute core: the tiling of that kernel;
    * simpler's AI_CPU launch row around its AICore kernel;
    * AI CPU rows with the name of the kernel that they schedule: PyPTO's launches have two of them, in msprof's tables
      without type and core, where only the kernel's row has counters.

    `facts` has task (the row's number), start, dur, kernel, kind, type, core, stream, has_shapes and has_counters;
    words are null where the table says nothing.
    """
    logical = _logical_collectives(facts)
    pairs = {
        "collective listed logically and physically": logical,
        "AivKernel row of a collective": _aiv_collectives(facts),
        "AicpuKernel row of a collective": _aicpu_collectives(facts),
        "AI_CPU row of a kernel": _tilings(facts),
        "AI_CPU launch row of a PyPTO kernel": _simpler_launches(facts),
        SAME_NAME: _schedulers(facts),
    }
    # a row can be found twice (an AicpuKernel is on AI_CPU too); the first finding stands
    found = pl.concat(pair.with_columns(pl.lit(reason).alias("reason")) for reason, pair in pairs.items())
    found = found.unique("task", keep="first", maintain_order=True)
    for reason in pairs:
        ledger.marked[reason] += int((found["reason"] == reason).sum())
    if found.is_empty():
        return facts
    duplicate_of = pl.Series([None], dtype=pl.Int64).new_from_index(0, facts.height)
    duplicate_of = duplicate_of.scatter(found["task"], found["duplicate_of"])
    # the physical row of a collective takes the name of the logical one, which says more
    kernel = facts["kernel"].scatter(logical["duplicate_of"], facts["kernel"].gather(logical["task"]))
    return facts.with_columns(duplicate_of.alias("duplicate_of"), kernel.alias("kernel"))


def _logical_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    comm = facts.filter(pl.col("kind") == "comm")
    on_stream = pl.col("stream").is_not_null()
    return _paired(comm.filter(~on_stream), comm.filter(on_stream), "start", "dur", "type")


def _aiv_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    """Where the kernel's type is AivKernel as well, the logical row says more and counts."""
    on_stream = pl.col("stream").is_not_null()
    kernels = facts.filter((pl.col("type") == "AivKernel") & on_stream)
    return _paired(kernels, facts.filter((pl.col("kind") == "comm") & ~on_stream), "start", "dur")


def _paired(again: pl.DataFrame, real: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Rows that repeat others meet those of the same key, the nth the nth: several may share it."""
    nth = pl.int_range(pl.len()).over(key).alias("nth")
    real = real.with_columns(nth).select(*key, "nth", pl.col("task").alias("duplicate_of"))
    return again.with_columns(nth).join(real, on=[*key, "nth"]).select("task", "duplicate_of")


def _aicpu_collectives(facts: pl.DataFrame) -> pl.DataFrame:
    on_ai_cpu = pl.any_horizontal(pl.col("type", "kernel").str.ends_with("AicpuKernel").fill_null(False))
    again = facts.filter(on_ai_cpu).with_columns(_collective_kind(pl.coalesce("type", "kernel")))
    real = facts.filter((pl.col("kind") == "comm") & ~on_ai_cpu).with_columns(
        _collective_kind(pl.coalesce("type", "kernel"))
    )
    return _overlapping(again, real, by="what")


def _collective_kind(name: pl.Expr) -> pl.Expr:
    """`allgather` of hcom_allGather_, HcomAllGather and allgatherAicpuKernel alike."""
    bare = name.str.to_lowercase().str.replace_all("[^a-z]", "").str.strip_prefix("hcom")
    return bare.str.strip_suffix("aicpukernel").alias("what")


def _tilings(facts: pl.DataFrame) -> pl.DataFrame:
    """AI_CPU rows meet the next compute row of their type to start; each compute row meets one."""
    aicpu = facts.filter((pl.col("core") == "AI_CPU") & pl.col("type").is_not_null() & ~pl.col("has_shapes"))
    compute = facts.filter(pl.col("core").is_in(COMPUTE_CORES) & pl.col("type").is_in(aicpu["type"].unique().implode()))
    found = []
    for (kind,), rows in aicpu.sort("start").group_by("type"):
        partners = compute.filter(pl.col("type") == kind).sort("start")
        if partners.is_empty():
            continue  # work of its own, such as Cumsum
        meets = _meet_in_order(rows["start"].to_numpy(), partners["start"].to_numpy())
        met = meets >= 0
        found.append(
            pl.DataFrame(
                {
                    "task": rows["task"].to_numpy()[met],
                    "duplicate_of": partners["task"].to_numpy()[meets[met]],
                }
            )
        )
    return pl.concat([_NO_PAIRS, *found])


def _meet_in_order(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """For each of `first`, sorted, the earliest entry of `second` that starts later and is still free, or -1."""
    wanted = np.searchsorted(second, first, side="left")
    steps = np.arange(len(first))
    free = np.maximum.accumulate(wanted - steps) + steps  # each takes at least the place after the last one's
    return np.where(free < len(second), free, -1)


def _simpler_launches(facts: pl.DataFrame) -> pl.DataFrame:
    launches = facts.filter(pl.col("kernel").str.starts_with("simpler_aicpu")).with_columns(what=pl.lit(""))
    kernels = facts.filter(pl.col("kernel").str.starts_with("aicore_kernel")).with_columns(what=pl.lit(""))
    return _overlapping(launches, kernels, by="what")


def _schedulers(facts: pl.DataFrame) -> pl.DataFrame:
    """Rows without type, core and counters, beside one of their name that has counters."""
    nameless = facts.filter(pl.col("type").is_null() & pl.col("core").is_null() & (pl.col("kind") == "task"))
    return scheduling(nameless.filter(~pl.col("has_counters")), nameless.filter("has_counters"))


def scheduling(on_ai_cpu: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """AI CPU rows meet the kernel of their name that they overlap; else the next one, if others of the name fill the
    time until it starts: two threads schedule a launch, and one may be done before the kernel starts."""
    met = _overlapping(on_ai_cpu, kernels, by="kernel")
    rest = on_ai_cpu.join(met, on="task", how="anti")
    if rest.is_empty() or kernels.is_empty():
        return met
    rows = pl.concat([on_ai_cpu, kernels]).select("task", "kernel", "start", end=pl.col("start") + pl.col("dur"))
    rows = rows.sort("kernel", "start", "end")
    reached = pl.col("end").cum_max().shift().over("kernel")
    rows = rows.with_columns(launch=(pl.col("start") > reached).fill_null(True).cum_sum())
    is_kernel = pl.col("task").is_in(kernels["task"].implode())
    kernel = pl.when(is_kernel).then("task").otherwise(None).backward_fill().over("kernel", "launch")
    missed = rows.with_columns(duplicate_of=kernel).join(rest.select("task"), on="task").drop_nulls("duplicate_of")
    return pl.concat([met, missed.select("task", "duplicate_of")])


def _overlapping(again: pl.DataFrame, real: pl.DataFrame, by: str) -> pl.DataFrame:
    """Rows that repeat something meet the latest real row that starts before they end, if it overlaps them."""
    if again.is_empty() or real.is_empty():
        return _NO_PAIRS
    again = again.with_columns(stop=pl.col("start") + pl.col("dur")).sort("stop")
    real = real.select(
        by,
        pl.col("task").alias("duplicate_of"),
        pl.col("start").alias("stop"),
        (pl.col("start") + pl.col("dur")).alias("real_stop"),
    ).sort("stop")
    met = again.join_asof(real, on="stop", by=by, strategy="backward", check_sortedness=False)
    return met.filter(pl.col("real_stop") > pl.col("start")).select("task", "duplicate_of")


_NO_PAIRS = pl.DataFrame(schema={"task": pl.Int64, "duplicate_of": pl.Int64})


READER = Reader(
    "kernel_details",
    "kernel table of torch_npu or msprof, levels 0 to 2",
    recognises,
    read,
    files=("kernel_details.csv", "op_summary*.csv", "task_time*.csv"),
    tells=(
        "kernels",
        "streams: profiler level 1 and up",
        "communication",
        "ranks",
        "steps: where marked",
        "shapes: profiler level 1 and up",
    ),
)
