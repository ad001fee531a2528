"""Where values steer a program, `shapes` mode computes those, no others, and records what value mode records."""

# mypy: disable-error-code="valid-type, type-arg"
from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from random_programs import arguments, module, source
from same_record import first_difference
from tiers import examples

import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.ops.dtypes import FP32
from npuscope.tile.record.model import Recording
from npuscope.tile.run.arguments import Placeholder
from npuscope.tile.run.execute import collecting, mode_of_runs
from npuscope.tile.run.memory import Allocations

CORE = pl.Level.CORE_GROUP


def in_both_modes(function: Any, make: Any = arguments) -> tuple[Recording, Recording]:
    shapes, values = [function.record(*make(), mode=mode).recording for mode in ("shapes", "values")]
    assert any("values decide what runs" in note for note in shapes.notes) or not shapes.notes
    # What is noticed of memory that nobody wrote needs all values; notes say how it was recorded.
    return _plain(shapes), _plain(values)


def _plain(recording: Recording) -> Recording:
    return replace(recording, notes=(), notices=(), place=None)  # `place` counts calls of host functions


@given(random=st.randoms(use_true_random=False))
@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs_that_floats_steer(random: Random, tmp_path: Path) -> None:
    text = source(random, again=random.randint(0, 1) == 1, measured=True)
    program = module(text, tmp_path / f"program_{random.getrandbits(40)}.py")
    assert first_difference(*in_both_modes(program.main)) is None


