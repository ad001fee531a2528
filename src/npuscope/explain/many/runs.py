"""Several runs of A against several of B: the ratio of wall times and the kernels that changed, told from noise.

A run is a capture, or a step of one, in the numbers that are compared: its wall time and every kernel's core time.
Where a path stands for several runs is decided here: a capture is one, a folder of captures as many, unless they are
the ranks of one run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.busy_idle import kernel_table
from npuscope.explain.choosing import choose_rank, split_ranks
from npuscope.explain.many.ratio import CONFIDENCE, Ratio, holm, ratio_of
from npuscope.explain.matching import check_pairs, match_kernels
from npuscope.explain.passes.steps import rows_in_steps, steps_of
from npuscope.explain.work import Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import MEAN_TIME, SHARE, TEXT, Form, significant
from npuscope.trace import Trace, read
from npuscope.trace.formats import is_capture
from npuscope.trace.readers.root import captures_of

LEAST_SHARE = 0.001  # of the time of all kernels; testing those below would only make the others harder to tell


def _ends(value: object) -> str:
    return " to ".join(f"{significant(end)}x" for end in value) if isinstance(value, list | tuple) else str(value)


BETWEEN = Form("text", "list of numbers, low and high", _ends)
TIMES = Form("ratio", "number", lambda value: f"{significant(float(str(value)))}x")
CHANGED = Columns(
    "compare.changed",
    "A kernel whose time changed, the largest change of time first (several runs of each side).",
    
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
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Times in nanoseconds. `kernels` has the core time of each: the sum over cores of all that ran of it."""

    name: str
    wall_ns: float
    kernels: Mapping[str, float]


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
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def read_runs(paths: Sequence[str | Path], steps: bool = False, rank: int | None = None) -> list[Run]:
    """The runs of some paths, of several ranks that which took longest; with `steps` each step of each capture."""
    places = [place for path in paths for place in run_paths(path)]
    runs: list[Run] = []
    for number, place in enumerate(places):
        progress.report("reading runs", number, len(places))
        work = slowest_part(read(place), rank)
        runs += steps_as_runs(str(place), work) if steps else [run_of(str(place), work)]
    for run in runs:
        check_ran(run.wall_ns, run.name)
    return runs


def check_ran(wall_ns: float, path: str | None) -> None:
    """Refuses a capture without time: a table with a heading only."""
    if wall_ns <= 0:
        raise BadInput("nothing ran in it, so there is no time to compare", path=path or "a capture")


def slowest_part(trace: Trace, rank: int | None = None) -> Work:
    """The device work of the rank that took longest, or of the one asked for."""
    works = [Work.of(part.trace) for part in split_ranks(choose_rank(trace, rank))]
    return max(works, key=lambda work: work.wall)


def run_of(name: str, work: Work) -> Run:
    """A whole capture as a run."""
    return Run(name, work.wall, dict(kernel_table(work).select("kernel", "core_ns").iter_rows()))


def steps_as_runs(name: str, work: Work) -> list[Run]:
    """The steps of a capture; of several phases those of the commonest, so that like is held against like."""
    rows, source, _ = rows_in_steps(work)
    if source == "none":
        what = f"{name}: no steps are marked, and no repetition was found"
        raise NpuscopeError(what, remedy="Give several captures instead.")
    table = steps_of(work).table
    if phases := Counter(table["phase"].drop_nulls().to_list()):
        table = table.filter(pl.col("phase") == phases.most_common(1)[0][0])
    once = rows.filter(~pl.col("duplicate") & pl.col("step").is_not_null())
    times: dict[int, dict[str, float]] = {}
    for step, kernel, ns in once.group_by("step", "kernel").agg(pl.col("dur").sum()).sort("step", "kernel").iter_rows():
        times.setdefault(step, {})[kernel] = ns
    spans = table.select("step", "span_ns").iter_rows()
    return [Run(f"{name}, step {step}", span, times.get(step, {})) for step, span in spans]


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
            **super().as_dict(),
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
    check_pairs(pairs, in_a, in_b)
    matches = [one for one in match_kernels(in_a, in_b, pairs) if finds(kernels, *one.in_a, *one.in_b)]
    if kernels is not None and not matches:
        raise NpuscopeError(f"no kernel is called like '{kernels}'")
    # of each match and side the time of every run
    times = [
        [
            [sum(run.kernels.get(name, 0) for name in names) for run in side]
            for names, side in ((m.in_a, a), (m.in_b, b))
        ]
        for m in matches
    ]
    if kernels is None:
        what, totals = "wall time", [[run.wall_ns for run in side] for side in (a, b)]
    else:
        what, totals = f"core time of {kernels}", [np.sum([pair[n] for pair in times], axis=0).tolist() for n in (0, 1)]
        if not all(min(side) > 0 for side in totals):
            raise NpuscopeError(f"a run has no kernel called like '{kernels}'")
    medians = np.array([[np.median(side) for side in pair] for pair in times]).reshape(-1, 2)
    sums = [float(side) or 1.0 for side in medians.sum(axis=0)]
    small = (medians / sums).max(axis=1, initial=0.0) < LEAST_SHARE
    ratios: dict[int, Ratio] = {}
    verdicts: dict[int, str] = {}
    for n in np.flatnonzero(~small).tolist():
        one, two = times[n]
        if min(one) > 0 and min(two) > 0:
            ratios[n] = ratio_of(one, two)
        elif max(one) == 0 or max(two) == 0:
            verdicts[n] = "new" if max(one) == 0 else "gone"
        # a kernel that only some runs of a side have is no change between the sides that noise explains or not
    corrected = dict(zip(ratios, holm([ratio.p for ratio in ratios.values()]), strict=True))
    verdicts |= {n: r.verdict for n, r in ratios.items() if corrected[n] <= 1 - CONFIDENCE and r.has_interval}
    rows = []
    for n, verdict in verdicts.items():
        match, (one, two), ratio = matches[n], medians[n].tolist(), ratios.get(n)
        found = (None, None) if ratio is None else (ratio.value, [ratio.low, ratio.high])
        rows.append((match.kernel, match.other_names, one, two, two - one, *found, verdict, one / sums[0],
                     corrected.get(n)))  # fmt: skip
    rows.sort(key=lambda row: (-abs(row[4]), row[0]))
    changed, both = CHANGED.table(rows).frame, (tuple(totals[0]), tuple(totals[1]))
    return SeveralRuns(
        tuple(a), tuple(b), what, both, ratio_of(*both), changed, len(ratios), int(small.sum()), steps
    )  # fmt: skip


def finds(pattern: str | None, *names: str) -> bool:
    """Whether a regular expression finds something in one of the names; no expression always does."""
    try:
        return pattern is None or any(re.search(pattern, name) for name in names)
    except re.error as error:
        raise NpuscopeError(f"'{pattern}' is no regular expression: {error}") from error
