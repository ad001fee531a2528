"""What is wrong with a capture, and which numbers that touches: one check per function, in the order of the list.

A check that needs what the capture lacks stays silent. What recording itself adds rests on published figures only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.repetition import OUTLIER
from npuscope.explain.rings import rings_of
from npuscope.explain.summary import graph_capture
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, TEXT, duration, many, moment, printable
from npuscope.trace.clocks import not_aligned
from npuscope.trace.core import BELOW_NANOSECOND, CUT_OFF, NEVER_ENDED, OUT_OF_ORDER, ZERO_DURATIONS, Trace
from npuscope.trace.intervals import crossing
from npuscope.trace.readers.kernel_details import ALIASES
from npuscope.trace.schema import is_work

Severity = Literal["warning", "note"]  # a warning makes some number wrong if ignored; a note is worth knowing
MOST_UNKNOWN = 8  # symptoms, of a capture full of unknown things
FEWEST = 20  # device slices from which a pattern in their times is no accident
MOST_COUNTED = 2**53  # of a capture's own counters: so many and more are shown as this
# A guess: buffers are usually powers of two, and a thread that recorded exactly that many points probably filled one.
# How large TraCR's buffers are is not recorded in a bundle. Smaller counts than this are powers of two by accident.
FULL_FROM = 1 << 14
# A core that goes from one task to the next takes 0.81 µs (1.22 at the 99th percentile) with the swimlane on: 0.52 µs
# are its record and loop. Source: simpler, docs/investigations/2026-07-aicore-swimlane-switch-overhead-and-ack-gate.md
SWITCH_NS, RECORD_NS, SLOW_SWITCH_NS = 810, 520, 1_220
# Inside the scheduler's loop level 4 took 9% longer. Source: the authors of simpler's pull request 1173
ORCHESTRATED = 4
# One training step took 116.3, 136.6 and 129.9 ms at levels 0, 1 and 2 of Ascend's profiler, one run each. Source:
# Ascend-msinsight, test/data/pytorch (January 2025)
ASCEND_LONGER = "12 to 17%"
COUNTED = ("aicore_time(us)", "aic_total_cycles", "aiv_total_cycles")  # columns that only levels 1 and 2 have
PARAGRAPH = "a symptom is a paragraph, not a row"
SYMPTOMS = Columns(
    "doctor.symptoms",
    "One thing that is odd, warnings first.",
    Column("id", TEXT, "as docs/howto/captures.md lists them", only=PARAGRAPH),
    Column("severity", TEXT, "warning or note", only=PARAGRAPH),
    Column("what", TEXT, "was seen", only=PARAGRAPH),
    Column("count", COUNT, "how often", only=PARAGRAPH),
    Column("effect", TEXT, "on the numbers", only=PARAGRAPH),
    Column("example", TEXT, "one of them", only=PARAGRAPH),
)


@dataclass(frozen=True)
class Symptom:
    """One thing that is odd: how often, what it does to the numbers, and an example."""

    id: str
    severity: Severity
    what: str
    count: int
    effect: str
    example: str = ""


@dataclass(frozen=True)
class Symptoms:
    """All symptoms of a capture, warnings first."""

    symptoms: tuple[Symptom, ...]

    @property
    def verdict(self) -> str:
        """One line."""
        warnings = [one for one in self.symptoms if one.severity == "warning"]
        if not self.symptoms:
            return "sound: nothing found that would touch a number"
        if not warnings:
            notes = "; ".join(one.what for one in self.symptoms[:2])
            return f"sound, with {many(len(self.symptoms), 'note')}: {notes}"
        listed = "; ".join(f"{one.count:,} × {one.what}" for one in warnings[:3])
        more = f"; and {len(warnings) - 3} more" if len(warnings) > 3 else ""
        return f"{many(len(warnings), 'warning')}: {listed}{more}"

    def as_dict(self) -> dict[str, object]:
        table = Table(SYMPTOMS, pl.DataFrame(self.symptoms, infer_schema_length=None))
        return {"verdict": self.verdict, "symptoms": table.rows()}


Check = Callable[[Trace], Iterator[Symptom]]
CHECKS: list[Check] = []


def symptoms_of(trace: Trace) -> Symptoms:
    """Every check, on any Trace."""
    symptoms = [symptom for check in CHECKS for symptom in check(trace)]
    return Symptoms(tuple(sorted(symptoms, key=lambda one: one.severity != "warning")))


def check(finder: Check) -> Check:
    """Adds a check."""
    CHECKS.append(finder)
    return finder


def counted(
    id: str, severity: Severity, what: str, effect: str
) -> Callable[[Callable[[Trace], int | tuple[int, str]]], None]:
    """Adds a check that is a number: how often, or that and an example."""

    def add(count: Callable[[Trace], int | tuple[int, str]]) -> None:
        @check
        def find(trace: Trace) -> Iterator[Symptom]:
            found = count(trace)
            number, example = found if isinstance(found, tuple) else (found, "")
            if number:
                yield Symptom(id, severity, what, number, effect, example)

    return add


def describe(trace: Trace, row: int) -> str:
    """A slice in words: its kernel, lane, and time since the trace began."""
    lane, start, kernel = trace.slices.select("lane", "start", "kernel").row(row)
    names = trace.lanes.filter(pl.col("lane") == lane)["name"]
    return f"{kernel} on {names[0] if len(names) else lane} at {moment(start - trace.span[0])}"


def _note_sum(trace: Trace, key: str) -> int:
    return sum(int(notes.get(key, 0)) for notes in trace.meta.all_notes())


@counted("empty", "warning", "capture without a slice", "There is nothing to measure.")
def empty(trace: Trace) -> int:
    return int(trace.slices.is_empty())


@check
def unread_device(trace: Trace) -> Iterator[Symptom]:
    """A capture without device work that shows signs of some: categories of kernels, lanes called streams, launches."""
    if trace.slices.select(is_work().any()).item():
        return
    streams = trace.lanes.filter(pl.col("name").str.contains(r"(?i)^stream \d+"))["lane"]
    looks = pl.col("lane").is_in(streams.implode())
    if "cat" in trace.slices.columns:
        looks |= pl.col("cat").cast(pl.String).str.contains("(?i)kernel|memcpy|memset|gpu")
    launches = (pl.col("kind") == "host") & pl.col("kernel").str.contains("LaunchKernel", literal=True)
    effect = "No device work was read: busy time, bounds and kernels are of what the host did."
    for rows, what in (
        (looks.fill_null(False), "slice that looks like device work and is read as none"),
        (launches, "call that launches device work, none of which is in the capture"),
    ):
        found = trace.slices.filter(rows)
        if found.height:
            yield Symptom("device-unread", "warning", what, found.height, effect, str(found["kernel"][0]))
            return


@counted(
    "overlap",
    "warning",
    "slice crosses another one of its lane",
    "Viewers with one open slice per lane drop or cut these; a lane's sum exceeds its busy time.",
)
def overlapping_slices(trace: Trace) -> int | tuple[int, str]:
    crossed = np.flatnonzero(crossing(*trace.arrays()))
    return (len(crossed), describe(trace, int(crossed[0]))) if len(crossed) else 0


@check
def duplicates(trace: Trace) -> Iterator[Symptom]:
    """Rows that list one piece of work twice."""
    rows = trace.slices.select("dur", "duplicate_of").with_row_index("row").drop_nulls("duplicate_of")
    if rows.height:
        twice = duration(int(rows["dur"].cast(pl.Int128).sum()))
        effect = f"A plain sum of durations counts {twice} twice; analyses skip rows with duplicate_of."
        what = "row that lists another row's work a second time"
        yield Symptom("duplicates", "warning", what, rows.height, effect, describe(trace, int(rows["row"][0])))


@counted(
    "text-times",
    "note",
    "time written as text",
    "Read exactly here; tools that pass them through a float64 are off by up to 249 ns.",
)
def text_times(trace: Trace) -> int:
    return _note_sum(trace, "times_as_text")


@counted(
    "sub-ns",
    "note",
    "time with digits below a nanosecond",
    "Rounded to the nanosecond; sums may differ by that much.",
)
def below_nanosecond(trace: Trace) -> int:
    return trace.meta.repaired.get(BELOW_NANOSECOND, 0)


@check
def coarse_times(trace: Trace) -> Iterator[Symptom]:
    """Times in whole microseconds, or that passed through a float64 before."""
    device = trace.slices.select(pl.col("start", "dur").filter(is_work()))
    starts, durs = device["start"].to_numpy(), device["dur"].to_numpy()
    if device.height < FEWEST:
        return
    if np.all(starts % 1000 == 0) and np.all(durs % 1000 == 0):
        effect = "Gaps and kernels shorter than a microsecond vanish or appear; a mean over many kernels is still fair."
        yield Symptom("whole-us", "warning", "time in whole microseconds", device.height, effect)
    elif np.all(starts % 125 == 0) and int(starts.max()) > 10**18:
        effect = "The times passed through a float64 before they came here: each start is off by up to 125 ns."
        yield Symptom("float-times", "warning", "start is a multiple of 125 ns", device.height, effect)


@check
def unknown_unit(trace: Trace) -> Iterator[Symptom]:
    """Times whose unit nothing says: some simulators write cycles where the format says microseconds."""
    for notes in trace.meta.all_notes():
        if "unit_assumed" in notes:
            effect = f"Taken for {notes['unit_assumed']}: if that is wrong, every time is wrong by the same factor."
            yield Symptom("unit-assumed", "warning", "clock whose rate nothing says", 1, effect)
    if count := _note_sum(trace, "unit_unknown"):
        effect = (
            "Nothing says who wrote them, and they may be cycles: read as microseconds, as the format has it. "
            "Shares and ratios hold either way; absolute times only if that is right."
        )
        yield Symptom("unit-unknown", "warning", "time in an unknown unit", count, effect)


@counted("unsorted", "note", "record out of order", "Analyses sort by start; tools that trust the order underflow.")
def unordered(trace: Trace) -> int:
    return _note_sum(trace, "unsorted_rows") + trace.meta.repaired.get(OUT_OF_ORDER, 0)


@check
def bad_durations(trace: Trace) -> Iterator[Symptom]:
    """Durations that had to be set to zero, or closed by guess."""
    missing = "The time of these slices is missing from every sum."
    guessed = "Their time reaches to the end of the capture, which is a guess."
    for reason, effect in (*((reason, missing) for reason in ZERO_DURATIONS), (NEVER_ENDED, guessed)):
        if count := trace.meta.repaired.get(reason, 0):
            yield Symptom("durations", "warning", reason, count, effect)


@check
def idle_cores(trace: Trace) -> Iterator[Symptom]:
    """Cores that are there and never ran."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"]))
    idle = cores.filter(~pl.col("lane").is_in(trace.slices["lane"].unique().implode()))
    if idle.height:
        effect = "Utilisation is over all cores of the device, these included."
        yield Symptom("idle-cores", "note", "core without a task", idle.height, effect, str(idle["name"][0]))
    for notes in trace.meta.all_notes()[:1]:
        number, ranks = notes.get("num_cores"), max(cores["rank"].drop_nulls().n_unique(), 1)
        if isinstance(number, int) and number * ranks != cores.height:
            missing, effect = abs(number * ranks - cores.height), "Utilisation is over the listed cores."
            yield Symptom("core-count", "warning", "core missing from the core types", missing, effect)


