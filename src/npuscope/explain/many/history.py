"""Times of runs over commits: the noise band of each stable stretch, where it changed, and which commit did it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.explain.many.files import read_lines
from npuscope.explain.many.ratio import CONFIDENCE, holm, typical
from npuscope.explain.many.runs import LEAST_SHARE, TIMES, Run, in_order, read_runs
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


LEVEL = 0.05  # of false alarms in a series
LEAST = 2  # runs on either side of a change
PENALTY = 3.0  # of PELT, times the logarithm of the number of runs: low, since the test decides
DRAWS, MOST_DRAWS = 1999, 19_999
CLOSE = 10  # of the first draws that look as different at most: then it is worth drawing more
SPIKE = 4.0  # standard deviations from its neighbours' median, beyond which a run counts as that far off
NEIGHBOURS = 5
NAMED = 0.9  # how sure a list of commits has the one to blame
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ChangePoint:
    """A level that begins with the runs of a commit. `at` and `blame` are places of commits, `p` is of its series."""

    at: int
    p: float
    blame: tuple[tuple[int, float], ...]  # the likeliest first, with their probabilities, until they are 90 %


Found = tuple[str, list[int], list[float], list[ChangePoint]]


def change_points(times: Sequence[float], commits: Sequence[int], level: float = LEVEL) -> list[ChangePoint]:
    """Times of runs in order, and the commit of each; a level may begin only with a commit's first run."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    begins = [n for n in range(1, len(logs)) if commits[n] != commits[n - 1]]
    noise = float(np.median(np.abs(np.diff(logs)))) / 0.954 if len(logs) > 1 else 0.0
    noise = noise or float(np.std(np.diff(logs))) if len(logs) > 1 else 0.0
    if len(logs) < 2 * LEAST or not begins or not noise:
        return []
    calm = _without_spikes(logs, noise)
    found = _split(logs, calm, (0, len(logs)), _proposed(calm / noise, begins), level)
    if not found:
        return []
    places = sorted(found)
    windows = zip([0, *places[:-1]], [*places[1:], len(logs)], strict=True)
    each = [_placed(calm, window, found[n], begins, commits) for window, n in zip(windows, places, strict=True)]
    return sorted({change.at: change for change in each}.values(), key=lambda change: change.at)


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
    best = max(inside, key=lambda n: _step(calm[first:last], n - first))
    before, after = (_split(logs, calm, part, inside, level) for part in ((first, best), (best, last)))
    return {**before, best: p, **after}


def exact_changes(times: Sequence[float], commits: Sequence[int], threshold: float) -> list[ChangePoint]:
    """Of runs without noise: every commit whose time differs from the one before by more than a share."""
    found = []
    for n in range(1, len(times)):
        if commits[n] != commits[n - 1] and abs(log(times[n] / times[n - 1])) > log(1 + threshold):
            found.append(ChangePoint(commits[n], 0.0, ((commits[n], 1.0),)))
    return found


def _without_spikes(logs: Floats, noise: float) -> Floats:
    """Single runs far off moved to where their neighbours end; a new level stays, since its neighbours have it."""
    half = NEIGHBOURS // 2
    middle = np.array([np.median(logs[max(n - half, 0) : n + half + 1]) for n in range(len(logs))])
    return np.clip(logs, middle - SPIKE * noise, middle + SPIKE * noise)


def _proposed(scaled: Floats, begins: Sequence[int]) -> list[int]:
    """Places where PELT would cut, moved to the nearest first run of a commit."""
    import ruptures

    search = ruptures.Pelt(model="l2", min_size=LEAST, jump=1).fit(scaled.reshape(-1, 1))
    cuts = search.predict(pen=PENALTY * log(len(scaled)))[:-1]
    moved = {min(begins, key=lambda begin: abs(begin - cut)) for cut in cuts}
    return sorted(place for place in moved if LEAST <= place <= len(scaled) - LEAST)


def _p(logs: Floats) -> float:
    """How often runs in any other order have a place where they differ as much, by their ranks."""
    ranks = np.argsort(np.argsort(logs, kind="stable"), kind="stable").astype(np.float64)
    for value in np.unique(logs):
        ranks[logs == value] = ranks[logs == value].mean()  # runs that take equally long have one rank
    ranks -= ranks.mean()
    if len(logs) < 2 * LEAST or not ranks.any():
        return 1.0
    rng = np.random.default_rng(0)  # the same answer every time
    seen, as_different, drawn = float(_largest(ranks[None])[0]), 0, 0
    for draws in (DRAWS, MOST_DRAWS - DRAWS):
        for begin in range(0, draws, DRAWS):
            count = min(DRAWS, draws - begin)
            shuffled = rng.permuted(np.broadcast_to(ranks, (count, len(ranks))), axis=1)
            as_different += int((_largest(shuffled) >= seen - 1e-9).sum())
            drawn += count
        if as_different > CLOSE:
            break
    return (1 + as_different) / (1 + drawn)


