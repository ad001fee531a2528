"""What a history is kept in: what git says of a folder, and files of a JSON object per line that only ever grow."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from npuscope.base.errors import BadInput, CannotWrite

T = TypeVar("T")
SECONDS = 60  # a repository on a slow disk may take so long
BROKEN = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    OverflowError,
)  # what a line that is none of ours raises


def git(folder: str | Path, *words: str) -> str | None:
    """What a git command prints in a folder; None where it fails, there is no git, or no repository."""
    command = ["git", "-C", str(folder), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def read_lines(file: Path, made_of: Callable[[dict[str, object], int], T], what: str) -> Iterator[T]:
    """What `made_of` makes of each object and its line's number; `what` says what a line of such a file must be.
    A last object that an interrupt cut off is not counted."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise BadInput(f"{what}: it is no text", path=file) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield made_of(json.loads(line), number)
        except BROKEN:
            if number == len(lines) and _is_cut_off(line):
                return
            remedy = "Name another file, or mend the line or take it out."
            raise BadInput(what, path=file, line=number, remedy=remedy) from None


def append_line(file: Path, line: dict[str, object]) -> None:
    """One more line, in one write; a last line that was cut off makes room for it."""
    try:
        with open(file, "a+b") as opened:
            opened.seek(0)
            before = opened.read()
            last = before[before.rfind(b"\n") + 1 :]
            if _is_cut_off(last.decode(errors="replace")):
                opened.truncate(len(before) - len(last))
                last = b""
            opened.seek(0, os.SEEK_END)
            opened.write((b"\n" if last else b"") + json.dumps(line, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise CannotWrite(error.strerror or str(error), path=file) from error


def _is_cut_off(line: str) -> bool:
    """Whether it began as a line of ours; anything else is somebody's text, and stays."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith("{")
    return False