@counted(
    "no-streams",
    "warning",
    "kernel table without streams",
    "All its kernels share one lane (profiler level 0): overlap between streams cannot be told.",
)
def no_streams(trace: Trace) -> int:
    tables = [notes["header"] for notes in trace.meta.all_notes() if "header" in notes]
    return sum(not set(ALIASES["stream"]) & set(header) for header in tables)


@check
def steps(trace: Trace) -> Iterator[Symptom]:
    """Steps that are missing, cut short, or unlike the others."""
    per_step = (
        trace.slices.lazy()
        .filter(pl.col("step").is_not_null() & (pl.col("kind") != "derived"))
        .group_by("step")
        .agg(rows=pl.len(), span=(pl.col("start") + pl.col("dur")).max() - pl.col("start").min())
        .sort("step")
        .collect()
    )
    if per_step.height < 2:
        return
    gaps = int((per_step["step"].diff().drop_nulls() - 1).sum())
    if gaps:
        yield Symptom("step-gaps", "warning", "step without any row", gaps, "Means per step leave these out.")
    usual = float(np.median(per_step["rows"].to_numpy()))
    cut = per_step.filter(pl.col("rows") < 0.5 * usual)
    if cut.height:
        effect = "Likely cut by the capture's start or end: leave it out of means."
        example = f"step {cut['step'][0]}: {cut['rows'][0]} of usually {usual:.0f} rows"
        yield Symptom("step-cut", "warning", "step with less than half the usual rows", cut.height, effect, example)
    middle = float(np.median(per_step["span"].to_numpy()))
    odd = per_step.filter(pl.col("span") > OUTLIER * middle)
    if odd.height:
        what = f"step longer than {OUTLIER} times the median"
        effect = "A mean over all steps is pulled up; the first step is seldom typical."
        example = f"step {odd['step'][0]}: {duration(int(odd['span'][0]))}, median {duration(int(middle))}"
        yield Symptom("step-outlier", "warning", what, odd.height, effect, example)


