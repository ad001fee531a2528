"""Scopes that cannot finish: they hold more tasks, bytes or dependencies than the ring they live in has room for.

A ring gives room back first in, first out, and what a scope made only when the scope closes. So a scope that needs
more than its ring has waits for itself. Rings go by the depth of the scope; the deepest scopes share the last ring,
and there a scope also holds back what scopes inside it made after its own first task. The map of tensors is one for
all rings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.lower.program import Program
from npuscope.lower.rings import FUNCTION, RingEntry, ScopePath, entries_of, limits_of
from npuscope.tile.record.recorder import NAMES

TOLD = {  # limit of the runtime -> what is too much
    "task_window": "{total:,} tasks are submitted in one scope, {limit:,} is one too many",
    "heap": "{total:,} bytes of tensors are made in one scope, its ring has {limit:,}",
    "dep_pool": "tasks of one scope wait for {total:,} others, its ring has room for {limit:,}",
    "tensormap": "{total:,} written tensors are remembered at once, the map has room for {limit:,}",
}
ERROR = {  # what the runtime says then
    "task_window": "SCOPE_DEADLOCK",
    "heap": "HEAP_RING_DEADLOCK",
    "dep_pool": "DEP_POOL_OVERFLOW",
    "tensormap": "TENSORMAP_OVERFLOW",
}


class _Need(NamedTuple):
    """What a task or a tensor takes of one of the runtime's stores, and where it stands."""

    path: ScopePath
    amount: int
    site: int
    kernel: str


def check(program: Program) -> Iterator[Finding]:
    if "rings" not in program.device.runtime:
        return
    entries = list(entries_of(program))
    tasks = [entry for entry in entries if entry.is_task]
    stores = {"task_window": _slots(program, entries), "heap": _bytes(entries), "dep_pool": _waits(program, tasks)}
    for name, found in stores.items():
        limits, needs = limits_of(program, name), list(found)
        if limits and sum(need.amount for need in needs) >= min(limits):
            for path, held in _held(needs, len(limits) - 1).items():
                depth = 0 if path == FUNCTION and not program.recording.auto_scope else len(path)
                yield from _exceeding(program, name, held, limits[min(depth, len(limits) - 1)])
    runtime = {name: int(constant.value) for name, constant in program.device.runtime.items()}
    if "tensormap" in runtime:
        for held in _open(list(_written(program, tasks))).values():
            yield from _exceeding(program, "tensormap", held, runtime["tensormap"])
    deepest = max(tasks, key=lambda entry: len(entry.path), default=None)
    if deepest is not None and len(deepest.path) > runtime.get("scope_depth", len(deepest.path)):
        what = f"{len(deepest.path)} scopes are open at once, the runtime allows {runtime['scope_depth']}"
        kernel = program.recording.tasks[deepest.task].kernel
        yield _finding(program, what, "Take loops apart, or put them into the task.", deepest.site, kernel)


def _exceeding(program: Program, name: str, needs: list[_Need], limit: int) -> Iterator[Finding]:
    room = limit - (name == "task_window")
    for need, used in zip(needs, accumulate(need.amount for need in needs), strict=True):
        if used > room:
            told = TOLD[name].format(total=sum(need.amount for need in needs), limit=limit)
            larger = f", or give the run a larger {NAMES[name]} (PTO2_{NAMES[name].upper()})" if name in NAMES else ""
            fix = f"Split the scope: make a part of it a pl.scope() of its own or the body of a loop{larger}."
            message = f"{told}: here it waits for itself, for ever ({ERROR[name]})"
            yield _finding(program, message, fix, need.site, need.kernel)
            return


def _finding(program: Program, message: str, fix: str, number: int, kernel: str) -> Finding:
    site = program.site(number)
    return RULE.at(
        site,
        message,
        fix,
        kernel=kernel,
    )


def _held(needs: list[_Need], shared: int) -> dict[ScopePath, list[_Need]]:
    """What every scope holds of its ring until it closes; those of `shared` depth and deeper are on one."""
    found: dict[ScopePath, list[_Need]] = defaultdict(list)
    for need in needs:
        found[need.path].append(need)
        for depth in range(shared, len(need.path)):
            if (around := need.path[:depth]) in found:
                found[around].append(need)
    return found


def _open(needs: list[_Need]) -> dict[ScopePath, list[_Need]]:
    """What every scope and those around it hold together."""
    own: dict[ScopePath, list[_Need]] = defaultdict(list)
    for need in needs:
        own[need.path].append(need)
    return {path: [n for depth in range(len(path)) for n in own.get(path[: depth + 1], ())] for path in own}


def _slots(program: Program, entries: list[RingEntry]) -> Iterator[_Need]:
    """Task slots in order of submission; an allocation takes one too."""
    for entry in entries:
        yield _Need(entry.path, 1, entry.site, program.recording.tasks[entry.task].kernel if entry.is_task else "")


def _bytes(entries: list[RingEntry]) -> Iterator[_Need]:
    for entry in entries:
        if entry.bytes:
            yield _Need(entry.path, entry.bytes, entry.site, "")


def _waits(program: Program, tasks: list[RingEntry]) -> Iterator[_Need]:
    waits = Counter(dst for _, dst in program.graph.pairs)
    for task in tasks:
        yield _Need(task.path, waits[task.task], task.site, program.recording.tasks[task.task].kernel)


def _written(program: Program, tasks: list[RingEntry]) -> Iterator[_Need]:
    """Entries of the map of written tensors."""
    buffers, graph = program.recording.buffers, program.graph
    for own in tasks:
        task = program.recording.tasks[own.task]
        if not task.manual_scope:
            ways = zip(graph.directions[task.id], graph.footprints[task.id], strict=True)
            kept = sum(way in ("InOut", "OutputExisting") and not buffers[box.buffer].manual_dep for way, box in ways)
            yield _Need(own.path, kept, task.site, task.kernel)


RULE = Rule(
    "ring-deadlock",
    "error",
    "a scope that needs more of the runtime than it can ever get",
    "A scope gives nothing back before it closes, so it must fit its ring: task slots, heap, dependencies.",
    check,
    Example(
        "for i in pl.range(20000):  # a scope may have 16384 tasks\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.slice(x, [1, 64], [i, 0]), [i, 0])",
        "for i in pl.spmd(1250):  # one task\n"
        "    out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])",
    ),
)
