"""What can be written of a run, and of which program of it."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.tile.record.model import Recording
from npuscope.trace.writers import check_target


def check_timeless(path: str | None) -> None:
    """Refuse formats that hold slices only: a trace without times would be an empty file there."""
    if path is not None and check_target(path) != "parquet":
        raise CannotWrite("a trace without times fits npuscope's own folder only", path=path, remedy="End it in .npu.")


def the_one(recordings: Sequence[Recording], number: int | None, file: str) -> int:
    """The program to write files of: the only one that submitted tasks, or the one asked for."""
    able = [n for n, recording in enumerate(recordings) if recording.tasks]
    if not able:
        raise NpuscopeError("no program of it submitted a task", path=file)
    if number is None and len(able) == 1:
        return able[0]
    listed = ", ".join(f"{n} {recordings[n].program}" for n in able)
    if number is None:
        raise NpuscopeError(
            f"{len(able)} programs ran ({listed})", path=file, remedy="Choose one with --program, e.g. --program 0."
        )
    if number not in able:
        raise NpuscopeError(f"no program {number} ran", path=file, remedy=f"Those that did: {listed}.")
    return number
