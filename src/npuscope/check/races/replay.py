"""What a race does to the result: the program executed once more in an order that the graph allows.

For two tasks the earlier one (and what waits for it) runs after the later one; for two blocks of a launch the later
block runs just before the earlier one. Every order starts from the same inputs, so the outputs that differ from the
first run's do so because of the order. Ranks of one program take turns in another order, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
from msgspec import to_builtins

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.check.races.conflicts import TaskOrder, closure, conflicts_of, ones, order_of
from npuscope.check.races.detect import ChangedOutput, Race
from npuscope.chip.devices import Device
from npuscope.lower.program import Program
from npuscope.ops.dtypes import Array
from npuscope.tile.distributed.ranks import WindowRead, ranks_by_chance, reads_of_windows
from npuscope.tile.run.execute import Finished, Rerun, repeatable
from npuscope.tile.run.memory import Contents, OrderPhase
from npuscope.tile.script.run import run_script


@dataclass(frozen=True)
class Replayed:
    """The races of one program with what each changes; `seeded`: what an order drawn by `seed` changes.

    `reads`: what of that ranks read otherwise, the first of each. `fails`: how the program ends in that order.
    `unplayed` says why nothing was run again. `ranks`: they took turns in other orders, all programs of them at once.
    """

    races: tuple[Race, ...]
    seed: int
    seeded: tuple[ChangedOutput, ...] = ()
    unplayed: str = ""
    reads: tuple[str, ...] = ()
    fails: str = ""
    ranks: bool = False

    @property
    def is_unsafe(self) -> bool:
        return bool(self.seeded or self.fails)

    def as_dict(self) -> dict[str, object]:
        said = {"unplayed": self.unplayed, "reads": list(self.reads), "fails": self.fails}
        there = {name: value for name, value in said.items() if value}
        return {"seed": self.seed, "changes": to_builtins(self.seeded), **there}


class Unplayable(Exception):
    """Another order cannot be executed; the message says why."""


def replay_races(
    path: str | Path, argv: Sequence[str], found: Sequence[Sequence[Race]], device: Device, seed: int = 0
) -> tuple[Replayed, ...]:
    """Runs a script with values and its programs again in other orders; `found` has the races of each, in order."""
    with repeatable():
        runs = run_script(path, argv, "values", golden=False).runs
    ranks = _ranks_by_chance(path, argv, runs, seed) if any(run.recording.place for run in runs) else None
    while len(runs) > len(found) and not runs[-1].recording.tasks:  # of a host function, which nobody checks
        runs = runs[:-1]
    if len(runs) != len(found):
        why = f"with values the script runs {len(runs)} programs, not {len(found)}"
        return tuple(_unplayed(tuple(races), seed, why) for races in found)
    return tuple(
        replace(ranks, races=tuple(races)) if ranks and run.recording.place else replay(run, races, device, seed)
        for run, races in zip(runs, found, strict=True)
    )


RANK_ORDERS = 4  # in which ranks take turns


def _ranks_by_chance(path: str | Path, argv: Sequence[str], runs: Sequence[Finished], seed: int) -> Replayed:
    """What the host's tensors are where ranks take turns otherwise; a program in which ranks race shows it in some."""
    with reads_of_windows() as before:
        again = run_script(path, argv, "values", golden=False).runs
    if changes := _host_changes(runs, again):
        why = f"run again in the same order {changes[0].output} differs: the script's inputs changed in between"
        return Replayed((), seed, (), why, ranks=True)
    for number in range(seed, seed + RANK_ORDERS):
        with ranks_by_chance(number), reads_of_windows() as after:
            try:
                other = run_script(path, argv, "values", golden=False).runs
            except NpuscopeError as error:
                return Replayed((), number, fails=str(error), ranks=True)
        if changes := _host_changes(runs, other):
            return Replayed((), number, changes, reads=_other_reads(before, after), ranks=True)
    return Replayed((), seed, ranks=True)


def _other_reads(before: Sequence[WindowRead], after: Sequence[WindowRead]) -> tuple[str, ...]:
    """The first read of each rank that gave other values: there a wait is missing, or comes too early."""
    found = []
    for rank in sorted({one.device for one in before}):
        both = zip(*([one for one in some if one.device == rank] for some in (before, after)), strict=False)
        site = next((one.site for one, other in both if one != other), None)
        name = next((one.window for one in before if one.device == rank and one.site == site), "")
        if site is not None:
            found.append(f"rank {rank} reads {name} otherwise ({site.function}, line {site.line})")
    return tuple(found)


def _host_changes(runs: Sequence[Finished], others: Sequence[Finished]) -> tuple[ChangedOutput, ...]:
    """Tensors of host functions that differ."""
    hosts = [[one for one in some if one.recording.place is None] for some in (runs, others)]
    found: list[ChangedOutput] = []
    for one, other in zip(*hosts, strict=True):
        wanted, got = one.named, other.named
        for name in wanted.keys() & got.keys():
            found += _difference(name, wanted[name], got[name])
    return tuple(found)


def replay(finished: Finished, found: Sequence[Race], device: Device, seed: int = 0) -> Replayed:
    """One program's races, and an order drawn by the seed, against the run that was made `repeatable`."""
    program = Program(finished.recording, device)
    races = tuple(found)
    try:
        _check(finished, races)
        seeded = _changes(finished, random_order(program, seed))
    except Unplayable as error:
        return _unplayed(races, seed, str(error))
    return Replayed(tuple(_replayed(program, finished, race) for race in races), seed, seeded)


