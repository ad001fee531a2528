"""Which way each argument goes at submission, as the compiler derives it from the kernel and the call.

The kernel's own direction: as declared (Out and InOut stay; In is lifted where the body writes), for a region Out if
it only writes the tensor and InOut if it also reads any of it, atomic adds included. At the call a kernel's Out
becomes InOut by one of three rules, and is OutputExisting otherwise.

- R-seq: under any sequential loop (range, while).
- R-prior: after an earlier writer of the same root in the scope. Scopes nest by loops: a call sees writers before it
  in its own turn and before the loops around it, not those of other turns, for they are the same statements again.
  `unroll` is expanded before this, so its turns are statements one after the other.
- R-enclosing: where the root is a parameter of the entry declared InOut.

A root is a whole buffer or one slice of it; a reshaped view has none, and only R-seq holds for it. Known difference:
an `if` arm that did not run leaves no writer here; in the compiler it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal

from npuscope.tile.graph.boxes import row_major
from npuscope.tile.record.model import Argument, Buffer, Recording

Direction = Literal["Input", "OutputExisting", "InOut", "NoDep"]
Called = Literal["In", "Out", "InOut"]
Root = tuple[int, int, tuple[int, ...], tuple[int, ...]]
Place = tuple[int, int]  # a turn of a loop, unique in the run


def derive_directions(recording: Recording) -> Iterator[tuple[Direction, ...]]:
    """Per task one direction per argument."""
    written: dict[Root, _Writers] = {}
    for task in recording.tasks:
        sequential = any(turn.kind in ("range", "while") for turn in task.turns)
        places = [(turn.loop, turn.turn) for turn in task.turns if turn.kind != "unroll"]
        found, roots = [], []
        for argument in task.arguments:
            called = called_direction(argument)
            if called == "In":
                found.append(_input(argument))
                continue
            root = _root(argument, recording.buffers[argument.buffer])
            roots.append(root)
            after = called == "InOut" or sequential or _prior(written, root, places)
            found.append(_output(argument, after, root, recording.buffers[argument.buffer]))
        yield tuple(found)
        for root in roots:
            if root is not None:
                written.setdefault(root, _Writers()).add(places)


def called_direction(argument: Argument) -> Called:
    """What the kernel's signature says, declared or inferred from its body."""
    if argument.declared in ("Out", "InOut"):
        return argument.declared
    if not argument.writes:
        return "In"
    return "InOut" if argument.reads else "Out"


def _input(argument: Argument) -> Direction:
    return "NoDep" if argument.no_dep else "Input"


def _output(argument: Argument, after: bool, root: Root | None, buffer: Buffer) -> Direction:
    """`after`: what it held before counts."""
    if argument.no_dep:
        return "NoDep"
    if after:
        return "InOut"
    enclosing = root == _whole(buffer) and buffer.origin == "parameter" and buffer.direction == "InOut"
    return "InOut" if enclosing else "OutputExisting"


def _root(argument: Argument, buffer: Buffer) -> Root | None:
    """The statement that made the tensor, as far as a run shows it: the buffer, a slice, or (None) a reshape."""
    root = (argument.buffer, argument.offset, argument.shape, argument.strides)
    whole = _whole(buffer)
    if root == whole:
        return root
    reshaped = argument.offset == 0 and argument.strides == row_major(argument.shape)
    same_size = prod(argument.shape) == prod(buffer.shape)
    return None if reshaped and same_size else root


def _whole(buffer: Buffer) -> Root:
    return (buffer.id, 0, buffer.shape, row_major(buffer.shape))


def _prior(written: dict[Root, _Writers], root: Root | None, places: list[Place]) -> bool:
    return root is not None and root in written and written[root].before(places)


class _Writers:
    """Where a root was written, as far as a later call must know: per turn, into which loop of it the writer went."""

    HERE = -1  # in the turn itself, in no loop
    SEVERAL = -2

    def __init__(self) -> None:
        self.into: dict[Place | None, int] = {}

    def add(self, places: list[Place]) -> None:
        for place, loop in self._steps(places):
            known = self.into.setdefault(place, loop)
            if known != loop:
                self.into[place] = self.SEVERAL

    def before(self, places: list[Place]) -> bool:
        """True if a writer stands before a call at `places`: around it, but not in another turn of one loop."""
        return any(
            place in self.into and (loop == self.HERE or self.into[place] != loop)
            for place, loop in self._steps(places)
        )

    def _steps(self, places: list[Place]) -> Iterator[tuple[Place | None, int]]:
        around: Place | None = None
        for place in places:
            yield around, place[0]
            around = place
        yield around, self.HERE