@counted(
    "clock-skew",
    "warning",
    "flow arrives before it leaves",
    "The processes' clocks differ: do not compare absolute times across them.",
)
def clocks_of_processes(trace: Trace) -> int | tuple[int, str]:
    if not {"src_time", "dst_time"} <= set(trace.edges.columns):
        return 0
    early = trace.edges.select(pl.col("src_time") - pl.col("dst_time")).to_series().drop_nulls().to_numpy()
    early = early[early > 0]
    return (len(early), f"by up to {duration(int(early.max()))}") if len(early) else 0


@check
def clocks_of_cores(trace: Trace) -> Iterator[Symptom]:
    """Starts before their dispatch, and finishes before the end."""
    effect = "AICPU and AICore clocks differ by at least that much: scheduling overheads are off by it."
    end = trace.slices["start"] + trace.slices["dur"]
    for id, what, early in (
        ("dispatch-skew", "task starts before its dispatch", trace.slices["dispatch"] - trace.slices["start"]),
        ("finish-skew", "finish is seen before the end", end - trace.slices["finish"]),
    ):
        rows = np.flatnonzero((early > 0).fill_null(False).to_numpy())
        if len(rows):
            most = int(early.gather(rows).to_numpy().max())
            example = f"{describe(trace, int(rows[0]))}, by up to {duration(most)}"
            yield Symptom(id, "warning", what, len(rows), effect, example)


