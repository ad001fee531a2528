"""What else a run of simpler leaves beside its records: counters of cores, dumped arguments, how full the runtime's
rings were, and the phases of the host's bind.

pmu.csv and args_dump.json are joined to the tasks they are of; scope_stats.jsonl has no times, so it is a table of its
own; host_phase_records.jsonl are spans of the host's clock, by process and call as in its log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from npuscope.base.errors import BadInput
from npuscope.base.frozen import dataclass
from npuscope.trace import source
from npuscope.trace.core import Ledger, Trace
from npuscope.trace.formats import Reader, Sample
from npuscope.trace.readers.host_log import HostLog, HostSpan, trace_of
from npuscope.trace.schema import LARGEST_US

PMU, ARGS, SCOPES, PHASES = "pmu.csv", "args_dump.json", "scope_stats.jsonl", "host_phase_records.jsonl"
_KEYS = ("thread_id", "core_id", "task_id", "func_id", "core_type", "pmu_total_cycles", "event_type")
# busy cycles of a core as the shares that kernel tables have, under their names; of cube and of vector cores
_RATIOS = {
    "mte2": ("mte2_busy_cycles", "mte2_instr_busy"),
    "mac": ("cube_busy_cycles", "cube_instr_busy"),
    "vec": ("vec_busy_cycles", "pmu_idc_aic_vec_busy_o"),
}


def attach(folder: Path, trace: Trace) -> Trace:
    """A run's trace with what its folder has beside the records."""
    if (folder / PMU).is_file():
        trace = _with_counters(trace, folder / PMU)
    for dump in (folder / ARGS, folder / "args_dump" / ARGS):
        if dump.is_file():
            trace = _with_arguments(trace, dump)
            break
    if rings := scope_files(folder):
        notes = {"rings": read_scopes(rings[0]).as_note()}
        trace = replace(trace, meta=trace.meta.plus(notes=notes, files=[str(rings[0])]))
    return trace


# --- counters of cores


def _with_counters(trace: Trace, path: Path) -> Trace:
    """The counters of each task and core as columns, and how much of its cycles each pipe was busy."""
    table = _counters(path)
    counters = [name for name in table.columns if name not in _KEYS]
    busy = table.select(pl.sum_horizontal(pl.col("pmu_total_cycles", *counters).fill_null(0)).sum()).item()
    if not busy:
        none = {"pmu": "all counters are zero, as on simulators: left out"}
        return replace(trace, meta=trace.meta.plus(notes=none))
    cores = trace.lanes.filter(pl.col("unit").is_in(["AIC", "AIV"])).select("lane", pl.col("core").cast(pl.Int64))
    nth = pl.int_range(pl.len()).over("core", "pmu_task").alias("nth")
    rows = table.with_columns(nth)
    slices = trace.slices.join(cores.rename({"core": "pmu_core"}), on="lane", how="left", maintain_order="left")
    slices = slices.with_columns(
        nth=pl.int_range(pl.len()).over("pmu_core", "task"),
        pmu_at=pl.when(pl.col("kind") == "task").then("pmu_core"),
    )
    wanted = rows.select(
        pl.col("core").alias("pmu_at"), pl.col("pmu_task").alias("task"), "nth", "pmu_total_cycles", *counters
    )
    joined = slices.join(wanted, on=["pmu_at", "task", "nth"], how="left", maintain_order="left")
    met = int(joined["pmu_total_cycles"].is_not_null().sum())
    joined = joined.with_columns(_shares(joined, counters)).drop("pmu_core", "pmu_at", "nth")
    meta = trace.meta.plus(
        rows.height,
        [str(path)],
        {"pmu": f"{met} tasks with counters; capturing them makes a run slower"},
        dropped={"counters of a task no core recorded": rows.height - met},
        merged={"counters joined to a task": met},
    )
    return replace(trace, slices=joined, meta=meta)


