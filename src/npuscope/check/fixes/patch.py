"""A patch: what a fix makes of one file, before it is tried; and how it is written, whole or not at all."""

from __future__ import annotations

import difflib
import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from npuscope.base.errors import CannotWrite
from npuscope.base.frozen import dataclass
from npuscope.base.notebook import is_notebook
from npuscope.base.unsaved import lines_of
from npuscope.trace.writers.atomic import whole_file


class Mended(NamedTuple):
    """A finding that a patch is for: rule, file, line."""

    id: str
    file: str
    line: int


class TextEdit(NamedTuple):
    """Lines `first` up to `last`, not including it, counted from 0, become `text`: as editors want it."""

    first: int
    last: int
    text: str


def no_patches(file: str, text: str) -> str:
    """Why a file is never rewritten; "" where it may be."""
    if is_notebook(file):
        return "it is a notebook"
    return "its lines end in carriage returns" if re.search(r"\r(?!\n)", text) else ""


@dataclass(frozen=True)
class Patch:
    """One file rewritten by one fix. `before` is the whole file as it was read, `after` as it would be.

    `line` is the first that changes. `reorders`: sums are made in another order, so the last bits may move; else
    numbers stay as they are, bit by bit.
    """

    fix: str
    title: str
    file: str
    before: str
    after: str
    mends: tuple[Mended, ...] = ()
    reorders: bool = False
    quality: bool = False  # it need not be faster

    @property
    def key(self) -> str:
        """Equal for patches that make the same of the same file."""
        return sha256("\0".join((self.file, self.before, self.after)).encode()).hexdigest()[:16]

    @property
    def line(self) -> int:
        return self.edits[0].first + 1 if self.edits else 1

    @property
    def edits(self) -> tuple[TextEdit, ...]:
        """What changes, line by line."""
        old, new = (lines_of(text) for text in (self.before, self.after))
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        return tuple(TextEdit(i, j, "".join(new[k:m])) for what, i, j, k, m in matcher.get_opcodes() if what != "equal")

    def diff(self, name: str | None = None, context: int = 3) -> str:
        """As `git apply` takes it; `name` is the path to show."""
        shown = name or self.file
        old, new = (lines_of(text) for text in (self.before, self.after))
        lines = difflib.unified_diff(old, new, f"a/{shown.lstrip('/')}", f"b/{shown.lstrip('/')}", n=context)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Puts the new text in the place of the file, whole or not at all; refused where it says something else now."""
        path = Path(self.file)
        with whole_file(path) as stream:
            stream.write(self.after.encode())
            try:
                now, mode = path.read_bytes(), path.stat().st_mode
            except OSError as error:
                raise CannotWrite(error.strerror or "cannot be read", path=path) from error
            if now != self.before.encode():
                raise CannotWrite("changed since the fix was tried", path=path, remedy="Ask for the fixes again.")
            if not mode & 0o222:  # a new file in its place would need no leave of it
                raise CannotWrite("is read-only", path=path)
