"""What programs hold: tensors (views of GM) and tiles (values on chip)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import Array, DataType
from npuscope.tile.fault import fault
from npuscope.tile.graph.boxes import row_major
from npuscope.tile.values import signature

if TYPE_CHECKING:
    from npuscope.tile.record.recorder import BlockDraft, Frame
    from npuscope.tile.values.lanes import Whole

Shape = tuple[int, ...]


class OperandValue:
    """What tensors and tiles share. Their operators mean the ops of the same name: calls/spellings.py puts them in."""

    __slots__ = ()
    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operator to us

    shape: Shape
    dtype: DataType

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def __bool__(self) -> bool:
        raise fault(f"a {self._kind} has no truth value", "Read an element with pl.read.")

    def __iter__(self) -> Iterator[object]:
        raise fault(
            f"Python cannot walk over a {self._kind}", "Take slices in a loop: `for i in pl.range(n): x[i : i + 1]`."
        )

    def __delitem__(self, index: object) -> None:
        raise fault(f"nothing can be deleted from a {self._kind}")

    def __eq__(self, other: object) -> bool:
        raise fault(f"Python cannot compare a {self._kind}", "Compare tiles with pl.cmp, elements with pl.read.")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__

    @property
    def _kind(self) -> str:
        return type(self).__name__.lower()


# Layouts of matrices in small boxes: rows and columns of a box (0: 32 bytes), and the split axes by their steps.
BOXES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "NZ": (16, 0, (2, 0, 1, 3)),
    "MX_A_ZZ": (16, 2, (0, 2, 1, 3)),
    "MX_B_NN": (2, 16, (2, 0, 3, 1)),
}
MOST_ROWS_APART = 65_535  # 16 bits of the load instruction


@dataclass(frozen=True)
class Fractal:
    """A matrix that lies in GM as small boxes and not row by row: NZ weights, scales of MX products.

    rows, columns  of a box.
    strides        from box to box downwards, from row to row in a box, from box to box sideways, from column to column.
    """

    rows: int
    columns: int
    strides: Shape

    @classmethod
    def of(cls, layout: str, shape: Shape, dtype: DataType) -> Fractal:
        """How a matrix of some shape lies in a layout; `order`: its split axes, those with the largest steps first."""
        rows, columns, order = BOXES[layout]
        columns = columns or 32 // dtype.bytes
        if len(shape) < 2 or shape[-2] % rows or shape[-1] % columns:
            raise fault(f"a tensor {list(shape)} {dtype} in {layout}: it is made of boxes of {rows} x {columns}")
        split = (shape[-2] // rows, rows, shape[-1] // columns, columns)
        steps = row_major(tuple([split[axis] for axis in order]))
        return cls(rows, columns, tuple(steps[order.index(axis)] for axis in range(4)))

    def in_memory(self, matrix: Array) -> Array:
        """The elements of a matrix in the order in which they lie."""
        split = matrix.reshape(matrix.shape[0] // self.rows, self.rows, -1, self.columns)
        return split.transpose(sorted(range(4), key=lambda axis: -self.strides[axis])).reshape(-1)

    def strides_of(self, box: Shape, strides: Shape) -> tuple[Shape, Shape]:
        """A box and its strides with the last two axes split: in logical order, as a strided view has them."""
        (*lead, tall, wide), (*steps, _, _) = box, strides
        if tall % self.rows or wide % self.columns:
            raise fault(f"a box {list(box)} of a tensor in boxes of {self.rows} x {self.columns}: it cuts some")
        if wide > self.columns and (apart := self.strides[2] // self.columns - tall) > MOST_ROWS_APART:
            about = f"{apart:,} rows between two columns of boxes: the load unit skips at most {MOST_ROWS_APART:,}"
            raise fault(about, f"Load {self.columns} columns at a time, or more rows.")
        split = (*lead, tall // self.rows, self.rows, wide // self.columns, self.columns)
        return split, (*steps, *self.strides)

    def runs_of(self, box: Shape, strides: Shape) -> tuple[Shape, Shape]:
        """The same memory as the transfer unit sees it: the longest runs last."""
        split, steps = self.strides_of(box, strides)
        runs: list[tuple[int, int]] = []
        for extent, step in sorted(zip(split, steps, strict=True), key=lambda axis: -axis[1]):
            if runs and runs[-1][1] == extent * step:
                runs[-1] = (runs[-1][0] * extent, step)
            elif extent > 1:
                runs.append((extent, step))
        runs = [(1, 1)] * (2 - len(runs)) + runs  # what reads a record expects rows
        return tuple(n for n, _ in runs), tuple(step for _, step in runs)


class Tensor(OperandValue):
    """A view of a buffer: element (i, j, …) lies at `offset + i * strides[0] + j * strides[1] + …`, in a fractal one
    where `fractal` says.

    `captured` is the tensor as the runtime sees it: views made inside a region stand for the tensor they were made of.
    """

    __slots__ = ("_captured", "buffer", "dtype", "fractal", "offset", "shape", "strides", "valid")

    def __init__(
        self,
        buffer: LiveBuffer,
        offset: int,
        shape: Shape,
        strides: Shape,
        dtype: DataType | None = None,
        valid: Shape | None = None,
        captured: Tensor | None = None,
    ) -> None:
        self.buffer, self.offset, self.shape, self.strides = buffer, offset, shape, strides
        self.dtype = dtype or buffer.dtype
        self.valid = valid
        self._captured = captured  # None: itself, which would keep it and its elements until garbage is looked for
        self.fractal: Fractal | None = None

    def __class_getitem__(cls, item: object) -> signature.TensorType:
        return signature.tensor(item)

    def bind_dynamic(self, axis: int, variable: object) -> None:  # noqa: ARG002 (a name for the extent, known here)
        """Says that an axis is known at run time only."""
        if axis == 0 and self.shape == self.buffer.shape:
            self.buffer.rows_at_run_time = True

    @property
    def captured(self) -> Tensor:
        return self if self._captured is None else self._captured

    def view(self) -> Array:
        """The elements in storage type, aliasing GM."""
        return strided(self.buffer, self.offset, self.shape, self.strides, self.dtype)

    def laid_out(self, layout: str) -> Tensor:
        """The same memory, of which the program says that it lies in boxes."""
        view = Tensor(self.buffer, self.offset, self.shape, self.strides, self.dtype, self.valid, self.captured)
        view.fractal = Fractal.of(layout, self.shape, self.dtype)
        return view

    def seen_as(self, shape: Shape, strides: Shape, dtype: DataType, valid: Shape | None, in_task: bool) -> Tensor:
        """Another view that begins where this one does; inside a task it stands for the same captured tensor."""
        self.check_row_by_row("another view")
        captured = self.captured if in_task else None
        return Tensor(self.buffer, self.offset, shape, strides, dtype, valid, captured)

    def check_row_by_row(self, what: str) -> None:
        if self.fractal is not None:
            message = f"{what} of {self.buffer.name} {list(self.shape)}, which lies in GM as boxes"
            raise fault(message, "Such a tensor can be loaded as an operand of the cube, and cut along leading axes.")

    @property
    def is_contiguous(self) -> bool:
        wanted = row_major(self.shape)
        return all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, wanted, strict=True))

    def __repr__(self) -> str:
        return f"Tensor({self.buffer.name}, {list(self.shape)}, {self.dtype})"


_HELD_HERE = 3  # references to an array that one tile holds, as `sys.getrefcount` counts: its own and a name are two


@dataclass(slots=True, eq=False, repr=False)
class Tile(OperandValue):
    """A value on chip. `array` is None where `shapes` mode computed nothing. Born in one block; elsewhere it lives in
    GM.
    """

    source: Array | Callable[[], Array] | None  # of `array`, or what makes it when somebody asks
    shape: Shape
    dtype: DataType
    valid: Shape | None = None
    space: str | None = None
    block: BlockDraft | None = None
    frame: Frame | None = None
    iteration: int = 0
    index: int = 0
    promoted: Tensor | None = None
    overwritten: str = ""  # why what it held is gone
    part_of: tuple[Tile, tuple[Whole, ...]] | None = None  # of an accumulator: where products into this part go, too
    drains: bool = False  # an accumulator that its own way out may have changed so (lower/epilogue.py)
    boxes: str = ""  # the layout of a tile that lies in small boxes, MX scales: another shape shows their order
    looks: int = 0  # how often somebody asked for its elements

    @property
    def array(self) -> Array | None:
        """The elements."""
        self.looks += 1
        made = self.source
        return made() if callable(made) else made

    @array.setter
    def array(self, array: Array | None) -> None:
        self.source = array

    def writable(self) -> Array:
        """The array, to be written in place: copied where anybody else holds it, or a part of it."""
        array = self.array
        assert array is not None
        if array.base is not None or sys.getrefcount(array) > _HELD_HERE:
            self.array = array = array.copy()
        return array

    def __class_getitem__(cls, item: object) -> signature.TensorType:
        return signature.tensor(item)

    def __repr__(self) -> str:
        return f"Tile({list(self.shape)}, {self.dtype})"


def window(box: Sequence[int], offset: Sequence[int] | None = None) -> tuple[slice, ...]:
    """The elements of an array in a box: at its front, or at an offset."""
    if offset is None:
        return tuple([slice(n) for n in box])
    return tuple([slice(first, first + n) for first, n in zip(offset, box, strict=True)])


def strided(buffer: LiveBuffer, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: DataType) -> Array:
    """The named elements of a buffer, aliasing it."""
    size = dtype.bytes
    return np.ndarray(
        tuple(shape),
        dtype.storage,
        buffer=buffer.data,
        offset=offset * buffer.dtype.bytes,
        strides=tuple([s * size for s in strides]),
    )


@dataclass(slots=True, eq=False)
class LiveBuffer:
    """One piece of GM. `data` is None where `shapes` mode keeps no values, and made where somebody first asks for it if
    it is an input that may steer nothing. `written` marks elements once they hold something (None: all do).
    """

    id: int
    name: str
    shape: Shape
    dtype: DataType
    source: Array | Callable[[], Array] | None  # of `data`, or what makes it when somebody asks
    written: npt.NDArray[np.bool_] | None  # flat
    aside: Array | None = None  # a second memory, not in use (run/memory.py)
    known: bool = True  # shapes mode: no uncomputed value was stored here
    run: object = None  # whose it is
    read_only: bool = False  # a parameter of the entry without a direction
    rows_at_run_time: bool = False  # a parameter whose outermost extent the program does not know
    changes: int = 0  # stores by others than the blocks of the task under way
    edits: int = 0  # shapes mode: how often whole numbers were written
    promise: Callable[[], Array] | None = None  # of elements that this run does not keep
    promised_row: Callable[[int], Array] | None = None  # of those, a row of the outermost axis, only to be read

    @property
    def data(self) -> Array | None:
        """The elements, flat."""
        if callable(self.source):
            self.source = self.source()
        return self.source

    @data.setter
    def data(self, data: Array | None) -> None:
        self.source = data

    @property
    def keeps_values(self) -> bool:
        return self.source is not None

    @property
    def size_in_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bytes

    @property
    def is_made(self) -> bool:
        """Whether its elements are there and not only a promise."""
        return not callable(self.source)

    def swap(self) -> None:
        if self.aside is not None:
            self.data, self.aside = self.aside, self.data

    def copy_on_write(self) -> None:
        """Copies what is the caller's, before the first write to it; what is not made yet, when it is."""
        made = self.source
        if callable(made):
            self.source = lambda: _writable(made())
        elif made is not None and not made.flags.writeable:
            self.data = made.copy()
            self.aside = None if self.aside is None else self.aside.copy()

    def written_mask(self, start: int, box: Sequence[int], strides: Sequence[int]) -> npt.NDArray[np.bool_] | None:
        """Which elements of a box were written, to be looked at or set; None: all of them."""
        if self.written is None:
            return None
        return np.ndarray(tuple(box), np.bool_, buffer=self.written, offset=start, strides=tuple(strides))

    def changed(self) -> None:
        """Somebody else than the block under way stores here: what it loaded before is out of date."""
        self.changes += 1


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()
