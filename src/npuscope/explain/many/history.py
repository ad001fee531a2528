"""Times of runs over commits: the noise band of each stable stretch, where it changed, and which commit did it.

ruptures' PELT proposes places; a rank test by permutation decides which are no noise, the largest step first. The test
is made for LEVEL false alarms in series without a change. tests/explain/many/ checks that with 120 series
of 20 runs of each kind of noise: it fails from 15 alarms on, which LEVEL makes less than once in 1000 times. A step
of three standard deviations is found there in at least 80 of 100 series. How many alarms PELT raises alone, and how
many steps of 5 % are found, is measured by benchmarks/noise.py and told in docs/understand/noise.md.

On disk a history is a folder that has a folder of runs per commit, or files of JSON lines, a line per run.
`commits.txt` (a revision and the first line of its message per line, oldest first, as `git log --reverse --format='%h
%s'` writes it) gives their order; without it names sort by the numbers in them (`001-abc`, `2026-03-01-abc`), and lines
stay in the order in which they were written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import exp, isfinite, log, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Against
from npuscope.explain.many.files import read_lines
from npuscope.explain.many.ratio import holm, t_quantile, typical
from npuscope.explain.many.runs import LEAST_SHARE, TIMES, Run, finds, in_order, read_runs
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, SHARE, TEXT, many

WALL = "wall time"
THRESHOLD = 0.001  # of runs without noise: a larger change counts
LEVEL = 0.05  # of false alarms in a series
LEAST = 2  # runs on either side of a change
PENALTY = 3.0  # of PELT, times the logarithm of the number of runs: low, since the test decides
DRAWS, MOST_DRAWS = 1999, 19_999
CLOSE = 10  # of the first draws that look as different at most: then it is worth drawing more
SPIKE = 4.0  # standard deviations from its neighbours' median, beyond which a run counts as that far off
NEIGHBOURS = 5
NAMED = 0.9  # how sure a list of commits has the one to blame
ORDER = "commits.txt"
LINE = "not a line of a history: it must be a JSON object with commit, wall_ns and kernels, or error"
ORDERED = re.compile(r"^[0-9][0-9-]*[-_]")  # what only orders the name of a folder
Floats = NDArray[np.float64]
Judge = Callable[[float, float, str, str], Against]  # walls before and since, and the regimes of both runs
CHANGES = Columns(
    "history.changes",
    "A change of a kernel's time, or of the wall time, in the order of commits.",
    
        Column("commit", TEXT, "the one to blame"),
        Column("sure", SHARE, "the probability that it is this one; the others are in `or_one_of`",
               title="this commit"),
        Column("or_one_of", TEXT, "further commits that it may be, until all are 90 % likely", title="or one of",
               optional=True),
        Column("series", TEXT, "the kernel (core time), or the wall time", title="of"),
        Column("before_ns", MEAN_TIME, "typical time before", title="before"),
        Column("after_ns", MEAN_TIME, "typical time since", title="since"),
        Column("ratio", TIMES, "since over before; null for a kernel that came or went", title="ratio"),
        Column("verdict", TEXT, "slower, faster, new or gone; of a simulated wall time also undecided, as `rank` says"),
        Column("probability_faster", SHARE, "of a simulated wall time: that it is faster when measured, as of `rank`",
               title="faster", optional=True),
        Column("subject", TEXT, "the first line of the commit's message", optional=True),
        Column("p", TIMES, "how often noise alone looks like this, corrected for the number of series",
               only="what is listed is at most 5 %"),
)  # fmt: skip
SERIES = Columns(
    "history.series",
    "The wall time and every kernel, the largest first, since their last change.",
    Column("series", TEXT, "the kernel (core time), or the wall time", title="of"),
    Column("now_ns", MEAN_TIME, "typical time since its last change", title="now"),
    Column("low_ns", MEAN_TIME, "95 of 100 single runs take at least this", title="band from"),
    Column("high_ns", MEAN_TIME, "95 of 100 single runs take at most this", title="to"),
    Column("noise", SHARE, "half the band, of the typical time; null for fewer than three runs"),
    Column("runs", COUNT, "since its last change"),
    Column("changes", COUNT, "in the whole history"),
    Column("since", TEXT, "the commit of its last change, or the first one"),
)
COMMITS = Columns(
    "history.commits",
    "A commit, the oldest first.",
    Column("commit", TEXT, "its revision"),
    Column("runs", COUNT, "of it"),
    Column("wall_ns", MEAN_TIME, "the median of its runs", title="wall"),
    Column("error", TEXT, "why it has none", title="why none", optional=True),
    Column("subject", TEXT, "the first line of its message", optional=True),
)


@dataclass(frozen=True)
class Commit:
    """Runs of one revision; none where it was not run or does not run, `error` saying why."""

    revision: str
    runs: tuple[Run, ...] = ()
    subject: str = ""
    error: str = ""
    regime: str = ""  # of a simulated run: by which intervals are learnt (time/bound.py)


@dataclass(frozen=True)
class ChangePoint:
    """A level that begins with the runs of a commit. `at` and `blame` are places of commits, `p` is of its series."""

    at: int
    p: float
    blame: tuple[tuple[int, float], ...]  # the likeliest first, with their probabilities, until they are 90 %


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
        number = np.searchsorted([change.at for change in self.changes], self.at, side="right")
        groups = [np.flatnonzero(number == n) for n in range(len(self.changes) + 1)]
        stretches = []
        for group in (group for group in groups if len(group)):
            times = tuple(self.times[n] for n in group)
            one = typical(times)
            width = one.spread * sqrt(1 + 1 / one.runs) * t_quantile(one.runs - 1) if one.runs >= 3 else 0.0
            band = (exp(one.mean), exp(one.mean) * exp(-width), exp(one.mean) * exp(width))
            stretches.append(Stretch(self.at[group[0]], self.at[group[-1]], times, *band))
        return stretches


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """`exact` runs have no noise: a change is one above `threshold`."""

    commits: tuple[Commit, ...]
    series: tuple[Series, ...]
    came_or_went: tuple[tuple[str, str, int], ...]  # series, new or gone, the place of the commit
    exact: bool
    threshold: float
    small: int = 0
    judge: Judge | None = None

    def tables(self) -> dict[str, Table]:
        commits = [
            (one.revision, len(one.runs), float(np.median([run.wall_ns for run in one.runs])) if one.runs else None,
             one.error or None, one.subject or None)
            for one in self.commits
        ]  # fmt: skip
        series = SERIES.table(self._now(one) for one in self.series)
        return {"changes": Table(CHANGES, self.changes()), "series": series, "commits": COMMITS.table(commits)}

    def changes(self) -> pl.DataFrame:
        rows: list[tuple[int, dict[str, Any]]] = []
        for one in self.series:
            stretches = one.stretches
            for change in one.changes:
                before = max((s for s in stretches if s.last < change.at), key=lambda s: s.last).typical_ns
                since = min((s for s in stretches if s.first >= change.at), key=lambda s: s.first).typical_ns
                (_, sure), *others = change.blame
                rows.append((change.at, {
                    "sure": sure,
                    "or_one_of": ", ".join(self.commits[place].revision for place, _ in others) or None,
                    "series": one.name,
                    "before_ns": before,
                    "after_ns": since,
                    "ratio": since / before,
                    "p": change.p,
                    **self._verdict(one.name, change.at, before, since),
                }))  # fmt: skip
        for name, verdict, place in self.came_or_went:
            rows.append((place, {"sure": 1.0, "series": name, "verdict": verdict}))
        rows.sort(key=lambda row: (row[0], row[1]["series"] != WALL, -abs(np.log(row[1].get("ratio") or 1))))
        named = [(self.commits[place], row) for place, row in rows]
        return CHANGES.table({**row, "commit": c.revision, "subject": c.subject or None} for c, row in named).frame

    def _verdict(self, name: str, at: int, before: float, since: float) -> dict[str, object]:
        """The word for a change; of a simulated wall with the probability that every other command gives it."""
        if self.judge is None or name != WALL:
            return {"verdict": "slower" if since > before else "faster"}
        earlier = next((one.regime for one in reversed(self.commits[:at]) if one.runs), "")
        found = self.judge(before, since, earlier, self.commits[at].regime)
        return {"verdict": found.verdict, "probability_faster": found.faster}

    def _now(self, one: Series) -> tuple[object, ...]:
        last = one.stretches[-1]
        known = last.high_ns > last.low_ns or self.exact
        band = (last.low_ns, last.high_ns, sqrt(last.high_ns / last.low_ns) - 1) if known else (None, None, None)
        since = self.commits[last.first].revision
        return one.name, last.typical_ns, *band, len(last.times), len(one.changes), since

    def title(self) -> str:
        runs = sum(len(one.runs) for one in self.commits)
        return f"{many(len(self.commits), 'commit')}, {many(runs, 'run')}, {many(self.changes().height, 'change')}"

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope history --json` (docs/reference/json.md)."""
        revision = [one.revision for one in self.commits]
        return {
            "exact": self.exact,
            "threshold": self.threshold if self.exact else None,
            "correction": None if self.exact else "Holm",
            **super().as_dict(),
            "times_ns": {
                one.name: [{"commit": revision[place], "ns": ns} for place, ns in zip(one.at, one.times, strict=True)]
                for one in self.series
            },
            "bands": {
                one.name: [
                    {"from": revision[s.first], "to": revision[s.last],
                     "typical_ns": s.typical_ns, "low_ns": s.low_ns, "high_ns": s.high_ns}
                    for s in one.stretches
                ]
                for one in self.series
            },
        }  # fmt: skip


