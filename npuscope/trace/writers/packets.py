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

    def bytes(self, tails: Tails) -> Bytes:
        """All rows one after another, each ended by its tail inside every sub-message that was closed last."""
        tail, tail_sizes = tails.bytes()
        widths = [len(p) if isinstance(p, bytes) else p.shape[1] for p in self._pieces]
        sizes = [
            np.int64(w) if present is None else present * np.int64(w)
            for w, present in zip(widths, self._present, strict=True)
        ]
        for begin, end in self._closed:
            inside = sum(sizes[begin + 1 : end], np.int64(0))
            reaches_end = end == len(self._pieces)
            length = np.broadcast_to(inside + (tail_sizes if reaches_end else 0), (self.count,))
            self._pieces[begin] = padded_varints(length, 3)
        starts = np.cumsum([0, *widths])
        matrix = np.empty((self.count, starts[-1]), dtype=np.uint8)
        mask = None if all(p is None for p in self._present) else np.ones((self.count, starts[-1]), dtype=bool)
        for piece, present, first, last in zip(self._pieces, self._present, starts[:-1], starts[1:], strict=True):
            matrix[:, first:last] = np.frombuffer(piece, dtype=np.uint8) if isinstance(piece, bytes) else piece
            if present is not None and mask is not None:
                mask[:, first:last] = present[:, None]
        flat = matrix.reshape(-1) if mask is None else matrix[mask]
        if len(tail) == 0:
            return flat
        row_sizes = np.broadcast_to(sum(sizes, np.int64(0)), (self.count,))
        return _interleave(flat, row_sizes, tail, tail_sizes)


class Tails:
    """Bytes of different lengths for some of the rows, to stand at the end of each row's message."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: list[tuple[np.ndarray, Bytes]] = []

    def add(self, rows: np.ndarray, piece: Bytes) -> None:
        """A matrix with a line for each entry of `rows`, which is sorted and may repeat a row."""
        if len(rows):
            self._pieces.append((rows, piece))

    def bytes(self) -> tuple[Bytes, np.ndarray]:
        """All tails one after another, and how many bytes each row has of them."""
        sizes = np.zeros(self._count, dtype=np.int64)
        for rows, piece in self._pieces:
            sizes += np.bincount(rows, minlength=self._count) * piece.shape[1]
        cursor = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), dtype=np.uint8)
        for rows, piece in self._pieces:
            width = piece.shape[1]
            nth = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
            place = cursor[rows] + nth * width
            out[place[:, None] + np.arange(width)] = piece
            cursor += np.bincount(rows, minlength=self._count) * width
        return out, sizes


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
