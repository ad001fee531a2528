"""Who made what in a body: through loops, views and the first turn."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from linted import model, program
from random_programs import arguments, module, source
from tiers import examples

import npuscope.tile as pl
from npuscope.check.dataflow import SAME, Flow, flow_of, flows_of
from npuscope.tile.record.model import Ref
from npuscope.tile.record.walk import Step, ops_of


@pl.jit
def summed(x: pl.Tensor[[16, 256], pl.FP32], out: pl.Out[pl.Tensor[[16, 1], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="summed"):
        total = pl.full([1, 16], dtype=pl.FP32, value=0.0)
        for k in pl.pipeline(0, 256, 64, stage=2):
            part = pl.reshape(pl.row_sum(x[:, k : k + 64]), [1, 16])
            total = pl.add(total, part)
        out[:, :] = pl.reshape(total, [16, 1])
    return out


def only(flow: Flow, name: str) -> list[Step]:
    return [step for step in flow.steps if step.op.name == name]


def test_what_a_loop_carries_has_the_makers_of_its_first_and_later_turns() -> None:
    (flow,) = flows_of(program(summed))
    first, later = only(flow, "add")  # the first turn begins with the zeros, three more follow
    assert [step.times for step in (first, later)] == [1, 3]
    (zeros,) = only(flow, "full")
    assert flow.makers(first, 0) == (zeros,)
    assert set(flow.makers(later, 0)) == {first, later}
    (store,) = only(flow, "assemble")
    assert flow.makers(store, 0, SAME) == (later,)  # through the reshape, after the loop's last turn
    assert set(flow.uses(later, SAME)) == {later, store}
    assert flow.uses(zeros) == (first,)


def test_a_step_knows_its_loops() -> None:
    (flow,) = flows_of(program(summed))
    for step in only(flow, "row_sum"):
        (around,) = step.around
        assert (around.loop.kind, around.loop.stage, around.loop.turns) == ("pipeline", 2, 4)
    assert only(flow, "full")[0].around == ()


def test_every_operand_of_real_kernels_is_resolved_to_an_op_that_makes_a_tile() -> None:
    checked = model("qwen3_32b_tilelet")
    for body, flow in zip(checked.recording.bodies, flows_of(checked), strict=True):
        stored = list(ops_of(body))
        assert [step.op for step in flow.steps] == [op for op, _ in stored]  # in the order of a group's offsets
        for step in flow.steps:
            for operand, resolved in zip(step.op.operands, step.operands, strict=True):
                makers = resolved.makers
                assert bool(makers) == isinstance(operand, Ref)
                assert all(flow.steps[maker].op.result is not None for maker in makers)


@given(random=st.randoms(use_true_random=False))
@examples(40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_operand_of_random_programs_has_a_maker(random: Random, tmp_path: Path) -> None:
    made = module(source(random), tmp_path / f"program_{random.getrandbits(40)}.py")
    recording = made.main.record(*arguments(), mode="shapes").recording
    for body in recording.bodies:
        flow = flow_of(body, recording.sites)
        for step in flow.steps:
            for operand, resolved in zip(step.op.operands, step.operands, strict=True):
                makers = resolved.makers
                assert bool(makers) == isinstance(operand, Ref)
                assert all(flow.steps[maker].op.result is not None for maker in makers)
                assert all(step.number in flow.users[maker] for maker in makers)
