"""What a program breaks of the chip: each kind of error by its id, described like a rule."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.legal import illegal
from npuscope.check.memory import overflows, usages
from npuscope.check.program import Program
from npuscope.check.rule import Rule


def broken(program: Program) -> Iterator[Finding]:
    """Every error of every kernel: what does not fit, then what the chip cannot do."""
    yield from overflows(program, usages(program.kernels), program.lowering)
    yield from illegal(program, program.kernels)


def _limit(id: str, title: str, why: str) -> Rule:
    return Rule(id, "error", title, why, lambda program: (error for error in broken(program) if error.id == id))


LIMITS: tuple[Rule, ...] = (
    _limit(
        "buffer-overflow",
        "a kernel needs more of a memory than a core has",
        "The compiler plans all tiles that are alive at once into their memory, and refuses what does not fit.",
    ),
    _limit(
        "illegal-move",
        "a move between memories that the chip does not have",
        "A tile reaches most memories only through another one; on chips without a ring on chip cube and vector cores "
        "hand over through global memory.",
    ),
    _limit(
        "store-type",
        "an accumulator stored as a type it cannot have",
        "Draining the accumulator converts to a few types only; others go through a vector core.",
    ),
    _limit(
        "atomic-type",
        "an atomic add of a type that global memory cannot add",
        "The memory itself adds, and it knows a few types only.",
    ),
    _limit(
        "misaligned-tile",
        "a tile that does not fall on the chip's steps",
        "The cube multiplies blocks of 16, and a column on a vector core is a multiple of 32 bytes.",
    ),
    _limit(
        "syncall-occupancy",
        "a barrier of all cores that not all cores reach",
        "A hard syncall waits for every core of its kind: with fewer blocks, or blocks that do not start together, the "
        "device hangs.",
    ),
)
