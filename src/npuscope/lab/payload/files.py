"""A program's files as pages show them: names as short as still set them apart, and the lines that differ.

Where a file lies on the machine that made the page is nobody's business but its owner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from os.path import basename, commonpath, dirname, relpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
