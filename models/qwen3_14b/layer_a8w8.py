"""The A8W8 decode layer as an inline function, in the variants of flags.py.

By default 324 tasks: QKV 28 (20 + 4 + 4 N tiles), out_proj 40, MLP 224 (68 gate, 68 up, 68 silu, 20 down), 32 others.
Tasks that write parts of one tensor opt out of its dependencies (`no_dep_args`), unless the flag `serialised` is set;
those who read it wait for all of them by id. Hidden states are kept in the storage type between layers.
"""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b import attention_a8w8, mlp_a8w8, parts, parts_a8w8
from qwen3_14b.config import ROWS, Qwen3
from qwen3_14b.flags import Flags


def make_layer(model: Qwen3, flags: Flags) -> Any:
    """decode_layer_a8w8(hidden, …, out, layer) → out, for the sizes of the model."""
    t, STORE = model.tiles, parts.store_type(model)
    HIDDEN, Q_WIDTH, KV_WIDTH, EPS = model.hidden, model.q_width, model.kv_width, model.eps
    CHUNK, SLAB, TN = t.chunk, t.slab, t.a8_tn
    SLABS, Q_TILES, KV_TILES = HIDDEN // SLAB, Q_WIDTH // TN, KV_WIDTH // TN
    OUT_N, OUT_K, OUT_SPLITS = t.a8_out_n, t.a8_out_k, Q_WIDTH // t.a8_out_k
    OUT_SUBS = 2 if flags.fuse_out_proj_npair else 1
    OUT_TASKS = HIDDEN // (OUT_N * OUT_SUBS)
    SPMD, FUSED = flags.spmd, flags.fused_qkv_dequant
    PROJECTED = pl.FP32 if FUSED else pl.INT32

    x_gamma = scaled_slab(model)
    rms = parts.inverse_rms(HIDDEN, CHUNK, EPS, narrow=True)
    quantise = parts_a8w8.quantise(HIDDEN, CHUNK, flags.quant_rowmax_transpose)
    quantise_attn = parts_a8w8.quantise(Q_WIDTH, CHUNK, flags.quant_rowmax_transpose)
    project = qkv_tile(model, FUSED)
    out_tile = parts_a8w8.int8_tile(t.a8_tk, OUT_N, OUT_K // t.a8_tk)
    dequantise = parts_a8w8.dequantise()
    attention = attention_a8w8.make_attention(model, flags)
    mlp = mlp_a8w8.make_mlp(model, flags)

    @pl.jit.inline
    def out_part(
        acts: pl.Tensor, act_scales: pl.Tensor, wo: pl.Tensor, wo_scale: pl.Tensor, out: pl.Tensor, layer: pl.Scalar,
        n0: pl.Scalar,
    ):  # fmt: skip
        acc = pl.full([ROWS, OUT_N], dtype=pl.INT32, value=0)
        for k in pl.range(OUT_SPLITS):
            acc = pl.add(acc, out_tile(acts, wo, k * OUT_K, layer * Q_WIDTH + k * OUT_K, n0))
        columns = pl.slice(wo_scale, [1, OUT_N], [layer, n0])
        out = pl.assemble(out, dequantise(acc, columns, act_scales[:, 0:1]), [0, n0])
        return out

    @pl.jit.inline
    def decode_layer_a8w8(
        hidden: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor, wv: pl.Tensor,
        q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, wq_scale: pl.Tensor, wk_scale: pl.Tensor,
        wv_scale: pl.Tensor, wo_scale: pl.Tensor, w_gate_scale: pl.Tensor, w_up_scale: pl.Tensor, seq_lens: pl.Tensor,
        block_table: pl.Tensor, slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor, k_cache: pl.Tensor,
        v_cache: pl.Tensor, out: pl.Tensor, layer: pl.Scalar,
    ):  # fmt: skip
        normed = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
        inv_rms = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        normed_i8 = pl.create_tensor([ROWS, HIDDEN], dtype=pl.INT8)
        act_scales = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        q_proj = pl.create_tensor([ROWS, Q_WIDTH], dtype=PROJECTED)
        k_proj = pl.create_tensor([ROWS, KV_WIDTH], dtype=PROJECTED)
        v_proj = pl.create_tensor([ROWS, KV_WIDTH], dtype=PROJECTED)
        attn_out = pl.create_tensor([ROWS, Q_WIDTH], dtype=STORE)
        attn_i8 = pl.create_tensor([ROWS, Q_WIDTH], dtype=pl.INT8)
        attn_scales = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        attn_proj = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
        gamma_tids = pl.array.create(SLABS, pl.TASK_ID)
        qkv_tids = pl.array.create(Q_TILES + 2 * KV_TILES, pl.TASK_ID)
        out_tids = pl.array.create(OUT_TASKS, pl.TASK_ID)

        # ── Norm, quantisation, Q, K, V ──
        if SPMD:
            with pl.spmd(SLABS, name_hint="x_gamma") as gamma_tid:
                normed = x_gamma(hidden, input_rms_weight, normed, layer, pl.get_block_idx() * SLAB)
            gamma_tids[0] = gamma_tid
        else:
            for s in pl.parallel(SLABS):
                with pl.at(
                    level=pl.Level.CORE_GROUP, name_hint="x_gamma", no_dep_args=flags.apart(normed)
                ) as gamma_tid:
                    normed = x_gamma(hidden, input_rms_weight, normed, layer, s * SLAB)
                gamma_tids[s] = gamma_tid
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rms_recip"):
            inv_rms = rms(hidden, inv_rms)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="act_quant", deps=[gamma_tids]):
            normed_i8 = quantise(normed, normed_i8, act_scales)

        if SPMD:
            with pl.spmd(Q_TILES, name_hint="q_proj") as q_tid:
                q_proj = project(normed_i8, wq, wq_scale, act_scales, q_proj, layer, pl.get_block_idx() * TN)
            with pl.spmd(KV_TILES, name_hint="k_proj") as k_tid:
                k_proj = project(normed_i8, wk, wk_scale, act_scales, k_proj, layer, pl.get_block_idx() * TN)
            with pl.spmd(KV_TILES, name_hint="v_proj") as v_tid:
                v_proj = project(normed_i8, wv, wv_scale, act_scales, v_proj, layer, pl.get_block_idx() * TN)
            qkv_tids[0] = q_tid
            qkv_tids[1] = k_tid
            qkv_tids[2] = v_tid
        else:
            for n in pl.parallel(Q_TILES):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_proj", no_dep_args=flags.apart(q_proj)) as q_tid:
                    q_proj = project(normed_i8, wq, wq_scale, act_scales, q_proj, layer, n * TN)
                qkv_tids[n] = q_tid
            for n in pl.parallel(KV_TILES):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_proj", no_dep_args=flags.apart(k_proj)) as k_tid:
                    k_proj = project(normed_i8, wk, wk_scale, act_scales, k_proj, layer, n * TN)
                qkv_tids[Q_TILES + n] = k_tid
            for n in pl.parallel(KV_TILES):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_proj", no_dep_args=flags.apart(v_proj)) as v_tid:
                    v_proj = project(normed_i8, wv, wv_scale, act_scales, v_proj, layer, n * TN)
                qkv_tids[Q_TILES + KV_TILES + n] = v_tid

        attn_out = attention(
            q_proj, k_proj, v_proj, wq_scale, wk_scale, wv_scale, act_scales, inv_rms, q_norm_weight, k_norm_weight,
            seq_lens, block_table, slot_mapping, rope_cos, rope_sin, k_cache, v_cache, attn_out, layer, qkv_tids,
        )  # fmt: skip

        # ── Output projection ──
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="out_act_quant"):
            attn_i8 = quantise_attn(attn_out, attn_i8, attn_scales)
        if SPMD:
            with pl.spmd(OUT_TASKS, name_hint="out_proj") as out_tid:
                block = pl.get_block_idx()
                for sub in pl.range(OUT_SUBS):
                    n0 = (block * OUT_SUBS + sub) * OUT_N
                    attn_proj = out_part(attn_i8, attn_scales, wo, wo_scale, attn_proj, layer, n0)
            out_tids[0] = out_tid
        else:
            for n in pl.parallel(OUT_TASKS):
                with pl.at(
                    level=pl.Level.CORE_GROUP, name_hint="out_proj", no_dep_args=flags.apart(attn_proj)
                ) as out_tid:
                    for sub in pl.range(OUT_SUBS):
                        n0 = (n * OUT_SUBS + sub) * OUT_N
                        attn_proj = out_part(attn_i8, attn_scales, wo, wo_scale, attn_proj, layer, n0)
                out_tids[n] = out_tid

        out = mlp(
            hidden, attn_proj, post_rms_weight, w_gate, w_up, w_down, w_gate_scale, w_up_scale, out, layer, out_tids
        )
        return out

    return decode_layer_a8w8