def _processes(trace: Trace) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The processes of TraCR bundles, with what was counted of each."""
    for notes in trace.meta.all_notes():
        for name, process in _mappings(notes.get("processes")):
            if "largest_thread" in process:
                yield name, process  # type: ignore[misc]


def _mappings(note: object) -> list[tuple[str, Mapping[str, object]]]:
    """The objects inside an object of a capture's notes, by name."""
    there = note.items() if isinstance(note, Mapping) else ()
    return [(str(name), one) for name, one in there if isinstance(one, Mapping)]


@counted(
    "full-buffer",
    "warning",
    "process with a thread of exactly a power of two of trace points",
    "Its buffer was probably full: what came later is missing.",
)
def full_buffers(trace: Trace) -> int | tuple[int, str]:
    threads = [(name, int(process["largest_thread"])) for name, process in _processes(trace)]
    full = [f"{name}: {points:,}" for name, points in threads if points >= FULL_FROM and points.bit_count() == 1]
    return (len(full), full[0]) if full else 0


@counted(
    "shared-channel",
    "warning",
    "channel written by several threads",
    "Their slices cut each other: a slice ends when the other thread sets a marker.",
)
def shared_channels(trace: Trace) -> tuple[int, str]:
    shared = {name: int(process["channels_of_several_threads"]) for name, process in _processes(trace)}
    return sum(shared.values()), next((name for name, count in shared.items() if count), "")


