"""A model's config.json becomes sizes, or one sentence that says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuscope.errors import BadInput, NpuscopeError
from npuscope.llm.config import FAMILIES, model_of, read_config
from npuscope.llm.run import run_of

CONFIGS = Path(__file__).resolve().parents[1] / "data" / "configs"


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
        ("deepseek_v3", {"phase": "decode", "tp": 8, "ep": 1}, "only with expert parallelism"),
    ],
)
def test_a_run_that_the_model_cannot_have(name: str, options: dict[str, Any], said: str) -> None:
    model = read_config(CONFIGS / f"{name}.json")
    with pytest.raises(NpuscopeError, match=said):
        run_of(model, **options)
