"""A program's files as pages show them: names as short as still set them apart, and the lines that differ.

Where a file lies on the machine that made the page is nobody's business but its owner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from difflib import SequenceMatcher
from os.path import basename, commonpath, dirname, relpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuscope.answer.fixes import Mending
    from npuscope.tile.record.model import Recording

AROUND = 2  # equal lines shown before and after


MOST = 400  # lines of a file


def source_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[dict[str, object]]:
    """Per changed file its lines, each with its number before and after (0: not there) and " ", "-" or "+"."""
    names = [*old, *new]
    top = commonpath([dirname(name) for name in names]) if names else ""
    found = []
    for file in dict.fromkeys(names):
        if old.get(file) != new.get(file) and old and new:
            lines = changed_lines(old.get(file, ""), new.get(file, ""))
            shown = relpath(file, top) if top else basename(file)
            found.append({"file": file, "name": shown, "lines": lines[:MOST], "left_out": max(len(lines) - MOST, 0)})
    return found


def fixes_payload(found: Mending) -> dict[str, object]:
    """What was tried of a program's findings, the best first, with the lines that each changes."""
    before = found.survey.answer.wall_ns
    return {
        "fixes": [
            {
                "key": one.patch.key,
                "title": one.patch.title,
                "offered": one.offered,
                "why": one.why,
                "numbers": one.numbers,
                "before_ns": before,
                "wall_ns": one.wall_ns,
                "versus": one.versus and asdict(one.versus),
                "changes": source_changes({one.patch.file: one.patch.before}, {one.patch.file: one.patch.after}),
            }
            for one in (*found.offered, *found.refused)
        ],
        "unmended": [
            {"id": one.finding.id, "place": f"{basename(one.finding.file)}:{one.finding.line}", "why": one.why}
            for one in found.survey.unmended
        ],
    }


def changed_lines(old: str, new: str) -> list[tuple[int, int, str, str]]:
    before, after = old.splitlines(), new.splitlines()
    found: list[tuple[int, int, str, str]] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        for kind, a, to_a, b, to_b in group:
            if kind == "equal":
                found += [(a + n + 1, b + n + 1, " ", before[a + n]) for n in range(to_a - a)]
            else:
                found += [(a + n + 1, 0, "-", before[a + n]) for n in range(to_a - a)]
                found += [(0, b + n + 1, "+", after[b + n]) for n in range(to_b - b)]
    return found


def file_names(files: Iterable[str]) -> dict[str, str]:
    """Path -> name: its last part, or as many as it takes until all differ."""
    paths = {file: PurePath(file).parts for file in dict.fromkeys(files)}
    longest = max(map(len, paths.values()), default=1)
    for count in range(1, longest + 1):
        names = {file: "/".join(parts[-count:]) for file, parts in paths.items()}
        if len(set(names.values())) == len(names):
            return names
    return {file: file for file in paths}


def program_files(recording: Recording) -> dict[str, str]:
    """The files that a recorded program was written in."""
    return file_names(site.file for site in recording.sites)


def program_texts(recording: Recording) -> dict[str, str]:
    """Their texts under the names that pages call them by; a program of one file calls it `program`, so that it can
    be laid beside another one."""
    names = program_files(recording)
    found = {}
    for path, name in names.items():
        with suppress(OSError):  # made while the program ran, or gone since
            found[name if len(names) > 1 else "program"] = Path(path).read_text(encoding="utf-8", errors="replace")
    return found
