"""The files of a program on disk: read as they are, and put back only over what is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from npuscope.base.errors import CannotWrite
from npuscope.trace.writers.atomic import whole_file

UNKNOWN = "\ufffd"  # stands for bytes that are no text


def text_of(file: str | Path) -> str:
    """What a file holds, with the ends of lines that it has; raises OSError."""
    return Path(file).read_bytes().decode("utf-8", "replace")


def unreadable(file: str | Path) -> str:
    """In words, for a file that `text_of` cannot read."""
    path = Path(file)
    if path.is_dir():
        return f"{path.name} is a folder now"
    return f"{path.name} cannot be read" if path.exists() else f"{path.name} is gone"


def replaced(texts: Mapping[Path, str], is_known: Callable[[str, str], bool]) -> tuple[str, ...]:
    """Writes texts to files, each whole and with the mode that it had; those that differed.

    None is written where one of them holds a text that is not known, which would be lost.
    """
    differ = []
    for path, text in texts.items():
        if UNKNOWN in text:
            raise CannotWrite("has bytes that are no text, so it cannot be put back", path=path)
        try:
            before = text_of(path)
        except OSError:
            differ.append(path)  # writing it will say what is in the way
            continue
        if before != text:
            if not is_known(str(path), before):
                raise CannotWrite("has changed since it was last read, so it was left alone", path=path)
            differ.append(path)
    for path in differ:
        with whole_file(path) as out:
            out.write(texts[path].encode())
    return tuple(map(str, differ))
