"""Loops: `range`, `parallel`, `pipeline`, `unroll`, `while_`, `split_aiv`, and values carried from turn to turn."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

from npuscope.base.errors import NpuscopeError
from npuscope.tile.enums import SplitMode
from npuscope.tile.fault import fault
from npuscope.tile.record.model import NO_EFFECT
from npuscope.tile.record.recorder import Frame
from npuscope.tile.run.block import Block
from npuscope.tile.run.orchestration import Carry
from npuscope.tile.run.regions import half_of
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.shapes.mode import TurnState, bound, changeable, user_frame
from npuscope.tile.values.checks import flag, index, is_number, member, shown
from npuscope.tile.values.lanes import Number, Whole, plain
from npuscope.tile.values.tensors import Tile

LONGEST_LOOP = 1 << 27
VARIABLE = "NPUSCOPE_MOST_TURNS"
MOST_TURNS = 100_000  # of a loop that says itself when it ends: no public program has one of more than a few hundred
Kind = Literal["range", "parallel", "pipeline", "unroll"]
Value = TypeVar("Value")


class TileLoop:
    """What `for i in pl.range(...)` walks over."""

    def __init__(
        self,
        kind: Kind,
        bounds: tuple[object, ...],
        stage: int = 1,
        init_values: object = None,
        chunk: int | None = None,
    ) -> None:
        if not 1 <= len(bounds) <= 3:
            raise fault(f"pl.{kind} takes (stop), (start, stop) or (start, stop, step)")
        numbers = [b if type(b) is int else index(b, f"pl.{kind}", "a bound") for b in bounds]
        start, stop, *step = numbers if len(numbers) > 1 else (0, *numbers)
        self.kind, self.stage, self.chunk = kind, stage, chunk
        self.start, self.stop, self.step = start, stop, step[0] if step else 1
        self.init_values = None if init_values is None else _initial(kind, init_values)
        self.carry: Carry | None = None
        self.holds_tasks = False
        self.known_bounds = False  # whether the compiler knows how many turns there are
        # What turns hand to each other; known once the rewritten program said it.
        self._names_known = False
        self._names: tuple[str, ...] = ()  # names that the body may read before it sets them
        self._in_reach: list[object] = []  # lists and tiles that it may change
        self._seeded = False  # whether some of the names hold a tile or number from before the loop

    def __iter__(self) -> Iterator[object]:
        run = current()
        draws = run.orchestration.draws
        turns: Iterator[object]
        if draws is not None and (run.block is None or draws.held):
            turns = draws.turns(self)
        elif run.block is not None:
            turns = in_region(run, run.block, self)
        else:
            turns = in_orchestration(run, self)
        if self.init_values is None:
            return turns
        self.carry = Carry(self.init_values, run.block is not None)
        return _carrying(run, turns, self.carry)

    def trips(self) -> int:
        step = int(self.step)
        if step == 0:
            raise fault(f"pl.{self.kind} with step 0")
        distance = self.stop - self.start
        count = max(0, int((distance + (step - 1 if step > 0 else step + 1)) // step))
        if count > LONGEST_LOOP:
            raise fault(f"pl.{self.kind} of {count} turns: npuscope walks at most {LONGEST_LOOP}")
        return count

    def turns(self) -> range:
        """The turns one by one."""
        self.trips()
        return range(int(self.start), int(self.stop), int(self.step))

    def value(self, turn: Whole) -> Number:
        """The loop variable in one turn, or in several as lanes."""
        return self.start + turn * self.step

    # --- what turns hand to each other

    def note_names(self, names: tuple[str, ...], used: tuple[str, ...], values: Mapping[str, object]) -> None:
        """The names that the body may read before it sets them, all it uses, and what they hold before the loop."""
        if self._names_known:
            return
        self._names_known, self._names = True, names
        reached = [values.get(name) for name in used]
        self._in_reach = [*changeable(reached), *(one for one in reached if type(one) is Tile)]
        held = [values.get(name) for name in names]
        self._seeded = self.init_values is not None or any(is_number(x) or type(x) is Tile for x in held)

    def note_names_of(self, other: TileLoop) -> None:
        """The same as of a loop that this one is a part of."""
        self._names_known, self._names, self._in_reach = other._names_known, other._names, other._in_reach

    def may_go_together(self, done: int, single: int) -> bool:
        """Whether turns may be run as one. The first finds what came before the loop, the others what a turn left.
        Turns that never start alike are run one by one, with plain numbers; now and then more are tried.
        """
        return self._names_known and (done > 0 or not self._seeded) and (single < 2 or done & (done - 1) == 0)

    def state(self, block: Block, frame: Frame, turn: int) -> TurnState:
        """What a turn finds, or leaves."""
        values: list[object] = list(self._in_reach) if self.carry is None else [*self._in_reach, self.carry.values]
        user = user_frame() if self._names else None
        if user is not None:
            values += bound(user.f_locals, self._names)
        return TurnState(block, frame, turn, values)


def _initial(kind: str, values: object) -> tuple[object, ...]:
    if not isinstance(values, list | tuple):
        raise fault(f"pl.{kind}: init_values= must be a tuple of values, not {shown(values)}")
    return tuple(values)


def _carrying(run: TileRun, turns: Iterator[object], carry: Carry) -> Iterator[tuple[object, tuple[object, ...]]]:
    with run.orchestration.carrying(carry):
        for i in turns:
            yield i, carry.values


def yield_(*values: object) -> object:
    """The values carried into the next turn; after the loop the names on its left hold the last ones."""
    current().orchestration.carry_on(values)
    return values if len(values) != 1 else values[0]


def in_orchestration(run: TileRun, loop: TileLoop) -> Iterator[object]:
    if loop.kind == "pipeline":
        raise fault("pl.pipeline outside a task", "Pipelines overlap the work of one core: use it inside a region.")
    if loop.kind == "range" and loop.known_bounds and loop.trips() == 1:
        yield loop.start  # the compiler puts the body in the loop's place (Simplify, fold B)
        return
    yield from run.orchestration.turns(loop.kind, loop.turns())


def in_region(run: TileRun, block: Block, loop: TileLoop) -> Iterator[object]:
    if loop.kind == "parallel" and run.orchestration.draws is None:
        run.recorder.notice("parallel", "pl.parallel inside a task runs in order, as pl.range does")
    if block.handover is not None:  # two functions write into one record, turn by turn
        yield from loop.turns()
        return
    with block.loop(run.recorder, "range" if loop.kind == "parallel" else loop.kind, loop.stage) as frame:
        if run.shapes.on:
            yield from _by_lanes(run, block, frame, loop)
            return
        for i in loop.turns():
            yield i
            frame.turn(1)


def _by_lanes(run: TileRun, block: Block, frame: Frame, loop: TileLoop) -> Iterator[object]:
    """Runs the body once for each run of iterations that behave alike (see values/lanes.py)."""
    shapes = run.shapes
    trips = loop.trips()
    done = single = 0
    while done < trips:
        width = trips - done if loop.may_go_together(done, single) else 1
        before = loop.state(block, frame, frame.iteration) if width > 1 else None
        shapes.begin_pass(width, before)
        left = True
        try:
            yield loop.value(shapes.lane_numbers(done, width, frame.depth))
            left = False
            if before is not None and shapes.axes.sizes[-1] > 1:
                same = before.same_turns(loop.state(block, frame, frame.iteration + 1), shapes.axes)
                shapes.axes.keep(same)
                single = single + 1 if same == 1 else 0
        finally:
            if left:  # by break: no turn comes after this one
                shapes.axes.keep(1)
            frame.offsets = shapes.trimmed(frame.offsets)
            count = shapes.end_pass()
        frame.turn(count)
        done += count


class While:
    """`for x, y in pl.while_(init_values=(a, b)):` with `pl.cond(...)` as the first statement."""

    def __init__(self, init_values: object) -> None:
        if init_values is None:
            raise fault("pl.while_ needs init_values")
        self.init_values = _initial("while_", init_values)

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        run = current()
        carry = Carry(self.init_values, run.block is not None)
        with run.orchestration.carrying(carry):
            if run.block is None:
                for _ in run.orchestration.turns("while", counted()):
                    yield carry.values
                return
            with run.block.loop(run.recorder, "while", 1) as frame:
                for _ in counted():
                    with run.shapes.one_lane():
                        yield carry.values
                    frame.turn(1)


def counted() -> Iterator[int]:
    """The turns of one `while` loop, from 0, as many as it may have; NPUSCOPE_MOST_TURNS raises that."""
    given = os.environ.get(VARIABLE, "") or str(MOST_TURNS)
    if not given.isdecimal() or int(given) < 1:
        raise NpuscopeError(f"{VARIABLE} is '{given}': it must be a whole number from 1")
    most = int(given)
    yield from range(most)
    raise fault(
        f"this loop has gone on for {most:,} turns and does not seem to end",
        f"Mend its condition, or let it go on: {VARIABLE}={10 * most} npuscope …",
    )


class SplitAiv:
    """`for lane in pl.split_aiv(2, mode=...)`: the body on each of the two vector cores."""

    def __init__(self, n: object, mode: object) -> None:
        if index(n, "pl.split_aiv", "the number of lanes") != 2:
            raise fault(f"pl.split_aiv({n}): a core group has 2 vector cores")
        self.mode = member(mode, SplitMode, "split_aiv", "mode")

    def __iter__(self) -> Iterator[int]:
        run = current()
        block = run.region("split_aiv")
        if block.vector.inside:
            raise fault("pl.split_aiv inside a pl.split_aiv region")
        if block.task.form == "call":
            raise fault("pl.split_aiv inside an incore function", "Open it in a pl.at region.")
        with block.loop(run.recorder, "split_aiv", 1) as frame:
            try:
                for core in range(2):
                    block.vector.enter(core, half_of(self.mode))
                    with run.shapes.one_lane():
                        yield core
                    frame.turn(1)
            finally:
                block.vector.leave()


def _chunk(kind: str, chunk: object, policy: object, attrs: object) -> int | None:
    """The size of chunks, of which only some scopes of old programs make anything (language/runtime.py)."""
    _check_attrs(kind, attrs)
    if policy not in (None, "guarded", "leading_full"):
        raise fault(f"pl.{kind}: chunk_policy= is 'guarded' or 'leading_full', not {shown(policy)}")
    chunk = plain(chunk)
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise fault(f"pl.{kind}: chunk= must be a whole number from 1, not {shown(chunk)}")
    return chunk


def _check_attrs(kind: str, attrs: object) -> None:
    """What the compiler's passes write to a loop of a printed program: nothing that changes it here."""
    if attrs is not None and not isinstance(attrs, dict):
        raise fault(f"pl.{kind}: attrs= is a dict, not {shown(attrs)}")
    for name in attrs or ():
        current().recorder.notice(NO_EFFECT, f"pl.{kind}: attrs= with {name!r} is for the compiler's passes")