@check
def dropped_records(trace: Trace) -> Iterator[Symptom]:
    """Records the profiler itself says it lost."""
    notes = trace.meta.all_notes()
    hosts = [host for note in notes if isinstance(host := note.get("host_capture"), Mapping)]
    if lost := sum(_number(host, "dropped_records") for host in hosts):
        effect = "Submit times are incomplete."
        yield Symptom("dropped-records", "warning", "host record lost by the profiler", lost, effect)
    lossy = [(name, one) for note in notes for name, one in _mappings(note.get("capture")) if _lost(one)]
    if lossy:
        name, first = lossy[0]
        cut = ", cut short" if first.get("truncated") else ""
        example = f"{name}: {_number(first, 'committed'):,} written, {_number(first, 'dropped'):,} dropped{cut}"
        lost = sum(_lost(one) for _, one in lossy)
        effect = "What schedulers did is incomplete: their busy time and counters are too low."
        yield Symptom("dropped-records", "warning", "scheduler record lost by the profiler", lost, effect, example)


def _lost(stream: Mapping[str, object]) -> int:
    """Records that a stream says it dropped, or wrote and are not in the file; 1 for one that was cut short."""
    missing = max(_number(stream, "committed") - _number(stream, "records"), 0)
    return max(_number(stream, "dropped") + missing, int(bool(stream.get("truncated"))))


def _number(stream: Mapping[str, object], key: str) -> int:
    """What the capture counted; a damaged one may say more than any column holds."""
    value = stream.get(key)
    return min(value, MOST_COUNTED) if isinstance(value, int) else 0


@counted(
    "lost-tasks",
    "warning",
    "task missing from a core's sequence",
    "The swimlane's buffer wrapped or was full: busy time is too low.",
)
def lost_tasks(trace: Trace) -> int:
    """Holes in the sequence of a core's register ids."""
    if "reg_task_id" not in trace.slices.columns:
        return 0
    ids = trace.slices.select("lane", "start", "reg_task_id").drop_nulls("reg_task_id").sort("lane", "start")
    step = pl.col("reg_task_id").diff().over("lane")
    # a step back is the register starting over, not a loss
    return int(ids.select((step - 1).filter(step > 1).sum()).item())


@check
def cut_off(trace: Trace) -> Iterator[Symptom]:
    """What was under way when the capture ended."""
    for reason in CUT_OFF:
        if count := trace.meta.dropped.get(reason, 0) + trace.meta.marked.get(reason, 0):
            effect = "The capture ended, or a buffer filled, while this ran."
            yield Symptom("cut-off", "warning", reason, count, effect)


@counted(
    "graph",
    "note",
    "kernel launched by a graph",
    "Task IDs restart with every replay and host calls cannot be matched to these kernels.",
)
def graphs_of_ascend(trace: Trace) -> int | tuple[int, str]:
    if "Model ID" not in trace.slices.columns:
        return 0
    inside = trace.slices["Model ID"].filter(~trace.slices["Model ID"].is_in(["4294967295", "N/A", ""]))
    return (len(inside), f"Model ID {inside[0]}") if len(inside) else 0


