"""What a kernel's name means, mangled or not, and that the table is sound."""

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_tables import parse_table

from npuscope.base.errors import BadInput
from npuscope.chip import kernels
from npuscope.chip.kernels import area_of, kernel_table, shipped_table
from npuscope.chip.kernels.demangle import demangled, readable

NAMES = Path(__file__).resolve().parents[1] / "data" / "kernel_names.txt"
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
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "all_reduce", "nvshmem_quiet": None, "MatMulV2": None,
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
    shown = kernels.is_comm(pl.Series(names, dtype=pl.String))
    assert shown.to_list() == [True, True, False, False, True, False]


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


PATH = Path("my_kernels.toml")


def test_the_table_that_comes_with_npuscope_has_no_mistake() -> None:
    assert parse_table(shipped_table(), PATH) == kernel_table()


GOOD = '[[kernel]]\nfamily = "spin"\nwork = { by = "bytes", ops = 1 }\nnames.Spin = ["spin"]\n\n'


def test_an_entry_says_several_things() -> None:
    (entry,) = parse_table(GOOD.encode(), PATH).kernel
    assert entry.rule is not None
    assert (entry.rule.family, entry.rule.work.ops, entry.whole_names) == ("spin", 1, ("spin",))


@pytest.mark.parametrize(
    ("text", "line", "shown"),
    [
        ('[[kernel]]\nkind = "comm"\nfound = ["x"]\ncolour = "red"\n', 9, "unknown field `colour`"),
        ('[[kernel]]\nkind = "noise"\nfound = ["x"]\n', 7, "noise"),
        ('[[kernel]]\nfamily = "x"\nwork = { by = "bytes", oops = 1 }\nfound = ["x"]\n', 8, "unknown field `oops`"),
        ('[[kernel]]\nkind = "comm"\n', 6, "knows no name"),
        ('[[kernel]]\nfound = ["x"]\n', 6, "says nothing"),
        ('[[kernel]]\nfamily = "x"\nfound = ["x"]\n', 7, "go together"),
        ('[[kernel]]\nkind = "comm"\nfound = ["("]\n', 8, "no regular expression"),
        ('[[kernel]]\nkind = "comm"\nwhole = ["MatMul"]\n', 8, "can fit no plain name"),
        ('[[kernel]]\nkind = "comm"\nfound = ["^\\\\D*MatMul"]\n', 8, "`spelt` finds others"),
        ('[[kernel]]\nfamily = "x"\nwork = { by = "unpriced" }\nfound = ["x"]\n', 8, "says why"),
        ('[[kernel]]\nkind = "comm"\nalign = "X"\nwhole = ["x"]\n', 8, "no `found`"),
        (GOOD, 9, "stands in an entry before"),
        ("[[kernel]\n", 6, "not a table of kernels"),
    ],
)
def test_a_mistake_has_its_line(text: str, line: int, shown: str) -> None:
    with pytest.raises(BadInput, match=shown) as caught:
        parse_table((GOOD + text).encode(), PATH)
    assert (caught.value.line, str(caught.value).startswith(f"my_kernels.toml, line {line}")) == (line, True)


MANGLED = {
    "_Z4gemmv": "gemm",
    "_Z4gemmPfS_i": "gemm",
    "_ZN5aiter4rope6kernelEPKfi": "aiter::rope::kernel",
    "_Z4copyIfEvPT_": "copy<float>",
    "_ZN5aiter4normIDF16bfLi64ELb0ELin3ELm8EEEvPT0_PT_": "aiter::norm<__bf16, float, 64, false, -3, 8ul>",
    "_ZN2ck4tile6kernelINS_4convINS_5shapeIJLi1ELi8EEEEEEENS_6layoutE5EEvT_": None,  # more arguments after the last
    "_ZN2ck6kernelINS_4convINS_5shapeIJLi1ELi8EEEEEEEEvT_": "ck::kernel<ck::conv<ck::shape<1, 8> > >",
    "_ZN2ck6kernelILNS_4ModeE2EEEvv": "ck::kernel<(ck::Mode)2>",
    "_ZN2at6native12_GLOBAL__N_14fillEPf": "at::native::(anonymous namespace)::fill",
    "_Z3runIZ4mainEUliE_EvT_": "run<main()::{lambda(int)#1}>",
    "_Z3runISt6vectorIiSaIiEEEvRKT_": "run<std::vector<int, std::allocator<int> > >",
    "_Z3runIPFviEEvT_": "run<void (*)(int)>",
    "_Z5applyI4halfTnPFT_RKS1_EXadL_Z4siluIS0_ES1_S3_EEEvPS1_": "apply<half, &silu<half> >",
    "_Z4gemmv.kd": "gemm.kd",
    "_ZN3runIXplLi1ELi2EEEvv": None,  # an expression
    "_Z": None,
    "_ZN": None,
    "_Z9short": None,
    "MatMulV2": None,
}


@pytest.mark.parametrize("name", MANGLED)
def test_common_parts_are_read_and_others_left(name: str) -> None:
    assert demangled(name) == (MANGLED[name] or name)


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="binutils are not on this machine")
def test_the_compilers_own_tool_reads_them_alike() -> None:
    odd = ("DF16b", "Tn", "IZ", ".")  # which it spells otherwise, or does not know
    known = [name for name, shown in MANGLED.items() if shown and not any(part in name for part in odd)]
    shown = subprocess.run(["c++filt", "-p", *known], capture_output=True, text=True, check=True).stdout.splitlines()
    assert [demangled(name).replace(" ", "") for name in known] == [line.replace(" ", "") for line in shown]


def test_names_that_would_read_alike_stay_apart() -> None:
    one, other = "_Z4gemmPf", "_Z4gemmPi"
    assert readable([one, other, "_Z4ropev"]) == {"_Z4ropev": "rope"}
    assert readable([one, "gemm"]) == {}


def test_a_mangled_name_means_what_the_plain_one_means() -> None:
    assert area_of("_ZN4vllm15rms_norm_kernelIfEEvPT_") == area_of("void vllm::rms_norm_kernel<float>(float*)")


parts = st.sampled_from(
    ["N", "2ck", "I", "E", "Li1E", "f", "P", "S_", "T_", "J", "Z", "Ul", "v", "X", "S0_", "_", "K", "9x"]
)


@given(st.lists(parts, max_size=20))
def test_anything_is_read_or_left(drawn: list[str]) -> None:
    assert demangled("_Z" + "".join(drawn))