def scaled_slab(model: Qwen3) -> Any:
    """x * gamma of one slab of the hidden states, rounded to the storage type."""
    t, STORE = model.tiles, parts.store_type(model)
    SLAB, CHUNK = t.slab, t.chunk

    @pl.jit.inline
    def scaled(hidden: pl.Tensor, weight: pl.Tensor, normed: pl.Tensor, layer: pl.Scalar, c0: pl.Scalar):
        for i in pl.pipeline(SLAB // CHUNK, stage=2):
            c = c0 + i * CHUNK
            part = pl.cast(hidden[:, c : c + CHUNK], target_type=pl.FP32)
            by_gamma = pl.col_expand_mul(part, pl.slice(weight, [1, CHUNK], [layer, c]))
            normed = pl.assemble(normed, pl.cast(by_gamma, target_type=STORE), [0, c])
        return normed

    return scaled


def qkv_tile(model: Qwen3, fused: bool) -> Any:
    """One N tile of q, k or v_proj: whole numbers as they come out, or (fused) scaled back to fp32."""
    t = model.tiles
    TN, HIDDEN = t.a8_tn, model.hidden
    tile, dequantise = parts_a8w8.int8_tile(t.a8_tk, TN, HIDDEN // t.a8_tk), parts_a8w8.dequantise()

    @pl.jit.inline
    def projected(
        acts: pl.Tensor, weight: pl.Tensor, weight_scale: pl.Tensor, act_scales: pl.Tensor, out: pl.Tensor,
        layer: pl.Scalar, n0: pl.Scalar,
    ):  # fmt: skip
        acc = tile(acts, weight, 0, layer * HIDDEN, n0)
        if fused:
            columns = pl.slice(weight_scale, [1, TN], [layer, n0])
            out = pl.assemble(out, dequantise(acc, columns, act_scales[:, 0:1]), [0, n0])
        else:
            out = pl.assemble(out, acc, [0, n0])
        return out

    return projected
