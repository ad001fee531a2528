"""Colour for terminals: what the parts of a report are, and how a terminal shows them. Pipes get plain text."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TextIO

Paint = Callable[[str, str], str]  # words and what they are -> words as shown

CODES = {"headline": "1", "heading": "1", "good": "32", "bad": "31", "error": "1;31", "warning": "33", "soft": "2"}


def plain(words: str, what: str) -> str:
    return words


def ansi(words: str, what: str) -> str:
    code = CODES.get(what)
    return f"\x1b[{code}m{words}\x1b[0m" if code and words.strip() else words


def paint_for(stream: TextIO) -> Paint:
    """Colour on a terminal, unless NO_COLOR is set (no-color.org); FORCE_COLOR wants it anywhere."""
    if os.environ.get("NO_COLOR"):
        return plain
    wanted = bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")
    return ansi if wanted else plain
