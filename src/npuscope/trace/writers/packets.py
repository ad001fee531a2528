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


def varint_width(largest: int) -> int:
    """How many bytes the varint of a non-negative number takes."""
    return max(1, -(-largest.bit_length() // 7))


def padded_varints(numbers: np.ndarray, width: int) -> Bytes:
    """Each number as a varint of exactly `width` bytes; negative ones, as protobuf has it, need ten."""
    rest = numbers.astype(np.int64).view(np.uint64)
    out = np.empty((len(rest), width), dtype=np.uint8)
    low = _seven_bits_a_byte(rest & np.uint64((1 << 56) - 1)) | np.uint64(0x8080808080808080)
    out[:, : min(8, width)] = low.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    if width > 8:
        out[:, 8] = (rest >> np.uint64(56)).astype(np.uint8) | 0x80
    if width > 9:
        out[:, 9] = (rest >> np.uint64(63)).astype(np.uint8)
    out[:, width - 1] &= 0x7F
    return out


def _seven_bits_a_byte(x: np.ndarray) -> np.ndarray:
    """The low 56 bits spread over eight bytes, seven in each: first halves move apart, then quarters, then eighths."""
    for low, high, shift in (
        (0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
        (0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
        (0x007F007F007F007F, 0x3F803F803F803F80, 1),
    ):
        x = (x & np.uint64(low)) | ((x & np.uint64(high)) << np.uint64(shift))
    return x


class Rows:
    """Messages under construction, one stretch of bytes per row. Add pieces in their order; `bytes` joins them.

    A piece is the same bytes for all rows, a matrix with a line per row, or lines for some rows. Sub-messages
    open with `begin` and close with `end`; their lengths are filled in last, in three bytes or, if one is large, five.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pieces: list[Bytes | bytes] = []
        self._sizes: list[np.ndarray | int] = []  # of each piece, per row where rows differ
        self._rows: dict[int, np.ndarray] = {}  # of the pieces that only some rows have: a row per line
        self._open: list[int] = []
        self._lengths: list[tuple[int, int]] = []  # pieces that hold a length, and the piece after what they count

    def add(self, piece: Bytes | bytes, present: NDArray[np.bool_] | None = None) -> None:
        """A piece of every row, or of the rows that `present` tells."""
        width = len(piece) if isinstance(piece, bytes) else piece.shape[1]
        self._pieces.append(piece)
        self._sizes.append(width if present is None else present * np.int64(width))

    def add_some(self, rows: np.ndarray, lines: Bytes) -> None:
        """Lines for some rows; `rows` is sorted and may name a row several times."""
        self._rows[len(self._pieces)] = rows
        self._pieces.append(lines)
        self._sizes.append(np.bincount(rows, minlength=self.count) * lines.shape[1])

    def begin(self, field: int, present: NDArray[np.bool_] | None = None) -> None:
        """Open a sub-message."""
        self.add(tag(field, 2), present)
        self._open.append(len(self._pieces))
        self.add(b"\x00\x00\x00", present)

    def end(self, count: int = 1) -> None:
        """Close the newest open sub-messages."""
        for _ in range(count):
            self._lengths.append((self._open.pop(), len(self._pieces)))

    def bytes(self) -> Bytes:
        """All rows one after another."""
        for holder, after in self._lengths:
            inside = np.atleast_1d(sum(self._sizes[holder + 1 : after], np.int64(0)))
            width = 3 if int(inside.max(initial=0)) < 1 << 21 else 5
            length = padded_varints(inside, width)
            self._pieces[holder] = length.tobytes() if len(length) == 1 else length
            self._sizes[holder] = self._sizes[holder] // 3 * width
        some = sorted(self._rows)
        usual = [n for n in range(len(self._pieces)) if n not in self._rows]
        flat = self._joined(usual)
        if not some:
            return flat
        # the rare pieces go in between: where each of their lines begins follows from the sizes before it
        sizes = [np.broadcast_to(size, (self.count,)) for size in self._sizes]
        ends = np.cumsum(sum(sizes, np.int64(0)))
        out = np.empty(int(ends[-1]) if self.count else 0, dtype=np.uint8)
        is_usual = np.ones(len(out), dtype=bool)
        row_begins = ends - sum(sizes, np.int64(0))
        for n in some:
            rows, lines = self._rows[n], self._pieces[n]
            assert not isinstance(lines, bytes)
            nth = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
            begin = (row_begins + sum(sizes[:n], np.int64(0)))[rows] + nth * lines.shape[1]
            places = begin[:, None] + np.arange(lines.shape[1])
            out[places] = lines
            is_usual[places] = False
        out[is_usual] = flat
        return out

    def _joined(self, which: list[int]) -> Bytes:
        """The pieces that stand at fixed places: a matrix, from which what a row lacks is masked out."""
        pieces = [self._pieces[n] for n in which]
        # what is the same in all rows is laid down at once, the rest written over it
        pattern = b"".join(p if isinstance(p, bytes) else bytes(p.shape[1]) for p in pieces)
        starts = np.cumsum([0, *(len(p) if isinstance(p, bytes) else p.shape[1] for p in pieces)])
        matrix = np.empty((self.count, len(pattern)), dtype=np.uint8)
        matrix[:] = np.frombuffer(pattern, dtype=np.uint8)
        mask = np.ones(matrix.shape, dtype=bool) if any(np.ndim(self._sizes[n]) for n in which) else None
        for n, piece, first, last in zip(which, pieces, starts[:-1], starts[1:], strict=True):
            if not isinstance(piece, bytes):
                matrix[:, first:last] = piece
            size = self._sizes[n]
            if mask is not None and isinstance(size, np.ndarray):
                mask[:, first:last] = (size > 0)[:, None]
        return matrix.reshape(-1) if mask is None else matrix[mask]