def _counters(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(source.read_all(path), infer_schema=False, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"no table of counters: {error}", path=path) from error
    if missing := [name for name in ("core_id", "task_id", "pmu_total_cycles") if name not in table.columns]:
        raise BadInput(f"no column {missing[0]}", path=path)
    number = pl.all().exclude("task_id").cast(pl.Int64, strict=False)
    task = pl.col("task_id").str.strip_chars().str.strip_prefix("0x").str.to_integer(base=16, strict=False)
    table = table.with_columns(number, task.alias("pmu_task")).rename({"core_id": "core"}).drop("task_id")
    return table.drop_nulls(["core", "pmu_task"]).drop("thread_id", "func_id", "core_type", "event_type", strict=False)


def _shares(slices: pl.DataFrame, counters: Sequence[str]) -> Iterator[pl.Expr]:
    """Of what a core's cycles each pipe was busy, under the names that Ascend's kernel tables have."""
    total = pl.when(pl.col("pmu_total_cycles") > 0).then("pmu_total_cycles")
    for pipe, names in _RATIOS.items():
        known = next((name for name in names if name in counters), None)
        share = pl.lit(None, dtype=pl.Float64) if known is None else pl.col(known) / total
        yield from (share.alias(f"{side}_{pipe}_ratio") for side in ("aic", "aiv"))


# --- dumped arguments


def _with_arguments(trace: Trace, path: Path) -> Trace:
    """What each task was given, as text such as float32[16384], and what the dump lost."""
    data = source.read_json(path, dict, "a dump of arguments")
    dumped = data.get("args", [])
    if not isinstance(dumped, list):
        raise BadInput("`args` is no list of arguments", path=path)
    rows: dict[int, dict[str, list[str]]] = {}
    broken = 0
    for one in dumped:
        try:
            if not 0 <= (task := int(str(one["task_id"]), 16)) < source.WHOLE:
                raise ValueError(task)
            where = rows.setdefault(task, {"inputs": [], "outputs": []})
            text = f"{one.get('dtype', '?')}[{','.join(map(str, one.get('shape', [])))}]"
            role = str(one.get("role", "input"))
            where["outputs" if role == "output" else "inputs"].append(text)
        except (KeyError, TypeError, ValueError):
            broken += 1
    texts = {name: {task: "; ".join(one[name]) for task, one in rows.items()} for name in ("inputs", "outputs")}
    of_task = pl.when(pl.col("kind") == "task").then(pl.col("task"))
    slices = trace.slices.with_columns(
        of_task.replace_strict(found, default=None, return_dtype=pl.String).alias(name) for name, found in texts.items()
    )
    counted = {
        name: data[name] for name in ("truncated_args", "dropped_records", "dropped_overwrite") if data.get(name)
    }
    notes = {"args_dump": {"tasks": len(rows), **counted}}
    marked = {"dumped argument that cannot be read": broken}
    return replace(trace, slices=slices, meta=trace.meta.plus(0, [str(path)], notes, marked=marked))


# --- how full the runtime's rings were


RESOURCES = {  # of a ring: how its setting is called
    "task_window": "PTO2_RING_TASK_WINDOW",
    "heap": "PTO2_RING_HEAP",
    "dep_pool": "PTO2_RING_DEP_POOL",
}
TENSORMAP = "tensormap"
VERSIONS = (4, 5, 6)


@dataclass(frozen=True)
class RingUse:
    """How full one resource of one ring was at most: in entries, or bytes of the heap."""

    resource: str
    ring: int | None  # the tensor map has none
    capacity: int
    high_water: int  # an upper bound of what was in use; of a heap that wraps, of the last scope alone
    live: int  # still in use where scopes ended, at most
    allocated: int  # by one scope, at most
    site: str  # of the scope with the highest water
    scopes: int


@dataclass(frozen=True)
class ScopeStats:
    """What the file says."""

    path: Path
    version: int
    fatal: bool
    dropped: int
    uses: tuple[RingUse, ...]
    broken: int  # lines that cannot be read
    unpaired: int  # scopes without a beginning or an end
    samples: tuple[tuple[str, int | None, int, int], ...]  # resource, ring, number of the sample, in use
    capacities: Mapping[str, list[int]]  # by resource, of all rings

    def as_note(self) -> dict[str, object]:
        """For a trace's notes."""
        kept = {"version": self.version, "fatal": self.fatal, "dropped": self.dropped, "broken": self.broken,
                "unpaired": self.unpaired, "capacities": dict(self.capacities)}  # fmt: skip
        return {**kept, "uses": [asdict(one) for one in self.uses]}


def scope_files(folder: Path) -> list[Path]:
    return [path for path in (folder / SCOPES, folder / "scope_stats" / SCOPES) if path.is_file()]


def read_scopes(path: Path) -> ScopeStats:
    """Every version: 4 has no dependency pool, and until 5 the heap's counts wrap."""
    lines = source.read_all(path).splitlines()
    broken = 0
    records: list[Mapping[str, Any]] = []
    for line in lines:
        try:
            record = msgspec.json.decode(line, type=dict)
        except source.NO_JSON:
            broken += bool(line.strip())
            continue
        records.append(record)
    if not records or "task_window_max" not in records[0]:
        raise BadInput("no first line with the capacities of rings", path=path)
    head, *samples = records
    version = head.get("version")
    if version not in VERSIONS:
        raise BadInput(f"version {version} of scope statistics; known: {', '.join(map(str, VERSIONS))}", path=path)
    found, unpaired, in_use = _uses(head, samples, wraps=version < 6)
    sizes = {name: size for name in RESOURCES if isinstance(size := head.get(f"{name}_max"), list)}
    fatal, dropped = bool(head.get("fatal")), _whole(head, "dropped")
    return ScopeStats(path, version, fatal, dropped, found, broken, unpaired, in_use, sizes)


def _whole(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else 0


def _capacity(head: Mapping[str, Any], resource: str, ring: int) -> int:
    sizes = head.get(f"{resource}_max")
    known = isinstance(sizes, list) and 0 <= ring < len(sizes) and isinstance(sizes[ring], int)
    return sizes[ring] if known and isinstance(sizes, list) else 0


def _uses(
    head: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], wraps: bool
) -> tuple[tuple[RingUse, ...], int, tuple[tuple[str, int | None, int, int], ...]]:
    """The most of each resource and ring by pairs of a scope's beginning and end; how many lack one; all samples."""
    peaks: dict[tuple[str, int | None], RingUse] = {}
    opened: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    in_use: list[tuple[str, int | None, int, int]] = []
    unpaired = 0

    def note(resource: str, ring: int | None, capacity: int, water: int, live: int, allocated: int, site: str) -> None:
        before = peaks.get((resource, ring))
        if before is None:
            peaks[resource, ring] = RingUse(resource, ring, capacity, water, live, allocated, site, 1)
            return
        peaks[resource, ring] = replace(
            before, high_water=max(before.high_water, water), live=max(before.live, live),
            allocated=max(before.allocated, allocated), site=site if water > before.high_water else before.site,
            scopes=before.scopes + 1,
        )  # fmt: skip

    for number, sample in enumerate(samples):
        site, ring = str(sample.get("site", "")), _whole(sample, "ring")
        key = (site, str(sample.get("depth")), ring)  # damaged, it may be a list
        held = _whole(sample, TENSORMAP)
        in_use.append((TENSORMAP, None, number, held))
        note(TENSORMAP, None, _whole(head, f"{TENSORMAP}_max"), held, held, 0, site)
        for resource in RESOURCES:
            if f"{resource}_end" in sample:
                level = _whole(sample, f"{resource}_end") - _whole(sample, f"{resource}_start")
                in_use.append((resource, ring, number, _wrapped(level, resource, head, ring, wraps)))
        if sample.get("phase") == "begin":
            opened.setdefault(key, []).append(sample)
            continue
        if not opened.get(key):
            unpaired += 1
            continue
        begin = opened[key].pop()
        for resource in RESOURCES:
            if f"{resource}_end" not in sample:  # version 4 has no dependency pool
                continue
            top, bottom = _whole(sample, f"{resource}_end"), _whole(sample, f"{resource}_start")
            water, live, made = (
                _wrapped(delta, resource, head, ring, wraps)
                for delta in (top - _whole(begin, f"{resource}_start"), top - bottom,
                              top - _whole(begin, f"{resource}_end"))
            )  # fmt: skip
            note(resource, ring, _capacity(head, resource, ring), water, live, made, site)
    unpaired += sum(len(left) for left in opened.values())
    order = sorted(peaks.values(), key=lambda one: (one.ring is None, one.ring or 0, one.resource))
    return tuple(order), unpaired, tuple(in_use)


def _wrapped(delta: int, resource: str, head: Mapping[str, Any], ring: int, wraps: bool) -> int:
    """A difference of two counts, of which the heap's begin again at its end until version 5."""
    size = _capacity(head, resource, ring)
    return delta % size if wraps and resource == "heap" and size else max(delta, 0)


def _recognises_scopes(sample: Sample) -> bool:
    first = sample.text.split(b"\n", 1)[0]
    return not sample.is_folder and first.startswith(b"{") and b'"task_window_max"' in first


def _read_scopes(path: Path) -> Trace:
    """No slice, since nothing here has a time; how full each ring was is a counter over the samples' numbers."""
    found = read_scopes(path)
    ledger = Ledger()
    ledger.records = len(found.samples) + found.broken
    ledger.dropped["line cut off or no JSON"] += found.broken
    ledger.notes["rings"] = found.as_note()
    places = sorted({ring for _, ring, _, _ in found.samples}, key=lambda ring: (ring is None, ring or 0))
    lanes = [
        {"lane": number, "name": "tensor map" if ring is None else f"ring {ring}", "unit": "counter"}
        for number, ring in enumerate(places)
    ]
    rows = [(places.index(ring), resource, number, float(level)) for resource, ring, number, level in found.samples]
    counters = pl.DataFrame(rows, schema={"lane": pl.UInt32, "name": pl.String, "time": pl.Int64, "value": pl.Float64},
                            orient="row")  # fmt: skip
    slices = pl.DataFrame(schema={"lane": pl.UInt32, "start": pl.Int64, "dur": pl.Int64, "kernel": pl.String})
    meta = ledger.close("scope-stats", (str(path),), clock="number of the sample")
    return Trace.of(slices, pl.DataFrame(lanes), meta, counters=counters)


# --- phases of the host's bind

_SEGMENTS = ("submit_task", "alloc_tensors", "graph_submit", "record_node", "build_definition", "record_sub_task")


def read_phases(paths: Sequence[Path], ledger: Ledger) -> list[HostSpan]:
    """The phases of every bind as spans below `chip.run.bind`; what the runtime or a cut line lost is counted."""
    spans: list[HostSpan] = []
    for path in paths:
        for line in source.read_all(path).splitlines():
            if not line.strip():
                continue
            ledger.records += 1
            try:
                one = msgspec.json.decode(line, type=dict)
            except source.NO_JSON:
                ledger.dropped["line cut off or no JSON"] += 1
                continue
            if not isinstance(one.get("records"), list):
                ledger.dropped["line without records"] += 1
                continue
            ledger.merged["line of phases"] += 1
            if lost := _whole(one, "dropped"):
                ledger.notes["phases_dropped"] = ledger.notes.get("phases_dropped", 0) + lost
            spans += _phases(one, ledger)
    return spans


def _phases(line: Mapping[str, Any], ledger: Ledger) -> Iterator[HostSpan]:
    pid, call = _whole(line, "pid"), _whole(line, "inv")
    for record in line["records"]:
        ledger.records += 1
        match record:
            case {"phase": str(phase), "start_ns": int(start), "end_ns": int(end)} if 0 <= start <= LARGEST_US * 1000:
                if end < start:
                    ledger.repaired["phase that ends before it begins, given no length"] += 1
                name = f"chip.run.bind.host_orch.{phase}" if phase in _SEGMENTS else f"chip.run.bind.{phase}"
                thread = _whole(record, "tid") or pid
                yield HostSpan(pid, thread, name, start, max(end - start, 0), call=call)
            case _:
                ledger.dropped["phase without its numbers"] += 1


def _recognises_phases(sample: Sample) -> bool:
    first = sample.text[:4096]
    return not sample.is_folder and first.startswith(b"{") and b'"records"' in first and b'"phase"' in first


def _read_phases(path: Path) -> Trace:
    log = HostLog()
    log.spans += read_phases([path], log.ledger)
    return trace_of(log, "host-phases", path)


def phase_files(root: Path) -> list[Path]:
    """Those below a run over ranks."""
    return sorted({*root.glob(PHASES), *root.glob(f"*/{PHASES}"), *root.glob(f"*/*/{PHASES}")})


SCOPES_READER = Reader(
    "scope-stats",
    "how full the simpler runtime's rings, heaps and pools were: scope_stats.jsonl",
    _recognises_scopes,
    _read_scopes,
    files=(SCOPES,),
    tells=("counters",),
)
PHASES_READER = Reader(
    "host-phases",
    "the phases of the simpler host's bind: host_phase_records.jsonl",
    _recognises_phases,
    _read_phases,
    files=(PHASES,),
    tells=("launches",),
)
