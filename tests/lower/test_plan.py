"""The memory plan: nobody overwrites what is still needed, what is said to fit does, and ops need what specs say."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from random_programs import arguments, module, source
from tiers import examples

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.check.run import unfit
from npuscope.chip.devices import Device, load
from npuscope.lower.lowering import passed
from npuscope.lower.memory_plan import MemoryPlan, plan_memory
from npuscope.lower.model import Lowered
from npuscope.lower.program import Program
from npuscope.ops import reductions
from npuscope.tile.run.execute import record
from tests.lower.memory_model import Memory
from tests.lower.random_bodies import bodies

CHIP = load("910b1")


def checked(lowered: Lowered, plan: MemoryPlan) -> Memory:
    """Runs the body at its addresses and looks at the plan's own numbers; the memory that it ran on."""
    made = {one.result for one in lowered.instructions}
    assert all(value.space for value in lowered.values if value.id in made)
    assert all(one.unit for one in lowered.instructions if one.plane not in ("view", "sync"))
    for space in plan:
        assert space.fits == (space.used <= space.limit)
        for slot in space.slots:
            assert slot.address >= space.reserved
            assert slot.address % 32 == 0
            assert slot.address + slot.bytes <= space.used
            assert all(tenant.value.bytes <= slot.bytes for tenant in slot.tenants)
        for n, slot in enumerate(space.slots):
            for other in space.slots[n + 1 :]:
                assert slot.address + slot.bytes <= other.address or other.address + other.bytes <= slot.address
        if not space.shallow and space.space != "Acc":
            for slot in space.slots:
                assert len({tenant.value.id for tenant in slot.tenants}) == len(slot.tenants), "turns share a buffer"
    memory = Memory(lowered, plan)
    memory.run()
    return memory


def smaller(share: int) -> Device:
    """The chip with less memory than it has, so that loops must give up depth."""
    sizes = {
        name: replace(
            space,
            size=replace(space.size, value=space.size.value // share if name in ("Vec", "Mat") else space.size.value),
        )
        for name, space in CHIP.space.items()
    }
    return replace(CHIP, space=sizes)


CHIPS = {share: smaller(share) for share in (1, 2, 4, 8)}


@given(bodies(), st.sampled_from(sorted(CHIPS)))
@examples(300)
def test_random_bodies_read_what_was_written_for_them(body: Lowered, share: int) -> None:
    lowered = passed(body, CHIPS[share])
    checked(lowered, plan_memory(lowered, CHIPS[share]))


@given(st.integers(0, 2**32))
@examples(40)
def test_random_programs_read_what_was_written_for_them(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path: Path = tmp_path_factory.mktemp("random") / f"planned_{seed}.py"
    try:
        recording = record(module(source(Random(seed)), path).main, *arguments(), mode="shapes").recording
    except NpuscopeError:  # what shapes mode refuses
        return
    program = Program(recording, CHIP)
    refused = {error.kernel for error in unfit(program)}  # such as a copy of an accumulator
    for body in program.planned.values():
        if body.kernel not in refused:
            checked(body.lowered, body.plan)


OF_ROWS = [spec.name for spec in reductions.ALL if spec.axis == "rows"]


def vec_bytes(name: str) -> int:
    """Vec that a kernel takes which loads a tile of 128 x 128, reduces it and stores the result."""
    kind = pl.INT32 if "arg" in name else pl.FP32

    @pl.jit
    def kernel(x: pl.Tensor[[128, 128], pl.FP32], y: pl.Out[pl.Tensor[[128, 1], kind]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(getattr(pl, name)(pl.load(x, [0, 0], [128, 128])), [0, 0], y)
        return y

    result = np.zeros((128, 1), np.int32 if "arg" in name else np.float32)
    recording = kernel.record(np.zeros((128, 128), np.float32), result, mode="shapes").recording
    (found,) = Program(recording, CHIP).planned.values()
    return next(space.used for space in found.plan if space.space == "Vec")


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_reduction_of_rows_needs_its_operand_a_scratch_and_its_result_side_by_side(name: str) -> None:
    assert vec_bytes(name) == 2 * 128 * 128 * 4 + 128 * 4
