"""What transformers' Qwen3 makes of the small model's weights: 48 greedy tokens of four prompts, some of the logits.

    python benchmarks/record_qwen3.py        # needs torch and transformers; writes tests/data/qwen3_small.npz

The weights come from models/qwen3_14b/weights.py and a seed, so nothing else has to be stored. In fp32 the tokens are
transformers' own choice; in bf16 it is fed the fp32 tokens, so that the logits of both stay comparable to the end.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "models"))

from qwen3_14b.config import SMALL, Qwen3  # noqa: E402
from qwen3_14b.generate import prompts  # noqa: E402
from qwen3_14b.weights import all_weights  # noqa: E402

RECORD = ROOT / "tests" / "data" / "qwen3_small.npz"
SEED, TOKENS = 1, 48  # of ten seeds one whose best and second logits are never nearer than 2e-3
LENGTHS = (3, 60, 120, 130)  # one row walks over the end of a KV page, one has done so
WATCHED = (0, 7, 123, 499)  # vocabulary entries whose logits are kept at every step


def load(model: Qwen3, dtype: torch.dtype) -> Qwen3ForCausalLM:
    """transformers' model with our seeded weights (theirs are (out, in))."""
    config = Qwen3Config(
        vocab_size=model.vocab, hidden_size=model.hidden, intermediate_size=model.intermediate,
        num_hidden_layers=model.layers, num_attention_heads=model.q_heads, num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim, max_position_embeddings=model.max_seq, rms_norm_eps=model.eps,
        rope_parameters={"rope_theta": model.theta, "rope_type": "default"}, tie_word_embeddings=False,
    )  # fmt: skip
    ours = {name: torch.from_numpy(array.astype(np.float32)) for name, array in all_weights(model, SEED).items()}
    state = {
        "model.embed_tokens.weight": ours["embed"],
        "model.norm.weight": ours["final_norm_weight"][0],
        "lm_head.weight": ours["lm_head"][: model.vocab],
    }
    matrices = {
        "self_attn.q_proj": "wq", "self_attn.k_proj": "wk", "self_attn.v_proj": "wv", "self_attn.o_proj": "wo",
        "mlp.gate_proj": "w_gate", "mlp.up_proj": "w_up", "mlp.down_proj": "w_down",
    }  # fmt: skip
    vectors = {
        "input_layernorm": "input_rms_weight", "post_attention_layernorm": "post_rms_weight",
        "self_attn.q_norm": "q_norm_weight", "self_attn.k_norm": "k_norm_weight",
    }  # fmt: skip
    for layer in range(model.layers):
        for theirs, name in matrices.items():
            state[f"model.layers.{layer}.{theirs}.weight"] = ours[name].chunk(model.layers)[layer].T.contiguous()
        for theirs, name in vectors.items():
            state[f"model.layers.{layer}.{theirs}.weight"] = ours[name][layer]
    network = Qwen3ForCausalLM(config)
    network.load_state_dict(state, strict=True)
    return network.to(dtype).eval()


@torch.no_grad()
def decode(network: Qwen3ForCausalLM, text: np.ndarray, forced: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and logits [TOKENS, vocab] of one prompt; `forced` tokens are fed instead of the model's own choice."""
    tokens, logits = [], []
    fed, past = torch.from_numpy(text.astype(np.int64))[None], None
    for at in range(TOKENS):
        result = network(input_ids=fed, past_key_values=past, use_cache=True)
        past = result.past_key_values
        logits.append(result.logits[0, -1].float().numpy())
        tokens.append(int(np.argmax(logits[-1])))
        fed = torch.tensor([[tokens[-1] if forced is None else int(forced[at])]])
    return np.array(tokens, dtype=np.int32), np.stack(logits)


def main() -> None:
    torch.set_num_threads(1)
    texts = prompts(SMALL, LENGTHS, SEED)
    kept: dict[str, np.ndarray] = {"lengths": np.array(LENGTHS), "watched": np.array(WATCHED), "seed": np.array(SEED)}
    exact = [decode(load(SMALL, torch.float32), text, None) for text in texts]
    narrow = [decode(load(SMALL, torch.bfloat16), text, tokens) for text, (tokens, _) in zip(texts, exact, strict=True)]
    kept["tokens"] = np.stack([tokens for tokens, _ in exact])
    for name, runs in (("fp32", exact), ("bf16", narrow)):
        logits = np.stack([found for _, found in runs])
        best = np.argsort(-logits, axis=-1, kind="stable")[..., :5]
        kept[f"{name}_top"] = best.astype(np.int16)
        kept[f"{name}_top_logits"] = np.take_along_axis(logits, best, axis=-1)
        kept[f"{name}_watched"] = logits[..., list(WATCHED)]
    difference = np.stack([found for _, found in narrow]) - np.stack([found for _, found in exact])
    # per row and step, over the vocabulary
    kept["bf16_error"] = np.sqrt(np.mean(difference**2, axis=-1)).astype(np.float32)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(RECORD, **kept)
    gap = kept["fp32_top_logits"][..., 0] - kept["fp32_top_logits"][..., 1]
    print(f"{RECORD}: {RECORD.stat().st_size} bytes; smallest gap between best and second logit {gap.min():.2g}")
    print(
        f"bf16 logits differ by {kept['bf16_error'].mean():.2g} (rms), "
        f"best token equal in {np.mean(kept['bf16_top'][..., 0] == kept['tokens']):.0%}"
    )
    for row in kept["tokens"]:
        print(" ".join(map(str, row)))


if __name__ == "__main__":
    main()
