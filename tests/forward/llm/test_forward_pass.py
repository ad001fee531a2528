"""The kernels of a forward pass: counts as measured on real captures, and weights that add up to the model."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.forward.llm.config import ModelConfig, pass_settings, read_config
from npuscope.forward.llm.forward_pass import forward_pass
from npuscope.forward.llm.kernels import ModelKernel

CONFIGS = Path(__file__).resolve().parents[2] / "data" / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


def model(name: str) -> ModelConfig:
    return read_config(CONFIGS / f"{name}.json")


def kernels(name: str, phase: str = "decode", **options: object) -> list[ModelKernel]:
    described = model(name)
    return forward_pass(described, pass_settings(described, phase, **options))  # type: ignore[arg-type]


def types(placed: list[ModelKernel]) -> Counter[str]:
    return Counter(kernel.call.type for kernel in placed)


def collectives(placed: list[ModelKernel]) -> int:
    return sum(kernel.call.type.startswith("hcom") for kernel in placed)


def test_qwen3_32b_decode_has_the_kernels_of_the_capture() -> None:
    """facts/forward_passes.md §2, TP16, batch 16, ACL graph."""
    placed = kernels("qwen3_32b", batch=16, context=4096, tp=16)
    count = types(placed)
    assert count["MatMulV2"] == 257
    assert count["FusedInferAttentionScore"] == 64
    assert count["split_qkv_rmsnorm_rope_kernel"] == 63
    assert count["AddRmsNormBias"] == 128
    assert count["SwiGlu"] == 64
    assert count["ReshapeAndCacheNdKernel"] == 64
    assert collectives(placed) == 130


def test_a_layer_of_qwen3_decode_is_in_the_captures_order_and_layer_0_is_not_fused() -> None:
    placed = kernels("qwen3_32b", batch=16, context=4096, tp=16)
    first, second = ([k.call.type for k in placed if k.layer == layer] for layer in (0, 1))
    assert second == [
        "MatMulV2", "split_qkv_rmsnorm_rope_kernel", "ReshapeAndCacheNdKernel", "FusedInferAttentionScore", "MatMulV2",
        "hcom_allReduce_", "AddRmsNormBias", "MatMulV2", "SwiGlu", "MatMulV2", "hcom_allReduce_", "AddRmsNormBias",
    ]  # fmt: skip
    assert first[1:7] == ["Slice", "Slice", "Slice", "RmsNorm", "RmsNorm", "_triton_rope"]
    assert first[7:] == second[2:]


def test_qwen3_32b_shapes_are_those_of_the_capture() -> None:
    placed = kernels("qwen3_32b", batch=16, context=4096, tp=16)
    layer = {k.role: k.call for k in placed if k.layer == 1}
    shape = {role: ";".join(",".join(map(str, t.shape)) for t in call.inputs if t) for role, call in layer.items()}
    assert shape["qkv"] == "16,5120;320,48,16,16"
    assert shape["o"] == "16,512;32,320,16,16"
    assert shape["gate_up"] == "16,5120;320,200,16,16"
    assert shape["down"] == "16,1600;100,320,16,16"
    assert shape["split, norm, rope"] == "16,768;81920,128;16"
    assert layer["o reduce"].given == {"bytes": 160 * 1024, "ranks": 16}


def test_qwen3_32b_prefill_runs_sequence_parallel() -> None:
    """facts/forward_passes.md §2: 129 all-gathers and 129 reduce-scatters, and one more for the logits."""
    placed = kernels("qwen3_32b", "prefill", tokens=4112, tp=16)
    count = types(placed)
    assert count["hcom_reduceScatter_"] == 129
    assert count["hcom_allGather_"] == 129 + 1
    assert collectives(placed) == 259
    assert count["MatMulV3"] == 128  # gate_up and down
    assert count["MatMulV2"] == 129  # qkv, o, LM head
    norms = {k.call.inputs[0].shape[0] for k in placed if k.call.type == "AddRmsNormBias" and k.call.inputs[0]}
    assert norms == {4112 // 16}


def test_few_rows_stay_with_the_small_kernel() -> None:
    assert "MatMulV3" not in types(kernels("qwen3_32b", "prefill", tokens=768, tp=16))


def test_deepseek_v3_decode_has_the_kernels_of_the_capture() -> None:
    """facts/forward_passes.md §2, W8A8, TP8 DP2 EP16, five sequences."""
    placed = kernels("deepseek_v3", batch=5, context=4096, tp=8, dp=2, ep=16, quant="w8a8")
    count = types(placed)
    assert count["QuantBatchMatmulV3"] == 305  # 61·3 + 58·2 + 3·2
    assert count["DispatchFFNCombine"] == 58
    assert count["FusedInferAttentionScore"] == 61
    assert collectives(placed) == 195
    assert count["hcom_"] == 3  # counted in the capture, not explained by the structure: they have no price


def test_deepseek_v3_shapes_are_those_of_the_capture() -> None:
    placed = kernels("deepseek_v3", batch=5, context=4096, tp=8, dp=2, quant="w8a8")
    layer = {k.role: k.call.inputs for k in placed if k.layer == 10}
    first = {role: inputs[0].shape for role, inputs in layer.items() if inputs and inputs[0]}
    assert first["qkv_a"] == (1, 7168)
    assert first["q_b"] == (5, 1536)
    assert first["k absorb"] == (16, 5, 128)
    assert first["rope"] == (5, 16, 1, 64)
    assert first["q transpose"] == (16, 5, 512)
    assert first["v weight layout"] == (16, 32, 8, 16, 16)
    assert first["q view"] == (15360,)
    assert first["attention"] == (5, 16, 1, 512)
    assert first["o"] == (8, 2048)
    assert first["shared down"] == (1, 2048)
    weights = {role: inputs[1].shape for role, inputs in layer.items() if len(inputs) > 1 and inputs[1]}
    assert weights["qkv_a"] == (66, 448, 16, 32)
    assert weights["o"] == (224, 128, 16, 32)
    assert weights["shared gate_up"] == (128, 448, 16, 32)
    dense = {k.role: k.call.inputs for k in placed if k.layer == 0}
    assert [t.shape for t in dense["gate_up"][:2] if t] == [(8, 7168), (144, 448, 16, 32)]


def test_the_weights_read_are_the_parameters_of_qwen3_32b() -> None:
    """64 layers of q, k, v, o (64 and 2·8 heads of 128), three MLP matrices, two norms and two head norms;
    embedding, LM head and the last norm. Published as 32.8 B."""
    attention = 5120 * (64 + 2 * 8) * 128 + 64 * 128 * 5120
    layer = attention + 3 * 5120 * 25600 + 2 * 5120 + 2 * 128
    expected = 64 * layer + 2 * 151936 * 5120 + 5120
    assert sum(k.weights for k in kernels("qwen3_32b", batch=1)) == expected == 32_762_123_264


def test_the_weights_read_are_the_parameters_of_deepseek_v3() -> None:
    """Without the next-token layer; published as 671 B. q: 7168→1536→128·192, kv: 7168→576, 512→128·(128+128)."""
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    experts = 257 * 3 * 7168 * 2048 + 256 * 7168 + 256  # 256 routed, one shared, router with its bias
    expected = 61 * (attention + 2 * 7168) + 3 * 3 * 7168 * 18432 + 58 * experts + 2 * 129280 * 7168 + 7168
    assert sum(k.weights for k in kernels("deepseek_v3", batch=1, quant="w8a8")) == expected == 671_026_419_200


def test_the_weights_read_are_the_parameters_of_glm_4_5() -> None:
    """Grouped queries with biases and head norms, 160 routed experts, one shared, a router with a bias; three dense
    layers first. Published as 355 B with the next-token layer."""
    attention = 5120 * (96 + 2 * 8) * 128 + (96 + 2 * 8) * 128 + 96 * 128 * 5120 + 2 * 128
    experts = 161 * 3 * 5120 * 1536 + 160 * 5120 + 160
    expected = 92 * (attention + 2 * 5120) + 3 * 3 * 5120 * 12288 + 89 * experts + 2 * 151552 * 5120 + 5120
    assert sum(k.weights for k in kernels("glm_4_5", batch=1)) == expected == 352_797_829_024


def test_a_layer_of_glm_4_5_has_grouped_queries_a_biased_router_and_a_shared_expert() -> None:
    placed = [k for k in kernels("glm_4_5", batch=16, context=1000, tp=8) if k.layer == 10]
    assert [k.role for k in placed] == [
        "qkv", "split, norm, rope", "cache", "attention", "o", "o reduce", "attention norm", "router", "top-k",
        "shared gate_up", "swiglu", "shared down", "dispatch", "experts gate_up", "swiglu", "experts down", "combine",
        "scale", "add shared", "experts gather", "ffn norm",
    ]  # fmt: skip
    calls = {k.role: k.call for k in placed}
    assert [t.shape for t in calls["top-k"].inputs if t] == [(2, 160), (160,)]
    assert [t.shape for t in calls["qkv"].inputs if t][2:] == [((96 + 2 * 8) // 8 * 128,)]


@pytest.mark.parametrize("name", ["qwen3_235b_a22b", "glm_4_5", "deepseek_v3", "glm_5"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_experts_split_over_tensor_parallel_ranks_are_a_share_of_the_model(name: str, phase: str) -> None:
    """Without expert parallelism each of four ranks reads a quarter of every expert, shared ones too."""
    tokens = None if phase == "decode" else 64
    whole = kernels(name, phase, batch=4, tokens=tokens, context=10)
    part = kernels(name, phase, batch=4, tokens=tokens, context=10, tp=4, ep=1)
    roles = {"shared gate_up", "shared down", "experts gate_up", "experts down", "experts"}
    assert sum(k.weights for k in whole if k.role in roles) == 4 * sum(k.weights for k in part if k.role in roles)
    assert any(k.role == "down reduce" and k.layer == 10 for k in part)


def test_experts_that_are_not_spread_see_only_their_groups_tokens() -> None:
    for dp in (1, 2):
        placed = kernels("qwen3_235b_a22b", batch=128, context=10, dp=dp, ep=1)
        (up,) = {k.call.given["tokens_per_expert"] for k in placed if k.role == "experts gate_up"}
        assert up == 128 * 8 / 128


@pytest.mark.parametrize(
    ("name", "billions"), [("llama_3_8b", 8.03), ("qwen3_235b_a22b", 235.1), ("glm_5", 743.9), ("deepseek_v32", 671.9)]
)
def test_the_other_families_have_about_their_published_size(name: str, billions: float) -> None:
    """8B, 235B, 744B; V3.2 is V3 with an indexer: 61·(1536·64·128 + 7168·(128 + 64)) parameters, 0.85 B, more."""
    assert sum(k.weights for k in kernels(name, batch=1)) / 1e9 == pytest.approx(billions, abs=0.06)


def test_every_quantised_projection_is_quantised_before() -> None:
    for name in NAMES:
        placed = kernels(name, batch=4, context=10, tp=4, quant="w8a8")
        before = [a for a, b in pairwise(placed) if b.call.type == "QuantBatchMatmulV3"]
        # the indexer's query comes quantised out of the fused kernel
        fused = ("mla_preprocess_0_mix_aic",)
        assert {k.call.type for k in before if k.call.type not in fused} <= {"AscendQuantV2", "DynamicQuant"}, name


@pytest.mark.parametrize("name", NAMES)
def test_both_phases_read_the_same_weights(name: str) -> None:
    decode, prefill = kernels(name, batch=4, context=100), kernels(name, "prefill", tokens=4, batch=4)
    assert sum(k.weights for k in decode) == sum(k.weights for k in prefill)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("quant", ["none", "w8a8"])
def test_every_family_has_every_layer_in_order(name: str, phase: str, quant: str) -> None:
    tokens = None if phase == "decode" else 64
    placed = kernels(name, phase, batch=4, context=1000, tokens=tokens, tp=4, quant=quant)
    layers = [k.layer for k in placed if k.layer is not None]
    assert layers == sorted(layers)
    assert set(layers) == set(range(model(name).layers))
    parts = "".join(dict.fromkeys(k.part[0] for k in placed))
    assert parts == "hlt"
    for _, own in _by_layer(placed).items():
        assert [k.position for k in own] == list(range(len(own)))


def _by_layer(placed: list[ModelKernel]) -> dict[tuple[str, int | None], list[ModelKernel]]:
    found: dict[tuple[str, int | None], list[ModelKernel]] = {}
    for kernel in placed:
        found.setdefault((kernel.part, kernel.layer), []).append(kernel)
    return found


def test_one_rank_has_no_collectives() -> None:
    for name in NAMES:
        assert collectives(kernels(name, batch=4, context=10)) == 0


@given(power=st.integers(0, 3), batch=st.integers(1, 64))
def test_twice_the_ranks_read_half_the_projections(power: int, batch: int) -> None:
    roles = {"qkv", "o", "gate_up", "down"}
    one, two = (
        sum(k.weights for k in kernels("qwen3_32b", batch=batch, tp=tp) if k.role in roles)
        for tp in (2**power, 2 ** (power + 1))
    )
    # from eight ranks on, the eight key-value heads are repeated on the ranks
    repeated = 64 * 5120 * 2 * 128 if 2 ** (power + 1) > 8 else 0
    assert two * 2 == one + repeated
