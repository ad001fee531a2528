"""The one exception family. Every message says what is wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

LONGEST = 600  # characters of a message


class NpuscopeError(Exception):
    """Anything a user can mend. The command line prints it as one paragraph and exits with 2."""

    def __init__(
        self,
        what: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        record: int | None = None,
        remedy: str = "",
    ) -> None:
        self.what, self.path, self.line, self.record, self.remedy = what, path, line, record, remedy
        super().__init__(what)

    def __reduce__(self) -> tuple[Callable[..., NpuscopeError], tuple[object, ...]]:
        """Travels between processes, as exceptions with keywords do not by themselves."""
        return _rebuilt, (type(self), vars(self))

    def __str__(self) -> str:
        where = "" if self.path is None else _near(self.path)
        if self.line is not None:
            where += f", line {self.line}"
        if self.record is not None:
            where += f", record {self.record}"
        text = f"{where}: {self.what}" if where else self.what
        text = _plain(text)
        if text[-1:] not in ".!?":
            text += "."
        return f"{text} {_plain(self.remedy)}".rstrip()


def _rebuilt(kind: type[NpuscopeError], state: dict[str, object]) -> NpuscopeError:
    error = kind.__new__(kind, state["what"])
    vars(error).update(state)
    return error


def _near(path: str | Path) -> str:
    """A path as people would write it from here: what lies below the working directory without the way to it."""
    try:
        near = Path(path).relative_to(Path.cwd())
    except (ValueError, OSError):  # it lies elsewhere, or there is no working directory any more
        return str(path)
    return str(near) if near.parts else str(path)


def _plain(text: str) -> str:
    """One short paragraph that cannot move a terminal's cursor, whatever a cell or a parser's message contained."""
    text = text[: 10 * LONGEST]  # some are as long as a file
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


class BadInput(NpuscopeError):
    """A capture of a known format that cannot be understood."""


class UnknownFormat(NpuscopeError):
    """Nothing in the file's content matches a format npuscope reads."""


class CannotWrite(NpuscopeError):
    """The output cannot be produced: unknown format, missing data, or a place that refuses writing."""
