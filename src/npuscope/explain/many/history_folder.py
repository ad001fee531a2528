"""A history on disk: a folder that has a folder of runs per commit, or files of JSON lines, a line per run.

`commits.txt` (a revision and the first line of its message per line, oldest first, as `git log --reverse --format='%h
%s'` writes it) gives their order; without it names sort by the numbers in them (`001-abc`, `2026-03-01-abc`), and lines
stay in the order in which they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from npuscope.base.errors import BadInput
from npuscope.explain.many.history import Commit
from npuscope.explain.many.json_lines import read_lines
from npuscope.explain.many.runs import Run, in_order, read_runs

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
