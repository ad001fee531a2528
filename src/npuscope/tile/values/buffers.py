"""GM while a program runs: buffers, of which tensors are strided views."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric.arrays import Array


class LiveBuffer:
    """One piece of GM. `data` is None where `shapes` mode keeps no values; `written` marks elements once they hold
    something (None: all do).
    """

    __slots__ = (
        "aside",
        "changes",
        "data",
        "dtype",
        "id",
        "known",
        "manual_dep",
        "name",
        "read_only",
        "rows_at_run_time",
        "shape",
        "written",
    )

    def __init__(
        self,
        id: int,
        name: str,
        shape: tuple[int, ...],
        dtype: DataType,
        data: Array | None,
        written: npt.NDArray[np.bool_] | None,
        manual_dep: bool = False,
    ) -> None:
        self.id, self.name, self.shape, self.dtype = id, name, shape, dtype
        self.data = data  # flat
        self.written = written  # flat
        self.aside: Array | None = None  # a second memory, not in use (order_phase.py)
        self.known = True  # shapes mode: no uncomputed value was stored here
        self.manual_dep = manual_dep
        self.read_only = False  # a parameter of the entry without a direction
        self.rows_at_run_time = False  # a parameter whose outermost extent the program does not know
        self.changes = 0  # stores by others than the blocks of the task under way

    def swap(self) -> None:
        if self.aside is not None:
            self.data, self.aside = self.aside, self.data

    def own(self) -> None:
        """Copies what is the caller's, before the first write to it."""
        if self.data is not None and not self.data.flags.writeable:
            self.data = self.data.copy()
            self.aside = None if self.aside is None else self.aside.copy()

    def changed(self) -> None:
        """Somebody else than the block under way stores here: what it loaded before is out of date."""
        self.changes += 1


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
