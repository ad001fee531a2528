"""The device work of a trace of one rank, in the form every analysis starts from.

Work is what counts once: slices of kind task and comm without second tellings, or every slice where a
capture has neither (a trace of host threads). Times are clipped to the window, which is the trace's own cut
or else reaches from the first start to the last end of the work and of the steps that the host marked: what the
host does before the first kernel of a step is part of the step.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.toml_file import read_toml
from npuscope.chip.kernels import area_of as known_area
from npuscope.chip.kernels.demangle import readable
from npuscope.explain.choosing import check_one_rank
from npuscope.table.formats import short
from npuscope.trace.core import Trace, overlaps
from npuscope.trace.intervals import Intervals, Ints, depths, gaps, lane_order, union
from npuscope.trace.names import slots, source_column
from npuscope.trace.readers.kernel_details import AI_CPUS
from npuscope.trace.schema import SLICES, is_work

CORES = ("AIC", "AIV")
TYPES = ("Type", "OP Type", "opType")  # columns with the operator type
CORE_KINDS = ("Accelerator Core", "Task Type", "taskType", "kernel_type")  # columns with the kind of core
NOT_RECORDED = ["N/A", ""]
UMBRELLA = 0.9  # of all recorded time
LONGEST = 2**62  # nanoseconds over all lanes, so that sums stay exact
NONE = -1  # a row that is not there
NEVER = int(np.iinfo(np.int64).min)  # a stamp that is not there: before every other one


@dataclass(frozen=True, repr=False)
class Work:
    """Slices sorted by lane, then start; `lane` and `kernel` are numbers into `lanes` and `kernels`.

    `slices` has the columns that every trace has. A capture may have fifty more, of which an analysis wants few: it
    asks `with_columns` for them.
    """

    trace: Trace
    rows: Ints  # where the slices stand among the trace's
    slices: pl.DataFrame
    lanes: pl.DataFrame  # device lanes, idle ones too, in the trace's order
    kernels: list[str]
    window: tuple[int, int]
    lane: Ints
    start: Ints
    end: Ints
    kernel: Ints

    @staticmethod
    def of(trace: Trace) -> Work:
        wanted = [*SLICES, *(name for name in (*TYPES, "phase") if name in trace.slices.columns)]
        everything = device_rows(trace.slices.select(wanted).with_row_index("row"))
        window = _window(trace, everything)
        here = everything.filter(pl.col("duplicate_of").is_null())
        if "window_ns" in trace.meta.notes:
            here = here.filter(overlaps(*window))
        lanes = _lanes_of(trace, here)
        check_one_rank(lanes)
        if (window[1] - window[0]) * max(lanes.height, 1) >= LONGEST:
            days = (window[1] - window[0]) / 86_400e9
            what = f"a window of {days:,.0f} days on {lanes.height:,} lanes is too long to add up"
            raise NpuscopeError(what, path=", ".join(trace.meta.files[:1]) or None, remedy="Cut it with window().")
        here = here.with_columns(kernel_group(here)).drop(TYPES, strict=False)
        lane = places(here["lane"].to_numpy(), lanes["lane"].to_numpy())
        start = here["start"].to_numpy()
        order = lane_order(lane, start, here["dur"].to_numpy())
        if not np.array_equal(order, np.arange(len(order))):
            here, lane, start = here[order], lane[order], start[order]
        kernels = here["kernel"].unique(maintain_order=True).to_list()
        codes = here["kernel"].cast(pl.Enum(kernels)).to_physical().cast(pl.Int64).to_numpy()
        end = start + here["dur"].to_numpy()
        rows = here["row"].cast(pl.Int64).to_numpy()
        begin, stop = np.maximum(start, window[0]), np.minimum(end, window[1])
        return Work(trace, rows, here.drop("row"), lanes, kernels, window, lane, begin, stop, codes)

    def with_columns(self, *names: str) -> pl.DataFrame:
        """The slices with these columns of the capture beside their own."""
        more = [name for name in names if name not in self.slices.columns]
        return self.slices.hstack(self.trace.slices.select(pl.col(more).gather(self.rows)))

    @cached_property
    def duplicates(self) -> int:
        """Rows of the window left out because they tell another row's work again."""
        again = pl.col("duplicate_of").is_not_null() & overlaps(*self.window)
        return int(self.trace.slices.select((is_work() & again).sum()).item())

    @property
    def wall(self) -> int:
        """Nanoseconds of the window."""
        return self.window[1] - self.window[0]

    @property
    def once_ns(self) -> int:
        """What every run pays, be it of one task: submitted, handed out and started before anything runs, and seen done
        at the end. No scheduler that is given less to do saves it."""
        return self.wall - (int(np.max(self.end)) - int(np.min(self.start)))

    @cached_property
    def units(self) -> NDArray[np.str_]:
        """The unit of each lane."""
        return np.array(self.lanes["unit"].cast(pl.String).to_list(), dtype=np.str_)

    @cached_property
    def core_lanes(self) -> Ints:
        """The lanes whose idle time is looked into: cores; streams where a capture has none; else all."""
        for wanted in (CORES, ("stream",), ("link",)):
            found = np.flatnonzero(np.isin(self.units, wanted))
            if len(found):
                return found
        return np.arange(self.lanes.height)

    @cached_property
    def on_cores(self) -> bool:
        """True when slices ran on AIC and AIV lanes, not on streams or threads."""
        return bool(np.isin(self.units, CORES).any())

    @cached_property
    def busy(self) -> Intervals:
        """The union of each lane's slices."""
        return union(Intervals(self.lane, self.start, self.end))

    @cached_property
    def idle(self) -> Intervals:
        """The rest of the window, lane by lane."""
        return gaps(self.busy, self.lanes.height, self.window)

    @cached_property
    def spans_dispatch(self) -> bool:
        """True when a core's slice reaches from dispatch to retired, as TraCR bundles have it, and not start to end."""
        if not self.trace.meta.format.startswith("tracr") or not self.on_cores:
            return False
        return "phase" in self.slices.columns and bool((self.slices["phase"] == "run").any())

    @cached_property
    def tasks(self) -> pl.Series:
        """The task of each slice; one without an id is a task of its own, numbered below all others."""
        return self.slices.select(pl.coalesce("task", -1 - pl.int_range(pl.len(), dtype=pl.Int64))).to_series()

    def kernels_named(self, pattern: str, *, whole: bool = False) -> NDArray[np.bool_]:
        """Which kernels a regular expression finds, in their names or as whole names; refuses one that finds none."""
        names = pl.Series(self.kernels, dtype=pl.String)
        try:
            found = names.str.contains(f"^(?:{pattern})$" if whole else pattern)
        except pl.exceptions.ComputeError as error:
            raise NpuscopeError(f"'{pattern}' is no regular expression", remedy="See Rust's regex syntax.") from error
        if not found.any():
            if not self.kernels:
                raise NpuscopeError(f"no kernel matches '{pattern}': nothing ran in this trace")
            more = f" and {len(self.kernels) - 5} more" if len(self.kernels) > 5 else ""
            known = ", ".join(short(name, 40) for name in self.kernels[:5])
            raise NpuscopeError(f"no kernel matches '{pattern}'", remedy=f"The trace has {known}{more}.")
        return found.to_numpy()

    @cached_property
    def dispatch(self) -> Ints:
        """When each slice was handed out; NEVER where the capture does not say."""
        return _stamps(self.slices["dispatch"])

    @cached_property
    def finish(self) -> Ints:
        """When the scheduler saw each slice's end; NEVER where the capture does not say."""
        return _stamps(self.slices["finish"])

    @cached_property
    def previous(self) -> Ints:
        """Of the rows of the same lane that began before each row, the one that ended last; NONE for a lane's first."""
        rows = len(self.lane)
        if rows == 0:
            return np.zeros(0, dtype=np.int64)
        first = np.append(True, self.lane[1:] != self.lane[:-1])
        lane_number = np.cumsum(first) - 1
        rank = np.empty(rows, dtype=np.int64)
        rank[np.argsort(self.end, kind="stable")] = np.arange(rows)
        reach = rank + lane_number * rows  # later lanes reach further, so that one running maximum serves all
        best = np.maximum.accumulate(reach)
        row = np.maximum.accumulate(np.where(best == reach, np.arange(rows), 0))
        return np.where(first, NONE, np.append(NONE, row[:-1]))


