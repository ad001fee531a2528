"""One whole decode step of Qwen3: token ids in, token ids out. Embedding, all layers, LM head, greedy sampling.

    python models/qwen3_14b/decode.py --small            # two layers, test size: compared with NumPy
    npuscope graph models/qwen3_14b/decode.py            # 40 layers of the 14B, recorded without computing

At full size the weights are 28 GB; `npuscope graph` needs none of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the package is the folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, ratio_allclose, run_jit
from qwen3_14b import decode_layer, golden
from qwen3_14b.config import ROWS, Qwen3
from qwen3_14b.layer import make_layer
from qwen3_14b.parts import inverse_rms, store_type


def make_program(model: Qwen3) -> Any:
    """decode(token_ids, …, logits, sampled): one step of all rows, in windows of 16."""
    layer_of, embed_rows, head = make_layer(model), make_embed(model), make_head(model)
    STORE, t = store_type(model), model.tiles
    HIDDEN, LAYERS, SLAB, CHUNK, SEQ_PAGES = model.hidden, model.layers, t.slab, t.chunk, model.seq_pages
    SLABS, WINDOWS, VOCAB_PADDED = HIDDEN // SLAB, model.windows, model.vocab_padded

    @pl.jit
    def decode(
        token_ids: pl.Tensor, embed: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor,
        wv: pl.Tensor, q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, seq_lens: pl.Tensor, block_table: pl.Tensor,
        slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor, k_cache: pl.InOut[pl.Tensor],
        v_cache: pl.InOut[pl.Tensor], final_norm_weight: pl.Tensor, lm_head: pl.Tensor, logits: pl.Out[pl.Tensor],
        sampled: pl.Out[pl.Tensor],
    ):  # fmt: skip
        for window in pl.unroll(WINDOWS):
            first = window * ROWS
            window_lens = pl.slice(seq_lens, [ROWS], [first])
            window_table = pl.slice(block_table, [ROWS * SEQ_PAGES], [first * SEQ_PAGES])
            window_slots = pl.slice(slot_mapping, [ROWS], [first])
            embedded = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
            current = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
            normed = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
            hidden_tids = pl.array.create(SLABS, pl.TASK_ID)
            normed_tids = pl.array.create(SLABS, pl.TASK_ID)

            embedded = embed_rows(token_ids, embed, embedded, first)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy_hidden") as copy_tid:
                for c in pl.pipeline(0, HIDDEN, CHUNK, stage=2):
                    current = pl.assemble(current, pl.cast(embedded[:, c : c + CHUNK], target_type=pl.FP32), [0, c])
            with pl.spmd(SLABS, name_hint="x_gamma0", deps=[copy_tid]) as gamma_tid:
                slab = pl.get_block_idx() * SLAB
                for i in pl.pipeline(SLAB // CHUNK, stage=2):
                    c = slab + i * CHUNK
                    gamma = pl.slice(input_rms_weight, [1, CHUNK], [0, c])
                    scaled = pl.col_expand_mul(current[:, c : c + CHUNK], gamma)
                    normed = pl.assemble(normed, pl.cast(scaled, target_type=STORE), [0, c])
            for s in pl.unroll(SLABS):
                hidden_tids[s] = copy_tid
                normed_tids[s] = gamma_tid

            for layer in pl.range(LAYERS):
                following = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
                following_normed = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
                current = layer_of(
                    current, normed, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo, post_rms_weight,
                    w_gate, w_up, w_down, window_lens, window_table, window_slots, rope_cos, rope_sin, k_cache, v_cache,
                    following, following_normed, layer, pl.min(layer + 1, LAYERS - 1), hidden_tids, normed_tids,
                )  # fmt: skip
                normed = following_normed

            window_logits = pl.slice(logits, [ROWS, VOCAB_PADDED], [first, 0])
            window_sampled = pl.slice(sampled, [ROWS, 1], [first, 0])
            window_sampled = head(current, final_norm_weight, lm_head, window_logits, window_sampled)
        return sampled

    return decode


def make_embed(model: Qwen3) -> Any:
    """The embeddings of one window's tokens, one task per row."""
    HIDDEN, CHUNK = model.hidden, model.tiles.chunk

    @pl.jit.inline
    def embed_rows(token_ids: pl.Tensor, embed: pl.Tensor, embedded: pl.Tensor, first: pl.Scalar):
        for row in pl.parallel(ROWS):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="token_embed"):
                token = pl.cast(pl.read(token_ids, [first + row, 0]), target_type=pl.INDEX)
                for c in pl.pipeline(0, HIDDEN, CHUNK, stage=2):
                    embedded = pl.assemble(embedded, embed[token : token + 1, c : c + CHUNK], [row, c])
        return embedded

    return embed_rows


