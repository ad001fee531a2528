"""Times of runs over commits: the noise band of each stable stretch, where it changed, and which commit did it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.explain.many.change_points import LEVEL, ChangePoint, change_points, exact_changes
from npuscope.explain.many.ratio import CONFIDENCE, holm, typical
from npuscope.explain.many.runs import Run
from npuscope.explain.many.several import LEAST_SHARE, TIMES
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, MEAN_TIME, SHARE, TEXT, many

WALL = "wall time"
THRESHOLD = 0.001  # of runs without noise: a larger change counts
CHANGES = Columns(
    "history.changes",
    "A change of a kernel's time, or of the wall time, in the order of commits.",
    (
        Column("commit", TEXT, "the one to blame"),
        Column("sure", SHARE, "the probability that it is this one; the others are in `or_one_of`"),
        Column("or_one_of", TEXT, "further commits that it may be, until all are 90 % likely", title="or one of",
               optional=True),
        Column("series", TEXT, "the kernel (core time), or the wall time", title="of"),
        Column("before_ns", MEAN_TIME, "typical time before", title="before"),
        Column("after_ns", MEAN_TIME, "typical time since", title="since"),
        Column("ratio", TIMES, "since over before; null for a kernel that came or went", title="ratio"),
        Column("verdict", TEXT, "slower, faster, new or gone"),
        Column("subject", TEXT, "the first line of the commit's message", optional=True),
        Column("p", TIMES, "how often noise alone looks like this, corrected for the number of series",
               only="what is listed is at most 5 %"),
    ),
)  # fmt: skip
SERIES = Columns(
    "history.series",
    "The wall time and every kernel, the largest first, since their last change.",
    (
        Column("series", TEXT, "the kernel (core time), or the wall time", title="of"),
        Column("now_ns", MEAN_TIME, "typical time since its last change", title="now"),
        Column("low_ns", MEAN_TIME, "95 of 100 single runs take at least this", title="band from"),
        Column("high_ns", MEAN_TIME, "95 of 100 single runs take at most this", title="to"),
        Column("noise", SHARE, "half the band, of the typical time; null for fewer than three runs"),
        Column("runs", COUNT, "since its last change"),
        Column("changes", COUNT, "in the whole history"),
        Column("since", TEXT, "the commit of its last change, or the first one"),
    ),
)
COMMITS = Columns(
    "history.commits",
    "A commit, the oldest first.",
    (
        Column("commit", TEXT, "its revision"),
        Column("runs", COUNT, "of it"),
        Column("wall_ns", MEAN_TIME, "the median of its runs", title="wall"),
        Column("error", TEXT, "why it has none", title="why none", optional=True),
        Column("subject", TEXT, "the first line of its message", optional=True),
    ),
)


@dataclass(frozen=True)
class Commit:
    """Runs of one revision; none where it was not run or does not run, `error` saying why."""

    revision: str
    runs: tuple[Run, ...] = ()
    subject: str = ""
    error: str = ""


@dataclass(frozen=True)
class Stretch:
    """A series between two changes: commits by place, the runs' times, and the band in which a single run lies."""

    first: int
    last: int
    times: tuple[float, ...]
    typical_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Series:
    """One number over commits; `at` has the commit of each time, by place."""

    name: str
    at: tuple[int, ...]
    times: tuple[float, ...]
    changes: tuple[ChangePoint, ...] = ()

    @property
    def stretches(self) -> list[Stretch]:
        """What lies between changes."""
        bounds = [change.at for change in self.changes]
        groups: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
        for place, commit in enumerate(self.at):
            groups[sum(commit >= bound for bound in bounds)].append(place)
        return [_stretch([self.at[n] for n in group], [self.times[n] for n in group]) for group in groups if group]


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """`exact` runs have no noise: a change is one above `threshold`."""

    commits: tuple[Commit, ...]
    series: tuple[Series, ...]
    came_or_went: tuple[tuple[str, str, int], ...]  # series, new or gone, the place of the commit
    exact: bool
    threshold: float
    small: int = 0

    def tables(self) -> dict[str, Table]:
        return {
            "changes": Table(CHANGES, self.changes()),
            "series": Table(SERIES, self.now()),
            "commits": Table(COMMITS, self.each_commit()),
        }

    def changes(self) -> pl.DataFrame:
        rows: list[dict[str, Any]] = []
        for one in self.series:
            stretches = one.stretches
            for change in one.changes:
                before = max((s for s in stretches if s.last < change.at), key=lambda s: s.last)
                since = min((s for s in stretches if s.first >= change.at), key=lambda s: s.first)
                ratio = since.typical_ns / before.typical_ns
                (_, sure), *others = change.blame
                rows.append({
                    **self._named(change.at),
                    "sure": sure,
                    "or_one_of": ", ".join(self.commits[place].revision for place, _ in others) or None,
                    "series": one.name,
                    "before_ns": before.typical_ns,
                    "after_ns": since.typical_ns,
                    "ratio": ratio,
                    "verdict": "slower" if ratio > 1 else "faster",
                    "p": change.p,
                })  # fmt: skip
        for name, verdict, place in self.came_or_went:
            rows.append({**self._named(place), "sure": 1.0, "series": name, "verdict": verdict})
        rows.sort(key=lambda row: (row["place"], row["series"] != WALL, -abs(np.log(row.get("ratio") or 1))))
        words = ("commit", "or_one_of", "series", "verdict", "subject")
        schema = {key: pl.String() if key in words else pl.Float64() for key in CHANGES.keys}
        return pl.DataFrame([{key: row.get(key) for key in CHANGES.keys} for row in rows], schema=schema)

    def _named(self, place: int) -> dict[str, object]:
        commit = self.commits[place]
        return {"place": place, "commit": commit.revision, "subject": commit.subject or None}

    def now(self) -> pl.DataFrame:
        rows = []
        for one in self.series:
            last = one.stretches[-1]
            known = last.high_ns > last.low_ns or self.exact
            rows.append((
                one.name, last.typical_ns, last.low_ns if known else None, last.high_ns if known else None,
                (last.high_ns / last.low_ns) ** 0.5 - 1 if known else None, len(last.times), len(one.changes),
                self.commits[last.first].revision,
            ))  # fmt: skip
        counts = ("runs", "changes")
        schema = {
            key: pl.Int64() if key in counts else pl.String() if key in ("series", "since") else pl.Float64()
            for key in SERIES.keys
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def each_commit(self) -> pl.DataFrame:
        rows = [
            (
                one.revision, len(one.runs), float(np.median([run.wall_ns for run in one.runs])) if one.runs else None,
                one.error or None, one.subject or None,
            )
            for one in self.commits
        ]  # fmt: skip
        kinds = (pl.String(), pl.Int64(), pl.Float64(), pl.String(), pl.String())
        return pl.DataFrame(rows, schema=dict(zip(COMMITS.keys, kinds, strict=True)), orient="row")

    def title(self) -> str:
        runs = sum(len(one.runs) for one in self.commits)
        return f"{many(len(self.commits), 'commit')}, {many(runs, 'run')}, {many(self.changes().height, 'change')}"

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope history --json` (docs/reference/json.md)."""
        return {
            "exact": self.exact,
            "threshold": self.threshold if self.exact else None,
            "correction": None if self.exact else "Holm",
            **all_rows(self.tables()),
            "times_ns": {
                one.name: [
                    {"commit": self.commits[place].revision, "ns": time}
                    for place, time in zip(one.at, one.times, strict=True)
                ]
                for one in self.series
            },
            "bands": {
                one.name: [
                    {
                        "from": self.commits[s.first].revision, "to": self.commits[s.last].revision,
                        "typical_ns": s.typical_ns, "low_ns": s.low_ns, "high_ns": s.high_ns,
                    }
                    for s in one.stretches
                ]
                for one in self.series
            },
        }  # fmt: skip


def history_of(
    commits: Sequence[Commit], exact: bool = False, threshold: float = THRESHOLD, kernels: str | None = None
) -> History:
    """Commits in order, the oldest first. `kernels` limits the kernels to names that the regular expression finds."""
    runs = [(place, run) for place, commit in enumerate(commits) for run in commit.runs]
    if not runs:
        why = next((one.error for one in commits if one.error), "")
        raise NpuscopeError("no run in this history" + (f": {why}" if why else ""))
    names = list(dict.fromkeys(name for _, run in runs for name in run.kernels if _asked(name, kernels)))
    values = {WALL: [(place, run.wall_ns) for place, run in runs]} if kernels is None else {}
    small = 0
    came_or_went: list[tuple[str, str, int]] = []
    sizes: dict[str, float] = {}
    for name in names:
        times = [(place, float(run.kernels.get(name, 0))) for place, run in runs]
        largest = max(time / (sum(run.kernels.values()) or 1) for (_, time), (_, run) in zip(times, runs, strict=True))
        there = [(place, time) for place, time in times if time > 0]
        if largest < LEAST_SHARE or not there:
            small += 1
            continue
        values[name], sizes[name] = there, there[-1][1]
        came_or_went += _came_or_went(name, times)
    return followed(commits, _by_size(values, sizes), exact, threshold, came_or_went, small)


def followed(
    commits: Sequence[Commit],
    values: Mapping[str, Sequence[tuple[int, float]]],
    exact: bool = False,
    threshold: float = THRESHOLD,
    came_or_went: Sequence[tuple[str, str, int]] = (),
    small: int = 0,
) -> History:
    """Any numbers over commits: of each its name, and its values with the places of their commits."""
    found: list[tuple[str, list[int], list[float], list[ChangePoint]]] = []
    for name, pairs in values.items():
        at, times = [place for place, _ in pairs], [time for _, time in pairs]
        changes = exact_changes(times, at, threshold) if exact else change_points(times, at)
        found.append((name, at, times, changes))
    kept = found if exact else _corrected(found)
    series = tuple(Series(name, tuple(at), tuple(times), tuple(changes)) for name, at, times, changes in kept)
    return History(tuple(commits), series, tuple(came_or_went), exact, threshold, small)


Found = tuple[str, list[int], list[float], list[ChangePoint]]


def _corrected(found: list[Found]) -> list[Found]:
    """Without the changes that are noise once it counts how many series were looked at."""
    each = [(n, change) for n, (_, _, _, changes) in enumerate(found) for change in changes]
    quiet = sum(not changes for _, _, _, changes in found)
    corrected = holm([*(change.p for _, change in each), *[1.0] * quiet])
    kept: list[list[ChangePoint]] = [[] for _ in found]
    for (n, change), p in zip(each, corrected, strict=False):
        if p <= LEVEL:
            kept[n].append(ChangePoint(change.at, p, change.blame))
    return [(name, at, times, kept[n]) for n, (name, at, times, _) in enumerate(found)]


def _stretch(at: Sequence[int], times: Sequence[float]) -> Stretch:
    from scipy.special import stdtrit

    one = typical(times)
    middle, width = exp(one.mean), 0.0
    if one.runs >= 3:
        spread = one.spread * (1 + 1 / one.runs) ** 0.5
        width = spread * float(stdtrit(one.runs - 1, (1 + CONFIDENCE) / 2))
    return Stretch(at[0], at[-1], tuple(times), middle, middle * exp(-width), middle * exp(width))


def _came_or_went(name: str, times: Sequence[tuple[int, float]]) -> list[tuple[str, str, int]]:
    """A kernel that the first runs do not have, or the last ones."""
    there = [n for n, (_, time) in enumerate(times) if time > 0]
    found = []
    if there[0] > 0:
        found.append((name, "new", times[there[0]][0]))
    if there[-1] < len(times) - 1:
        found.append((name, "gone", times[there[-1] + 1][0]))
    return found


def _by_size(
    values: dict[str, list[tuple[int, float]]], sizes: Mapping[str, float]
) -> dict[str, list[tuple[int, float]]]:
    return dict(sorted(values.items(), key=lambda pair: (pair[0] != WALL, -sizes.get(pair[0], 0), pair[0])))


def _asked(name: str, kernels: str | None) -> bool:
    try:
        return kernels is None or re.search(kernels, name) is not None
    except re.error as error:
        raise NpuscopeError(f"'{kernels}' is no regular expression: {error}") from error