def kernel_group(slices: pl.DataFrame) -> pl.Expr:
    """The name kernels are counted under: the operator type where the capture has one, since Ascend's names
    carry a number per place in the model; else the kernel's name, as people write it."""
    types = [pl.col(name) for name in TYPES if name in slices.columns]
    named = [pl.when(~t.is_in(NOT_RECORDED)).then(t) for t in types]
    group = pl.coalesce(*named, "kernel").alias("kernel")
    if slices["kernel"].str.starts_with("_Z").any():
        names = slices["kernel"].unique()
        return group.replace(readable(names.drop_nulls()))
    return group


def on_ai_cpu(slices: pl.DataFrame) -> pl.Expr:
    """True for work that the capture says ran on the AI CPU, beside the device: no device time."""
    cores = [
        pl.col(name).str.strip_chars().is_in(AI_CPUS).fill_null(False) for name in CORE_KINDS if name in slices.columns
    ]
    return (pl.any_horizontal(cores) if cores else pl.lit(False)).alias("on_ai_cpu")


def device_rows(slices: pl.DataFrame) -> pl.DataFrame:
    """Slices of the device's work, second tellings too; where a capture has none, what its threads did, once."""
    rows = rows_of_work(slices)
    return rows if rows.is_empty() or rows.filter(is_work()).height else outermost(rows)


def rows_of_work(slices: pl.DataFrame) -> pl.DataFrame:
    """Slices of the device's work; all but derived ones where a capture has none, those inside others too."""
    work = slices.filter(is_work())
    return work if work.height else slices.filter(pl.col("kind") != "derived")