def make_head(model: Qwen3, narrow: bool = False) -> Any:
    """Final norm, LM head in N tiles, the greatest logit of every row (the first of equal ones).

    `narrow`: the hidden states come in the storage type, else in fp32.
    """
    STORE, t = store_type(model), model.tiles
    HIDDEN, CHUNK, LM_N, LM_TK, LM_TILES = model.hidden, t.chunk, t.lm_n, t.lm_tk, model.lm_tiles
    BLOCKS, PER_BLOCK = t.sample_blocks, model.lm_tiles // t.sample_blocks
    VOCAB = model.vocab  # what lies behind it is padding
    rms = inverse_rms(HIDDEN, CHUNK, model.eps, narrow)

    @pl.jit.inline
    def head(
        hidden: pl.Tensor, final_norm_weight: pl.Tensor, lm_head: pl.Tensor, logits: pl.Tensor, sampled: pl.Tensor
    ):
        inv_rms = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        last = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
        tops = pl.create_tensor([BLOCKS * ROWS, 1], dtype=pl.FP32)
        places = pl.create_tensor([BLOCKS * ROWS, 1], dtype=pl.FP32)  # as fp32: exact up to 2^24

        with pl.at(level=pl.Level.CORE_GROUP, name_hint="final_rms_recip"):
            inv_rms = rms(hidden, inv_rms)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="cast_lmhead_in"):
            scale = inv_rms[:, 0:1]
            for c in pl.pipeline(0, HIDDEN, CHUNK, stage=2):
                part = hidden[:, c : c + CHUNK]
                if narrow:
                    part = pl.cast(part, target_type=pl.FP32)
                scaled = pl.col_expand_mul(pl.row_expand_mul(part, scale), final_norm_weight[:, c : c + CHUNK])
                last = pl.assemble(last, pl.cast(scaled, target_type=STORE), [0, c])

        for tile in pl.spmd(LM_TILES, name_hint="lm_head"):
            n = tile * LM_N
            acc = pl.matmul(last[:, 0:LM_TK], lm_head[n : n + LM_N, 0:LM_TK], b_trans=True, out_dtype=pl.FP32)
            for k in pl.pipeline(LM_TK, HIDDEN, LM_TK, stage=2):
                acc = pl.matmul_acc(acc, last[:, k : k + LM_TK], lm_head[n : n + LM_N, k : k + LM_TK], b_trans=True)
            logits = pl.assemble(logits, acc, [0, n])

        for block in pl.spmd(BLOCKS, name_hint="greedy_part"):
            top = pl.full([ROWS, 1], dtype=pl.FP32, value=-3.0e38)
            place = pl.full([ROWS, 1], dtype=pl.FP32, value=0.0)
            for i in pl.pipeline(PER_BLOCK, stage=2):
                n = (block * PER_BLOCK + i) * LM_N
                width = pl.min(LM_N, VOCAB - n)
                part = pl.slice(logits, [ROWS, LM_N], [0, n], valid_shape=[ROWS, width])
                part = pl.fillpad(part, pad_value=pl.PadValue.min)
                part_top = pl.row_max(part)
                part_place = pl.add(pl.cast(pl.row_argmax(part), target_type=pl.FP32), pl.cast(n, target_type=pl.FP32))
                better = pl.cmp(part_top, top, cmp_type=4)
                place = pl.add(place, pl.mul(better, pl.sub(part_place, place)))
                top = pl.maximum(top, part_top)
            tops = pl.assemble(tops, top, [block * ROWS, 0])
            places = pl.assemble(places, place, [block * ROWS, 0])

        with pl.at(level=pl.Level.CORE_GROUP, name_hint="greedy_merge"):
            best = tops[0:ROWS, :]
            best_place = places[0:ROWS, :]
            for block in pl.range(1, BLOCKS):
                part_top = tops[block * ROWS : (block + 1) * ROWS, :]
                better = pl.cmp(part_top, best, cmp_type=4)
                part_place = places[block * ROWS : (block + 1) * ROWS, :]
                best_place = pl.add(best_place, pl.mul(better, pl.sub(part_place, best_place)))
                best = pl.maximum(best, part_top)
            sampled = pl.assemble(sampled, pl.cast(best_place, target_type=pl.INT32, mode="rint"), [0, 0])
        return sampled

    return head


