"""A config.json to try predictions with: the public sizes of Qwen3-32B."""

from __future__ import annotations

import json
from pathlib import Path

QWEN3_32B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 25600,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


def write_config(path: Path) -> None:
    """The sizes as a config.json."""
    path.write_text(json.dumps(QWEN3_32B, indent=2) + "\n")