def outermost(slices: pl.DataFrame) -> pl.DataFrame:
    """What threads did, once: spans inside another do not count again, and one that spans nearly everything with other
    spans inside it is no work but what holds the work together."""
    if slices.is_empty():
        return slices
    lane, start, dur = (slices[name].to_numpy() for name in ("lane", "start", "dur"))
    whole = int((start + dur).max() - start.min())
    several = np.bincount(lane)[lane] > 1
    kept = slices.filter(pl.Series(~(several & (dur >= UMBRELLA * whole))))
    if kept.is_empty():
        return slices
    lane, start, dur = (kept[name].to_numpy() for name in ("lane", "start", "dur"))
    return kept.filter(pl.Series(depths(lane, start, dur) == 0))


def _window(trace: Trace, work: pl.DataFrame) -> tuple[int, int]:
    if "window_ns" in trace.meta.notes:
        return trace.window_ns
    both = pl.concat([rows.select("start", end=pl.col("start") + pl.col("dur")) for rows in (work, trace.marks)])
    if both.is_empty():
        return (0, 0)
    start, end = both.select(pl.col("start").min(), pl.col("end").max()).row(0)
    return int(start), int(end)


def _lanes_of(trace: Trace, work: pl.DataFrame) -> pl.DataFrame:
    """Lanes with work, and cores without. A lane that holds only second tellings is no place of its own."""
    used = pl.col("lane").is_in(work["lane"].unique().implode())
    return trace.lanes.filter(used | pl.col("unit").is_in(list(CORES)))


def places(values: Ints | NDArray[np.uint32], known: Ints | NDArray[np.uint32]) -> Ints:
    """Where each value stands among the known ones, which are distinct and hold it."""
    order = np.argsort(known, kind="stable")
    return order[np.searchsorted(known[order], values)]


def _stamps(column: pl.Series) -> Ints:
    return column.fill_null(NEVER).to_numpy()


WHAT = 'a file of area rules ([[area]] with name = "…" and patterns = ["…"])'


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that any of the patterns finds belong to the area."""

    name: str
    patterns: list[str]


class Areas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    area: list[Area]


Rules = tuple[tuple[str, re.Pattern[str]], ...]  # of the user's own


def area_rules(path: str | Path | None = None) -> Rules:
    """The rules of a TOML file, which come before the table of kernels."""
    return () if path is None else _compiled(read_toml(Path(path), Areas, WHAT), Path(path))


def area_of(kernel: str, rules: Rules = ()) -> str:
    """The area of a kernel's name: by the first own rule that finds something, else by the table of kernels."""
    own = next((name for name, pattern in rules if pattern.search(kernel)), None)
    return known_area(kernel) if own is None else own


def _compiled(areas: Areas, path: Path) -> Rules:
    rules = []
    for area in areas.area:
        try:
            rules.append((area.name, re.compile("|".join(f"(?:{p})" for p in area.patterns), re.IGNORECASE)))
        except (re.error, OverflowError, RecursionError) as error:
            raise BadInput(
                f"area '{area.name}' has a pattern that is no regular expression ({error})", path=path
            ) from error
    return tuple(rules)


BITS = {
    "INT4": 4, "BOOL": 8, "INT8": 8, "UINT8": 8, "FLOAT8_E4M3FN": 8, "FLOAT8_E5M2": 8, "HIFLOAT8": 8,
    "FLOAT16": 16, "BF16": 16, "BFLOAT16": 16, "INT16": 16, "UINT16": 16, "FLOAT": 32, "FLOAT32": 32,
    "INT32": 32, "UINT32": 32, "DOUBLE": 64, "INT64": 64, "UINT64": 64, "COMPLEX64": 64,
}  # fmt: skip
MOST = 2**50  # bytes of one task


def tensor_bytes(work: Work) -> pl.Series:
    """Bytes of each slice's input and output tensors together; null where shapes or types are not told.

    Tensors are counted whole: of a paged cache this is the pool, not the part that was read.
    """
    columns: list[str] = []
    for side in ("input", "output"):
        shapes, dtypes = (source_column(work.trace.slices, f"{side}_{what}") for what in ("shapes", "dtypes"))
        if shapes is not None and dtypes is not None:
            columns += [shapes, dtypes]
    if not columns:
        return pl.Series("bytes", [None], dtype=pl.Int64).new_from_index(0, work.slices.height)
    texts = work.with_columns(*columns).select(pl.concat_str(pl.col(columns).fill_null(""), separator="|")).to_series()
    distinct = texts.unique()
    sizes = pl.Series([_bytes(text) for text in distinct], dtype=pl.Int64)
    return texts.replace_strict(distinct, sizes, return_dtype=pl.Int64).alias("bytes")


@lru_cache(maxsize=4096)
def _bytes(text: str) -> int | None:
    fields = [field.strip().strip('"') for field in text.split("|")]
    total = 0
    for shapes, dtypes in zip(fields[::2], fields[1::2], strict=True):
        if shapes in ("", "N/A"):
            continue
        for shape, dtype in zip(slots(shapes), dtypes.split(";"), strict=False):
            word = dtype.removeprefix("DT_")
            if not shape:
                continue  # an absent input, or a scalar
            if word not in BITS:
                return None
            total += prod(shape) * BITS[word] // 8
    return total if 0 < total < MOST else None  # beyond that a shape is broken
