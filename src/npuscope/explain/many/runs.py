"""A run in the numbers that are compared over many: its wall time and every kernel's core time.

A run is a capture, or a step of one. Where a path stands for several runs is decided here: a capture is one, a folder
of captures as many, unless they are the ranks of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.explain.busy_idle import kernel_table
from npuscope.explain.choosing import apart, chosen
from npuscope.explain.comparison import Match, match_kernels
from npuscope.explain.many.ratio import CONFIDENCE, Ratio, holm, ratio_of
from npuscope.explain.repetition import in_steps, steps_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import MEAN_TIME, SHARE, TEXT, Form, significant
from npuscope.trace import Trace, read
from npuscope.trace.formats import is_capture
from npuscope.trace.readers.root import captures_of


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


LEAST_SHARE = 0.001  # of the time of all kernels; testing those below would only make the others harder to tell


def _ends(value: object) -> str:
    if not isinstance(value, list | tuple):
        return str(value)
    return " to ".join(f"{significant(end)}x" for end in value)


BETWEEN = Form("text", "[low, high]", _ends)
TIMES = Form("ratio", "number", lambda value: f"{significant(float(str(value)))}x")
CHANGED = Columns(
    "compare.changed",
    "A kernel whose time changed, the largest change of time first (several runs of each side).",
    (
        Column("kernel", TEXT, "its name in A, or in B where A has none", json="name"),
        Column("in_b", TEXT, "its names in B, where they are others", title="in B", wide=True, optional=True),
        Column("median_a_ns", MEAN_TIME, "core time in A, the median of its runs", title="A"),
        Column("median_b_ns", MEAN_TIME, "core time in B, the median of its runs", title="B"),
        Column("gap_ns", MEAN_TIME, "B minus A", title="gap"),
        Column("ratio", TIMES, "of typical times, B over A; null where one side has none", title="B / A"),
        Column("interval", BETWEEN, "has the true ratio 95 times in 100", title="95%"),
        Column("verdict", TEXT, "faster, slower, new or gone"),
        Column("share_of_a", SHARE, "its part of the core time of A", title="of A", wide=True),
        Column("p", Form("number", "number", lambda value: f"{float(str(value)):.2g}"),
               "how often noise alone looks like this, corrected for the number of kernels looked at", wide=True),
    ),
)  # fmt: skip

WORDS = ("kernel", "in_b", "verdict")
SCHEMA: dict[str, pl.DataType] = {
    key: pl.List(pl.Float64()) if key == "interval" else pl.String() if key in WORDS else pl.Float64()
    for key in CHANGED.keys
}


@dataclass(frozen=True, repr=False)
class SeveralRuns(Tabular):
    """`total` is the ratio of what the runs are judged by: wall time, or core time of the kernels asked for."""

    a: tuple[Run, ...]
    b: tuple[Run, ...]
    what: str  # "wall time", or "core time of" some kernels
    times_ns: tuple[tuple[float, ...], tuple[float, ...]]  # of what they are judged by
    total: Ratio
    changed: pl.DataFrame
    tested: int  # kernels that both sides have, large enough to matter
    small: int  # kernels that are not
    steps: bool = False

    @property
    def medians_ns(self) -> tuple[float, float]:
        one, two = (float(np.median(side)) for side in self.times_ns)
        return one, two

    def tables(self) -> dict[str, Table]:
        return {"changed": Table(CHANGED, self.changed)}

    def title(self) -> str:
        ends = f"{significant(self.total.low)} to {significant(self.total.high)}"
        return f"B / A in {self.what}: {significant(self.total.value)}, 95%: {ends}: {self.total.verdict}"

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope compare A… vs B… --json` (docs/reference/json.md)."""
        return {
            "runs": {side: [run.name for run in runs] for side, runs in (("a", self.a), ("b", self.b))},
            "samples": "steps" if self.steps else "runs",
            "what": self.what,
            "times_ns": [list(side) for side in self.times_ns],
            "medians_ns": list(self.medians_ns),
            "total": self.total.as_dict(),
            "kernels_tested": self.tested,
            "kernels_too_small": self.small,
            "correction": "Holm",
            **all_rows(self.tables()),
        }

    @property
    def middle(self) -> tuple[Run, Run]:
        """Of each side the run in the middle, which stands for it on a timeline."""
        one, two = (sorted(side, key=lambda run: run.wall_ns)[(len(side) - 1) // 2] for side in (self.a, self.b))
        return one, two


def compare_runs(
    a: Sequence[Run],
    b: Sequence[Run],
    kernels: str | None = None,
    pairs: Mapping[str, str] | None = None,
    steps: bool = False,
) -> SeveralRuns:
    """A against B. `kernels` limits all to names that the regular expression finds."""
    in_a, in_b = (list(dict.fromkeys(name for run in side for name in run.kernels)) for side in (a, b))
    for x, y in (pairs or {}).items():
        if x not in in_a or y not in in_b:
            raise NpuscopeError(f"'{x}' is no kernel of A, or '{y}' none of B, so they cannot be matched")
    matches = [match for match in match_kernels(in_a, in_b, pairs) if _asked(match, kernels)]
    if kernels is not None and not matches:
        raise NpuscopeError(f"no kernel is called like '{kernels}'")
    times = [_times(match, a, b) for match in matches]
    if kernels is None:
        what, totals = "wall time", ([run.wall_ns for run in a], [run.wall_ns for run in b])
    else:
        sums = [np.sum([pair[side] for pair in times], axis=0).tolist() for side in range(2)]
        what, totals = f"core time of {kernels}", (sums[0], sums[1])
        if not all(min(side) > 0 for side in totals):
            raise NpuscopeError(f"a run has no kernel called like '{kernels}'")
    changed, tested, small = _changed(matches, times)
    both = (tuple(totals[0]), tuple(totals[1]))
    return SeveralRuns(tuple(a), tuple(b), what, both, ratio_of(*totals), changed, tested, small, steps)


def _asked(match: Match, kernels: str | None) -> bool:
    if kernels is None:
        return True
    try:
        return any(re.search(kernels, name) for name in (*match.in_a, *match.in_b))
    except re.error as error:
        raise NpuscopeError(f"'{kernels}' is no regular expression: {error}") from error


Pair = tuple[list[float], list[float]]


def _times(match: Match, a: Sequence[Run], b: Sequence[Run]) -> Pair:
    return [run.time_of(match.in_a) for run in a], [run.time_of(match.in_b) for run in b]


def _changed(matches: Sequence[Match], times: Sequence[Pair]) -> tuple[pl.DataFrame, int, int]:
    """The kernels that changed, how many were tested, and how many are too small to matter."""
    sides = [np.array([np.median(pair[side]) for pair in times]) for side in range(2)]
    sums = [side.sum() or 1.0 for side in sides]
    tested: list[tuple[int, Ratio]] = []
    rows: list[dict[str, object]] = []
    small = 0
    for number, (match, (one, two)) in enumerate(zip(matches, times, strict=True)):
        if max(sides[0][number] / sums[0], sides[1][number] / sums[1]) < LEAST_SHARE:
            small += 1
        elif min(one) > 0 and min(two) > 0:
            tested.append((number, ratio_of(one, two)))
        elif max(one) == 0 or max(two) == 0:
            verdict = "new" if max(one) == 0 else "gone"
            rows.append(_row(match, sides, number, sums[0], verdict))
        # a kernel that only some runs of a side have is no change between the sides that noise explains or not
    for (number, found), p in zip(tested, holm([found.p for _, found in tested]), strict=True):
        if p <= 1 - CONFIDENCE and found.has_interval:
            rows.append(_row(matches[number], sides, number, sums[0], found.verdict, found, p))
    rows.sort(key=lambda row: (-abs(float(str(row["gap_ns"]))), str(row["kernel"])))
    return pl.DataFrame(rows, schema=SCHEMA), len(tested), small


def _row(
    match: Match,
    sides: Sequence[np.ndarray],
    number: int,
    sum_a: float,
    verdict: str,
    found: Ratio | None = None,
    p: float | None = None,
) -> dict[str, object]:
    one, two = float(sides[0][number]), float(sides[1][number])
    return {
        "kernel": match.kernel,
        "in_b": ", ".join(match.in_b) if match.rule in ("given", "bare name") else None,
        "median_a_ns": one,
        "median_b_ns": two,
        "gap_ns": two - one,
        "ratio": None if found is None else found.value,
        "interval": None if found is None else [found.low, found.high],
        "verdict": verdict,
        "share_of_a": one / sum_a,
        "p": p,
    }