def history_of(
    commits: Sequence[Commit],
    exact: bool = False,
    threshold: float = THRESHOLD,
    kernels: str | None = None,
    judge: Judge | None = None,
) -> History:
    """Commits in order, the oldest first. `kernels` limits the kernels to names that the regular expression finds;
    `judge` says how sure a change of a simulated wall is."""
    runs = [(place, run) for place, commit in enumerate(commits) for run in commit.runs]
    if not runs:
        why = next((one.error for one in commits if one.error), "")
        raise NpuscopeError("no run in this history" + (f": {why}" if why else ""))
    names = dict.fromkeys(name for _, run in runs for name in run.kernels if finds(kernels, name))
    all_kernels = np.array([sum(run.kernels.values()) or 1 for _, run in runs])
    at = [place for place, _ in runs]
    walls = [Series(WALL, tuple(at), tuple(run.wall_ns for _, run in runs))] if kernels is None else []
    series: list[Series] = []
    came_or_went: list[tuple[str, str, int]] = []
    for name in names:
        times = np.array([run.kernels.get(name, 0) for _, run in runs], dtype=np.float64)
        there = np.flatnonzero(times > 0)
        if (times / all_kernels).max() < LEAST_SHARE or not len(there):
            continue
        series.append(Series(name, tuple(at[n] for n in there), tuple(times[there].tolist())))
        if there[0] > 0:
            came_or_went.append((name, "new", at[there[0]]))
        if there[-1] < len(at) - 1:
            came_or_went.append((name, "gone", at[there[-1] + 1]))
    small = len(names) - len(series)
    followed = [*walls, *sorted(series, key=lambda one: (-one.times[-1], one.name))]
    changes = [exact_changes(s.times, s.at, threshold) if exact else change_points(s.times, s.at) for s in followed]
    if not exact:
        changes = _corrected(changes)
    followed = [replace(one, changes=tuple(found)) for one, found in zip(followed, changes, strict=True)]
    return History(
        tuple(commits), tuple(followed), tuple(came_or_went), exact, threshold, small, judge if exact else None
    )


