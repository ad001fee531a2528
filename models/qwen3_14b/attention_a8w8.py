"""Attention of the A8W8 layer: QK-norm, RoPE, cache, paged attention in small tiles, its merge.

Unfused: qk_norm and v_norm per KV head (scaling the projections back where those have not), then rope_qkv over (KV
head, row), every query head rotated by itself. Fused: one kernel per KV head does norm and RoPE. Its faulty form
rotates all rows and heads of the KV head at once with the first rows of the tables, as a prefill kernel may, where row
i of a tile is token i; in decode the rows are (sequence, head) pairs, and every one of them must turn by its own
sequence's position.
"""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b import parts, parts_a8w8
from qwen3_14b.config import PAGE, Q_PAD, ROWS, Qwen3
from qwen3_14b.flags import Flags
from qwen3_14b.layer import CUBES


def make_attention(model: Qwen3, flags: Flags) -> Any:
    """attention(q, k, v as projected, …, attn_out) → attn_out."""
    STORE = parts.store_type(model)
    KV_HEADS, HEAD_DIM, GROUP, GROUP_WIDTH = model.kv_heads, model.head_dim, model.group, model.group * model.head_dim
    TOKENS, SEQ_PAGES, CACHE_ROWS = model.tiles.a8_attn, model.seq_pages, model.cache_rows
    PARTS = model.max_seq // TOKENS
    ROPE_BLOCKS = model.rope_blocks
    ROPE_ITEMS = ROWS * KV_HEADS // ROPE_BLOCKS
    SPMD, FUSED_NORM = flags.spmd, flags.fused_qk_norm
    Q_TIDS = model.q_width // model.tiles.a8_tn + 2 * (model.kv_width // model.tiles.a8_tn)

    normed_head = make_normed_head(model, flags)
    v_scaled = make_v_scaled(model, flags)
    cached = make_cached(model)
    rotated_queries = make_rotated_queries(model, flags)
    rotate = parts.rotated(model)
    work_build = parts.work_list(model, TOKENS, KV_HEADS)
    attend, merge = parts.attend(model, TOKENS), parts.merge(model)

    @pl.jit.inline
    def attention(
        q_proj: pl.Tensor, k_proj: pl.Tensor, v_proj: pl.Tensor, wq_scale: pl.Tensor, wk_scale: pl.Tensor,
        wv_scale: pl.Tensor, act_scales: pl.Tensor, inv_rms: pl.Tensor, q_norm_weight: pl.Tensor,
        k_norm_weight: pl.Tensor, seq_lens: pl.Tensor, block_table: pl.Tensor, slot_mapping: pl.Tensor,
        rope_cos: pl.Tensor, rope_sin: pl.Tensor, k_cache: pl.Tensor, v_cache: pl.Tensor, attn_out: pl.Tensor,
        layer: pl.Scalar, qkv_tids: pl.Array[Q_TIDS, pl.TASK_ID],
    ):  # fmt: skip
        cache_base = layer * CACHE_ROWS
        q_pre_rope = pl.create_tensor([ROWS, KV_HEADS * GROUP_WIDTH], dtype=pl.FP32)
        k_pre_rope = pl.create_tensor([ROWS, KV_HEADS * HEAD_DIM], dtype=pl.FP32)
        v_normed = pl.create_tensor([ROWS, KV_HEADS * HEAD_DIM], dtype=pl.FP32)
        q_rotated = pl.create_tensor([ROWS * KV_HEADS * Q_PAD, HEAD_DIM], dtype=STORE)
        work_table = pl.create_tensor([ROWS * KV_HEADS * PARTS, 1], dtype=pl.INT32)
        work_total = pl.create_tensor([1, 1], dtype=pl.INT32)
        part_outs = pl.create_tensor([ROWS * KV_HEADS * PARTS * Q_PAD, HEAD_DIM], dtype=pl.FP32)
        part_tops = pl.create_tensor([ROWS * KV_HEADS * PARTS * Q_PAD, 1], dtype=pl.FP32)
        part_sums = pl.create_tensor([ROWS * KV_HEADS * PARTS * Q_PAD, 1], dtype=pl.FP32)
        norm_tids = pl.array.create(2 * KV_HEADS, pl.TASK_ID)
        q_gamma = pl.slice(q_norm_weight, [1, HEAD_DIM], [layer, 0])
        k_gamma = pl.slice(k_norm_weight, [1, HEAD_DIM], [layer, 0])

        with pl.at(level=pl.Level.CORE_GROUP, name_hint="fa_work_build"):
            work_total = work_build(seq_lens, work_table, work_total)

        if SPMD:
            with pl.spmd(KV_HEADS, name_hint="v_norm", deps=[qkv_tids]) as v_tid:
                v_normed = v_scaled(v_proj, wv_scale, act_scales, inv_rms, v_normed, layer, pl.get_block_idx())
            norm_tids[0] = v_tid
        else:
            for h in pl.parallel(KV_HEADS):
                with pl.at(
                    level=pl.Level.CORE_GROUP, name_hint="v_norm", deps=[qkv_tids], no_dep_args=flags.apart(v_normed)
                ) as v_tid:
                    v_normed = v_scaled(v_proj, wv_scale, act_scales, inv_rms, v_normed, layer, h)
                norm_tids[h] = v_tid

        if FUSED_NORM:
            with pl.spmd(KV_HEADS, name_hint="qk_norm_rope", deps=[qkv_tids, norm_tids]) as rope_tid:
                kv = pl.get_block_idx()
                q_heads, k_head = normed_head(
                    q_proj, k_proj, wq_scale, wk_scale, act_scales, inv_rms, q_gamma, k_gamma, layer, kv
                )
                q_flat = pl.reshape(q_heads, [ROWS, GROUP_WIDTH])
                q_pre_rope = pl.assemble(q_pre_rope, q_flat, [0, kv * GROUP_WIDTH])
                k_pre_rope = pl.assemble(k_pre_rope, k_head, [0, kv * HEAD_DIM])
                for row in pl.range(ROWS):
                    length = pl.read(seq_lens, [row])
                    if length > 0:
                        cos = rope_cos[length - 1 : length, :]
                        sin = rope_sin[length - 1 : length, :]
                        slot = pl.cast(pl.read(slot_mapping, [row]), target_type=pl.INDEX)
                        v_row = v_normed[row : row + 1, kv * HEAD_DIM : (kv + 1) * HEAD_DIM]
                        k_cache = cached(
                            k_cache, v_cache, rotate(k_head[row : row + 1, :], cos, sin), v_row, cache_base, slot, kv
                        )
                q_rotated = rotated_queries(q_heads, rope_cos, rope_sin, seq_lens, q_rotated, kv)
        else:
            if SPMD:
                with pl.spmd(KV_HEADS, name_hint="qk_norm", deps=[qkv_tids]) as qk_tid:
                    kv = pl.get_block_idx()
                    q_heads, k_head = normed_head(
                        q_proj, k_proj, wq_scale, wk_scale, act_scales, inv_rms, q_gamma, k_gamma, layer, kv
                    )
                    q_flat = pl.reshape(q_heads, [ROWS, GROUP_WIDTH])
                    q_pre_rope = pl.assemble(q_pre_rope, q_flat, [0, kv * GROUP_WIDTH])
                    k_pre_rope = pl.assemble(k_pre_rope, k_head, [0, kv * HEAD_DIM])
                norm_tids[KV_HEADS] = qk_tid
            else:
                for kv in pl.parallel(KV_HEADS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="qk_norm", deps=[qkv_tids],
                        no_dep_args=flags.apart(q_pre_rope, k_pre_rope),
                    ) as qk_tid:  # fmt: skip
                        q_heads, k_head = normed_head(
                            q_proj, k_proj, wq_scale, wk_scale, act_scales, inv_rms, q_gamma, k_gamma, layer, kv
                        )
                        q_flat = pl.reshape(q_heads, [ROWS, GROUP_WIDTH])
                        q_pre_rope = pl.assemble(q_pre_rope, q_flat, [0, kv * GROUP_WIDTH])
                        k_pre_rope = pl.assemble(k_pre_rope, k_head, [0, kv * HEAD_DIM])
                    norm_tids[KV_HEADS + kv] = qk_tid

            with pl.spmd(ROPE_BLOCKS, name_hint="rope_qkv", allow_early_resolve=True, deps=[norm_tids]) as rope_tid:
                block = pl.get_block_idx()
                for i in pl.pipeline(ROPE_ITEMS, stage=2):
                    item = block * ROPE_ITEMS + i
                    kv = item // ROWS
                    row = item % ROWS
                    length = pl.read(seq_lens, [row])
                    if length > 0:
                        cos = rope_cos[length - 1 : length, :]
                        sin = rope_sin[length - 1 : length, :]
                        slot = pl.cast(pl.read(slot_mapping, [row]), target_type=pl.INDEX)
                        k_row = rotate(k_pre_rope[row : row + 1, kv * HEAD_DIM : (kv + 1) * HEAD_DIM], cos, sin)
                        v_row = v_normed[row : row + 1, kv * HEAD_DIM : (kv + 1) * HEAD_DIM]
                        k_cache = cached(k_cache, v_cache, k_row, v_row, cache_base, slot, kv)
                        q_row = (row * KV_HEADS + kv) * Q_PAD
                        for head in pl.range(GROUP):
                            c = (kv * GROUP + head) * HEAD_DIM
                            q_head = rotate(q_pre_rope[row : row + 1, c : c + HEAD_DIM], cos, sin)
                            q_rotated = pl.assemble(q_rotated, pl.cast(q_head, target_type=STORE), [q_row + head, 0])
                        padding = pl.full([Q_PAD - GROUP, HEAD_DIM], dtype=pl.FP32, value=0.0)
                        q_rotated = pl.assemble(q_rotated, pl.cast(padding, target_type=STORE), [q_row + GROUP, 0])

        with pl.spmd(CUBES, name_hint="fa_fused", sync_start=SPMD, allow_early_resolve=SPMD, deps=[rope_tid]) as fa_tid:
            block = pl.get_block_idx()
            total = pl.cast(pl.read(work_total, [0, 0]), target_type=pl.INDEX)
            for i in pl.range(block, total, CUBES):
                item = pl.cast(pl.read(work_table, [i, 0]), target_type=pl.INDEX)
                lane = item // PARTS
                part = item % PARTS
                row = lane // KV_HEADS
                kv = lane % KV_HEADS
                token = part * TOKENS
                valid = pl.min(TOKENS, pl.read(seq_lens, [row]) - token)
                page = pl.cast(pl.read(block_table, [row * SEQ_PAGES + token // PAGE]), target_type=pl.INDEX)
                part_outs = attend(
                    q_rotated, k_cache, v_cache, part_outs, part_tops, part_sums, lane * Q_PAD,
                    cache_base + (page * KV_HEADS + kv) * PAGE + token % PAGE, item * Q_PAD, valid,
                )  # fmt: skip

        with pl.spmd(2 * CUBES, name_hint="online_softmax", deps=[fa_tid]) as _softmax_tid:
            block = pl.get_block_idx()
            for lane in pl.range(block, ROWS * KV_HEADS, 2 * CUBES):
                row = lane // KV_HEADS
                column = (lane % KV_HEADS) * GROUP_WIDTH
                filled = (pl.read(seq_lens, [row]) + (TOKENS - 1)) // TOKENS
                if filled > 0:
                    attn_out = merge(
                        part_outs, part_tops, part_sums, attn_out, lane * PARTS * Q_PAD, filled, row, column
                    )
                else:
                    nothing = pl.full([1, GROUP_WIDTH], dtype=pl.FP32, value=0.0)
                    attn_out = pl.assemble(attn_out, pl.cast(nothing, target_type=STORE), [row, column])
        return attn_out

    return attention


def make_normed_head(model: Qwen3, flags: Flags) -> Any:
    """One KV head's queries [ROWS * group, head_dim] and keys [ROWS, head_dim]: scaled by 1 / rms, QK-normed."""
    HEAD_DIM, GROUP, GROUP_WIDTH, DEQUANT = (
        model.head_dim, model.group, model.group * model.head_dim, not flags.fused_qkv_dequant,
    )  # fmt: skip
    dequantise, qk_normed = parts_a8w8.dequantise(), parts.normed_heads(model)

    @pl.jit.inline
    def normed(
        q_proj: pl.Tensor, k_proj: pl.Tensor, wq_scale: pl.Tensor, wk_scale: pl.Tensor, act_scales: pl.Tensor,
        inv_rms: pl.Tensor, q_gamma: pl.Tensor, k_gamma: pl.Tensor, layer: pl.Scalar, kv: pl.Scalar,
    ):  # fmt: skip
        q = q_proj[:, kv * GROUP_WIDTH : (kv + 1) * GROUP_WIDTH]
        k = k_proj[:, kv * HEAD_DIM : (kv + 1) * HEAD_DIM]
        if DEQUANT:
            rows = act_scales[:, 0:1]
            q = dequantise(q, pl.slice(wq_scale, [1, GROUP_WIDTH], [layer, kv * GROUP_WIDTH]), rows)
            k = dequantise(k, pl.slice(wk_scale, [1, HEAD_DIM], [layer, kv * HEAD_DIM]), rows)
        scale = inv_rms[:, 0:1]
        q_heads = pl.reshape(pl.row_expand_mul(q, scale), [ROWS * GROUP, HEAD_DIM])
        q_normed = qk_normed(q_heads, q_gamma)
        k_normed = qk_normed(pl.row_expand_mul(k, scale), k_gamma)
        return q_normed, k_normed

    return normed


def make_v_scaled(model: Qwen3, flags: Flags) -> Any:
    """One KV head's values, scaled by 1 / rms."""
    HEAD_DIM, DEQUANT, dequantise = model.head_dim, not flags.fused_qkv_dequant, parts_a8w8.dequantise()

    @pl.jit.inline
    def scaled(
        v_proj: pl.Tensor, wv_scale: pl.Tensor, act_scales: pl.Tensor, inv_rms: pl.Tensor, v_normed: pl.Tensor,
        layer: pl.Scalar, kv: pl.Scalar,
    ):  # fmt: skip
        c = kv * HEAD_DIM
        v = v_proj[:, c : c + HEAD_DIM]
        if DEQUANT:
            v = dequantise(v, pl.slice(wv_scale, [1, HEAD_DIM], [layer, c]), act_scales[:, 0:1])
        v_normed = pl.assemble(v_normed, pl.row_expand_mul(v, inv_rms[:, 0:1]), [0, c])
        return v_normed

    return scaled


def make_cached(model: Qwen3) -> Any:
    """One row's key and value of one KV head into their slot of the paged cache."""
    STORE, KV_HEADS = parts.store_type(model), model.kv_heads

    @pl.jit.inline
    def cached(
        k_cache: pl.Tensor, v_cache: pl.Tensor, k_row: pl.Tensor, v_row: pl.Tensor, base: pl.Scalar, slot: pl.Scalar,
        kv: pl.Scalar,
    ):  # fmt: skip
        at = base + ((slot // PAGE) * KV_HEADS + kv) * PAGE + slot % PAGE
        k_cache = pl.assemble(k_cache, pl.cast(k_row, target_type=STORE), [at, 0])
        v_cache = pl.assemble(v_cache, pl.cast(v_row, target_type=STORE), [at, 0])
        return k_cache

    return cached


def make_rotated_queries(model: Qwen3, flags: Flags) -> Any:
    """All rows' queries of one KV head, [ROWS * group, head_dim], rotated into the padded query tiles of attention."""
    STORE, KV_HEADS, HEAD_DIM, GROUP = parts.store_type(model), model.kv_heads, model.head_dim, model.group
    HALF, BATCHED = model.head_dim // 2, flags.batched_q_rope
    rotate = parts.rotated(model)

    @pl.jit.inline
    def rotated(
        q_heads: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor, seq_lens: pl.Tensor, q_rotated: pl.Tensor,
        kv: pl.Scalar,
    ):  # fmt: skip
        padding = pl.full([Q_PAD - GROUP, HEAD_DIM], dtype=pl.FP32, value=0.0)
        if BATCHED:
            # The fault: rows 0, 1, 2, … of the tables, where each row's own position is wanted.
            cos = rope_cos[0 : ROWS * GROUP, 0:HALF]
            sin = rope_sin[0 : ROWS * GROUP, 0:HALF]
            low = q_heads[:, 0:HALF]
            high = q_heads[:, HALF:HEAD_DIM]
            turned_low = pl.sub(pl.mul(low, cos), pl.mul(high, sin))
            turned_high = pl.add(pl.mul(high, cos), pl.mul(low, sin))
            turned = pl.concat(turned_low, turned_high)
        for row in pl.range(ROWS):
            length = pl.read(seq_lens, [row])
            if length > 0:
                q_row = (row * KV_HEADS + kv) * Q_PAD
                if BATCHED:
                    heads = turned[row * GROUP : (row + 1) * GROUP, :]
                    q_rotated = pl.assemble(q_rotated, pl.cast(heads, target_type=STORE), [q_row, 0])
                else:
                    cos = rope_cos[length - 1 : length, :]
                    sin = rope_sin[length - 1 : length, :]
                    for head in pl.range(GROUP):
                        at = row * GROUP + head
                        q_head = rotate(q_heads[at : at + 1, :], cos, sin)
                        q_rotated = pl.assemble(q_rotated, pl.cast(q_head, target_type=STORE), [q_row + head, 0])
                q_rotated = pl.assemble(q_rotated, pl.cast(padding, target_type=STORE), [q_row + GROUP, 0])
        return q_rotated

    return rotated
