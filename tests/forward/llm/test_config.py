"""A model's config.json becomes sizes, or one sentence that says what is wrong with it."""

import json
from pathlib import Path
from typing import Any

import pytest

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.forward.llm.config import FAMILIES, model_of, pass_settings, read_config

CONFIGS = Path(__file__).resolve().parents[2] / "data" / "configs"


def config(name: str, **changes: Any) -> dict[str, Any]:
    """A config with some fields changed; None takes a field away."""
    fields = json.loads((CONFIGS / f"{name}.json").read_text()) | changes
    return {key: value for key, value in fields.items() if value is not None}


def test_every_family_has_a_config_that_reads() -> None:
    read = {read_config(path).family for path in CONFIGS.glob("*.json")}
    assert read == set(FAMILIES)


def test_deepseek_has_dense_layers_first_and_experts_after() -> None:
    model = read_config(CONFIGS / "deepseek_v3.json")
    assert [model.has_experts(layer) for layer in range(5)] == [False, False, False, True, True]
    assert model.latent is not None
    assert model.latent.q_lora == 1536
    assert model.indexer is None
    assert model.next_n == 1
    assert model.quantisation == "fp8"


def test_the_head_width_of_llama_follows_from_its_heads() -> None:
    assert read_config(CONFIGS / "llama_3_8b.json").head_dim == 128  # 4096 / 32


def test_layers_that_qwen3_moe_keeps_dense() -> None:
    model = model_of(config("qwen3_235b_a22b", decoder_sparse_step=2, mlp_only_layers=[3]))
    assert [model.has_experts(layer) for layer in range(6)] == [False, True, False, False, False, True]


def test_glm_4_5_has_grouped_queries_and_a_router_with_a_bias() -> None:
    model = read_config(CONFIGS / "glm_4_5.json")
    assert model.latent is None
    assert (model.heads, model.kv_heads, model.qk_norm, model.qkv_bias) == (96, 8, True, True)
    assert model.experts is not None
    assert (model.experts.scoring, model.experts.router_bias, model.experts.scale) == ("sigmoid", True, 2.5)
    assert (model.experts.shared, model.experts.fused) == (1, False)
    assert [model.has_experts(layer) for layer in (0, 2, 3, 91)] == [False, False, True, True]


def test_qwen3_moe_has_a_softmax_router_and_neither_bias_nor_shared_experts() -> None:
    experts = read_config(CONFIGS / "qwen3_235b_a22b.json").experts
    assert experts is not None
    assert (experts.scoring, experts.router_bias, experts.shared, experts.scale) == ("softmax", False, 0, 1.0)


@pytest.mark.parametrize("name", ["qwen3_235b_a22b", "glm_4_5", "deepseek_v3"])
def test_features_are_read_from_their_own_fields(name: str) -> None:
    """Whatever the architecture: a config that tells a router, shared experts or dense layers has them."""
    told = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 3, "n_shared_experts": 2}
    experts = model_of(config(name, **told, first_k_dense_replace=5)).experts
    assert experts is not None
    assert (experts.scoring, experts.router_bias, experts.scale, experts.shared) == ("sigmoid", True, 3.0, 2)
    assert experts.first_layer == 5
    experts = model_of(config(name, scoring_func="softmax", topk_method="greedy", n_shared_experts=0)).experts
    assert experts is not None
    assert (experts.scoring, experts.router_bias, experts.shared) == ("softmax", False, 0)


def test_a_dense_model_gets_experts_or_a_latent_cache_by_its_fields() -> None:
    latent = {"q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    dense = model_of(config("llama_3_8b"))
    both = model_of(config("llama_3_8b", **latent, **experts))
    assert (dense.latent, dense.experts) == (None, None)
    assert both.latent is not None
    assert both.experts is not None


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("qwen3_32b", {"hidden_size": None}, "has no hidden_size"),
        ("qwen3_32b", {"hidden_size": "5120"}, "hidden_size is '5120', not a whole number"),
        ("qwen3_32b", {"num_hidden_layers": True}, "num_hidden_layers is True"),
        ("qwen3_32b", {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        (
            "qwen3_32b",
            {"num_hidden_layers": 10**8},
            "num_hidden_layers is 100000000, not a whole number from 1 to 10,000",
        ),
        ("qwen3_32b", {"vocab_size": 10**12}, "vocab_size"),
        ("qwen3_32b", {"num_key_value_heads": 7}, "no multiple of num_key_value_heads 7"),
        ("qwen3_32b", {"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ("qwen3_32b", {"architectures": ["MambaForCausalLM"]}, "architecture 'MambaForCausalLM' is not known"),
        ("qwen3_32b", {"architectures": None, "model_type": None}, "no architectures and no model_type"),
        ("qwen3_32b", {"quantization_config": [8]}, "no quant_method"),
        ("deepseek_v3", {"kv_lora_rank": None}, "has no kv_lora_rank"),
        ("deepseek_v3", {"num_experts_per_tok": 300}, "300 experts per token of 256"),
        ("deepseek_v3", {"first_k_dense_replace": 99}, "99 of 61 layers"),
        ("glm_5", {"index_topk": None}, "has no index_topk"),
        ("glm_4_5", {"scoring_func": "tanh"}, "scoring_func is 'tanh', neither softmax nor sigmoid"),
        ("glm_4_5", {"routed_scaling_factor": 0}, "routed_scaling_factor is 0, not a number above 0"),
        ("glm_4_5", {"topk_method": 3}, "topk_method is 3, not a word"),
        ("deepseek_v3", {"attention_bias": True}, "not known of latent attention"),
        ("qwen3_235b_a22b", {"mlp_only_layers": "all"}, "not a list of layers"),
        ("llama_3_8b", {"num_attention_heads": 24, "num_key_value_heads": 8}, "hidden_size 4096 is no multiple"),
    ],
)
def test_a_bad_config_is_one_sentence(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        model_of(config(name, **changes))


@pytest.mark.parametrize("text", ["", "[1]", "{", '"a"', '{"a": 1', "\x00"])
def test_a_file_that_is_no_config(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput):
        read_config(path)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("qwen3_32b", {"phase": "decode", "tp": 3}, "tp 3 does not divide the 64 attention heads"),
        ("qwen3_32b", {"phase": "decode", "ep": 2}, "--ep 2 for a model without experts"),
        ("qwen3_32b", {"phase": "prefill"}, "prefill needs the number of tokens"),
        ("qwen3_32b", {"phase": "prefill", "tokens": 10, "batch": 3}, "do not spread evenly"),
        ("qwen3_32b", {"phase": "decode", "tokens": 10, "batch": 3}, "one token per sequence"),
        ("qwen3_32b", {"phase": "training"}, "no phase 'training'"),
        ("qwen3_32b", {"phase": "decode", "quant": "int3"}, "no quantisation 'int3'"),
        ("qwen3_32b", {"phase": "decode", "batch": 0}, "--batch is 0"),
        ("qwen3_32b", {"phase": "decode", "context": -1}, "--context is -1"),
        ("deepseek_v3", {"phase": "decode", "tp": 8, "dp": 2, "ep": 4}, "neither 1 nor tp·dp = 16"),
        ("deepseek_v3", {"phase": "decode", "tp": 128, "dp": 8}, "256 experts cannot be spread over 1024 ranks"),
    ],
)
def test_a_run_that_the_model_cannot_have(name: str, options: dict[str, Any], said: str) -> None:
    model = read_config(CONFIGS / f"{name}.json")
    with pytest.raises(NpuscopeError, match=said):
        pass_settings(model, **options)
