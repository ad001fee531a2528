"""A job under the runtime whose graph the host builds: what the device gets, who schedules it, what the host pays.

A call of a recorded graph is one task for the host. It stands here as two tasks that do nothing, after all others: one
that waits for what any of its nodes needs from outside and lets its first nodes go, and one that waits for all of its
nodes, for which whoever needs any of them waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.check.rules.safety import ring_deadlock
from npuscope.chip.runtimes import HBG, Mode, runtime_named
from npuscope.lower.program import Program
from npuscope.lower.rings import graph_calls, graph_of
from npuscope.time.chip.job import ENDLESS, LEAVES, NONE, PLAIN, Ints, Job, Machine
from npuscope.time.core.costs import NS


def host_graph_job(program: Program, job: Job) -> Job:
    """The job as the host submits it: whole, nobody early, recorded graphs as nodes between their two ends."""
    _refuse_reads(program, job)
    for error in ring_deadlock.check(program):
        raise BadInput(error.message, path=error.file, line=error.line, remedy=error.remedy)
    tasks = program.recording.tasks
    none = np.zeros(len(tasks), np.int64)
    job = job._replace(early=none, waits_host=none - 1, submit=np.zeros(len(tasks)), rings=ENDLESS)
    calls = [[task.id for task in nodes] for nodes in graph_calls(program).values()]
    return with_graphs(job, calls) if calls else job


def with_graphs(job: Job, calls: Sequence[Sequence[int]]) -> Job:
    """The job with these runs of tasks as calls of recorded graphs."""
    tasks, count = len(job.shape), len(calls)
    kinds = np.full(tasks + 2 * count, PLAIN, np.int64)
    for number, nodes in enumerate(calls):
        kinds[list(nodes)] = number
    kinds[tasks + count :] = LEAVES
    source = np.repeat(np.arange(tasks, dtype=np.int64), np.diff(job.first_out))
    of, to = kinds[source], kinds[job.out]
    inside = (of == to) | ((of < 0) & (to < 0))
    edges = set(zip(source[inside].tolist(), job.out[inside].tolist(), strict=True))
    enter, leave = tasks + np.maximum(to, 0), tasks + count + np.maximum(of, 0)
    begins = np.where(of >= 0, leave, source)  # outside a graph its end stands for each of its nodes
    ends = np.where(to >= 0, enter, job.out)
    edges |= set(zip(begins[~inside].tolist(), ends[~inside].tolist(), strict=True))
    fed = set(job.out[inside & (to >= 0)].tolist())
    for number, nodes in enumerate(calls):
        edges |= {(tasks + number, node) for node in nodes if node not in fed}
        edges |= {(node, tasks + count + number) for node in nodes}
    rows = np.array(sorted(edges), np.int64).reshape(-1, 2)
    more: Ints = np.zeros(2 * count, np.int64)
    return job._replace(
        shape=np.concatenate([job.shape, more + NONE]),
        blocks=np.concatenate([job.blocks, more]),
        first_block=np.concatenate([job.first_block, more + len(job.block_class)]),
        producers=np.bincount(rows[:, 1], minlength=len(kinds)).astype(np.int64),
        first_out=np.searchsorted(rows[:, 0], np.arange(len(kinds) + 1)).astype(np.int64),
        out=rows[:, 1].copy(),
        submit=np.concatenate([job.submit, more * 0.0]),
        early=np.concatenate([job.early, more]),
        together=np.concatenate([job.together, more]),
        waits_host=np.concatenate([job.waits_host, more - 1]),
        graph=kinds,
    )


def _refuse_reads(program: Program, job: Job) -> None:
    """On the host nobody can wait for what a task writes: the device has not begun."""
    waits = np.flatnonzero(job.waits_host >= 0)
    if not len(waits):
        return
    recording = program.recording
    first = int(waits[0])
    writer = recording.tasks[int(job.waits_host[first])]
    read = next(one for one in recording.host_reads if one.before_task == first)
    site = program.site(read.site)
    raise BadInput(
        f"the orchestration reads {recording.buffers[read.buffer].name}, which the task {writer.kernel} writes: "
        "host_build_graph submits everything before the device begins",
        path=site.file,
        line=site.line,
        remedy="Decide on the device, with pl.spmd(predicate=…), or take --runtime tmr.",
    )


def mode_of(program: Program, job: Job) -> Mode:
    """Who schedules: on a5 vector cores, unless a task is of a kind that they do not take."""
    if not program.device.rules or not program.device.rules.ring_on_chip or program.device.scheduled_by != HBG:
        return "aicpu"
    if len(job.graph):
        return "LEGACY_GRAPH"
    shaped = (job.blocks > 1) | (job.together == 1) | (job.shape == 0)
    return "LEGACY_UNSUPPORTED_SHAPE" if np.any(shaped) else "vector cores"


def host_graph_machine(machine: Machine, mode: Mode) -> Machine:
    """Vector cores that schedule resolve what they see done themselves."""
    if mode != "vector cores":
        return machine
    workers = int(runtime_named(HBG).a5["scheduler_cores"].value)
    return machine._replace(threads=workers, resolver=0)


@dataclass(frozen=True)
class HostCost:
    """What the host does for a call under host_build_graph before the device begins, in nanoseconds."""

    submits: int  # tasks and calls of recorded graphs
    recorded: int  # tasks of graphs at their first call
    replays: int  # later calls
    build_ns: float
    upload_bytes: int
    upload_ns: float

    @property
    def total_ns(self) -> float:
        return self.build_ns + self.upload_ns


def host_cost(program: Program) -> HostCost:
    """From the costs that are documented of each operation; what the calls' own tensors take is not in it."""
    cost = {name: one.value for name, one in runtime_named(HBG).host.items()}
    calls = graph_calls(program)
    first = {graph_of(name): nodes for name, nodes in reversed(calls.items())}
    plain = len(program.recording.tasks) - sum(map(len, calls.values()))
    recording = max((len(nodes) for nodes in first.values()), default=0) * (cost["record_node"] + cost["define_node"])
    started = max(0, len(first) - cost["recorders"]) * cost["recorder_start"]
    submitting = plain * cost["submit"] + _given(program, calls) * cost["replay_tensor"] + started
    build = max(submitting, recording) / cost["told"]  # graphs are recorded on threads of their own, all at once
    submits, recorded = plain + len(calls), sum(map(len, first.values()))
    size = submits * cost["task_bytes"]
    graphs = cost["graph_upload"] + len(first) * cost["definition_upload"] if calls else 0.0
    upload = 2 * cost["copy"] + size / cost["copy_rate"] + graphs
    return HostCost(submits, recorded, len(calls) - len(first), build * NS, round(size), upload * NS)


def _given(program: Program, calls: Collection[str]) -> int:
    """How many tensors the calls of recorded graphs are given, in all: what others touch, too."""
    buffers = program.recording.buffers
    users: dict[int, set[str]] = defaultdict(set)
    for task in program.recording.tasks:
        for argument in task.arguments:
            users[argument.buffer].add(task.graph)
    shared = (of for buffer, of in users.items() if len(of) > 1 or buffers[buffer].origin == "parameter")
    return sum(len(of & set(calls)) for of in shared)
