"""Forward passes found again where they were planted, and in real captures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted import DEEPSEEK, QWEN, STRANGE, Plan, Planted, plant

from npuscope.forward.passes import Passes, passes
from npuscope.trace import read


def told(found: Passes) -> list[Planted]:
    columns = ("phase", "attentions", "complete", "disturbed", "start_ns", "end_ns", "sum_ns", "rows")
    return [Planted(*row) for row in found.table.select(columns).iter_rows()]


def planted_and_found(plan: Plan, folder: Path) -> tuple[list[Planted], Passes]:
    path = folder / "kernel_details.csv"
    truth = plant(plan, path)
    unknown = plan.model.attention if plan.model.attention == STRANGE.attention else None
    return truth, passes(read(path), unknown)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    model = draw(st.sampled_from([QWEN, DEEPSEEK, STRANGE]))
    model = replace(model, layers=draw(st.integers(5, 24)))
    count = draw(st.integers(3, 6))
    phases = draw(st.lists(st.sampled_from(["decode", "decode", "prefill"]), min_size=count, max_size=count))
    cut = st.integers(0, 3 * len(model.layer))
    return Plan(
        model,
        tuple(phases),
        seed=draw(st.integers(0, 10_000)),
        drafts=draw(st.integers(0, 2)) if model.draft else 0,
        steps=draw(st.booleans()),
        twins=draw(st.booleans()),
        side_stream=draw(st.booleans()),
        jitter=draw(st.sampled_from([0.0, 0.3, 0.9])),
        lost_head=draw(cut),
        lost_tail=draw(cut),
        stall=draw(st.none() | st.integers(0, count - 1)),
        pause_ns=draw(st.sampled_from([20_000, 400_000])),
        skew_ns=draw(st.integers(0, 10**9)),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans())
def test_every_planted_pass_is_found_exactly(plan: Plan, tmp_path: Path) -> None:
    truth, found = planted_and_found(plan, tmp_path)
    assert told(found) == truth
