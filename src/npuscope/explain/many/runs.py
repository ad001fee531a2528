"""A run in the numbers that are compared over many: its wall time and every kernel's core time.

A run is a capture, or a step of one. Where a path stands for several runs is decided here: a capture is one, a folder
of captures as many, unless they are the ranks of one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.explain.apart import apart, chosen
from npuscope.explain.busy_idle import kernel_table
from npuscope.explain.repetition import in_steps, steps_of
from npuscope.explain.work import Work
from npuscope.trace import Trace, read
from npuscope.trace.readers.recognise import captures_of, is_capture


@dataclass(frozen=True)
class Run:
    """Times in nanoseconds. `kernels` has the core time of each: the sum over cores of all that ran of it."""

    name: str
    wall_ns: float
    kernels: Mapping[str, float]

    def time_of(self, names: Sequence[str]) -> float:
        """Core time of some kernels together."""
        return sum(self.kernels.get(name, 0) for name in names)


def run_paths(path: str | Path) -> list[Path]:
    """The runs that a path stands for."""
    place = Path(path)
    if not place.exists():
        raise BadInput("no such file or folder", path=path)
    if is_capture(place):
        return [place]
    found = captures_of(place).captures
    ranks = [capture.rank for capture in found]
    if len(found) == 1 or (None not in ranks and len(set(ranks)) == len(ranks)):
        return [place]  # of one run
    below = {capture.path.relative_to(place).parts[0] for capture in found}
    return [place / name for name in sorted(below, key=in_order)]


def in_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts `run2` before `run10`."""
    import re

    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def slowest_part(trace: Trace, rank: int | None = None) -> Work:
    """The device work of the rank that took longest, or of the one asked for."""
    works = [Work.of(part.trace) for part in apart(chosen(trace, rank))]
    return max(works, key=lambda work: work.wall)


def run_of(name: str, work: Work) -> Run:
    """A whole capture as a run."""
    table = kernel_table(work)
    return Run(name, work.wall, dict(table.select("kernel", "core_ns").iter_rows()))


def steps_as_runs(name: str, work: Work) -> list[Run]:
    """The steps of a capture; of several phases those of the commonest, so that like is held against like."""
    rows, source = in_steps(work)
    if source == "none":
        raise NpuscopeError(
            f"{name}: no steps are marked, and no repetition was found", remedy="Give several captures instead."
        )
    table = steps_of(work).table
    phases = Counter(phase for phase in table["phase"].to_list() if phase is not None)
    if phases:
        table = table.filter(pl.col("phase") == phases.most_common(1)[0][0])
    once = rows.filter(~pl.col("duplicate") & pl.col("step").is_not_null())
    times: dict[int, dict[str, float]] = {}
    for step, kernel, ns in once.group_by("step", "kernel").agg(pl.col("dur").sum()).sort("step", "kernel").iter_rows():
        times.setdefault(step, {})[kernel] = ns
    spans = table.select("step", "span_ns").iter_rows()
    return [Run(f"{name}, step {step}", span, times.get(step, {})) for step, span in spans]


def read_runs(paths: Sequence[str | Path], steps: bool = False, rank: int | None = None) -> list[Run]:
    """The runs of some paths; with `steps` each step of each capture is one."""
    places = [place for path in paths for place in run_paths(path)]
    runs: list[Run] = []
    for number, place in enumerate(places):
        progress.report("reading runs", number, len(places))
        work = slowest_part(read(place), rank)
        runs += steps_as_runs(str(place), work) if steps else [run_of(str(place), work)]
    for run in runs:
        if run.wall_ns <= 0:
            raise BadInput("nothing ran in it, so there is no time to compare", path=run.name)
    return runs
