"""Work of kernel calls by hand, and the least time a chip needs for it."""

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip import devices as device
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.estimate import limit_ns
from npuscope.forward.work import CallWork, work_of

A3 = device.load("a3")
NZ = "FRACTAL_NZ"


def t(*shape: int, dtype: str | None = "BF16", format: str | None = "ND") -> CallTensor:
    return CallTensor(shape, dtype, format)


def test_a_plain_matmul() -> None:
    # qkv of Qwen3-32B at TP16: 2·16·5120·768 FLOP; (16·5120 + 5120·768) read, 16·768 written, two bytes each
    work = work_of(Call("MatMulV2", (t(16, 5120), t(5120, 768)), (t(16, 768),)))
    assert (work.family, work.unit, work.dtype) == ("gemm", "cube", "bf16")
    assert work.flops == 2 * 16 * 5120 * 768
    assert (work.bytes_read, work.bytes_written) == (2 * (16 * 5120 + 5120 * 768), 2 * 16 * 768)


@pytest.mark.parametrize(
    ("a", "b", "out", "mkn"),
    [
        # NZ storage of a K×N weight is [N/16, K/16, 16, 16]; of its transpose [K/16, N/16, 16, 16]
        (t(4, 3072), t(1024, 192, 16, 16, format=NZ), t(4, 16384), (4, 3072, 16384)),
        (t(16, 5120), t(320, 48, 16, 16, format=None), None, (16, 5120, 768)),
        # int8 fractals are 32 wide
        (t(1, 7168, dtype="INT8"), t(66, 448, 16, 32, dtype="INT8", format=NZ), None, (1, 7168, 2112)),
        # a transposed weight, told by which dimension is K
        (t(4, 3072), t(384, 3072), t(4, 384), (4, 3072, 384)),
        # gradients of a linear layer: the left is transposed, told by the output
        (t(32, 4096), t(32, 4096), t(4096, 4096), (4096, 32, 4096)),
        (t(32, 1000), t(32, 4096), t(1000, 4096), (1000, 32, 4096)),
        # N padded in storage: 1000 columns lie in 63 fractals of 16
        (t(32, 4096), t(63, 256, 16, 16, format=NZ), t(32, 1000), (32, 4096, 1000)),
        # activations with a batch, weights without
        (t(2, 84, 2048), t(512, 2048), t(2, 84, 512), (168, 2048, 512)),
    ],
)
def test_m_k_and_n_behind_storage_and_transposition(
    a: CallTensor, b: CallTensor, out: CallTensor | None, mkn: tuple[int, int, int]
) -> None:
    work = work_of(Call("MatMulV3", (a, b), () if out is None else (out,)))
    assert work.flops == 2 * math.prod(mkn)


def test_batched_products_whichever_way_the_output_lies() -> None:
    # 8 heads, 4 tokens: [8,4,512]·[8,512,128]; TransposeBatchMatMul writes tokens first
    flops = 2 * 8 * 4 * 512 * 128
    assert work_of(Call("BatchMatMulV2", (t(8, 4, 512), t(8, 512, 128)), (t(8, 4, 128),))).flops == flops
    assert work_of(Call("TransposeBatchMatMul", (t(8, 4, 512), t(8, 512, 128)), (t(4, 8, 128),))).flops == flops


def test_a_quantised_matmul_runs_at_the_rate_of_int8() -> None:
    # DeepSeek-V3 down: 8×2048×7168; weights of one byte, scales of four, output of two
    a, b = t(8, 2048, dtype="INT8"), t(224, 128, 16, 32, dtype="INT8", format=NZ)
    work = work_of(Call("QuantBatchMatmulV3", (a, b, t(7168, dtype="FLOAT")), (t(8, 7168),)))
    assert (work.family, work.dtype, work.flops) == ("quant_matmul", "int8", 2 * 8 * 2048 * 7168)
    assert work.bytes == 8 * 2048 + 2048 * 7168 + 4 * 7168 + 2 * 8 * 7168
    weight_only = work_of(Call("WeightQuantBatchMatmulV2", (t(8, 2048), b), (t(8, 7168),)))
    assert weight_only.dtype == "bf16"


