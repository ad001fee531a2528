"""One whole decode step of the A8W8 model: token ids in, token ids out (decode.py with the A8W8 layer).

python models/qwen3_14b/decode_a8w8.py --small
npuscope graph models/qwen3_14b/decode_a8w8.py -- --layers 40 --max-seq 512
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the package is the folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit
from qwen3_14b import decode, decode_layer, decode_layer_a8w8, flags, golden_a8w8
from qwen3_14b.config import ROWS, Qwen3
from qwen3_14b.flags import Flags
from qwen3_14b.layer_a8w8 import make_layer
from qwen3_14b.parts import store_type


def make_program(model: Qwen3, chosen: Flags = Flags()) -> Any:
    """decode_a8w8(token_ids, …, logits, sampled): one step of all rows, in windows of 16."""
    layer_of, embed_rows, head = (
        make_layer(model, chosen),
        decode.make_embed(model),
        decode.make_head(model, narrow=True),
    )
    STORE, HIDDEN, LAYERS, WINDOWS = store_type(model), model.hidden, model.layers, model.windows
    SEQ_PAGES, VOCAB_PADDED = model.seq_pages, model.vocab_padded

    @pl.jit
    def decode_a8w8(
        token_ids: pl.Tensor, embed: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor,
        wv: pl.Tensor, q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, wq_scale: pl.Tensor, wk_scale: pl.Tensor,
        wv_scale: pl.Tensor, wo_scale: pl.Tensor, w_gate_scale: pl.Tensor, w_up_scale: pl.Tensor, seq_lens: pl.Tensor,
        block_table: pl.Tensor, slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor,
        k_cache: pl.InOut[pl.Tensor], v_cache: pl.InOut[pl.Tensor], final_norm_weight: pl.Tensor, lm_head: pl.Tensor,
        logits: pl.Out[pl.Tensor], sampled: pl.Out[pl.Tensor],
    ):  # fmt: skip
        for window in pl.unroll(WINDOWS):
            first = window * ROWS
            window_lens = pl.slice(seq_lens, [ROWS], [first])
            window_table = pl.slice(block_table, [ROWS * SEQ_PAGES], [first * SEQ_PAGES])
            window_slots = pl.slice(slot_mapping, [ROWS], [first])
            current = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
            current = embed_rows(token_ids, embed, current, first)
            for layer in pl.range(LAYERS):
                following = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
                current = layer_of(
                    current, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo, post_rms_weight, w_gate,
                    w_up, w_down, wq_scale, wk_scale, wv_scale, wo_scale, w_gate_scale, w_up_scale, window_lens,
                    window_table, window_slots, rope_cos, rope_sin, k_cache, v_cache, following, layer,
                )  # fmt: skip
            window_logits = pl.slice(logits, [ROWS, VOCAB_PADDED], [first, 0])
            window_sampled = pl.slice(sampled, [ROWS, 1], [first, 0])
            window_sampled = head(current, final_norm_weight, lm_head, window_logits, window_sampled)
        return sampled

    return decode_a8w8


def specs(model: Qwen3, seed: int = 0) -> list[TensorSpec]:
    """decode's, with the layers' weights in INT8 and their scales after them."""
    whole = decode_layer_a8w8.weight_specs(model, seed)
    rest = [spec for spec in decode.specs(model, seed) if spec.name not in decode_layer.LAYER_WEIGHTS]
    return [*rest[:2], *whole, *rest[2:]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Qwen3 decode step, A8W8, token ids to token ids")
    decode_layer.arguments(parser)
    flags.arguments(parser)
    options = parser.parse_args()
    model = decode_layer.chosen(options, layers=None)
    result = run_jit(
        fn=make_program(model, flags.chosen(options)),
        specs=specs(model, options.seed),
        golden_fn=decode.make_golden(model, golden_a8w8.step),
        compare_fn=decode.tolerances(model) | decode_layer_a8w8.tolerances(model, names=()),
        runtime_cfg={"ring_heap": decode_layer_a8w8.RING_HEAP},
    )
    print(result)
    raise SystemExit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
