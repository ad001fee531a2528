"""Loops: `range`, `parallel`, `pipeline`, `unroll`, `while_`, and values carried from turn to turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npuscope.tile.enums import SplitMode
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.frames import Frame
from npuscope.tile.record.model import Turn
from npuscope.tile.run.block import Block
from npuscope.tile.run.limits import Turns
from npuscope.tile.run.state import Carry, Run, current
from npuscope.tile.shapes.carried import State, bound, lists_of, user_frame
from npuscope.tile.shapes.steering import end_pass
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.checks import flag, index, is_number, shown
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Tile

MOST_TURNS = 1 << 27


class Loop:
    """What `for i in pl.range(...)` walks over."""

    def __init__(
        self, kind: str, bounds: tuple[Any, ...], stage: int = 1, init_values: Any = None, chunk: int | None = None
    ) -> None:
        if not 1 <= len(bounds) <= 3:
            raise fault(f"pl.{kind} takes (stop), (start, stop) or (start, stop, step)")
        bounds = tuple([b if type(b) is int else index(b, f"pl.{kind}", "a bound") for b in bounds])
        self.kind, self.stage, self.chunk = kind, stage, chunk
        self.start, self.stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        self.step = bounds[2] if len(bounds) == 3 else 1
        self.init_values = None if init_values is None else _initial(kind, init_values)
        self.told = False  # whether the rewritten program said what turns hand to each other:
        self.names: tuple[str, ...] = ()  # names that the body may read before it sets them
        self.lists: list[Any] = []  # lists in reach, which it may change
        self.seeded = False  # whether some of the names hold a tile or number from before the loop
        self.carry: Carry | None = None
        self.holds_tasks = False
        self.known_bounds = False  # whether the compiler knows how many turns there are

    def __iter__(self) -> Iterator[Any]:
        run = current()
        turns: Iterator[Any]
        if run.auto is not None and (run.block is None or run.auto.held):
            turns = run.auto.turns(run, self)
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
        count = max(0, int((self.stop - self.start + (step - 1 if step > 0 else step + 1)) // step))
        if count > MOST_TURNS:
            raise fault(f"pl.{self.kind} of {count} turns: npuscope walks at most {MOST_TURNS}")
        return count

    def turns(self) -> range:
        """The turns one by one."""
        self.trips()
        return range(int(self.start), int(self.stop), int(self.step))


def _initial(kind: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise fault(f"pl.{kind}: init_values= must be a tuple of values, not {shown(values)}")
    return tuple(values)


def _carrying(run: Run, turns: Iterator[Any], carry: Carry) -> Iterator[Any]:
    depth = len(run.carries)
    run.carries.append(carry)
    try:
        for i in turns:
            yield i, carry.values
    finally:
        del run.carries[depth:]


def yield_(*values: Any) -> Any:
    """The values carried into the next turn; after the loop the names on its left hold the last ones."""
    run = current()
    if run.carries:
        carry = run.carries[-1]
        # A loop of the orchestration knows plain numbers only, not those of a task that is watched.
        carry.values = values if carry.in_task else tuple([lanes.plain(value) for value in values])
    return values if len(values) != 1 else values[0]


def in_orchestration(run: Run, loop: Loop) -> Iterator[Any]:
    if loop.kind == "pipeline":
        raise fault("pl.pipeline outside a task", "Pipelines overlap the work of one core: use it inside a region.")
    if loop.kind == "range" and loop.known_bounds and loop.trips() == 1:
        yield loop.start  # the compiler puts the body in the loop's place (Simplify, fold B)
        return
    number = run.loops = run.loops + 1
    kind: Any = loop.kind
    turns = run.recorder.turns
    depth = len(turns)
    try:
        for turn, i in enumerate(loop.turns()):
            turns.append(Turn(number, kind, turn))
            yield i
            del turns[depth:]
    finally:
        del turns[depth:]


def in_region(run: Run, block: Block | None, loop: Loop) -> Iterator[Any]:
    assert block is not None
    if loop.kind == "parallel" and run.auto is None:
        run.recorder.finding("parallel", "pl.parallel inside a task runs in order, as pl.range does")
    kind = "range" if loop.kind == "parallel" else loop.kind
    frame = Frame(block.frame, (kind, loop.stage, sites.here()))
    block.frame = frame
    try:
        if not run.lanes:
            for i in loop.turns():
                yield i
                frame.turn(1)
        else:
            yield from _by_lanes(run, block, frame, loop)
    finally:
        if frame.items:  # left by break
            frame.turn(1)
        run.recorder.close_loop(frame, block)


def _by_lanes(run: Run, block: Block, frame: Frame, loop: Loop) -> Iterator[Any]:
    """Runs the body once for each run of iterations that behave alike (see lanes.py)."""
    trips = loop.trips()
    done = alone = 0
    while done < trips:
        # The first turn finds what came before the loop, the others what a turn left. Turns that never start alike
        # are run one by one, with plain numbers; now and then more are tried.
        wide = loop.told and (done > 0 or not loop.seeded) and (alone < 2 or done & (done - 1) == 0)
        width = trips - done if wide else 1
        AXES.open(width)
        before = _state(block, frame, frame.iteration, loop) if width > 1 else None
        left = True
        try:
            if width == 1:
                yield loop.start + done * loop.step
            else:
                steps = np.arange(done, trips, dtype=np.int64).reshape(-1, *(1,) * frame.depth)
                turns: Any = Lane(steps)
                yield loop.start + turns * loop.step
            left = False
            if before is not None and AXES.sizes[-1] > 1:
                same = before.same_turns(_state(block, frame, frame.iteration + 1, loop))
                AXES.keep(same)
                alone = alone + 1 if same == 1 else 0
        finally:
            if left:  # by break: no turn comes after this one
                AXES.keep(1)
            frame.offsets = AXES.trimmed(frame.offsets)
            kept = end_pass(run)
        frame.turn(kept)
        done += kept


def _state(block: Block, frame: Frame, turn: int, loop: Loop) -> State:
    values: list[Any] = [] if loop.carry is None else [loop.carry.values]
    user = user_frame() if loop.names else None
    if user is not None:
        values += bound(user.f_locals, loop.names)
    return State(block, frame, turn, values, loop.lists)


class While:
    """`for x, y in pl.while_(init_values=(a, b)):` with `pl.cond(...)` as the first statement."""

    def __init__(self, init_values: Any) -> None:
        if init_values is None:
            raise fault("pl.while_ needs init_values")
        self.init_values = _initial("while_", init_values)

    def __iter__(self) -> Iterator[Any]:
        run = current()
        carry = Carry(self.init_values, run.block is not None)
        outer = len(run.carries)
        run.carries.append(carry)
        frame = None
        if run.block is not None:
            frame = Frame(run.block.frame, ("while", 1, sites.here()))
            run.block.frame = frame
        else:
            run.loops += 1
        number = run.loops
        turns, depth = run.recorder.turns, len(run.recorder.turns)
        turn, counted = 0, Turns()
        try:
            while True:
                counted.turn()
                if frame is None:
                    turns.append(Turn(number, "while", turn))
                else:
                    AXES.open(1)
                try:
                    yield carry.values
                finally:
                    del turns[depth:]
                    if frame is not None:
                        AXES.close()
                if frame is not None:
                    frame.turn(1)
                turn += 1
        finally:
            del run.carries[outer:]
            if frame is not None and run.block is not None:
                if frame.items:  # left by break, or while its condition was worked out
                    frame.turn(1)
                run.recorder.close_loop(frame, run.block)


class SplitAiv:
    """`for lane in pl.split_aiv(2, mode=...)`: the body on each of the two vector cores."""

    def __init__(self, n: int, mode: Any) -> None:
        if index(n, "pl.split_aiv", "the number of lanes") != 2:
            raise fault(f"pl.split_aiv({n}): a core group has 2 vector cores")
        if not isinstance(mode, SplitMode):
            raise fault(f"pl.split_aiv needs mode=pl.SplitMode.…, not {shown(mode)}")
        self.n, self.mode = n, mode

    def __iter__(self) -> Iterator[int]:
        run = current()
        block = run.region("split_aiv")
        if block.split:
            raise fault("pl.split_aiv inside a pl.split_aiv region")
        if block.task.form == "call":
            raise fault("pl.split_aiv inside an incore function", "Open it in a pl.at region.")
        block.splits = block.split = True
        frame = Frame(block.frame, ("split_aiv", 1, sites.here()))
        block.frame = frame
        half = None if self.mode is SplitMode.NONE else self.mode.value
        try:
            for lane in range(self.n):
                block.aiv, block.half = lane, half
                AXES.open(1)
                try:
                    yield lane
                finally:
                    AXES.close()
                frame.turn(1)
        finally:
            block.aiv, block.half, block.split = 0, None, False
            block.gathered.clear()
            if frame.items:  # left by break
                frame.turn(1)
            run.recorder.close_loop(frame, block)


def _chunk(kind: str, chunk: Any, policy: Any) -> int | None:
    """The size of chunks, of which only some scopes of old programs make anything (language/auto_scope.py)."""
    if policy not in (None, "guarded", "leading_full"):
        raise fault(f"pl.{kind}: chunk_policy= is 'guarded' or 'leading_full', not {shown(policy)}")
    if chunk is not None and (not isinstance(chunk, int) or chunk < 1):
        raise fault(f"pl.{kind}: chunk= must be a whole number from 1, not {shown(chunk)}")
    return chunk


def range_(
    *bounds: Any, init_values: Any = None, chunk: Any = None, chunk_policy: Any = None, attrs: Any = None
) -> Loop:
    """Sequential."""
    return Loop("range", bounds, init_values=init_values, chunk=_chunk("range", chunk, chunk_policy))


def parallel(
    *bounds: Any, init_values: Any = None, chunk: Any = None, chunk_policy: Any = None, attrs: Any = None
) -> Loop:
    """Iterations that the program says are independent; orchestration only."""
    return Loop("parallel", bounds, init_values=init_values, chunk=_chunk("parallel", chunk, chunk_policy))


def pipeline(*bounds: Any, stage: int | None = None, init_values: Any = None, attrs: Any = None) -> Loop:
    """Sequential, with buffers for `stage` turns at once; inside a region only."""
    if not isinstance(stage, int) or stage < 1:
        raise fault(f"pl.pipeline needs stage= of at least 1, not {shown(stage)}")
    return Loop("pipeline", bounds, stage=stage, init_values=init_values)


def unroll(
    *bounds: Any, init_values: Any = None, chunk: Any = None, chunk_policy: Any = None, attrs: Any = None
) -> Loop:
    """Written out turn by turn; literal bounds, nothing carried."""
    if init_values is not None:
        raise fault("pl.unroll carries no values", "Use pl.range with init_values.")
    if not all(isinstance(b, int) for b in bounds):
        raise fault("pl.unroll needs bounds known when the program is read")
    return Loop("unroll", bounds, chunk=_chunk("unroll", chunk, chunk_policy))


def while_(*, init_values: Any = None) -> While:
    return While(init_values)


def cond(condition: Any) -> bool:
    """Whether a while_ loop goes on; stands first in its body."""
    return flag(condition, "cond", "its condition")


def split_aiv(n: int, *, mode: Any) -> SplitAiv:
    return SplitAiv(n, mode)


def carried(loop: Any, names: tuple[str, ...], used: tuple[str, ...], values: dict[str, Any]) -> Any:
    """Told by the rewritten program: the names that a loop's body may read before it sets them, and all it uses."""
    if isinstance(loop, Loop) and not loop.told:
        loop.told, loop.names = True, names
        loop.lists = lists_of(values.get(name) for name in used)
        held = [values.get(name) for name in names]
        loop.seeded = loop.init_values is not None or any(is_number(x) or type(x) is Tile for x in held)
    return loop


def holds_tasks(loop: Any) -> Any:
    """Told by the rewritten program: tasks are made inside this loop."""
    if isinstance(loop, Loop):
        loop.holds_tasks = True
    return loop


def known_bounds(loop: Any) -> Any:
    """Told by the rewritten program: the bounds of this loop are constants."""
    if isinstance(loop, Loop):
        loop.known_bounds = True
    return loop