def test_experts_need_to_be_told_their_rows() -> None:
    call = Call(
        "GroupedMatmul",
        (t(384, 3072, dtype="INT8"), t(32, 64, 192, 16, 32, dtype="INT8", format=NZ)),
        (t(384, 2048, dtype="INT32"),),
    )
    assert "tokens per expert not given" in (work_of(call).why_unknown or "")
    # half a token per expert: 16 rows, so at most 16 of 32 experts' weights are read
    work = work_of(Call(call.type, call.inputs, call.outputs, {"tokens_per_expert": 0.5}))
    assert work.flops == 2 * 16 * 3072 * 2048
    assert work.bytes_read == 16 * 3072 + 16 * 3072 * 2048
    assert work.bytes_written == 16 * 2048 * 4


PAGED = Call(
    "FusedInferAttentionScore",
    (t(16, 4, 128), t(12308, 128, 128), t(12308, 128, 128), None, t(2048, 2048, dtype="INT8"),
     t(16, dtype="INT64"), t(16, dtype="INT64"), t(16, 512, dtype="INT32")),
    (t(16, 4, 128),),
)  # fmt: skip


def test_attention_without_a_context_is_unknown_whatever_the_pool() -> None:
    assert work_of(PAGED).why_unknown == "context not given"
    assert limit_ns(work_of(PAGED), A3).ns is None


def test_attention_over_a_paged_cache() -> None:
    # 16 sequences of 4095 cached tokens and the new one: 4 heads, one head of keys and of values, width 128
    work = work_of(Call(PAGED.type, PAGED.inputs, PAGED.outputs, {"context": 4095}))
    assert work.flops == 4 * 16 * 4096 * 4 * 128
    assert work.bytes_read == 2 * (16 * 4 * 128 + 16 * 4096 * 2 * 128)
    # 16.8 MB of keys and values at 1.76 TB/s: 19.1 µs; the chip measured 61.2 at a context of 4.1 to 5.6 k
    assert limit_ns(work, A3).bound == "memory"
    assert (limit_ns(work, A3).ns or 0) / 1000 == pytest.approx(19.1, abs=0.1)


def test_latent_attention_reads_one_latent_for_all_heads() -> None:
    # LongCat: 4 tokens, 8 heads, latent 512 and rope 64; the cache is stored as NZ
    call = Call(
        "FusedInferAttentionScore",
        (t(4, 8, 512), t(161, 1, 32, 128, 16), t(161, 1, 32, 128, 16), t(4, dtype="INT64"), t(4, dtype="INT64"),
         t(4, 40, dtype="INT32"), t(4, 8, 64), t(161, 1, 4, 128, 16)),
        (t(8, 4, 512),),
        {"context": 999},
    )  # fmt: skip
    work = work_of(call)
    assert work.flops == 2 * 4 * 1000 * 8 * (512 + 64 + 512)
    assert work.bytes_read == 2 * (4 * 8 * (512 + 64) + 4 * 1000 * (512 + 64))


def test_prefill_counts_only_the_keys_a_token_sees() -> None:
    # one sequence of 4 tokens, no pages, causal: 1 + 2 + 3 + 4 pairs
    inputs = (t(4, 2, 128), t(4, 1, 128), t(4, 1, 128), None, t(2048, 2048, dtype="INT8"), t(1, dtype="INT64"))
    assert work_of(Call("FusedInferAttentionScore", inputs)).flops == 4 * 10 * 2 * 128


def test_dense_attention_tells_its_heads_by_its_outputs() -> None:
    # 32 query heads, 4 of keys, 84 tokens; the softmax's maxima are [batch, heads, tokens, 8]
    call = Call(
        "FlashAttentionScore",
        (t(1, 32, 84, 128), t(1, 4, 84, 128), t(1, 4, 84, 128)),
        (t(1, 32, 84, 8, dtype="FLOAT"), t(1, 32, 84, 8, dtype="FLOAT"), None, t(1, 32, 84, 128)),
    )
    assert work_of(call).flops == 4 * 32 * 84 * 84 * 128


def test_the_prolog_of_latent_attention_is_four_products() -> None:
    # LongCat: 4 rows times weights of 3072×1536, 1536×1536, 8×128×512, 3072×576; 576 values per row go to the cache
    call = Call(
        "MlaPrologV3",
        (t(4, 3072), t(96, 192, 16, 16, format=NZ), t(96, 96, 16, 16, format=NZ), t(8, 128, 512),
         t(36, 192, 16, 16, format=NZ), t(1536), t(512), t(4, 64), t(4, 64), t(161, 128, 1, 512), t(161, 128, 1, 64),
         t(4, dtype="INT64")),
        (t(4, 8, 512), t(4, 8, 64), t(161, 128, 1, 512), t(161, 128, 1, 64)),
    )  # fmt: skip
    weights = 3072 * 1536 + 1536 * 1536 + 8 * 128 * 512 + 3072 * 576
    work = work_of(call)
    assert work.flops == 2 * 4 * weights
    assert work.bytes_read == 2 * (4 * 3072 + weights + 1536 + 512 + 2 * 4 * 64) + 4 * 8
    assert work.bytes_written == 2 * (4 * 8 * (512 + 64) + 4 * 576)