@counted("replay", "warning", "graph replay", "Shapes and CPU ops of replayed kernels are not in this capture.")
def graph_replays(trace: Trace) -> int | tuple[int, str]:
    """Launches of whole graphs, whose kernels no host call names one by one."""
    launches = int(trace.slices["kernel"].str.contains("GraphLaunch").sum())
    if launches == 0:
        return 0
    kernels = trace.slices.select(pl.col("task").filter(is_work())).to_series()
    launched = trace.edges.filter(pl.col("src").is_not_null())["dst"].drop_nulls()
    orphans = int((~kernels.is_in(launched.implode())).sum())
    return launches, f"{orphans} of {len(kernels)} device tasks have no launching call"


@check
def recorded_graphs(trace: Trace) -> Iterator[Symptom]:
    """Launches that were recorded into a graph, which says nothing of the device."""
    if (graph := graph_capture(trace)) is None:
        return
    severity: Severity = "note"
    effect = "The time of recording is part of the window."
    if graph.is_all:
        severity = "warning"
        effect = (
            f"This is a capture of recording a graph: {graph.tasks:,} device tasks ran. Where the time of a run goes "
            "is told by the capture that replays the graph."
        )
    yield Symptom("graph-capture", severity, "launch recorded into a graph and not run", graph.recorded, effect)


@check
def noted(trace: Trace) -> Iterator[Symptom]:
    """A deps.json of another program, TraCR's own timeline of pipelined cores, a list of events without its end."""
    cut = "The file was probably cut off while it was written: later events are missing."
    for key, id, what, effect in (
        ("deps_refused", "deps-refused", "deps.json not joined", "Kernels have no names and tasks no dependencies."),
        (
            "cut_short",
            "cut-short",
            "reading that cuts pipelined tasks short",
            "Busy time is too low: read the bundle itself.",
        ),
        ("unclosed_list", "unclosed", "list of events that never ends", cut),
    ):
        values = [notes[key] for notes in trace.meta.all_notes() if notes.get(key)]
        if values:
            example = values[0] if isinstance(values[0], str) else ""
            yield Symptom(id, "warning", what, len(values), effect, example)


@check
def not_understood(trace: Trace) -> Iterator[Symptom]:
    """Keys, columns, tables, kinds and categories that the reader has no meaning for.

    What may hold records is a warning: work may be missing from every number. What describes rows that are read is a
    note, and so is a single value beside them.
    """
    unknown = sorted(trace.meta.unknown.items(), key=lambda item: (-item[1], item[0]))
    beside = [(what, count) for what, count in unknown if _is_beside(what, count)]
    within = [one for one in unknown if one not in beside]
    missing = "npuscope does not know it: what it holds may be missing from every number."
    harmless = "npuscope does not know it: no number rests on what it says."
    grades: list[tuple[list[tuple[str, int]], Severity, str]]
    grades = [(within, "warning", missing), (beside, "note", harmless)]
    for things, severity, effect in grades:
        for what, count in things[:MOST_UNKNOWN]:
            yield Symptom("unknown", severity, f"unknown {printable(what)}", count, effect)
        if rest := things[MOST_UNKNOWN:]:
            example = f"unknown {rest[0][0]}; `npuscope info` lists them all"
            yield Symptom("unknown", severity, "further unknown thing", len(rest), effect, example)


def _is_beside(what: str, count: int) -> bool:
    return what.startswith(("column", "file ", "key of meta")) or (what.startswith("header key") and count == 1)


@counted("files-not-read", "warning", "file that cannot be read", "What they hold is missing from this trace.")
def files_not_read(trace: Trace) -> int | tuple[int, str]:
    broken = trace.meta.notes.get("files_not_read")
    return (len(broken), ": ".join(next(iter(broken.items())))) if broken else 0


