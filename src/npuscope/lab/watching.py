"""Watches the files of a program and tells its session of every save, and of files that go and come back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from npuscope.lab.session import Session

QUIET_MS = 30  # without a change, before a save counts as whole
LONGEST_MS = 400
LOOK_MS = 1000  # between looks at the folders themselves, which nobody tells of


async def watch(session: Session) -> None:
    """Until the server ends. Folders are watched: editors put a new file in the old one's place."""
    while not session.stopping.is_set():
        folders = _folders(session)
        session.look()  # at what happened while nothing was watched
        if not any(folders.values()):
            with suppress(TimeoutError):
                await asyncio.wait_for(session.stopping.wait(), LOOK_MS / 1000)
            continue
        async for changes in awatch(
            *sorted(folder for folder, identity in folders.items() if identity),
            stop_event=session.stopping,
            debounce=LONGEST_MS,
            step=QUIET_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            watch_filter=None,
            raise_interrupt=False,
        ):
            touched = {_resolved(path) for _, path in changes} & set(session.files)
            if touched:
                session.look(touched)
            if _folders(session) != folders:
                break


def _folders(session: Session) -> dict[str, int]:
    """The folders of the program's files, each with what tells it from another one of its name; 0: not there."""
    found = {}
    for folder in {str(Path(file).parent) for file in session.files}:
        try:
            found[folder] = Path(folder).stat().st_ino if Path(folder).is_dir() else 0
        except OSError:
            found[folder] = 0
    return found


def _resolved(path: str) -> str:
    """As the session knows it, also where a link has taken the file's place."""
    return str(Path(path).parent.resolve() / Path(path).name)