@pytest.mark.parametrize(
    ("call", "read", "written"),
    [
        # a cache write moves its rows, never the pool
        (Call("ReshapeAndCacheNdKernel",
              (t(16, 1, 128), t(16, 1, 128), t(12235, 128, 1, 128), t(12235, 128, 1, 128), t(16, dtype="INT32"))),
         2 * 2 * 16 * 128 + 4 * 16, 2 * 2 * 16 * 128),
        (Call("KvRmsNormRopeCache",
              (t(5, 1, 1, 576), t(512), t(5, 1, 1, 64), t(5, 1, 1, 64), t(5, dtype="INT64"), t(892, 128, 1, 64),
               t(892, 128, 1, 512))),
         2 * (5 * 576 + 512 + 2 * 5 * 64) + 8 * 5, 2 * 5 * 576),
        # rope reads one row of its table per token
        (Call("_triton_rope", (t(768, 4, 128), t(768, 1, 128, dtype=None), t(81920, 128))),
         2 * (768 * 5 * 128 + 768 * 128), 2 * 768 * 5 * 128),
        # an embedding reads its rows, not its table
        (Call("GatherV2", (t(131072, 3072), t(4, dtype="INT64"), t(1, dtype="INT64")), (t(4, 3072),)),
         2 * 4 * 3072 + 8 * 5, 2 * 4 * 3072),
        (Call("SwiGlu", (t(16, 3200),), (t(16, 1600),)), 2 * 16 * 3200, 2 * 16 * 1600),
        (Call("SwiGlu", (t(16, 3200),)), 2 * 16 * 3200, 2 * 16 * 1600),
        (Call("InplaceAddRmsNorm", (t(4, 3072), t(4, 3072), t(3072)),
              (t(4, 3072), t(4, 1, dtype="FLOAT"), t(4, 3072))),
         2 * (2 * 4 * 3072 + 3072), 2 * 2 * 4 * 3072 + 16),
        (Call("DynamicQuant", (t(384, 3072),), (t(384, 3072, dtype="INT8"), t(384, dtype="FLOAT"))),
         2 * 384 * 3072, 384 * 3072 + 4 * 384),
        (Call("Cast", (t(100, dtype="FLOAT"),), (t(100),)), 400, 200),
        (Call("ZerosLike", (t(100),), (t(100),)), 0, 200),
    ],
)  # fmt: skip
def test_kernels_priced_by_what_they_move(call: Call, read: int, written: int) -> None:
    work = work_of(call)
    assert work.why_unknown is None
    assert (work.bytes_read, work.bytes_written) == (read, written)


def test_a_type_nobody_knows_has_the_bytes_of_its_tensors_as_a_floor() -> None:
    work = work_of(Call("MyFusedThing", (t(100),), (t(100),)))
    assert (work.family, work.bytes, work.byte_bound) == ("unknown", 400, True)
    assert "what it computes is not known" in (work.note or "")
    assert work_of(Call("MyFusedThing")).why_unknown == "shapes are not recorded"


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (Call("MatMulV2", (t(16, 5120),)), "shapes are not recorded"),
        (Call("MatMulV2", (t(16, 5120), t(999, 768))), "do not agree"),
        (Call("MatMulV2", (t(0, 5120), t(5120, 768))), "empty"),
        (Call("MatMulV2", (t(-1, 5120), t(5120, 768))), "not known"),
        (Call("MatMulV2", (t(16, 5120, dtype=None), t(5120, 768, dtype=None))), "data type is not recorded"),
        (Call("Add", (t(16, dtype="FLOAT3"),)), "FLOAT3 is not known"),
        (Call("Add", (t(2**40, 2**20),)), "pebibyte"),
        (Call("hcom_allReduce_"), "message size not recorded"),
        (Call("hcom_allReduce_", given={"bytes": 1e5}), "number of ranks not given"),
        (Call("MoeDistributeDispatchV2", (t(4, 3072),)), "which experts the tokens chose"),
        (Call("RINGMLAPrefillBF16Kernel", (t(4, 16, 128),)), "layout of its tensors"),
        (Call("SparseFlashAttention", (t(4, 8, 512),)), "how many keys"),
        (Call("LightningIndexer", (t(4, 8, 128), t(161, 128, 1, 128), t(4, dtype="INT32"))), "context not given"),
        (Call("FusedInferAttentionScore", (t(4, 8, 8, 512), t(9, 9, 9), t(9, 9, 9)), given={"context": 1}), "heads"),
    ],
)
def test_what_cannot_be_known_says_why(call: Call, why: str) -> None:
    work = work_of(call)
    assert why in (work.why_unknown or "")
    assert limit_ns(work, A3, call.type).ns is None


