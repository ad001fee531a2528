"""Why nothing orders two tasks, and the shortest `deps=` that would."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from npuscope.lower.races.conflicts import Hazard, ones
from npuscope.lower.races.launch_text import LaunchText, launch_text
from npuscope.tile.record.model import Argument, Recording, Task

if TYPE_CHECKING:
    from npuscope.lower.program import Program

NOT_TRACKED = "the runtime makes no task wait for readers"


def remedy(program: Program, earlier: int, later: int, kind: Hazard, buffer: int) -> tuple[str, str]:
    """Why `later` does not wait for the `earlier` tasks (a bitset), and what to write so that it does."""
    recording = program.recording
    waiting = recording.tasks[later]
    if kind != "war" and (said := _wrong_direction(program, waiting, buffer)):
        return said
    why, fix = _why(program, earlier, waiting, kind, buffer), _deps(program, earlier, waiting)
    if "no_dep" in why:
        fix = f"let the runtime track {recording.buffers[buffer].name} there again, or {fix}"
    return why, fix


def _wrong_direction(program: Program, task: Task, buffer: int) -> tuple[str, str] | None:
    """A kernel that reads what its signature calls pl.Out is given no edge from the writer."""
    for argument, box in zip(task.arguments, program.graph.footprints[task.id], strict=True):
        if box.buffer == buffer and argument.declared == "Out" and argument.reads:
            name = program.recording.buffers[argument.buffer].name
            why = f"{task.kernel} declares {name} pl.Out, so the runtime looks for no writer before it, yet reads it"
            return why, f"declare it pl.InOut in the signature of {task.kernel}"
    return None


def _why(program: Program, earlier: int, task: Task, kind: Hazard, buffer: int) -> str:
    recording = program.recording
    first = recording.tasks[earlier.bit_length() - 1]
    if recording.buffers[buffer].manual_dep:
        return f"{recording.buffers[buffer].name} is manual_dep=True: only deps= order its tasks"
    if task.manual_scope:
        return f"{task.kernel} is in a manual scope: only its deps= make it wait"
    if kind == "war":
        return NOT_TRACKED
    if first.manual_scope:
        return f"{first.kernel} is in a manual scope: the runtime does not remember what it writes"
    for one in (first, task):
        if any(argument.no_dep for argument in _of(program, one, buffer)):
            return f"{one.kernel} takes {recording.buffers[buffer].name} as no_dep"
    return f"{task.kernel} is the first writer of the tensor where it stands, so the runtime looks for none before it"


def _of(program: Program, task: Task, buffer: int) -> list[Argument]:
    boxes = program.graph.footprints[task.id]
    return [argument for argument, box in zip(task.arguments, boxes, strict=True) if box.buffer == buffer]


def _deps(program: Program, earlier: int, task: Task) -> str:
    recording = program.recording
    wanted = _fewest(program.order.before, earlier, task.id)
    text = launch_text(task, recording.sites[task.site])
    place = _place(recording, task)
    if len(wanted) == 1:
        first = recording.tasks[wanted[0]]
        its = launch_text(first, recording.sites[first.site])
        name = its.name or f"{first.kernel}_tid"
        return f"{_named(recording, first, its, name)}{_added(text, name, task.kernel, place)}{_kept(first, task)}"
    kernels = Counter(recording.tasks[number].kernel for number in wanted)
    tasks = ", ".join(f"{count} of {kernel}" for kernel, count in kernels.items())
    first = recording.tasks[wanted[0]]
    gather = f"gather the task ids ({tasks}; {_place(recording, first)}) in a pl.array.create(…, pl.TASK_ID), then "
    return gather + _added(text, "tids", task.kernel, place)


def _fewest(before: tuple[int, ...], earlier: int, later: int) -> list[int]:
    """The fewest tasks that, waited for, bring all of `earlier`: the last ones, or one that waits for all of them."""
    last: list[int] = []
    covered = 0
    for task in reversed(ones(earlier)):
        if not covered >> task & 1:
            last.insert(0, task)
            covered |= before[task]
    if len(last) > 1:
        for task in range(last[-1] + 1, later):
            if earlier & ~before[task] == 0:
                return [task]
    return last


def _named(recording: Recording, task: Task, text: LaunchText, name: str) -> str:
    if text.name:
        return ""
    place = _place(recording, task)
    if text.form == "call":
        return f"call {task.kernel} inside `with pl.at(…) as {name}:` ({place}), then "
    return f"name {task.kernel}'s task, `with … as {name}:` ({place}), then "


def _added(text: LaunchText, name: str, kernel: str, place: str) -> str:
    if text.form == "for":
        return f"write {kernel} as `with pl.spmd(…, deps=[{name}]) as tid:` ({place}): a for loop takes no deps="
    if text.form == "call":
        return f"call {kernel} inside `with pl.at(…, deps=[{name}]):` ({place})"
    if text.deps:
        return f"add {name} to the deps= of {kernel} ({place})"
    return f"give {kernel} deps=[{name}] ({place}{'' if text.name else '; it has no `as tid` yet'})"


def _kept(first: Task, later: Task) -> str:
    """An id of another turn of a loop must be kept for the next one."""
    turns = {turn.loop: turn.turn for turn in first.turns}
    if all(turns.get(turn.loop, turn.turn) == turn.turn for turn in later.turns):
        return ""
    return ", kept from the turn before in a pl.array.create(…, pl.TASK_ID) made outside the loop"


def _place(recording: Recording, task: Task) -> str:
    site = recording.sites[task.site]
    return f"{Path(site.file).name}:{site.line}"
