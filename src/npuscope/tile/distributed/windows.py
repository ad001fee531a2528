"""Windows: buffers that every rank has one of, at the same place, so that peers can write into each other's.

`alloc_window_buffer` names a buffer, `window` says what it holds. Which rank's copy is meant follows from the device of
the call it is handed to. Ranks are the devices that use the buffer, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType
from npuscope.ops.numeric.arrays import Array
from npuscope.tile.fault import fault
from npuscope.tile.run.arguments import Elsewhere, Parameter
from npuscope.tile.run.orchestration import OneRank
from npuscope.tile.run.state import Run
from npuscope.tile.values.buffers import LiveBuffer, contiguous
from npuscope.tile.values.checks import dtype_of, shape_of
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Tensor


class WindowBuffer:
    """So many bytes on every rank, zero at first."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.bytes = name, size
        self.devices: set[int] = set()
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}
        self._seen: dict[int, list[LiveBuffer]] = {}  # what programs on a device hold of it

    def memory(self, device: int, dtype: DataType, elements: int) -> Array:
        """A device's copy as flat elements of a type."""
        if device not in self._memory:
            self._memory[device] = np.zeros(self.bytes, np.uint8)
        assert dtype.storage is not None
        return self._memory[device][: elements * dtype.bytes].view(dtype.storage)

    def device_of(self, rank: int) -> int:
        ranks = sorted(self.devices)
        if not 0 <= rank < len(ranks):
            raise fault(f"no rank {rank} has the window {self.name}", f"Its ranks are 0 to {len(ranks) - 1}.")
        return ranks[rank]

    def rank_of(self, device: int) -> int:
        return sorted(self.devices).index(device)

    def hold(self, device: int, buffer: LiveBuffer) -> None:
        self._seen.setdefault(device, []).append(buffer)

    def changed(self, device: int) -> None:
        """A peer wrote: tiles that a program loaded before are not what memory holds now."""
        for buffer in self._seen.get(device, ()):
            buffer.changed()


class Window(Elsewhere):
    """A window buffer as a tensor; a tensor of GM once a call on a device has it."""

    def __init__(self, buffer: WindowBuffer, shape: tuple[int, ...], dtype: DataType) -> None:
        self.buffer, self.shape, self.dtype = buffer, shape, dtype

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def enter(self, run: Run, parameter: Parameter) -> Tensor:
        rank = run.orchestration.rank
        if rank is None:
            raise fault(f"the window {self.buffer.name} outside a rank", "Call the function with device=.")
        for known, window in rank.windows.items():
            held = run.gm.buffers[known]
            same = isinstance(window, Window) and window.buffer is self.buffer
            if same and held.dtype is self.dtype and held.shape == self.shape:
                return Tensor(held, 0, self.shape, contiguous(self.shape))
        data = self.buffer.memory(rank.device, self.dtype, self.elements) if run.computes else None
        way = parameter.direction or "InOut"
        buffer = run.gm.add(
            parameter.name, self.shape, self.dtype, data, origin="parameter", direction=way, written=True
        )
        buffer.known = run.computes  # without computing nobody knows what a peer wrote
        rank.hold(buffer.id, self)
        self.buffer.hold(rank.device, buffer)
        return Tensor(buffer, 0, self.shape, contiguous(self.shape))


def held_window(run: Run, value: object) -> tuple[OneRank, Window] | None:
    """The rank of a run and the window that a tensor of it is, or is a view of."""
    rank = run.orchestration.rank
    window = rank.windows.get(value.buffer.id) if rank is not None and isinstance(value, Tensor) else None
    return (rank, window) if rank is not None and isinstance(window, Window) else None


def alloc_window_buffer(
    size: int | Lane | Sequence[int | Lane], *, dtype: object = None, name: str = ""
) -> WindowBuffer:
    """A buffer on every rank: its size in bytes, or a shape with a dtype."""
    if isinstance(size, Sequence):
        kind = dtype_of(dtype, "alloc_window_buffer")
        count = int(np.prod(shape_of(size), dtype=np.int64)) * kind.bytes
    else:
        count = int(size)
    if count <= 0:
        raise fault(f"pld.alloc_window_buffer of {count} bytes")
    return WindowBuffer(name or "window", count)


def window(buf: object, shape: Sequence[int | Lane], *, dtype: object) -> Window:
    """This rank's part of a window buffer as a tensor."""
    if not isinstance(buf, WindowBuffer):
        raise fault("pld.window takes what pld.alloc_window_buffer made")
    made = Window(buf, shape_of(shape), dtype_of(dtype, "window"))
    if made.elements * made.dtype.bytes > buf.bytes:
        raise fault(
            f"pld.window {list(made.shape)} of {made.dtype} takes {made.elements * made.dtype.bytes} bytes; "
            f"{buf.name} has {buf.bytes}"
        )
    return made