# ---- limits


def test_the_limit_is_the_slower_of_arithmetic_and_memory() -> None:
    # prefill gate_up, 41040×5120×3200: 1.345 PFLOP at 363.7 TFLOP/s = 3697 µs; measured 4244.6, 87 % of the peak
    big = limit_ns(work_of(Call("MatMulV3", (t(41040, 5120), t(5120, 3200)))), A3)
    assert (big.bound, round((big.ns or 0) / 1000)) == ("cube", 3697)
    # decode gate_up, M = 16: 32.8 MB of weights at 1.76 TB/s
    small = limit_ns(work_of(Call("MatMulV2", (t(16, 5120), t(5120, 3200)))), A3)
    assert small.bound == "memory"
    assert (small.ns or 0) == pytest.approx(2 * (16 * 5120 + 5120 * 3200 + 16 * 3200) / 1.759218604 / 1000)
    # 6 operations an element at 11 TFLOP/s of fp32 take longer than 8 bytes of memory traffic do: never so on this chip
    assert limit_ns(CallWork("x", 10**9, "vector", "fp32", 1, 1), A3).bound == "vector"


def test_a_type_of_arithmetic_the_chip_does_not_have() -> None:
    found = limit_ns(CallWork("gemm", 1, "cube", "fp8", 1, 1), A3)
    assert found.ns is None
    assert "a3 has no cube rate for fp8" in found.why


@pytest.mark.parametrize(
    ("kind", "ranks", "message", "us"),
    [
        # two dies of a package: each takes in the other's 10 MB over 224 GB/s, 0.2 µs away
        ("HcomAllGather", 2, 10e6, 10e6 / 224e3 + 0.2),
        # 16 dies: a pair takes in 14 messages over 2 × 196 GB/s, which is worse than 15 over 224 + 196 into one die
        ("hcom_allGather_", 16, 10e6, max(14 / 392, 15 / 420) * 10e6 / 1e3 + 0.5),
        # reduce-scatter of 160 MB: a pair takes in 7/8 of it
        ("hcom_reduceScatter_", 16, 160e6, max(7 / 8 / 392, 15 / 16 / 420) * 160e6 / 1e3 + 0.5),
        ("hcom_allReduce_", 16, 160e3, 2 * max(7 / 8 / 392, 15 / 16 / 420) * 160e3 / 1e3 + 0.5),
        ("hcom_alltoall_", 16, 16e6, max(14 / 16 * 2 / 392, 15 / 16 / 420) * 16e6 / 1e3 + 0.5),
    ],
)
def test_collectives_by_the_worst_cut_of_the_links(kind: str, ranks: int, message: float, us: float) -> None:
    call = Call(kind, given={"bytes": message, "ranks": ranks})
    found = limit_ns(work_of(call), A3, kind)
    assert found.bound == "link"
    assert (found.ns or 0) / 1000 == pytest.approx(us)


def test_measured_collectives_stay_above_their_limits() -> None:
    # measured.md 5, 16 dies: all-gather 86.9 µs + 15·S / 214.6 GB/s, reduce-scatter 103.2 + 15·S / 171.4
    for size in (1.3e6, 42e6):
        fits = (("allGather", size, 86.9, 214.6e3), ("reduceScatter", 16 * size, 103.2, 171.4e3))
        for kind, message, fixed, rate in fits:
            limit = limit_ns(work_of(Call(f"hcom_{kind}_", given={"bytes": message, "ranks": 16})), A3, f"hcom_{kind}_")
            assert 0 < (limit.ns or 0) / 1000 < fixed + 15 * size / rate