def range_(
    *bounds: object, init_values: object = None, chunk: object = None, chunk_policy: object = None, attrs: object = None
) -> TileLoop:
    """Sequential."""
    return TileLoop("range", bounds, init_values=init_values, chunk=_chunk("range", chunk, chunk_policy, attrs))


def parallel(
    *bounds: object, init_values: object = None, chunk: object = None, chunk_policy: object = None, attrs: object = None
) -> TileLoop:
    """Iterations that the program says are independent; orchestration only."""
    return TileLoop("parallel", bounds, init_values=init_values, chunk=_chunk("parallel", chunk, chunk_policy, attrs))


def pipeline(*bounds: object, stage: object = None, init_values: object = None, attrs: object = None) -> TileLoop:
    """Sequential, with buffers for `stage` turns at once; inside a region only."""
    stage = plain(stage)
    _check_attrs("pipeline", attrs)
    if not isinstance(stage, int) or stage < 1:
        raise fault(f"pl.pipeline needs stage= of at least 1, not {shown(stage)}")
    return TileLoop("pipeline", bounds, stage=stage, init_values=init_values)


def unroll(
    *bounds: object, init_values: object = None, chunk: object = None, chunk_policy: object = None, attrs: object = None
) -> TileLoop:
    """Written out turn by turn; literal bounds, nothing carried."""
    if init_values is not None:
        raise fault("pl.unroll carries no values", "Use pl.range with init_values.")
    bounds = tuple([plain(b) for b in bounds])
    if not all(isinstance(b, int) for b in bounds):
        raise fault("pl.unroll needs bounds known when the program is read")
    return TileLoop("unroll", bounds, chunk=_chunk("unroll", chunk, chunk_policy, attrs))


def while_(*, init_values: object = None) -> While:
    return While(init_values)


def cond(condition: object) -> bool:
    """Whether a while_ loop goes on; stands first in its body."""
    return flag(condition, "cond", "its condition")


def split_aiv(n: object, *, mode: object) -> SplitAiv:
    return SplitAiv(n, mode)


# --- said by the rewritten program


def carried(loop: Value, names: tuple[str, ...], used: tuple[str, ...], values: Mapping[str, object]) -> Value:
    """The names that a loop's body may read before it sets them, and all it uses."""
    if isinstance(loop, TileLoop):
        loop.note_names(names, used, values)
    return loop


def holds_tasks(loop: Value) -> Value:
    """Tasks are made inside this loop."""
    if isinstance(loop, TileLoop):
        loop.holds_tasks = True
    return loop


def known_bounds(loop: Value) -> Value:
    """The bounds of this loop are constants."""
    if isinstance(loop, TileLoop):
        loop.known_bounds = True
    return loop
