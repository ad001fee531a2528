"""Forward passes found again where they were planted, and in real captures."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from planted import DEEPSEEK, QWEN, QWEN_RING, STRANGE, Plan, Planted, plant
from tiers import examples
from written_passes import same

from npuscope.base.errors import NpuscopeError
from npuscope.explain.passes import Passes, passes
from npuscope.explain.passes.statistics import statistics
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
    model = draw(st.sampled_from([QWEN, QWEN_RING, DEEPSEEK, STRANGE]))
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
        noise=draw(st.sampled_from([0.0, 0.0, 0.02])),
        jitter=draw(st.sampled_from([0.0, 0.3, 0.9])),
        lost_head=draw(cut),
        lost_tail=draw(cut),
        stall=draw(st.none() | st.integers(0, count - 1)),
        # without a pause and without a name that tells, nothing says where a pass ends
        pause_ns=draw(st.sampled_from([20_000, 400_000, *([] if model.attention == STRANGE.attention else [0])])),
        warm_up=draw(st.sampled_from([0, 0, 3])),
        skew_ns=draw(st.integers(0, 10**9)),
    )


@examples(60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans())
def test_every_planted_pass_is_found_exactly(plan: Plan, tmp_path: Path) -> None:
    truth, found = planted_and_found(plan, tmp_path)
    assert told(found) == truth
    same(found.trace)  # in `report`, where no anchor is named


def test_unknown_kernels_are_found_by_their_repetition(tmp_path: Path) -> None:
    """No attention, no sampling and no step has a name here; the layers repeat, and heads and tails do not."""
    path = tmp_path / "kernel_details.csv"
    truth = plant(Plan(STRANGE, ("decode",) * 4), path)
    found = passes(read(path))
    assert found.anchor.startswith("repetition")
    assert [(p.start, p.end, p.attentions) for p in told(found)] == [(p.start, p.end, p.attentions) for p in truth]
    assert found.table["layers"].to_list() == [12] * 4


def test_a_user_names_the_kernel_of_a_layer(tmp_path: Path) -> None:
    plant(Plan(STRANGE, ("decode",) * 3), path := tmp_path / "kernel_details.csv")
    trace = read(path)
    assert passes(trace, "k_mix").table["attentions"].to_list() == [12, 12, 12]
    with pytest.raises(NpuscopeError, match="no kernel matches the anchor 'k_nix'"):
        passes(trace, "k_nix")
    with pytest.raises(NpuscopeError, match="is no regular expression"):
        passes(trace, "k_(")


def test_layers_begin_where_the_first_one_does(tmp_path: Path) -> None:
    """Qwen3's first layer has other kernels before its attention, but begins with the same projection."""
    plant(Plan(QWEN, ("decode",) * 2, side_stream=False), path := tmp_path / "kernel_details.csv")
    found = passes(read(path))
    rows = found.order.filter(pl.col("in_pass") == 1)
    kernels = {part: tuple(rows.filter(pl.col("part") == part)["kernel"]) for part in ("head", "tail")}
    assert kernels == {"head": QWEN.head, "tail": QWEN.tail}
    assert tuple(rows.filter(pl.col("layer") == 0)["kernel"]) == QWEN.first
    for layer in range(1, 64):
        assert tuple(rows.filter(pl.col("layer") == layer)["kernel"]) == QWEN.layer
    assert found.table["layers"].to_list() == [64, 64]


def test_two_attentions_make_one_layer_where_they_take_turns(shared: Path) -> None:
    """LongCat: 28 attentions, 14 layers; the sequence is the published one, begun at the prologue."""
    found = passes(read(shared / "ascend" / "longcat_910c" / "kernel_details.csv"))
    assert found.table["layers"].to_list() == [14] * 5
    assert found.table["attentions"].to_list() == [28] * 5
    kinds = statistics(found).sequences
    facts = """
        Add InplaceAddRmsNorm MlaPrologV3 Muls FusedInferAttentionScore TransposeBatchMatMul MatMul HcomAllReduce
        InplaceAddRmsNorm Cast MatMul MoeGatingTopK MoeDistributeDispatchV2 DynamicQuant GroupedMatmul
        DequantSwigluQuant GroupedMatmul MoeDistributeCombineV2 DynamicQuant QuantBatchMatmulV3 DequantSwigluQuant
        QuantBatchMatmulV3 InplaceAddRmsNorm MlaPrologV3 Muls FusedInferAttentionScore TransposeBatchMatMul MatMul
        HcomAllReduce AddRmsNormDynamicQuant QuantBatchMatmulV3 DequantSwigluQuant QuantBatchMatmulV3
    """.split()  # noqa: SIM905
    assert [kind.layers for kind in kinds] == ["0-13"]
    assert list(kinds[0].kernels) == facts[2:] + facts[:2]


