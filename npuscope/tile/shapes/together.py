"""Equal tasks of a run, executed as one: forty layers cost little more than one does.

In `shapes` mode a task leaves nothing behind but its record, unless it writes whole numbers that steer the program or
hands on a tile. So its body need not run when it is launched. The first task of each kind does (a kind: the same code,
tensors of the same shapes that alias each other in the same way, other names alike; whole numbers may differ). If it
left nothing behind, those that follow wait, and when the program has ended they run together (twins.py). If it wrote
whole numbers and nothing else, those that follow with the same numbers, in arguments and tensors, write the same.

Nothing is assumed: what a task leaves is compared again when it runs, what it reads besides its arguments must not
have changed (outside.py), and where anything differs, or any error comes up, the whole program is run anew with every
task in its turn (`Apart`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from npuscope.tile.record.recorder import Key, TaskDraft
from npuscope.tile.run.state import Run
from npuscope.tile.shapes import twins
from npuscope.tile.shapes.outside import Outside, is_constant
from npuscope.tile.shapes.steering import Again
from npuscope.tile.shapes.twins import KEPT, Kind, Waiting
from npuscope.tile.values.tensors import Tensor
from npuscope.tile.values.unknown import Unknown

_MOST_BYTES = 1 << 20  # of whole numbers that a task may look at and still wait
_WIDE = 1 << 31  # from here on a number is not put in a lane
_NUMBER, _NEW, _WRITES = object(), object(), object()


class Apart(BaseException):
    """Tasks cannot be run together after all: the program is run again with each in its turn."""


class Together:
    """The tasks of one run that wait for others like them."""

    def __init__(self) -> None:
        self._outside: dict[int, Outside] = {}
        self._kinds: dict[Key, Any] = {}  # a Kind; None: its tasks run at once; _WRITES: equal numbers make a kind
        self.waits = False  # whether any task does

    def task(
        self,
        run: Run,
        task: TaskDraft,
        blocks: int,
        body: Callable[..., Any],
        values: list[Any],
        left: tuple[str, ...],
        execute: Callable[[], dict[str, Any]],
    ) -> tuple[Waiting | None, dict[str, Any]]:
        """Runs a task's body on these values, or lets it wait; the names that it leaves, of those asked for."""
        if run.cluster is not None or run.auto is not None or run.no_dep_next:
            return None, execute()
        outside = self._outside.get(id(body.__code__))
        if outside is None:
            outside = self._outside[id(body.__code__)] = Outside(cast(Any, body))
        key = _likeness(values) if outside.known else None
        if key is None:
            return None, execute()
        key = (id(body.__code__), blocks, bool(run.carries), *key)
        kind = self._kinds.get(key, _NEW)
        if exact := kind is _WRITES:
            key = _with_numbers(key, values)
            kind = self._kinds.get(key, _NEW)
        if kind is None or not outside.unchanged():
            return None, execute()
        waiting = Waiting(task, values)
        if kind is _NEW:
            kind = Kind(body, blocks, outside, left, bool(run.carries))
            return None, self._first(run, key, kind, waiting, exact, execute)
        kind.add(waiting)
        self.waits = True
        return waiting, {name: values[k] for name, k in zip(left, kind.hands_back, strict=True) if k != KEPT}

    def _first(
        self, run: Run, key: Key, kind: Kind, first: Waiting, exact: bool, execute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Runs the first task of a kind; whether others may wait is seen by what it leaves."""
        marks, writes, name = twins.marks(run), run.writes, first.task.kernel
        after = execute()
        hands_back = _hands_back(kind.left, after, first.values)
        leaves = hands_back is None or marks != twins.marks(run)
        if not leaves and not exact and run.writes != writes:
            self._kinds[key] = _WRITES
            key, exact = _with_numbers(key, first.values), True
        if exact:
            kind.keep_first(first)
        kind.hands_back = hands_back or []
        self._kinds[key] = None if leaves or (exact and first.task.kernel != name) else kind
        return after

    def finish(self, run: Run) -> None:
        """Runs what waits."""
        try:
            for kind in self._kinds.values():
                if isinstance(kind, Kind) and kind.waiting:
                    if not kind.outside.unchanged():
                        raise Apart
                    twins.run_all(run, kind)
        except (Exception, twins.Differs, Again) as error:
            raise Apart from error


def _hands_back(left: tuple[str, ...], after: dict[str, Any], values: list[Any]) -> list[int] | None:
    """For each name, the argument that it stands for after the task; None where some stand for anything else."""
    places = {id(value): k for k, value in enumerate(values) if type(value) is Tensor}
    found = [places.get(id(after[name])) if name in after else KEPT for name in left]
    return None if None in found else cast(list[int], found)


def _with_numbers(key: Key, values: list[Any]) -> Key:
    return (*key, *[value for value in values if type(value) is int])


def _likeness(values: list[Any]) -> Key | None:
    """Equal for tasks that may be run as one; None for one that may not."""
    key: list[Any] = []
    objects: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for place, value in enumerate(values):
        kind = type(value)
        if kind is int:
            key.append(_NUMBER if -_WIDE < value < _WIDE else value)
        elif kind is Tensor:
            same = objects.setdefault(id(value), place)
            if same != place:
                key.append((same,))
                continue
            buffer = value.buffer
            around = buffers.setdefault(buffer.id, place)
            about = _kept_numbers(value) if buffer.data is not None else None
            if value.captured is not value or (about is None and buffer.data is not None):
                return None
            if around != place:  # several views of one buffer: which of them are the same argument
                about = (about, around, _first_like(values, value))
            flags = (buffer.read_only, buffer.rows_at_run_time)
            key.append((value.shape, value.strides, value.dtype.name, value.valid, buffer.shape, flags, about))
        elif value is None or kind is Unknown or kind is object:  # object: a name without a value
            key.append(("is", id(value)))
        elif is_constant(value) and kind.__module__ != "npuscope.tile.values.task_ids":
            key.append((kind, repr(value)))
        else:
            return None
    return tuple(key)


def _kept_numbers(tensor: Tensor) -> Key | None:
    """Whole numbers that a task may steer by: all of them, and where the tensor lies among them."""
    buffer = tensor.buffer
    assert buffer.data is not None
    if not buffer.known:
        return (tensor.offset, None)
    return None if buffer.data.nbytes > _MOST_BYTES else (tensor.offset, buffer.data.tobytes())


def _first_like(values: list[Any], tensor: Tensor) -> int:
    wanted = twins.argument_key(tensor)
    return next(k for k, value in enumerate(values) if type(value) is Tensor and twins.argument_key(value) == wanted)
