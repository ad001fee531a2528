"""What a run says of its kernels and of its scheduler, be it measured or simulated: the two are compared by this.

Kernels meet by name: a compiler numbers callables that share one (`gate_proj_3`) and makes two functions of a mixed
kernel (`_aic`, `_aiv`). A name that both sides have is matched first, so that a kernel called `stage_2` stays itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from npuscope.base.errors import BadInput
from npuscope.tile.record.model import short_name
from npuscope.time.chip.trace import lanes_of, slices_of
from npuscope.time.run import Simulated
from npuscope.trace.core import Trace

COSTS = {  # what is told of the scheduler -> how
    "pickup": "from handed out to started, on an idle core (median)",
    "switch": "between a block and the next one (shortest tenth)",
    "finish": "from a block's end until it is seen (mean)",
    "dispatch": "a scheduler's time to hand out a block (mean)",
    "submit": "the orchestrator's time to submit a task (mean)",
}
LONGEST_SWITCH = 5_000  # nanoseconds; a longer gap is a wait for producers
Units = tuple[tuple[str, float, float], ...]  # unit, slices of a run, their time in nanoseconds


@dataclass(frozen=True)
class KernelTime:
    """The blocks of a kernel in one run; a mixed block takes as long as the longer of its cube and vector part."""

    units: Units

    @property
    def ns(self) -> float:
        return max(time / slices for _, slices, time in self.units)

    @property
    def blocks(self) -> float:
        """On the cube cores where it runs there: a mixed block is on three cores."""
        return next(slices for _, slices, _ in sorted(self.units))

    @property
    def core_ns(self) -> float:
        return sum(time for _, _, time in self.units)


@dataclass(frozen=True)
class Observed:
    """`wall_ns` is from the first hand-out to the last block seen done, None where that is not recorded; `span_ns`
    from the first start to the last end. Times are nanoseconds, of one run on one device."""

    kernels: dict[str, KernelTime]
    costs: dict[str, float]  # of COSTS those that it tells
    wall_ns: float | None = None
    span_ns: float | None = None
    cores: tuple[tuple[str, int], ...] = ()  # unit -> how many of them ran a block

    def kernel(self, names: Iterable[str]) -> KernelTime | None:
        """Kernels of several names as one."""
        found: dict[str, tuple[float, float]] = {}
        for name in names:
            for unit, slices, time in self.kernels[name].units:
                before = found.get(unit, (0.0, 0.0))
                found[unit] = (before[0] + slices, before[1] + time)
        return KernelTime(tuple((unit, *one) for unit, one in sorted(found.items()))) if found else None


def walls(a: Observed, b: Observed) -> tuple[float | None, float | None]:
    """The walls of two runs by the same clock: with hand-out and finish where both tell it."""
    if a.wall_ns is not None and b.wall_ns is not None:
        return a.wall_ns, b.wall_ns
    return a.span_ns, b.span_ns


def observed_in(trace: Trace, path: str = "") -> Observed:
    """What a capture says; refused where it has no runs of blocks on AI cores."""
    found = observed(trace.slices, trace.lanes)
    if not found.kernels:
        raise BadInput(
            f"no task on an AIC or AIV core is in it (read as {trace.meta.format})",
            path=path or None,
            remedy="Give the runtime's swimlane of the program (docs/howto/captures.md).",
        )
    if trace.meta.format == "tracr" and found.wall_ns is None:
        raise BadInput(
            "a TraCR bundle has how long a core held a block, not how long the block ran",
            path=path or None,
            remedy="Give the runtime's swimlane (chip_swimlane_records.json), or both as one capture.",
        )
    return found


def observed_of(simulated: Simulated) -> Observed:
    return observed(slices_of(simulated.prepared, simulated.times), lanes_of(simulated.prepared))


def observed(slices: pl.DataFrame, lanes: pl.DataFrame) -> Observed:
    where = [name for name in ("unit", "role", "device", "rank") if name in lanes.columns]
    if "duplicate_of" in slices.columns:
        slices = slices.filter(pl.col("duplicate_of").is_null())
    slices = slices.join(lanes.select("lane", *where), on="lane", how="left", maintain_order="left")
    of_run: list[str] = [name for name in ("rank", "device", "step") if name in slices.columns]
    cores = slices.filter((pl.col("kind") == "task") & pl.col("unit").is_in(["AIC", "AIV"]))
    runs = cores.select(of_run).n_unique() if of_run else 1
    groups = cores.group_by("kernel", "unit", maintain_order=True).agg(pl.len(), pl.col("dur").sum())
    kernels: dict[str, list[tuple[str, float, float]]] = {}
    for kernel, unit, count, time in groups.iter_rows():
        kernels.setdefault(kernel, []).append((unit, count / runs, time / runs))
    times = {name: KernelTime(tuple(sorted(units))) for name, units in kernels.items()}
    blocks = runs * sum(one.blocks for one in times.values())
    if cores.is_empty():
        return Observed({}, {})
    return Observed(
        times,
        {name: ns for name, ns in {**_lags(cores), **_of_control(slices, blocks)}.items() if ns is not None and ns > 0},
        _length(cores.filter(pl.col("dispatch").is_not_null() & pl.col("finish").is_not_null()), of_run, "dispatch"),
        _length(cores, of_run, "start"),
        tuple(cores.group_by(pl.col("unit").cast(pl.String)).agg(pl.col("lane").n_unique()).sort("unit").iter_rows()),
    )


def _length(cores: pl.DataFrame, of_run: list[str], first: str) -> float | None:
    """From the first to the last moment of a run, the median of several."""
    last = pl.col("finish") if first == "dispatch" else pl.col("start") + pl.col("dur")
    whole = (last.max() - pl.col(first).min()).alias("ns")
    lengths = cores.group_by(of_run).agg(whole) if of_run else cores.select(whole)
    found = lengths["ns"].median()
    return float(found) if isinstance(found, int | float) else None


def _lags(cores: pl.DataFrame) -> dict[str, float | None]:
    """Waits of blocks for the scheduler. The first block of a core finds it cold and is left out."""
    ordered = cores.sort("lane", "start", maintain_order=True)
    before = (pl.col("start") + pl.col("dur")).shift(1).over("lane")
    idle = pl.col("dispatch") >= before
    found = ordered.select(
        pickup=(pl.col("start") - pl.col("dispatch")).filter(idle).median(),
        switch=(pl.col("start") - before).filter(~idle).quantile(0.1, "nearest"),
        finish=(pl.col("finish") - pl.col("start") - pl.col("dur")).mean(),
    )
    lags: dict[str, float | None] = found.to_dicts()[0]
    if (lags["switch"] or 0) > LONGEST_SWITCH:
        lags["switch"] = None
    return lags


def _of_control(slices: pl.DataFrame, blocks: float) -> dict[str, float | None]:
    """What threads spent, where the capture has their phases."""
    found: dict[str, float | None] = {}
    if "phase" in slices.columns:
        handed = slices.filter(pl.col("phase") == "dispatch")
        processed = float(handed["tasks_processed"].sum()) if "tasks_processed" in slices.columns else 0.0
        found["dispatch"] = float(handed["dur"].sum()) / (processed or blocks) if handed.height else None
    if "role" in slices.columns:
        submits = slices.filter((pl.col("role") == "orchestrator") & pl.col("task").is_not_null())
        mean = submits["dur"].mean()
        found["submit"] = float(mean) if isinstance(mean, int | float) else None
    return found


_TAIL = re.compile(r"(_\d+|_aic|_aiv|_mix)$")


@dataclass(frozen=True)
class KernelPair:
    """A kernel with the names that each side has for it; one side may have none."""

    name: str
    simulated: tuple[str, ...]
    measured: tuple[str, ...]


def paired(simulated: Iterable[str], measured: Iterable[str]) -> list[KernelPair]:
    """Every name of both sides in one pair: first those of the simulation in its order, then what only was measured."""
    ours, theirs = list(dict.fromkeys(simulated)), list(dict.fromkeys(measured))
    own = {short_name(name) for name in ours}
    key_of: dict[str, str] = {}  # a measured name -> the simulated one it is, as it stands or with fewer endings
    for name in theirs:
        if known := [one for one in _shorter(name) if one in own]:
            key_of[name] = known[0]
    met = set(key_of.values())
    free = {_shorter(name)[-1] for name in theirs if name not in key_of}
    own_key = {}  # a simulated name that nobody has yet -> one met already, or what it shares without endings
    for name in ours:
        first, *shorter = _shorter(name)
        others = [one for one in shorter if one in met] + [one for one in shorter[-1:] if one in free]
        own_key[name] = first if first in met or not others else others[0]
    for name in theirs:
        bare = _shorter(name)[-1]
        key_of.setdefault(name, bare if bare in own_key.values() else short_name(name))
    return [
        KernelPair(
            key,
            tuple(name for name in ours if own_key[name] == key),
            tuple(name for name in theirs if key_of[name] == key),
        )
        for key in dict.fromkeys([*own_key.values(), *key_of.values()])
    ]


def _shorter(name: str) -> list[str]:
    """The name without its factory, then with one ending less each."""
    found = [short_name(name)]
    while (less := _TAIL.sub("", found[-1])) not in (found[-1], ""):
        found.append(less)
    return found