def _corrected(changes: list[list[ChangePoint]]) -> list[list[ChangePoint]]:
    """Without the changes that are noise once it counts how many series were looked at."""
    each = [(n, change) for n, found in enumerate(changes) for change in found]
    quiet = sum(not found for found in changes)
    corrected = holm([*(change.p for _, change in each), *[1.0] * quiet])
    both = [(n, replace(change, p=p)) for (n, change), p in zip(each, corrected, strict=False) if p <= LEVEL]
    return [[change for number, change in both if number == n] for n in range(len(changes))]


def exact_changes(times: Sequence[float], commits: Sequence[int], threshold: float) -> list[ChangePoint]:
    """Of runs without noise: every commit whose time differs from the one before by more than a share."""
    return [
        ChangePoint(commits[n], 0.0, ((commits[n], 1.0),))
        for n in range(1, len(times))
        if commits[n] != commits[n - 1] and abs(log(times[n] / times[n - 1])) > log(1 + threshold)
    ]


def change_points(times: Sequence[float], commits: Sequence[int], level: float = LEVEL) -> list[ChangePoint]:
    """Times of runs in order, and the commit of each; a level may begin only with a commit's first run."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    begins = [n for n in range(1, len(logs)) if commits[n] != commits[n - 1]]
    steps = np.abs(np.diff(logs))
    if len(logs) < 2 * LEAST or not begins or not steps.any():
        return []
    noise = float(np.median(steps)) / 0.954 or float(np.std(np.diff(logs)))
    if not noise:
        return []
    half = NEIGHBOURS // 2
    middle = np.array([np.median(logs[max(n - half, 0) : n + half + 1]) for n in range(len(logs))])
    # single runs far off are moved to where their neighbours end; a new level stays, since its neighbours have it
    calm = np.clip(logs, middle - SPIKE * noise, middle + SPIKE * noise)
    found = _split(logs, calm, (0, len(logs)), _proposed(calm / noise, begins), level)
    places = sorted(found)
    windows = zip([0, *places[:-1]], [*places[1:], len(logs)], strict=True) if places else ()
    each = [_placed(calm, window, found[n], begins, commits) for window, n in zip(windows, places, strict=True)]
    return sorted({change.at: change for change in each}.values(), key=lambda change: change.at)


def _proposed(scaled: Floats, begins: Sequence[int]) -> list[int]:
    """Places where PELT would cut, moved to the nearest first run of a commit."""
    import ruptures

    search = ruptures.Pelt(model="l2", min_size=LEAST, jump=1).fit(scaled.reshape(-1, 1))
    cuts = search.predict(pen=PENALTY * log(len(scaled)))[:-1]
    moved = {min(begins, key=lambda begin: abs(begin - cut)) for cut in cuts}
    return sorted(place for place in moved if LEAST <= place <= len(scaled) - LEAST)


def _split(
    logs: Floats, calm: Floats, window: tuple[int, int], proposed: Sequence[int], level: float
) -> dict[int, float]:
    """Of the proposed places those that are no noise, with their p: the largest step first, then within its parts.

    A series without a change is tested once, so that its chance of a false alarm is the level, whatever is proposed.
    """
    first, last = window
    inside = [n for n in proposed if first + LEAST <= n <= last - LEAST]
    if not inside or (p := _p(logs[first:last])) > level:
        return {}

    def better(n: int) -> float:
        """How much two levels fit better than one."""
        return float((calm[first:n].mean() - calm[n:last].mean()) ** 2) * (n - first) * (last - n)

    best = max(inside, key=better)
    before, after = (_split(logs, calm, part, inside, level) for part in ((first, best), (best, last)))
    return {**before, best: p, **after}


def _p(logs: Floats) -> float:
    """How often runs in any other order have a place where they differ as much, by their ranks."""
    from scipy.stats import rankdata

    ranks = rankdata(logs)  # runs that take equally long have one rank
    ranks -= ranks.mean()
    n = len(ranks)
    if n < 2 * LEAST or not ranks.any():
        return 1.0
    first = np.arange(LEAST, n - LEAST + 1)

    def largest(rows: Floats) -> Floats:
        """Of each row, the largest difference of a beginning from the rest, over its standard deviation."""
        sums = np.cumsum(rows, axis=1)[:, first - 1]
        most: Floats = (np.abs(sums) / np.sqrt(first * (n - first))).max(axis=1)
        return most

    rng = np.random.default_rng(0)  # the same answer every time
    measured, as_different, drawn = float(largest(ranks[None])[0]), 0, 0
    for draws in (DRAWS, MOST_DRAWS - DRAWS):
        for begin in range(0, draws, DRAWS):
            count = min(DRAWS, draws - begin)
            shuffled = rng.permuted(np.broadcast_to(ranks, (count, n)), axis=1)
            as_different += int((largest(shuffled) >= measured - 1e-9).sum())
            drawn += count
        if as_different > CLOSE:
            break
    return (1 + as_different) / (1 + drawn)


def _placed(
    calm: Floats, window: tuple[int, int], p: float, begins: Sequence[int], commits: Sequence[int]
) -> ChangePoint:
    """Where in its window a change most likely is: by how well two levels fit, for every commit in it."""
    first, last = window
    places = [n for n in begins if first + LEAST <= n <= last - LEAST]
    misfits = np.array(
        [calm[first:n].var() * (n - first) + calm[n:last].var() * (last - n) for n in places], dtype=np.float64
    )
    weights = -(last - first) / 2 * np.log(np.maximum(misfits, 1e-30))
    chances = np.exp(weights - weights.max())
    chances /= chances.sum()
    order = np.argsort(-chances, kind="stable")
    enough = int(np.searchsorted(np.cumsum(chances[order]), NAMED)) + 1
    blame = tuple((commits[places[n]], float(chances[n])) for n in order[:enough])
    return ChangePoint(blame[0][0], p, blame)


class SavedHistory(NamedTuple):
    """What a folder has. `exact`: all of it is simulated, and so without noise."""

    commits: list[Commit]
    exact: bool


class HistoryLine(NamedTuple):
    """A line of a file: a run of a commit, or why it has none. `settings` tells what else decides it."""

    commit: str
    run: Run | None
    simulated: bool = False
    error: str = ""
    subject: str = ""
    settings: str = ""
    regime: str = ""

    def as_dict(self) -> dict[str, object]:
        run = {"error": self.error} if self.run is None else {}
        if self.run is not None:
            run = {"wall_ns": self.run.wall_ns, "kernels": dict(self.run.kernels)}  # type: ignore[dict-item]
        settings = {name: word for name in ("settings", "regime") if (word := getattr(self, name))}
        return {"commit": self.commit, "subject": self.subject, "simulated": self.simulated, **settings, **run}


def read_history(path: str | Path) -> SavedHistory:
    """A folder, or one file of lines."""
    place = Path(path)
    if not place.exists():
        raise BadInput("no such file or folder", path=path)
    files, folders, order = [place], [], dict[str, str]()
    if place.is_dir():
        files, order = sorted(place.glob("*.jsonl")), read_order(place / ORDER)
        folders = [child for child in place.iterdir() if child.is_dir() and child.name[:1] != "."]
    lines = [line for file in files for line in read_runs_of(file)]
    newest = {line.commit: n for n, line in enumerate(lines) if line.simulated}
    found: dict[str, Commit] = {}
    for n, line in enumerate(lines):
        if line.simulated and newest[line.commit] != n:
            continue  # simulated again later, with other settings
        before = found.get(line.commit, Commit(line.commit))
        runs = before.runs if line.run is None else (*before.runs, line.run)
        words = (line.subject or before.subject, line.error or before.error, line.regime or before.regime)
        found[line.commit] = Commit(line.commit, runs, *words)
    for folder in sorted(folders, key=lambda child: in_order(child.name)):
        revision = ORDERED.sub("", folder.name) or folder.name
        before = found.get(revision, Commit(revision))
        found[revision] = Commit(revision, (*before.runs, *read_runs([folder])), before.subject)
    if not found:
        raise BadInput(
            "no history: neither folders of runs nor *.jsonl files", path=path,
            remedy="Make a folder per commit and put its runs there (docs/howto/history.md).",
        )  # fmt: skip
    exact = bool(lines) and not folders and all(line.simulated for line in lines)
    return SavedHistory(_ordered(list(found.values()), order, place / ORDER) if order else list(found.values()), exact)


def _ordered(commits: list[Commit], order: dict[str, str], file: Path) -> list[Commit]:
    """In the order of a list, in which a name may be the beginning of a revision or the other way round."""
    listed = list(order)
    places = {}
    for commit in commits:
        name = next((one for one in listed if one.startswith(commit.revision) or commit.revision.startswith(one)), None)
        if name is None:
            raise BadInput(
                f"does not list {commit.revision}", path=file, remedy="Add a line with it, where it belongs."
            )
        places[listed.index(name)] = replace(commit, subject=commit.subject or order[name])
    return [places[place] for place in sorted(places)]


def read_order(file: Path) -> dict[str, str]:
    """Revisions, the oldest first, with the first lines of their messages."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise BadInput("not a list of commits: it is no text", path=file) from None
    words = [line.strip().partition(" ") for line in lines if line.strip()]
    return {revision: subject for revision, _, subject in words}


def read_runs_of(file: Path) -> Iterator[HistoryLine]:
    """The lines of a file."""

    def line(data: dict[str, Any], number: int) -> HistoryLine:
        run = None
        if "error" not in data:
            kernels = {str(kernel): float(ns) for kernel, ns in data.get("kernels", {}).items()}
            wall = float(data["wall_ns"])
            if not all(isfinite(ns) and ns >= 0 for ns in kernels.values()) or not (isfinite(wall) and wall > 0):
                raise ValueError("a time that is none")
            run = Run(f"{file.name}, line {number}", wall, kernels)
        words = [str(data.get(key, "")) for key in ("error", "subject", "settings", "regime")]
        return HistoryLine(str(data["commit"]), run, bool(data.get("simulated")), *words)

    return read_lines(file, line, LINE)
