"""Edges between tasks, audited on request: those that others imply, that no data need, that are too many for one
task, and producers whose consumers could be on a core before they are done. Waits that the runtime infers from whole
tensors are in `waits`, chains that could be one task in `handovers`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from npuscope.check.races.conflicts import conflicts_of, order_of
from npuscope.check.rule import Example, Finding, Waste, once, rule
from npuscope.lower.program import Program
from npuscope.table.formats import many
from npuscope.tile.record.model import Form, Task, short_name

INLINE = 64  # producers that a task keeps beside itself; more lie in the spill pool of its ring


@dataclass
class Launched:
    """Edges into the tasks of one launch: all, some of them, and the producers of those."""

    task: Task
    edges: int = 0
    some: int = 0
    declared: int = 0  # of `some`, those that deps= names
    waiting: set[int] = field(default_factory=set)
    producers: Counter[int] = field(default_factory=Counter)


@once
def producers_of(program: Program) -> dict[int, list[int]]:
    """Of each task that waits, whom for, in order of submission."""
    found: dict[int, list[int]] = defaultdict(list)
    for src, dst in sorted(program.graph.pairs):
        if src >= 0:
            found[dst].append(src)
    return dict(found)


@once
def implied_edges(program: Program) -> frozenset[tuple[int, int]]:
    """Edges to whom another producer of the same task comes after."""
    before = order_of(program).before
    found = set()
    for task, own in producers_of(program).items():
        far = 0
        for producer in own:
            far |= before[producer] & ~(1 << producer)
        found |= {(producer, task) for producer in own if far >> producer & 1}
    return frozenset(found)


@once
def needless_deps(program: Program) -> frozenset[tuple[int, int]]:
    """Declared edges between tasks that share no data that one of them writes, neither directly nor through others."""
    needed = conflicts_of(program).needed
    after: list[int] = []  # of each task whom its data come after
    for task, bits in enumerate(needed):
        whole = left = bits & ~(1 << task)
        while left:
            last = left.bit_length() - 1
            whole |= after[last]
            left &= ~(after[last] | 1 << last)
        after.append(whole)
    tasks = program.recording.tasks
    return frozenset(
        (src, dst)
        for (src, dst), origins in program.graph.pairs.items()
        if src >= 0
        and origins == ("explicit",)
        and tasks[src].groups
        and tasks[dst].groups
        and not after[dst] >> src & 1
    )


def _by_launch(program: Program, chosen: Iterable[tuple[int, int]]) -> list[Launched]:
    """The launches that some edges go into."""
    tasks, wanted = program.recording.tasks, set(chosen)
    found: dict[tuple[str, int], Launched] = {}
    for (src, dst), origins in program.graph.pairs.items():
        if src < 0:
            continue
        task = tasks[dst]
        one = found.setdefault((task.kernel, task.site), Launched(task))
        one.edges += 1
        if (src, dst) in wanted:
            one.some += 1
            one.declared += "explicit" in origins
            one.waiting.add(dst)
            one.producers[src] += 1
    return [one for one in found.values() if one.some]


def _named(program: Program, one: Launched) -> str:
    names = dict.fromkeys(short_name(program.recording.tasks[task].kernel) for task in sorted(one.producers))
    return ", ".join([*names][:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _left_out(form: Form, name: str) -> str:
    """How a launch leaves a tensor out of what the runtime looks up; pl.spmd takes no `no_dep_args=`."""
    if form == "at":
        return f"an argument of {name} in no_dep_args= takes them out"
    return "pl.no_dep() around an argument of a kernel's call takes them out; what stands in pl.spmd itself cannot"


@rule(
    "implied-edge",
    "hint",
    "edges that other edges imply",
    "Every edge is looked up, stored, counted and resolved; one to a task that another producer comes after orders "
    "nothing.",
    Example(
        "with pl.at(level=CORE, deps=[a, b]) as c: ...  # b was launched with deps=[a]",
        "with pl.at(level=CORE, deps=[b]) as c: ...",
    ),
    without="implied",
    on_request=True,
)
def implied_edge(program: Program) -> Iterator[Finding]:
    for one in _by_launch(program, implied_edges(program)):
        name, whom = short_name(one.task.kernel), _named(program, one)
        drop = f"Leave {whom} out of deps=: another task that is named there comes after."
        keep = f"The runtime infers {'it' if one.some == 1 else 'them'} from tensors: {_left_out(one.task.form, name)}."
        edges = f"{one.some:,} of {many(one.edges, 'edge')} into {many(len(one.waiting), 'task')} of {name}"
        waits = (
            f"they wait for {whom}, whom another of their"
            if len(one.waiting) > 1
            else (f"it waits for {whom}, whom another of its")
        )
        yield implied_edge.at(
            program.site(one.task.site),
            f"{edges} {'is' if one.some == 1 else 'are'} implied: {waits} producers waits for",
            drop if one.declared else keep,
            kernel=one.task.kernel,
            count=one.some,
        )


def _wait(tasks: int, which: str) -> str:
    """That so many tasks wait."""
    return f"{many(tasks, 'task')}{which} {'waits' if tasks == 1 else 'wait'}"


@rule(
    "needless-dep",
    "hint",
    "declared edges that no data need",
    "What deps= names is waited for, whether or not the two tasks share anything.",
    Example(
        "with pl.at(level=CORE, deps=[other_half]) as half: ...  # touches another tensor",
        "with pl.at(level=CORE) as half: ...",
    ),
    on_request=True,
)
def needless_dep(program: Program) -> Iterator[Finding]:
    for one in _by_launch(program, needless_deps(program)):
        name, whom = short_name(one.task.kernel), _named(program, one)
        yield needless_dep.at(
            program.site(one.task.site),
            f"{many(one.some, 'edge')} that deps= names for {many(len(one.waiting), 'task')} of {name}: they touch "
            f"nothing that {whom} wrote or still reads, neither directly nor through others",
            f"Leave {whom} out of deps=, and name whose data {name} touches.",
            kernel=one.task.kernel,
            waste=Waste(waits=len(one.waiting)),
            count=one.some,
        )


@rule(
    "wide-fan-in",
    "hint",
    "a task that waits for very many others",
    "The orchestrator looks up and stores every producer of a task before it submits it, and each is resolved alone.",
    Example(
        "for i in pl.parallel(256):\n    with pl.at(level=CORE): ...\nwith pl.at(level=CORE): ...  # waits for 256",
        "for i in pl.spmd(256): ...\nwith pl.at(level=CORE): ...  # waits for one",
    ),
    without="joined",
    on_request=True,
)
def wide_fan_in(program: Program) -> Iterator[Finding]:
    waits = producers_of(program)
    wide = {task: own for task, own in waits.items() if len(own) > INLINE}
    for one in _by_launch(program, ((src, dst) for dst, own in wide.items() for src in own)):
        name, whom = short_name(one.task.kernel), _named(program, one)
        most = max(len(wide[task]) for task in one.waiting)
        yield wide_fan_in.at(
            program.site(one.task.site),
            f"{_wait(len(one.waiting), f' of {name}')} for up to {most:,} tasks of {whom} each: beyond {INLINE} "
            "they lie in the ring's pool, and each is looked up, stored and resolved by itself",
            f"Make the tasks of {whom} blocks of fewer pl.spmd launches, or join them in steps.",
            kernel=one.task.kernel,
            count=len(one.waiting),
        )


@rule(
    "late-consumer",
    "hint",
    "consumers that could be on a core before their producer is done",
    "A consumer of a task with allow_early_resolve is put on a free core while the task runs, and starts at a bell.",
    Example(
        "with pl.spmd(24) as made: ...\nwith pl.spmd(24, deps=[made]): ...",
        "with pl.spmd(24, allow_early_resolve=True) as made: ...\nwith pl.spmd(24, deps=[made]): ...",
    ),
    without="early",
    on_request=True,
)
def late_consumer(program: Program) -> Iterator[Finding]:
    if "hosted" in program.device.runtime:  # nobody is staged early there
        return
    tasks, waits = program.recording.tasks, producers_of(program)
    kinds: dict[tuple[str, int], list[int]] = defaultdict(list)  # launches -> consumers that wait for them alone
    for consumer, own in waits.items():
        task = tasks[consumer]
        late = {(tasks[src].kernel, tasks[src].site) for src in own if not tasks[src].early}
        able = all(tasks[src].groups and not tasks[src].predicated for src in own)
        if len(late) == 1 and able and task.groups and not task.predicated and not task.sync_start:
            kinds[late.pop()].append(consumer)
    for (kernel, site), consumers in kinds.items():
        name = short_name(kernel)
        called = any(task.kernel == kernel and task.site == site and task.form == "call" for task in tasks)
        whom = ", ".join([*dict.fromkeys(short_name(tasks[one].kernel) for one in consumers)][:3])
        yield late_consumer.at(
            program.site(site),
            f"{_wait(len(consumers), f' ({whom})')} for {name} alone, and none is on a core before it is done",
            f"Launch {name} {'by pl.submit ' if called else ''}with allow_early_resolve=True.",
            kernel=kernel,
            count=len(consumers),
        )
