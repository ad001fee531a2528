"""Whether tasks are of one kind, as far as their arguments tell.

They are if their tensors have the same shapes and alias each other in the same way, if whole numbers in them that may
steer the program are equal, and if all else but plain whole numbers is alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.tile.record.recorder import TensorKey
from npuscope.tile.shapes.outside import is_constant
from npuscope.tile.values.task_ids import TaskId
from npuscope.tile.values.tensors import Tensor
from npuscope.tile.values.unknown import Unknown

_MOST_BYTES = 1 << 20  # of whole numbers that a task may look at and still be like another
_WIDE = 1 << 31  # a number from here on is part of the kind
NUMBER = object()  # stands in a key for a number in which tasks may differ
Key = tuple[object, ...]


def argument_key(tensor: Tensor) -> TensorKey:
    """What a task knows an argument by."""
    return (tensor.buffer.id, tensor.offset, tensor.shape, tensor.strides)


def likeness(values: list[object]) -> tuple[Key, tuple[int, ...]] | None:
    """Equal for tasks of one kind, and the whole numbers in which they may differ; None for one that is like no
    other.
    """
    key: list[object] = []
    numbers: list[int] = []
    objects: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for place, value in enumerate(values):
        kind = type(value)
        if type(value) is int:
            if -_WIDE < value < _WIDE:
                key.append(NUMBER)
                numbers.append(value)
            else:
                key.append(value)
        elif type(value) is Tensor:
            same = objects.setdefault(id(value), place)
            if same != place:
                key.append((same,))
                continue
            buffer = value.buffer
            around = buffers.setdefault(buffer.id, place)
            about: Key | None = _kept_numbers(value) if buffer.data is not None else None
            if value.captured is not value or (about is None and buffer.data is not None):
                return None
            if around != place:  # several views of one buffer: which of them are the same argument
                about = (about, around, _first_like(values, value))
            flags = (buffer.read_only, buffer.rows_at_run_time)
            key.append((value.shape, value.strides, value.dtype.name, value.valid, buffer.shape, flags, about))
        elif value is None or kind is Unknown or kind is object:  # object: a name without a value
            key.append(("is", id(value)))
        elif is_constant(value) and kind is not TaskId:
            key.append((kind, repr(value)))
        else:
            return None
    return tuple(key), tuple(numbers)


def _kept_numbers(tensor: Tensor) -> Key | None:
    """Whole numbers that a task may steer by: all of them, and where the tensor lies among them."""
    buffer = tensor.buffer
    assert buffer.data is not None
    if not buffer.known:
        return (tensor.offset, None)
    return None if buffer.data.nbytes > _MOST_BYTES else (tensor.offset, buffer.data.tobytes())


def _first_like(values: Sequence[object], tensor: Tensor) -> int:
    wanted = argument_key(tensor)
    return next(k for k, value in enumerate(values) if type(value) is Tensor and argument_key(value) == wanted)