LONGCAT_DEVICE_US = (21_779.816, 7_972.781, 7_890.975, 8_421.250, 7_737.831)
LONGCAT_SPAN_US = (25_626.192, 10_665.893, 10_718.174, 11_124.982, 10_402.628)
LONGCAT_EXCLUDED = (0.682, 0.142, 0.129, 0.176, 0.116)


@pytest.mark.parametrize("steps", [True, False])
def test_longcat_has_five_passes_with_and_without_its_step_column(shared: Path, steps: bool) -> None:
    trace = read(shared / "ascend" / "longcat_910c" / "kernel_details.csv")
    if not steps:
        trace = replace(trace, slices=trace.slices.with_columns(step=pl.lit(None, dtype=pl.Int64)))
    found = passes(trace)
    assert found.rule == ("step" if steps else "sampling and embedding")
    table = found.table
    assert [ns / 1000 for ns in table["union_ns"]] == pytest.approx(LONGCAT_DEVICE_US, rel=1e-9)
    assert table["sum_ns"].to_list() == table["union_ns"].to_list()  # one stream at a time
    spans = (table["end_ns"] - table["start_ns"]) / 1000
    assert spans.to_list() == pytest.approx(LONGCAT_SPAN_US, rel=1e-9)
    assert table["excluded_anchor"].to_list() == pytest.approx(LONGCAT_EXCLUDED, abs=0.0005)
    assert table["disturbed"].to_list() == [True, False, False, False, False]
    assert "HcomAllReduce took 14.1 ms" in found.reasons[0][0]
    assert table["complete"].all()
    assert table["phase"].unique().to_list() == ["decode"]
    assert found.outside == 0


def test_gpu_traces_have_passes_too(shared: Path) -> None:
    """SGLang's decode step of Qwen3-8B: 36 layers. The H100 capture begins inside a pass of Qwen1.5's 24 layers."""
    sglang = passes(read(shared / "gpu" / "tracelens_sglang_qwen3_8b_decode.json.gz")).table
    assert sglang.select("layers", "attentions", "complete", "phase").rows() == [(36, 36, True, "decode")]
    h100 = passes(read(shared / "gpu" / "tracelens_h100_qwen1.5_0.5b.json.gz")).table
    assert h100.select("layers", "complete").rows() == [(10, False), (24, True)]


def test_steps_without_attention_are_passes_without_layers(shared: Path) -> None:
    path = shared / "ascend/msinsight_cnn/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
    found = passes(read(path))
    assert found.table.select("step", "attentions", "layers").rows() == [(50, 0, 0)]
    assert found.table["excluded_anchor"][0] is None


def test_nothing_to_find_is_said(tmp_path: Path) -> None:
    header = "Name,Type,Stream ID,Start Time(us),Duration(us)\n"
    rows = "".join(f"{name},{name},1,{10 * i}.0,1.0\n" for i, name in enumerate("abcdefg"))
    (path := tmp_path / "kernel_details.csv").write_text(header + rows)
    with pytest.raises(NpuscopeError, match="no steps, no attention, and no kernel that repeats"):
        passes(read(path))
    path.write_text(header)
    with pytest.raises(NpuscopeError, match="no kernel ran"):
        passes(read(path))


def test_a_long_pause_disturbs_a_pass(tmp_path: Path) -> None:
    """Nothing runs for ten times a pass inside one of four."""
    plant(Plan(replace(QWEN, layers=6), ("decode",) * 4, jitter=0.0), path := tmp_path / "kernel_details.csv")
    trace = read(path)
    middle = passes(trace).table["anchor_end_ns"][2] - 1
    late = pl.when(pl.col("start") > middle).then(pl.col("start") + 20_000_000).otherwise("start")
    found = passes(replace(trace, slices=trace.slices.with_columns(late.alias("start"))))
    assert found.table["disturbed"].to_list() == [False, False, True, False]
    assert "nothing ran for 20" in found.reasons[2][0]


def test_noise_among_the_kernels_changes_no_layer(tmp_path: Path) -> None:
    """One kernel in fifty comes from elsewhere: about one layer in four is unlike the others."""
    plan = Plan(QWEN, ("decode",) * 4, noise=0.02)
    truth, found = planted_and_found(plan, tmp_path)
    assert told(found) == truth
    assert found.table["layers"].to_list() == [64] * 4
    experts = ("MoeGatingTopK", "GroupedMatmul", "SwiGlu", "GroupedMatmul")
    longcat_like = replace(QWEN, layer=QWEN.layer + experts + QWEN.layer[:-1], first=(), layers=14)
    truth, found = planted_and_found(Plan(longcat_like, ("decode",) * 4, noise=0.01), tmp_path)
    assert found.table.select("layers", "attentions").rows() == [(14, 28)] * 4