def test_a_mesh_of_fewer_ranks_has_fewer_links() -> None:
    chip = device.load("910b1")
    two = limit_ns(CallWork("collective", message_bytes=28_000_000, ranks=2), chip, "HcomAllGather")
    assert (two.ns or 0) / 1000 == pytest.approx(1000 + 0.5)  # one link of 28 GB/s
    far = limit_ns(CallWork("collective", message_bytes=1, ranks=10**6), chip, "HcomAllGather")
    assert far.ns is None
    assert "do not reach" in far.why


# ---- invariants

dims = st.integers(1, 2**20)
# few values, so that dimensions often agree
sizes = st.sampled_from([4, 1, 16, 2, 0, -1, 32, 64, 128, 2048, 2**33])


@given(dims, dims, dims)
def test_a_larger_product_never_has_a_lower_limit(m: int, k: int, n: int) -> None:
    def limit(m: int, k: int, n: int) -> float:
        # 16 · 2⁴⁰ bytes and 2⁶¹ FLOP at the most: nothing overflows
        return limit_ns(work_of(Call("MatMulV2", (t(m, k), t(k, n)), (t(m, n),))), A3).ns or math.nan

    one = limit(m, k, n)
    assert 0 < one < math.inf
    assert min(limit(2 * m, k, n), limit(m, 2 * k, n), limit(m, k, 2 * n)) >= one


@given(
    st.sampled_from(["MatMulV2", "FusedInferAttentionScore", "RmsNorm", "SwiGlu", "GatherV2", "Nobody", "Memset",
                     "ReshapeAndCache", "LightningIndexer", "GroupedMatmul", "MlaPrologV3", "FlashAttentionScore",
                     "SparseFlashAttention", "InterleaveRope"]),
    st.lists(st.none() | st.builds(
        CallTensor, st.lists(sizes, max_size=5).map(tuple),
        st.sampled_from(["BF16", "INT8", "FLOAT", "INT64", "INT32", "Bogus", None]),
        st.sampled_from(["ND", NZ, "NCHW", None])), max_size=8),
    st.lists(st.builds(CallTensor, st.lists(sizes, max_size=4).map(tuple)), max_size=3),
    st.sampled_from([{}, {"context": 0.0}, {"context": 1e6, "tokens_per_expert": 0.3}, {"causal": 1.0}]),
)  # fmt: skip
def test_any_shapes_give_a_finite_limit_or_a_reason(kernel: str, inputs: list, outputs: list, given_: dict) -> None:
    call = Call(kernel, tuple(inputs), tuple(outputs), given_)
    work = work_of(call)
    limit = limit_ns(work, A3, kernel)
    if limit.ns is None:
        assert limit.why
    else:
        assert math.isfinite(limit.ns)
        assert limit.ns >= 0
        assert min(work.flops or 0, work.bytes_read or 0, work.bytes_written or 0) >= 0


# ---- the public measurements as a judge


def measured(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def call_of(row: dict[str, str]) -> Call:
    """A row of the table: graph captures tell no data types, which follow from the kernel's kind."""
    shapes = [tuple(map(int, s.split(","))) if s else () for s in row["input_shapes"].split(" (")[0].split(";")]
    told = [word.removeprefix("DT_") or None for word in row["input_dtypes"].split(";")]
    usual = "INT8" if row["kernel_type"].startswith("Quant") else "BF16"
    dtypes = told + [None] * (len(shapes) - len(told)) if row["input_dtypes"] else [usual] * 2 + ["FLOAT"] * len(shapes)
    return Call(
        row["kernel_type"],
        tuple(CallTensor(s, d, None) if s else None for s, d in zip(shapes, dtypes, strict=False)),
    )


def test_every_measured_gemm_is_priced_as_the_public_table_has_it(shared: Path) -> None:
    rows = [row for row in measured(shared / "measured_kernels_by_shape.csv") if row["tflops"]]
    assert len(rows) == 17
    for row in rows:
        work, us = work_of(call_of(row)), float(row["mean_us"])
        assert work.flops is not None
        assert work.bytes is not None
        assert work.flops / us / 1e6 == pytest.approx(float(row["tflops"]), abs=0.0051)
        # its GB/s count the two factors and the product only; ours also the scales, at most 0.4 %
        assert work.bytes / us / 1e3 == pytest.approx(float(row["gbps"]), rel=0.005)
        limit = limit_ns(work, A3).ns
        assert limit is not None
        assert 0.15 < limit / 1000 / us < 0.9