class Inputs:
    """Placeholders that note which of them were made."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, name: str, values: np.ndarray) -> Placeholder:
        def make() -> np.ndarray:
            self.made.append(name)
            return values

        return Placeholder(values.shape, FP32, make)


@pl.jit
def routed(x: pl.Tensor, gate: pl.Tensor, experts: pl.Tensor, out: pl.Out[pl.Tensor]):
    scores = pl.create_tensor([16, 16], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="gate"):
        pl.store(pl.matmul(pl.load(x, [0, 0], [16, 16]), pl.load(gate, [0, 0], [16, 16])), [0, 0], scores)
    for e in pl.range(4):
        with pl.at(level=CORE, name_hint="expert"):
            for row in pl.range(16):
                if pl.read(scores, [row, e]) > 0.0:
                    tile = pl.load(x, [row, 0], [1, 16])
                    pl.store(pl.mul(tile, pl.load(experts, [e, 0], [1, 16])), [row, 0], out)
    return out


def test_only_inputs_that_steer_are_made() -> None:
    # GIVEN rows that go to experts as the scores of a gate say
    draw = np.random.default_rng(3)
    x, gate, experts = (draw.standard_normal((16, 16), np.float32) for _ in range(3))
    arrays = {"x": x, "gate": gate, "experts": experts, "out": np.zeros_like(x)}
    # WHEN it is recorded with values, and without
    inputs = Inputs()
    ways: dict[Any, list[Any]] = {"values": [*arrays.values()], "shapes": [inputs(*one) for one in arrays.items()]}
    values, shapes = [routed.record(*given, mode=mode).recording for mode, given in ways.items()]
    # THEN the gate is computed, from its inputs, the experts are not, and each row is where it is with values
    assert sorted(set(inputs.made)) == ["gate", "x"]
    assert any("values decide what runs" in note for note in shapes.notes)
    assert first_difference(_plain(shapes), _plain(values)) is None


@pl.jit
def overwritten(x: pl.Tensor, y: pl.Tensor, out: pl.Out[pl.Tensor]):
    kept = pl.create_tensor([16, 16], dtype=pl.FP32)
    for turn in pl.range(3):
        with pl.at(level=CORE, name_hint="fill"):
            pl.store(pl.add(pl.load(x, [0, 0], [16, 16]), float(turn)), [0, 0], kept)
        part = pl.slice(kept, [4, 16], [4 * turn, 0])
        with pl.at(level=CORE, name_hint="change"):
            pl.write(part, [0, 0], 40.0 * turn)
        with pl.at(level=CORE, name_hint="use"):
            if pl.read(kept, [4 * turn, 0]) > 30.0:
                pl.store(pl.load(y, [0, 0], [16, 16]), [0, 0], out)
    return out


def test_a_value_is_read_as_it_is_then() -> None:
    # GIVEN a tensor that is filled anew in each turn, then changed through a view of it
    def make() -> tuple[np.ndarray, ...]:
        return np.zeros((16, 16), np.float32), np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)

    # THEN the branch is not taken in the first turn, and in the other two it is
    shapes, values = in_both_modes(overwritten, make)
    assert first_difference(shapes, values) is None
    stores = [sum(len(group.offsets) for group in task.groups) for task in shapes.tasks if task.kernel == "use"]
    assert stores[0] < stores[1] == stores[2]


@pl.jit.inline
def layer(h: pl.Tensor):
    made = pl.create_tensor([16, 16], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="layer"):
        pl.store(pl.add(pl.load(h, [0, 0], [16, 16]), 1.0), [0, 0], made)
    return made


@pl.jit
def layers(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    h = x
    for _ in pl.range(12):
        h = layer(h)
        if pl.read(h, [0, 0]) > 10.5:
            h = layer(h)
    with pl.at(level=CORE, name_hint="last"):
        pl.store(pl.load(h, [0, 0], [16, 16]), [0, 0], out)
    return out


def test_elements_go_with_the_last_tensor_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN layers, each from the one before, that their values steer
    arrays: list[weakref.ref[np.ndarray]] = []
    alive: list[int] = []

    def create(self: Allocations, *args: Any, **named: Any) -> Any:
        tensor = real(self, *args, **named)
        if tensor.buffer.data is not None:
            arrays.append(weakref.ref(tensor.buffer.data))
            alive.append(sum(one() is not None for one in arrays))
        return tensor

    real = Allocations.create
    monkeypatch.setattr(Allocations, "create", create)
    # WHEN they are recorded by shapes
    layers.record(*(Placeholder((16, 16), FP32, lambda: np.zeros((16, 16), np.float32)) for _ in "xo"), mode="shapes")
    # THEN all were computed, and of no more than two at once there are elements
    assert len(alive) >= 14
    assert max(alive) == 2


@pl.jit
def chosen(
    x: pl.Tensor[[16, 16], pl.FP32],
    out: pl.Out[pl.Tensor[[16, 16], pl.FP32]],
    box: pld.DistributedTensor[[16, 16], pl.FP32],
    arrived: pld.DistributedTensor[[1, 1], pl.INT32],
):
    with pl.at(level=CORE, name_hint="push"):
        ctx = pld.get_comm_ctx(box)
        right = (pld.rank(ctx) + 1) % pld.nranks(ctx)
        pld.tile.remote_store(pl.mul(pl.load(x, [0, 0], [16, 16]), 2.0), target=box, peer=right, offsets=[0, 0])
        pld.system.notify(target=arrived, peer=right, offsets=[0, 0], value=1, op=pld.NotifyOp.AtomicAdd)
    with pl.at(level=CORE, name_hint="take"):
        pld.system.wait(signal=arrived, offsets=[0, 0], expected=1, cmp=pld.WaitCmp.Ge)
        for row in pl.range(16):
            if pl.read(box, [row, 0]) > 0.0:
                pl.store(pl.load(x, [row, 0], [1, 16]), [row, 0], out)
    return out


@pl.jit.host
def around(x: pl.Tensor[[3, 16, 16], pl.FP32], out: pl.Out[pl.Tensor[[3, 16, 16], pl.FP32]]):
    box_buf = pld.alloc_window_buffer([16, 16], dtype=pl.FP32)
    arrived_buf = pld.alloc_window_buffer(4)
    for r in pl.range(pld.world_size()):
        box = pld.window(box_buf, [16, 16], dtype=pl.FP32)
        chosen(x[r], out[r], box, pld.window(arrived_buf, [1, 1], dtype=pl.INT32), device=r)


def test_a_value_of_another_card_steers() -> None:
    # GIVEN cards that store the rows for which their neighbour sent a positive number
    draw = np.random.default_rng(4).standard_normal((3, 16, 16), np.float32)
    found: dict[Any, list[Recording]] = {}
    for mode in ("values", "shapes"):
        with mode_of_runs(mode), collecting() as runs:
            around(draw.copy(), np.zeros_like(draw), config=SimpleNamespace(device_ids=[0, 1, 2]))
        found[mode] = [run.recording for run in runs]
    # THEN each is recorded once, as with values: the ranks wait for what the others compute
    assert [one.program for one in found["shapes"]] == [one.program for one in found["values"]]
    for shapes, values in zip(found["shapes"], found["values"], strict=True):
        assert first_difference(_plain(shapes), _plain(values)) is None