def _step(calm: Floats, place: int) -> float:
    """How much two levels fit better than one."""
    a, b = calm[:place], calm[place:]
    return float((a.mean() - b.mean()) ** 2 * len(a) * len(b) / len(calm))


def _largest(ranks: Floats) -> Floats:
    """Of each row, the largest difference of a beginning from the rest, over its standard deviation."""
    n = ranks.shape[1]
    first = np.arange(LEAST, n - LEAST + 1)
    sums = np.cumsum(ranks, axis=1)[:, first - 1]
    found: Floats = (np.abs(sums) / np.sqrt(first * (n - first))).max(axis=1)
    return found


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


ORDER = "commits.txt"
LINE = "not a line of a history: it must be a JSON object with commit, wall_ns and kernels, or error"
ORDERED = re.compile(r"^[0-9][0-9-]*[-_]")  # what only orders the name of a folder


class Kept(NamedTuple):
    """What a folder has. `exact`: all of it is simulated, and so without noise."""

    commits: list[Commit]
    exact: bool


class Line(NamedTuple):
    """A line of a file: a run of a commit, or why it has none. `settings` tells what else decides it."""

    commit: str
    run: Run | None
    simulated: bool = False
    error: str = ""
    subject: str = ""
    settings: str = ""

    def as_dict(self) -> dict[str, object]:
        told: dict[str, object] = {"commit": self.commit, "subject": self.subject, "simulated": self.simulated}
        if self.settings:
            told["settings"] = self.settings
        if self.run is None:
            return {**told, "error": self.error}
        return {**told, "wall_ns": self.run.wall_ns, "kernels": dict(self.run.kernels)}


def read_history(path: str | Path) -> Kept:
    """A folder, or one file of lines."""
    place = Path(path)
    if not place.exists():
        raise BadInput("no such file or folder", path=path)
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    lines = [line for file in files for line in read_runs_of(file)]
    order = read_order(place / ORDER) if place.is_dir() else {}
    found: dict[str, Commit] = {}
    for line in _newest(lines):
        before = found.get(line.commit, Commit(line.commit))
        runs = before.runs if line.run is None else (*before.runs, line.run)
        found[line.commit] = Commit(line.commit, runs, line.subject or before.subject, line.error or before.error)
    folders = [child for child in place.iterdir() if child.is_dir() and child.name[:1] != "."] if place.is_dir() else []
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
    return Kept(_ordered(found, order, place / ORDER), exact)


def _newest(lines: list[Line]) -> list[Line]:
    """Of a commit simulated again with other settings only the last line counts."""
    last = {line.commit: n for n, line in enumerate(lines) if line.simulated}
    return [line for n, line in enumerate(lines) if not line.simulated or last[line.commit] == n]


def _ordered(found: dict[str, Commit], order: dict[str, str], file: Path) -> list[Commit]:
    if not order:
        return list(found.values())
    strange = [revision for revision in found if _in(order, revision) is None]
    if strange:
        raise BadInput(f"does not list {strange[0]}", path=file, remedy="Add a line with it, where it belongs.")
    places = {revision: n for n, revision in enumerate(order)}
    named = {_in(order, revision) or revision: commit for revision, commit in found.items()}
    ordered = sorted(named.items(), key=lambda pair: places[pair[0]])
    return [Commit(c.revision, c.runs, c.subject or order[name], c.error) for name, c in ordered]


def _in(order: dict[str, str], revision: str) -> str | None:
    """The listed revision that a name stands for: one may be the beginning of the other."""
    return next((one for one in order if one.startswith(revision) or revision.startswith(one)), None)


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


def read_runs_of(file: Path) -> Iterator[Line]:
    """The lines of a file."""
    return read_lines(file, lambda told, number: _line(told, f"{file.name}, line {number}"), LINE)


def _line(told: dict[str, Any], name: str) -> Line:
    common = {
        "simulated": bool(told.get("simulated")),
        "subject": str(told.get("subject", "")),
        "settings": str(told.get("settings", "")),
    }
    commit = str(told["commit"])
    if "error" in told:
        return Line(commit, None, error=str(told["error"]), **common)  # type: ignore[arg-type]
    kernels = {str(kernel): float(ns) for kernel, ns in told.get("kernels", {}).items()}
    wall = float(told["wall_ns"])
    if not all(isfinite(ns) and ns >= 0 for ns in kernels.values()) or not (isfinite(wall) and wall > 0):
        raise ValueError("a time that is none")
    return Line(commit, Run(name, wall, kernels), **common)  # type: ignore[arg-type]
