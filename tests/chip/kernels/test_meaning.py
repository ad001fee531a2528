"""What names of real kernels mean: family, area, kind, landmark and the name by which predictions meet captures.

Names are from real captures of Ascend chips and from public traces of GPUs.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip import kernels
from npuscope.chip.kernels import kernel_table

NAMES = Path(__file__).resolve().parents[2] / "data" / "kernel_names.txt"
ROWS = [
    tuple(cell.strip() for cell in line.rsplit("|", 4))
    for line in NAMES.read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("name", "family", "area", "kind", "landmark"), ROWS)
def test_a_name(name: str, family: str, area: str, kind: str, landmark: str) -> None:
    means = kernels.rule_of(name).family, kernels.area_of(name), kernels.kind_of(name), kernels.landmark_of(name)
    assert means == (family, area, kind, landmark)


@pytest.mark.parametrize(
    ("names", "aligned"),
    [
        (["MatMulV2", "aten.mm.default", "aten::addmm", "nvjet_tst_128x8"], "MatMul"),
        (["BatchMatMulV2", "aten::baddbmm", "TransposeBatchMatMul"], "BatchMatMul"),
        (["hcom_allReduce_", "HcomAllReduce", "multimem_all_reduce_kernel", "cross_device_reduce_1stage"], "AllReduce"),
        (["FusedInferAttentionScore", "attention", "flash_fwd_kernel", "kernel_unified_attention_2d"], "Attention"),
        (["FlashAttentionScoreGrad", "flash_bwd_dot_do_o_kernel"], "AttentionBackward"),
        (["SparseFlashAttention", "SparseAttnSharedkv"], "SparseAttention"),
        (["RmsNorm", "GemmaRmsNorm", "rms_norm"], "RmsNorm"),
        (["UnheardOf", "triton_poi_fused_fmha_v3_fwd_2", "MatmulAllReduce"], None),
    ],
)  # fmt: skip
def test_names_of_one_thing(names: list[str], aligned: str | None) -> None:
    assert [kernels.aligned_name(name) for name in names] == [aligned] * len(names)


def test_what_collectives_exchange() -> None:
    exchanged = {
        "hcom_allReduce_": "all_reduce", "HcomAllGather": "all_gather", "hcom_reduceScatter_": "reduce_scatter",
        "HcomAllToAllV": "all_to_all", "MoeDistributeDispatchV2": "all_to_all", "hcom_send_": "broadcast",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL": "reduce_scatter", "deep_ep::intranode::dispatch": "all_to_all",
        "nvshmem_quiet": None, "MatMulV2": None,
    }  # fmt: skip
    assert {name: kernels.collective_of(name) for name in exchanged} == exchanged


def test_attentions_made_for_one_phase() -> None:
    made_for = {"PromptFlashAttention": "prefill", "RINGMLAPrefillBF16Kernel": "prefill",
                "IncreFlashAttention": "decode",
                "BatchDecodeWithPagedKVCacheKernel": "decode",
                "FusedInferAttentionScore": None}  # fmt: skip
    assert {name: kernels.phase_of(name) for name in made_for} == made_for


def test_calibrated_laws_are_for_the_kernels_they_were_fitted_to() -> None:
    laws = {"MatMulV2": "products", "MatMulV3": "products", "QuantBatchMatmulV3": "products", "BatchMatMulV2": None,
            "FusedInferAttentionScore": "attention", "PromptFlashAttention": None}  # fmt: skip
    assert {name: kernels.law_of(name) for name in laws} == laws


def test_a_column_is_judged_like_its_names() -> None:
    names = [
        "hcom_allReduce__360_0_1",
        "hcom_allReduce__360_1_1",
        "MatMulV2",
        None,
        "allgatherAicpuKernel",
        "Memcpy HtoD",
    ]
    told = kernels.is_comm(pl.Series(names, dtype=pl.String))
    assert told.to_list() == [True, True, False, False, True, False]


@given(st.text(max_size=30))
def test_any_name_has_a_meaning(name: str) -> None:
    assert kernels.rule_of(name).family
    assert kernels.kind_of(name) in ("task", "comm", "copy")


def test_no_pattern_is_in_vain() -> None:
    """Whole names that an entry before has taken would never be reached."""
    seen: dict[str, str] = {}
    for entry in kernel_table().kernel:
        for pattern in entry.whole_names if entry.rule is not None else ():
            if pattern.isalnum():
                family = kernels.rule_of(pattern).family
                assert family == entry.family, f"'{pattern}' of {entry.family} is taken by {family}"
                assert pattern not in seen
                seen[pattern] = entry.family or ""
