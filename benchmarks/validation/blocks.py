"""Kernels' block means and scheduler phases, predicted beside measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from published_changes.rows import Measured, Side
from validation.measured import MAINLINE, SECOND, Kernel, Pair, Phase

from npuscope.chip.devices import Device
from npuscope.time.chip.prepare import machine_of

SMALL = 5.0  # µs: kernels up to here may be off by more
US = 1e3


@dataclass(frozen=True)
class Program:
    """A program of a table, as `npuscope simulate` runs it. `other`: kernels that are another program there."""

    key: str
    title: str
    table: str
    side: Side
    other: frozenset[str] = frozenset()


PROGRAMS = (
    Program(
        "qwen3_14b",
        "Qwen3-14B decode layer",
        MAINLINE,
        Side(
            "634e77bde7c312b4778578df5c80e7fdc062a578",
            "models/qwen3_14b/decode_fwd.py",
            "-p a2a3",
            "decode_fwd_layers",
            "a2a3",
        ),
        frozenset({"attn_swpipe", "fa_fused", "pa_tiling"}),
    ),
    Program(
        "qwen3_32b",
        "Qwen3-32B decode layer",
        SECOND,
        Side("4376ac474ca240e04e696734cfd6ef28f82386f9", "models/qwen3/32b/qwen3_32b_decode.py", "-p a2a3", "", "a2a3"),
    ),
)


@dataclass(frozen=True)
class Simulated:
    """What the simulator says of a kernel on one unit; the mean in µs."""

    name: str
    unit: str
    blocks: int
    mean: float


def simulated(run: Measured) -> list[Simulated]:
    return [Simulated(one.kernel, one.unit, one.slices, one.busy / one.slices / US) for one in run.scopes]


@dataclass(frozen=True)
class Compared:
    """The kernels that both have, with their blocks; and the names that only one of them has."""

    pairs: tuple[tuple[Kernel, Simulated], ...]
    only_measured: tuple[str, ...]
    only_simulated: tuple[str, ...]

    @property
    def all(self) -> list[Pair]:
        return [Pair(f"{kernel.name}, {kernel.unit}", kernel.mean, one.mean) for kernel, one in self.pairs]

    def of_size(self, small: bool) -> list[Pair]:
        return [pair for pair in self.all if (pair.measured <= SMALL) == small]


def compared(table: Sequence[Kernel], told: Sequence[Simulated], other: frozenset[str] = frozenset()) -> Compared:
    mine = merged(told)
    wanted = {(plain(kernel.name), kernel.unit): kernel for kernel in table if plain(kernel.name) not in other}
    pairs = tuple((kernel, mine[key]) for key, kernel in wanted.items() if key in mine)
    return Compared(
        pairs,
        tuple(kernel.name for key, kernel in wanted.items() if key not in mine),
        tuple(one.name for key, one in mine.items() if key not in wanted and key[0] not in other),
    )


def plain(name: str) -> str:
    """The name that variants of one kernel share: without a number, a unit, or how it is launched."""
    return re.sub(r"(_\d+|_aic|_aiv|_spmd|__windowed)+$", "", name)


def merged(told: Iterable[Simulated]) -> dict[tuple[str, str], Simulated]:
    """Kernels with the same plain name on one unit as one, its mean over all blocks."""
    found: dict[tuple[str, str], Simulated] = {}
    for one in told:
        key = plain(one.name), one.unit
        if key in found:
            before = found[key]
            blocks = before.blocks + one.blocks
            mean = (before.mean * before.blocks + one.mean * one.blocks) / blocks
            one = Simulated(before.name, one.unit, blocks, mean)
        found[key] = one
    return found


TURNS = ("dispatch", "complete")  # phases of a scheduler's turn; the others are parts of it or the orchestrator's


def phase_pairs(table: Sequence[Phase], device: Device, submit: float) -> list[tuple[Phase, Pair]]:
    """Every phase and number of blocks: the median that was measured and what the constants of the device say, in µs.

    `submit` is the median submission of the Qwen3-14B layer's tasks.
    """
    machine = machine_of(device)
    polling = machine.poll * (machine.clusters // machine.threads)  # cores that run something: in this layer the cube's
    fixed = {"dispatch": machine.dispatch_turn, "complete": machine.complete_turn + polling, "submit": submit * US}
    each = {
        "dispatch": machine.dispatch,
        "complete": machine.complete,
        "resolve": machine.resolve,
        "release": machine.release,
    }
    found = []
    for phase in table:
        predicted = (fixed.get(phase.name, 0.0) + each.get(phase.name, 0.0) * phase.blocks) / US
        found.append((phase, Pair(f"{phase.name}, {phase.blocks}", median(phase.times), predicted, len(phase.times))))
    return found


def in_total(found: Sequence[tuple[Phase, Pair]]) -> Mapping[str, Pair]:
    """Per phase the sum of all records against the sum of what is predicted for each."""
    told = {}
    for name in dict.fromkeys(phase.name for phase, _ in found):
        mine = [(phase, pair) for phase, pair in found if phase.name == name]
        measured = sum(sum(phase.times) for phase, _ in mine)
        predicted = sum(pair.predicted * len(phase.times) for phase, pair in mine)
        told[name] = Pair(name, measured, predicted, sum(len(phase.times) for phase, _ in mine))
    return told
