"""Texts that stand in for files, until they are written: a patch that is tried, a buffer that an editor has not saved.

with unsaved((("/home/me/layer.py", "import …"),)):
    …  # everybody who reads that file's source reads this text; `__file__` and all other files are as they are

One set of texts at a time in a process: whoever tries several asks processes of their own (`base/pool.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from npuscope.base.notebook import code_of, is_notebook

Texts = tuple[tuple[str, str], ...]  # absolute paths, each with its text
ODD = "surrogatepass"  # an editor may send half a character
_given: Texts = ()
_texts: dict[str, str] = {}


@contextmanager
def unsaved(texts: Texts) -> Iterator[None]:
    """Inside, each text is what its file says."""
    global _given, _texts
    if _given and _given != texts:
        raise ValueError("other texts stand in for files already")
    before, _given = _given, texts
    _texts = {os.path.realpath(file): text for file, text in texts}
    try:
        yield
    finally:
        _given = before
        _texts = {os.path.realpath(file): text for file, text in before}


def standing() -> Texts:
    """The texts that stand in now, as they were given."""
    return _given


def is_unsaved(file: str | Path) -> bool:
    """Whether a file's source is not what the file holds: a text stands in for it, or it is a notebook."""
    return (bool(_texts) and os.path.realpath(file) in _texts) or is_notebook(file)


def source_bytes(file: str | Path) -> bytes:
    """What a file says, or the text that stands in for it."""
    text = _texts.get(os.path.realpath(file)) if _texts else None
    if text is None:
        return code_of(file).encode() if is_notebook(file) else Path(file).read_bytes()
    return text.encode()


def lines_of(text: str) -> list[str]:
    """Lines with their ends, as Python and editors count them: a form feed or U+2028 in a comment ends none."""
    return [line.decode(errors=ODD) for line in text.encode(errors=ODD).splitlines(keepends=True)]


def source_age(file: str | Path) -> int:
    """When a file was last written, in ns; of a text that stands in a number below 0 that only this text has."""
    text = _texts.get(os.path.realpath(file)) if _texts else None
    if text is None:
        return os.stat(file).st_mtime_ns
    return -1 - int.from_bytes(sha256(text.encode()).digest()[:7])
