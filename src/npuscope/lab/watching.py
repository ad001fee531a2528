"""Watches the files of a program and tells its session of every save."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from watchfiles import awatch

from npuscope.lab.session import Session

QUIET_MS = 30  # without a change, before a save counts as whole
LONGEST_MS = 400


async def watch(session: Session) -> None:
    """Until the server ends. Folders are watched: editors put a new file in the old one's place."""
    while not session.stopping.is_set():
        files = session.files
        folders = {str(Path(file).parent) for file in files}
        async for changes in awatch(
            *sorted(folder for folder in folders if Path(folder).is_dir()),
            stop_event=session.stopping,
            debounce=LONGEST_MS,
            step=QUIET_MS,
            recursive=False,
            watch_filter=None,
            raise_interrupt=False,
        ):
            touched = {str(Path(path).resolve()) for _, path in changes} & set(session.files)
            if touched and session.changed(texts(touched)):
                session.save()
            if {str(Path(file).parent) for file in session.files} != folders:
                break


def texts(files: Iterable[str]) -> dict[str, str]:
    """What files hold; one that is gone for a moment (while it is saved) is left out."""
    found = {}
    for file in files:
        try:
            found[file] = Path(file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return found
