"""Shapes of a call in a form in which a model's and a profiler's telling of one call are equal.

NZ storage becomes the logical matrix (padded to the tile), empty slots and dimensions of 1 are dropped, and the
dimensions of a tensor are sorted, so that a transposed weight is the weight. Shapes are read as kernel tables write
them (`"16,5120;320,48,16,16"`) and as lists (`[[16, 5120], [5120, 768]]`, `16x5120;5120x768`).
"""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

Form = tuple[tuple[int, ...], ...]
LEVELS = (1, 2, None)  # tensors that count: the first, the first two, all of them
_LISTED = re.compile(r"[\[(]([\d,\sx]*)[\])]")
_TILES = ((16, 16), (16, 32))


@lru_cache(maxsize=65536)
def form_of(shapes: str, formats: str = "") -> Form:
    """The form of a call's input shapes; empty where nothing is told, or nothing that can be read."""
    text = shapes.strip().strip('"')
    slots = _LISTED.findall(text) if "[" in text or "(" in text else text.split(";")
    words = formats.strip().strip('"').split(";")
    found = []
    for number, slot in enumerate(slots):
        numbers = re.split(r"[,x\s]+", slot.strip())
        if not slot.strip() or not all(n.isdecimal() and len(n) < 19 for n in numbers if n):
            continue
        dims = tuple(int(n) for n in numbers if n)
        word = words[number] if number < len(words) else ""
        found.append(tuple(sorted(d for d in _logical(dims, word) if d != 1)))
    return tuple(found)


def _logical(dims: tuple[int, ...], word: str) -> tuple[int, ...]:
    """The matrix behind an NZ storage shape (…, columns/n0, rows/m0, m0, n0)."""
    told = word.removeprefix("FORMAT_")
    is_nz = told in ("FRACTAL_NZ", "NZ") or (told in ("", "N/A") and dims[-2:] in _TILES)
    if not is_nz or len(dims) < 4:
        return dims
    *batch, columns, rows, m0, n0 = dims
    return (*batch, rows * m0, columns * n0)


def level_texts(shapes: pl.Series, formats: pl.Series) -> list[list[str | None]]:
    """For each level a text per call, equal where the calls are alike on that level; None where it is not told."""
    forms = [form_of(s, f or "") if s else () for s, f in zip(shapes.to_list(), formats.to_list(), strict=True)]
    return [[str(form[:count]) if form else None for form in forms] for count in LEVELS]
