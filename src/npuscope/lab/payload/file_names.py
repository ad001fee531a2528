"""What a page calls the files of a program: as short as still tells them apart, since a page travels.

Where a file lies on the machine that made the page is nobody's business but its owner's.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath

from npuscope.tile.record.model import Recording


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