def specs(model: Qwen3, seed: int = 0) -> list[TensorSpec]:
    def tokens() -> Any:
        return np.random.default_rng(seed).integers(0, model.vocab, (model.rows, 1)).astype(np.int32)

    return [
        TensorSpec("token_ids", [model.rows, 1], pl.INT32, init_value=tokens),
        *decode_layer.weight_specs(model, ("embed", *decode_layer.LAYER_WEIGHTS), seed),
        *decode_layer.row_specs(model, seed),
        *decode_layer.weight_specs(model, ("final_norm_weight", "lm_head"), seed),
        TensorSpec("logits", [model.rows, model.vocab_padded], pl.FP32, is_output=True),
        TensorSpec("sampled", [model.rows, 1], pl.INT32, is_output=True),
    ]


def make_golden(model: Qwen3, step: Any = golden.step) -> Any:
    def fill(tensors: dict[str, Any]) -> None:
        tokens, caches = tensors["token_ids"][:, 0], (tensors["k_cache"], tensors["v_cache"])
        with golden.one_thread():
            logits, sampled = step(model, tensors, golden.rows_of(tensors), tokens, *caches)
        tensors["logits"][:], tensors["sampled"][:] = logits, sampled[:, None]

    return fill


def tolerances(model: Qwen3) -> dict[str, Any]:
    """Logits are of the order of 1: a BF16 step of the last activations moves them by a few hundredths.

    A sampled token may be another one only where the golden finds it as good, within that.
    """
    bound = 5e-2 if model.storage == "bf16" else 1e-3

    def as_good(actual: Any, expected: Any, *, expected_outputs: dict[str, Any], **_: Any) -> tuple[bool, str]:
        logits = expected_outputs["logits"]
        lost = np.take_along_axis(logits, expected, axis=1) - np.take_along_axis(logits, actual, axis=1)
        worst = int(np.argmax(lost))
        message = f"    row {worst}: token {actual[worst, 0]} is {lost[worst, 0]:.3g} worse than {expected[worst, 0]}"
        return bool(lost[worst, 0] <= bound), message

    logits = ratio_allclose(atol=bound, rtol=bound, max_error_ratio=0.0)
    return {**decode_layer.tolerances(model, names=()), "logits": logits, "sampled": as_good}


def main() -> None:
    parser = argparse.ArgumentParser(description="Qwen3 decode step, token ids to token ids")
    decode_layer.arguments(parser)
    options = parser.parse_args()
    model = decode_layer.chosen(options, layers=None)
    result = run_jit(
        fn=make_program(model),
        specs=specs(model, options.seed),
        golden_fn=make_golden(model),
        compare_fn=tolerances(model),
    )
    print(result)
    raise SystemExit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