@counted(
    "ranks-apart",
    "warning",
    "rank that began after all earlier ones had ended",
    "They are captures of different runs, or their clocks differ: do not compare times across them.",
)
def ranks_of_other_times(trace: Trace) -> int:
    spans = (
        trace.slices.select("lane", "start", "dur")
        .join(trace.lanes.select("lane", "rank"), on="lane")
        .filter(pl.col("rank").is_not_null() & ~pl.col("rank").is_in(list(not_aligned(trace.meta))))
        .group_by("rank")
        .agg(begin=pl.col("start").min(), end=(pl.col("start") + pl.col("dur")).max())
        .sort("begin")
    )
    return int((spans["begin"] > spans["end"].cum_max().shift(1)).sum())


@check
def rings(trace: Trace) -> Iterator[Symptom]:
    """Rings of the runtime that were nearly full, by the run's own count."""
    found = rings_of(trace.meta)
    if found is not None and found.tight.height:
        effect = " ".join(found.sentences)
        yield Symptom("ring-full", "warning", "ring, heap or pool that was nearly full", found.tight.height, effect)


@check
def unaligned(trace: Trace) -> Iterator[Symptom]:
    """Ranks whose clocks could not be brought together."""
    apart = not_aligned(trace.meta)
    if apart:
        effect = "Moments of these ranks are not compared with others'; what ranks wait in collectives still is."
        example = next(f"rank {rank}: {why}" for rank, why in apart.items())
        yield Symptom("clock-apart", "warning", "rank whose clock is not aligned", len(apart), effect, example)


@check
def instrumentation(trace: Trace) -> Iterator[Symptom]:
    """The level a capture was taken at, and what it costs."""
    levels = [level for notes in trace.meta.all_notes() if isinstance(level := notes.get("level"), int)]
    if levels and "swimlane" in trace.meta.format:
        yield from _swimlane(trace, max(levels))
    elif there := [c for c in COUNTED if c in trace.slices.columns]:
        counters = [pl.col(column).cast(pl.String).is_in(["N/A", ""]).not_() for column in there]
        kernels = int(trace.slices.select(pl.any_horizontal(counters).fill_null(False).sum()).item())
        effect = (
            f"Levels with hardware counters cost time: the one public step captured at all levels took {ASCEND_LONGER} "
            "longer than at level 0, in one run each (Ascend-msinsight's test data)."
        )
        if kernels:
            yield Symptom("instrumented", "note", "kernel timed with hardware counters", kernels, effect)


def _swimlane(trace: Trace, level: int) -> Iterator[Symptom]:
    """Every task pays for its record; it shows where a core goes from one task to the next at once."""
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"]))["lane"]
    on_cores = pl.col("lane").is_in(cores.implode()) & (pl.col("kind") == "task")
    tasks = trace.slices.select(pl.col("lane", "start", "dur").filter(on_cores)).sort("lane", "start")
    gap = pl.col("start") - (pl.col("start") + pl.col("dur")).shift(1).over("lane")
    switches = tasks.filter(gap.is_between(0, SLOW_SWITCH_NS)).group_by("lane").len()
    if tasks.is_empty():
        return
    most = int(switches["len"].to_numpy().max(initial=0))
    low, high = (f"{most * ns / 1000:.3g}" for ns in (RECORD_NS, SWITCH_NS))
    here = f", {low} to {high} µs on the core with most of them" if most else ", of which there is none here"
    effect = (
        f"Every task writes a record, which takes {RECORD_NS / 1000} to {SWITCH_NS / 1000} µs of each gap between two "
        f"tasks that a core runs back to back{here} (simpler's investigation of July 2026)."
    )
    if level >= ORCHESTRATED:
        effect += " At level 4 the scheduler's loop took 9% longer besides (authors of simpler's pull request 1173)."
    what = f"task recorded at swimlane level {level}"
    yield Symptom("instrumented", "note", what, tasks.height, effect, f"{int(switches['len'].sum()):,} back to back")
