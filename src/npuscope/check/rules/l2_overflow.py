"""Memory read again after so much else has passed that the L2 cache cannot have kept it.

A tensor is looked at when more is read of it than it has, by at least the size of L2: then much is read twice. Found
is what passes, in the order of submission, between a block's read of its tiles and the next block's that reads the
same: of every tensor what is moved, at most the whole of it. Reads that close the gap, or blocks that run at the same
time, are left to the cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.traffic.estimate import severity
from npuscope.check.traffic.table import Use, traffic_of
from npuscope.check.wording.told import access_site, size, tensor_name
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import short_name
from npuscope.tile.record.walk import accesses_of


class ReadAgain(NamedTuple):
    """A read of a block's tiles, and the next of the same: task and block of both."""

    first: tuple[int, int]
    second: tuple[int, int]


def l2_overflows(program: Program) -> Iterator[Finding]:
    l2 = program.device.memory.l2
    if l2 is None:
        return
    read: dict[int, int] = defaultdict(int)
    for task in range(len(program.recording.tasks)):
        for use in traffic_of(program).uses(task):
            read[use.buffer] += use.read
    for buffer, total in read.items():
        again = total - _bytes(program, buffer)
        if again >= l2.value and (found := _next_reader(program, buffer)) is not None:
            passed = _passed(program, found)
            if passed > l2.value:
                yield _told(program, buffer, total, again, passed)


def _bytes(program: Program, buffer: int) -> int:
    found = program.recording.buffers[buffer]
    return prod(found.shape) * BY_NAME[found.dtype].bytes


def _next_reader(program: Program, buffer: int) -> ReadAgain | None:
    """The first block that reads the tensor, and the next that reads the same tiles of it."""
    seen: dict[bytes, tuple[int, int]] = {}
    for task in traffic_of(program).touching[buffer]:
        arguments = {use.argument for use in traffic_of(program).uses(task) if use.buffer == buffer and use.read}
        for group in program.recording.tasks[task].groups:
            plan = accesses_of(program.recording.bodies[group.body])
            reads = [n for n, (_, a, _) in enumerate(plan) if a.argument in arguments and a.mode == "read"]
            for n, block in enumerate(group.blocks.tolist()):
                places = [group.offsets[k][..., min(n, group.offsets[k].shape[-1] - 1)] for k in reads]
                tiles = b"".join(place.tobytes() for place in places)
                if not seen:
                    seen[tiles] = (task, block)
                elif tiles in seen:
                    return ReadAgain(seen[tiles], (task, block))
    return None


def _passed(program: Program, again: ReadAgain) -> float:
    """Bytes that pass between two reads: of every tensor what is moved, at most the whole of it."""
    moved: dict[int, float] = defaultdict(float)
    (first, begin), (second, end) = again
    for task in range(first, second + 1):
        blocks = max(program.recording.tasks[task].blocks, 1)
        part = ((end if task == second else blocks) - (begin + 1 if task == first else 0)) / blocks
        for use in traffic_of(program).uses(task):
            moved[use.buffer] += part * (use.read + use.written)
    return sum(min(bytes_moved, _bytes(program, buffer)) for buffer, bytes_moved in moved.items())


def _told(program: Program, buffer: int, total: int, again: int, passed: float) -> Finding:
    use = max(_reads(program, buffer), key=lambda use: use.read)
    launch = program.launches[traffic_of(program).launch[use.task]]
    site = access_site(program, use, "read")
    name = tensor_name(program, buffer)
    assert program.device.memory.l2 is not None
    return RULE.at(
        site,
        f"{short_name(launch.kernel)} reads {size(total)} of {name}, which has {size(total - again)}; about "
        f"{size(passed)} pass before the same tiles are read again, more than L2 "
        f"({size(program.device.memory.l2.value)}) can keep",
        f"Order the loops so that all that needs a tile of {name} comes together, or take more rows per tile.",
        kernel=launch.kernel,
        severity=severity(program, Waste(bytes=again)),
        waste=Waste(bytes=again),
    )


def _reads(program: Program, buffer: int) -> Iterator[Use]:
    for task in traffic_of(program).touching[buffer]:
        yield from (use for use in traffic_of(program).uses(task) if use.buffer == buffer)


RULE = Rule(
    "l2-overflow",
    "hint",
    "a working set beyond L2",
    "What is read again soon comes from L2; after more than its size has passed it comes from memory again.",
    l2_overflows,
    Example(
        "for n0 in pl.range(0, N, 256):  # every turn reads all of x, which L2 cannot keep beside the weights",
        "for n0 in pl.range(0, N, 1024):",
        "bytes read from memory again",
    ),
)