def _unplayed(races: tuple[Race, ...], seed: int, why: str) -> Replayed:
    return Replayed(tuple(replace(race, unplayed=why) for race in races), seed, (), why)


def _check(finished: Finished, races: Sequence[Race]) -> None:
    """The run must be the one that was checked, and running it again must give the same."""
    tasks = finished.recording.tasks
    for side in (side for race in races for side in race.sides if side.task >= 0):
        if side.task >= len(tasks) or tasks[side.task].kernel != side.kernel:
            raise Unplayable("with values the program submits other tasks: what steers it is not the same each time")
    if finished.rerun is None:
        raise Unplayable("a program of several ranks has no one order")
    if changes := _compared(finished, finished.rerun.final, _run(finished, OrderPhase(finished.rerun.initial))):
        name = changes[0].output
        raise Unplayable(f"run again in the same order {name} differs: the script's inputs changed in between")


def _replayed(program: Program, finished: Finished, race: Race) -> Race:
    one, other = race.sides
    try:
        if one.block is not None and other.block is not None:
            order = _moved(program.recording.tasks[one.task].blocks, one.block, other.block)
            changes = _changes(finished, (), {one.task: order})
        elif other.task < 0:
            raise Unplayable("the orchestration itself reads")
        else:
            changes = _changes(finished, later_first(program, one.task, other.task))
    except Unplayable as error:
        return replace(race, unplayed=str(error))
    return replace(race, changes=changes)


def _moved(blocks: int, earlier: int, later: int) -> tuple[int, ...]:
    """The blocks with the later one just before the earlier one."""
    rest = [block for block in range(blocks) if block != later]
    place = rest.index(earlier)
    return (*rest[:place], later, *rest[place:])


def _changes(
    finished: Finished, phases: Phases, blocks: dict[int, tuple[int, ...]] | None = None
) -> tuple[ChangedOutput, ...]:
    """The outputs that this order leaves different."""
    again = _rerun(finished)
    contents: Contents = again.initial
    for tasks in phases or (None,):
        contents = _run(finished, OrderPhase(again.initial, contents, tasks, blocks or {}))
    return _compared(finished, again.final, contents)


def _run(finished: Finished, phase: OrderPhase) -> Contents:
    try:
        contents, tasks = _rerun(finished).run(phase)
    except NpuscopeError as error:
        raise Unplayable(f"in another order the program fails: {error}") from error
    if tasks != len(finished.recording.tasks):
        before = len(finished.recording.tasks)
        raise Unplayable(f"in another order the program submits {tasks} tasks, not {before}: racing data steer it")
    return contents


def _rerun(finished: Finished) -> Rerun:
    assert finished.rerun is not None
    return finished.rerun


def _compared(finished: Finished, wanted: Contents, got: Contents) -> tuple[ChangedOutput, ...]:
    found: list[ChangedOutput] = []
    for number, before in wanted.items():
        buffer = finished.recording.buffers[number]
        found += _difference(buffer.name, before.reshape(buffer.shape), got[number].reshape(buffer.shape))
    return tuple(found)


def _difference(name: str, before: Array, after: Array) -> list[ChangedOutput]:
    shape, before, after = before.shape, before.reshape(-1), after.reshape(-1)
    both_nothing = (before != before) & (after != after)  # NaN in both
    if not len(places := np.flatnonzero((before != after) & ~both_nothing)):
        return []
    first = tuple(int(k) for k in np.unravel_index(places[0], shape))
    largest = float(np.max(np.abs(before[places].astype(np.float64) - after[places].astype(np.float64))))
    return [ChangedOutput(name, len(places), before.size, None if np.isnan(largest) else largest, first)]


Phases = tuple[frozenset[int], ...]
SEVERAL = 3  # phases of a random order: each is a run of the whole program


def later_first(program: Program, earlier: int, later: int) -> Phases:
    """The later task of a race, with all before it that need not wait for the earlier one; then that one and the rest.

    So the earlier task and what follows from it come late, and everything else keeps the order of the program.
    """
    before = with_adds(program).before
    if before[later] >> earlier & 1:  # both add, besides what they race for
        before = order_of(program).before
    first = frozenset(task for task in range(later + 1) if not before[task] >> earlier & 1)
    return first, frozenset(range(len(before))) - first


def random_order(program: Program, seed: int) -> Phases:
    """A legal order drawn by chance, the same for the same seed."""
    draw = Random(seed)
    phases = [0] * SEVERAL  # bitsets
    for task, before in enumerate(with_adds(program).before):
        least = max((n for n, tasks in enumerate(phases) if tasks & before), default=0)
        phases[max(least, draw.randrange(SEVERAL))] |= 1 << task
    return tuple(frozenset(ones(tasks)) for tasks in phases)


def with_adds(program: Program) -> TaskOrder:
    """The order of the graph and of atomic adds into one element."""
    adds = [(one, task) for task, mask in enumerate(conflicts_of(program).adds) for one in ones(mask) if one != task]
    return closure(program.recording, program.graph, [*program.graph.pairs, *adds])
