"""Protobuf messages by the million: rows of optional, fixed-width pieces, assembled in NumPy.

Protobuf lets a varint be longer than it need be, so every number gets a fixed width, every row's pieces
stand at fixed places of a matrix, and what a row lacks is masked out. Only the length fields differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def tag(field: int, wire: int) -> bytes:
    """A field's tag: wire type 0 varint, 1 eight bytes, 2 length-delimited."""
    return varint(field << 3 | wire)


def varint(number: int) -> bytes:
    """The shortest varint of a non-negative number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(field: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return tag(field, 2) + varint(len(payload)) + payload


def padded_varints(numbers: np.ndarray, width: int) -> Bytes:
    """Each number as a varint of exactly `width` bytes; negative ones, as protobuf has it, need ten."""
    rest = numbers.astype(np.int64).view(np.uint64)
    out = np.empty((len(rest), width), dtype=np.uint8)
    for column in range(width - 1):
        out[:, column] = (rest & np.uint64(0x7F)).astype(np.uint8) | 0x80
        rest = rest >> np.uint64(7)
    out[:, width - 1] = rest.astype(np.uint8) & 0x7F
    return out


class Rows:
    """Messages under construction, one per row. Add pieces from the outside in; `bytes` puts them together."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pieces: list[Bytes | bytes] = []
        self._present: list[NDArray[np.bool_] | None] = []
        self._open: list[int] = []  # pieces that hold a length still to be filled in
        self._closed: list[tuple[int, int]] = []

    def add(self, piece: Bytes | bytes, present: NDArray[np.bool_] | None = None) -> None:
        """A piece: the same bytes for all rows or a matrix; `present` tells the rows that have it."""
        self._pieces.append(piece)
        self._present.append(present)

    def begin(self, field: int) -> None:
        """Open a sub-message; its length takes three bytes, enough for two megabytes."""
        self.add(tag(field, 2))
        self._open.append(len(self._pieces))
        self.add(b"\x00\x00\x00")

    def end(self) -> None:
        """Close the newest open sub-message."""
        self._closed.append((self._open.pop(), len(self._pieces)))

    def bytes(self, tail: Bytes | None = None, tail_sizes: np.ndarray | None = None) -> Bytes:
        """All rows one after another. `tail` has bytes of different lengths that end each row, inside every
        sub-message closed last; `tail_sizes` says how many each row takes."""
        widths = [len(p) if isinstance(p, bytes) else p.shape[1] for p in self._pieces]
        sizes = [np.int64(w) if present is None else present * np.int64(w) for w, present in zip(widths, self._present, strict=True)]
        extra = np.int64(0) if tail_sizes is None else tail_sizes
        for begin, end in self._closed:
            inside = sum(sizes[begin + 1 : end], np.int64(0))
            reaches_end = end == len(self._pieces)
            length = np.broadcast_to(inside + (extra if reaches_end else 0), (self.count,))
            self._pieces[begin] = padded_varints(length, 3)
        starts = np.cumsum([0, *widths])
        matrix = np.empty((self.count, starts[-1]), dtype=np.uint8)
        mask = None if all(p is None for p in self._present) else np.ones((self.count, starts[-1]), dtype=bool)
        for piece, present, first, last in zip(self._pieces, self._present, starts[:-1], starts[1:], strict=True):
            matrix[:, first:last] = np.frombuffer(piece, dtype=np.uint8) if isinstance(piece, bytes) else piece
            if present is not None and mask is not None:
                mask[:, first:last] = present[:, None]
        flat = matrix.reshape(-1) if mask is None else matrix[mask]
        if tail is None or tail_sizes is None or len(tail) == 0:
            return flat
        row_sizes = np.broadcast_to(sum(sizes, np.int64(0)), (self.count,))
        return _interleave(flat, row_sizes, tail, tail_sizes)


def _interleave(heads: Bytes, head_sizes: np.ndarray, tails: Bytes, tail_sizes: np.ndarray) -> Bytes:
    """head 0, tail 0, head 1, tail 1, and so on."""
    out = np.empty(len(heads) + len(tails), dtype=np.uint8)
    from_tail = np.zeros(len(out), dtype=bool)
    ends = np.cumsum(head_sizes + tail_sizes)
    begins = ends - tail_sizes
    has = tail_sizes > 0
    # mark where tails lie by +1 at their begin and -1 at their end
    steps = np.zeros(len(out) + 1, dtype=np.int64)
    np.add.at(steps, begins[has], 1)
    np.add.at(steps, ends[has], -1)
    from_tail = np.cumsum(steps[:-1]) > 0
    out[from_tail], out[~from_tail] = tails, heads
    return out
