"""The Qwen3 decode layer of June 2026 as an inline function: 24 kernels, 419 tasks at full size.

The layer is a manual scope (its edges are only those declared) except for its last kernel. Residual in fp32. RMS norms
are split: x * gamma goes into the projections, 1 / rms is applied to what comes out, so that the reduction runs beside
them. Projections are split along K; the parts add up in GM with atomic adds, into zeros that a seed task has put there.
"""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b import parts
from qwen3_14b.config import PAGE, Q_PAD, ROWS, Qwen3

CUBES = 24  # blocks of the attention; its merge has one per vector core


def make_layer(model: Qwen3) -> Any:
    """decode_layer(hidden, …, out, …) → out, for the sizes of the model. `normed` is hidden * gamma of this layer."""
    t = model.tiles
    STORE = parts.store_type(model)
    HIDDEN, Q_WIDTH, KV_WIDTH, INTER = model.hidden, model.q_width, model.kv_width, model.intermediate
    KV_HEADS, HEAD_DIM, GROUP, GROUP_WIDTH = model.kv_heads, model.head_dim, model.group, model.group * model.head_dim
    CHUNK, SLAB, QKV_N, QKV_TN, OUT_N, OUT_K, MLP_N = t.chunk, t.slab, t.qkv_n, t.qkv_tn, t.out_n, t.out_k, t.mlp_n
    SLABS, Q_TILES, KV_TILES = HIDDEN // SLAB, Q_WIDTH // QKV_N, KV_WIDTH // QKV_N
    OUT_TILES, OUT_SPLITS, MLP_TILES = HIDDEN // OUT_N, Q_WIDTH // OUT_K, INTER // MLP_N
    SEQ_PAGES, CACHE_ROWS, EPS, MEAN = model.seq_pages, model.cache_rows, model.eps, 1.0 / HIDDEN
    # Q tiles that one KV head's queries lie in; the last head's may begin one tile early so that all have as many.
    Q_SPAN = max(-(-(h + 1) * GROUP_WIDTH // QKV_N) - h * GROUP_WIDTH // QKV_N for h in range(KV_HEADS))
    ROPE_BLOCKS = model.rope_blocks
    ROPE_ITEMS = ROWS * KV_HEADS // ROPE_BLOCKS

    qkv_tile = parts.split_k_tile(t.qkv_tk, QKV_TN, SLAB // t.qkv_tk)
    out_tile = parts.split_k_tile(t.tk, OUT_N, OUT_K // t.tk)
    mlp_tile = parts.split_k_tile(t.tk, MLP_N, SLAB // t.tk)
    down_tile = parts.split_k_tile(t.tk, SLAB, MLP_N // t.tk)
    zero_q, zero_kv = parts.zero_columns(Q_WIDTH, QKV_N), parts.zero_columns(KV_WIDTH, KV_WIDTH)
    zero_out, zero_down = parts.zero_columns(HIDDEN, OUT_N), parts.zero_columns(HIDDEN, SLAB)
    zero_mlp = parts.zero_columns(INTER, MLP_N)
    rms = parts.inverse_rms(HIDDEN, CHUNK, EPS)
    qk_normed, rotate = parts.normed_heads(model), parts.rotated(model)
    work_build, attend = parts.work_list(model, PAGE, 1), parts.attend(model, PAGE)
    merge, swiglu = parts.merge(model), parts.swiglu(model)

    @pl.jit.inline
    def decode_layer(
        hidden: pl.Tensor, normed: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor, wv: pl.Tensor,
        q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, seq_lens: pl.Tensor, block_table: pl.Tensor,
        slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor, k_cache: pl.Tensor, v_cache: pl.Tensor,
        out: pl.Tensor, normed_out: pl.Tensor, layer: pl.Scalar, next_layer: pl.Scalar,
        hidden_tids: pl.Array[SLABS, pl.TASK_ID], normed_tids: pl.Array[SLABS, pl.TASK_ID],
    ):  # fmt: skip
        hidden_row = layer * HIDDEN
        cache_base = layer * CACHE_ROWS
        q_gamma = pl.slice(q_norm_weight, [1, HEAD_DIM], [layer, 0])
        k_gamma = pl.slice(k_norm_weight, [1, HEAD_DIM], [layer, 0])

        inv_rms = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        q_proj = pl.create_tensor([ROWS, Q_WIDTH], dtype=pl.FP32)
        k_proj = pl.create_tensor([ROWS, KV_WIDTH], dtype=pl.FP32)
        v_proj = pl.create_tensor([ROWS, KV_WIDTH], dtype=pl.FP32)
        q_pre_rope = pl.create_tensor([ROWS, Q_WIDTH], dtype=pl.FP32)
        k_pre_rope = pl.create_tensor([ROWS, KV_WIDTH], dtype=pl.FP32)
        q_padded = pl.create_tensor([ROWS * KV_HEADS * Q_PAD, HEAD_DIM], dtype=STORE)
        work_table = pl.create_tensor([ROWS * SEQ_PAGES, 1], dtype=pl.INT32)
        work_total = pl.create_tensor([1, 1], dtype=pl.INT32)
        part_outs = pl.create_tensor([ROWS * KV_HEADS * SEQ_PAGES * Q_PAD, HEAD_DIM], dtype=pl.FP32)
        part_tops = pl.create_tensor([ROWS * KV_HEADS * SEQ_PAGES * Q_PAD, 1], dtype=pl.FP32)
        part_sums = pl.create_tensor([ROWS * KV_HEADS * SEQ_PAGES * Q_PAD, 1], dtype=pl.FP32)
        attn_out = pl.create_tensor([ROWS, Q_WIDTH], dtype=STORE)
        attn_proj = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
        residual = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
        mlp_in = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
        post_inv_rms = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        gate = pl.create_tensor([ROWS, INTER], dtype=pl.FP32)
        up = pl.create_tensor([ROWS, INTER], dtype=pl.FP32)
        mlp_act = pl.create_tensor([ROWS, INTER], dtype=STORE)
        down = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)

        q_tids = pl.array.create(Q_TILES * SLABS, pl.TASK_ID)
        k_tids = pl.array.create(KV_TILES * SLABS, pl.TASK_ID)
        v_tids = pl.array.create(KV_TILES * SLABS, pl.TASK_ID)
        qk_tids = pl.array.create(KV_HEADS, pl.TASK_ID)
        out_tids = pl.array.create(OUT_TILES * OUT_SPLITS, pl.TASK_ID)
        cast_tids = pl.array.create(SLABS, pl.TASK_ID)
        gate_tids = pl.array.create(MLP_TILES * SLABS, pl.TASK_ID)
        up_tids = pl.array.create(MLP_TILES * SLABS, pl.TASK_ID)
        silu_tids = pl.array.create(MLP_TILES, pl.TASK_ID)
        down_tids = pl.array.create(SLABS * MLP_TILES, pl.TASK_ID)

        with pl.manual_scope():
            # ── Q, K, V ──
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="rms_recip", deps=[hidden_tids]) as rms_tid:
                inv_rms = rms(hidden, inv_rms)

            # Nothing declared: that the previous layer has read q_proj is left to the runtime.
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="q_seed") as q_seed_tid:
                q_proj = zero_q(q_proj)
            for n in pl.parallel(Q_TILES):
                for k in pl.range(SLABS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="q_proj", deps=[normed_tids[k], q_seed_tid]
                    ) as q_tid:
                        for sub in pl.range(QKV_N // QKV_TN):
                            q_proj = qkv_tile(
                                normed, wq, q_proj, k * SLAB, hidden_row + k * SLAB, n * QKV_N + sub * QKV_TN
                            )
                    q_tids[n * SLABS + k] = q_tid

            with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_seed", deps=[hidden_tids]) as k_seed_tid:
                k_proj = zero_kv(k_proj)
            for n in pl.parallel(KV_TILES):
                for k in pl.range(SLABS):
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_proj", deps=[normed_tids, k_seed_tid]) as k_tid:
                        for sub in pl.range(QKV_N // QKV_TN):
                            k_proj = qkv_tile(
                                normed, wk, k_proj, k * SLAB, hidden_row + k * SLAB, n * QKV_N + sub * QKV_TN
                            )
                    k_tids[n * SLABS + k] = k_tid

            with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_seed", deps=[hidden_tids]) as v_seed_tid:
                v_proj = zero_kv(v_proj)
            for n in pl.parallel(KV_TILES):
                for k in pl.range(SLABS):
                    with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_proj", deps=[normed_tids, v_seed_tid]) as v_tid:
                        for sub in pl.range(QKV_N // QKV_TN):
                            v_proj = qkv_tile(
                                normed, wv, v_proj, k * SLAB, hidden_row + k * SLAB, n * QKV_N + sub * QKV_TN
                            )
                    v_tids[n * SLABS + k] = v_tid

            # ── Attention ──
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="fa_work_build") as work_tid:
                work_total = work_build(seq_lens, work_table, work_total)

            for h in pl.unroll(KV_HEADS):
                first_q = pl.min(h * GROUP_WIDTH // QKV_N, Q_TILES - Q_SPAN)
                first_k = h * HEAD_DIM // QKV_N
                q_ready = pl.array.create(Q_SPAN * SLABS, pl.TASK_ID)
                k_ready = pl.array.create(SLABS, pl.TASK_ID)
                for i in pl.unroll(Q_SPAN * SLABS):
                    q_ready[i] = q_tids[first_q * SLABS + i]
                for i in pl.unroll(SLABS):
                    k_ready[i] = k_tids[first_k * SLABS + i]
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="qk_norm", deps=[q_ready, k_ready, rms_tid]) as qk_tid:
                    scale = inv_rms[:, 0:1]
                    q_col = h * GROUP_WIDTH
                    q_heads = pl.row_expand_mul(q_proj[:, q_col : q_col + GROUP_WIDTH], scale)
                    q_normed = qk_normed(pl.reshape(q_heads, [ROWS * GROUP, HEAD_DIM]), q_gamma)
                    q_pre_rope = pl.assemble(q_pre_rope, pl.reshape(q_normed, [ROWS, GROUP_WIDTH]), [0, q_col])
                    k_col = h * HEAD_DIM
                    k_head = pl.row_expand_mul(k_proj[:, k_col : k_col + HEAD_DIM], scale)
                    k_pre_rope = pl.assemble(k_pre_rope, qk_normed(k_head, k_gamma), [0, k_col])
                qk_tids[h] = qk_tid

            with pl.spmd(
                ROPE_BLOCKS, name_hint="rope_qkv", allow_early_resolve=True, deps=[qk_tids, v_tids, rms_tid]
            ) as rope_tid:
                block = pl.get_block_idx()
                for i in pl.pipeline(ROPE_ITEMS, stage=2):
                    item = block * ROPE_ITEMS + i
                    kv = item // ROWS
                    row = item % ROWS
                    length = pl.read(seq_lens, [row])
                    if length > 0:
                        slot = pl.cast(pl.read(slot_mapping, [row]), target_type=pl.INDEX)
                        cache_row = cache_base + ((slot // PAGE) * KV_HEADS + kv) * PAGE + slot % PAGE
                        cos = rope_cos[length - 1 : length, :]
                        sin = rope_sin[length - 1 : length, :]
                        k_row = rotate(k_pre_rope[row : row + 1, kv * HEAD_DIM : (kv + 1) * HEAD_DIM], cos, sin)
                        k_cache = pl.assemble(k_cache, pl.cast(k_row, target_type=STORE), [cache_row, 0])
                        v_row = pl.mul(
                            v_proj[row : row + 1, kv * HEAD_DIM : (kv + 1) * HEAD_DIM], pl.read(inv_rms, [row, 0])
                        )
                        v_cache = pl.assemble(v_cache, pl.cast(v_row, target_type=STORE), [cache_row, 0])
                        heads = q_pre_rope[row : row + 1, kv * GROUP_WIDTH : (kv + 1) * GROUP_WIDTH]
                        q_heads = rotate(pl.reshape(heads, [GROUP, HEAD_DIM]), cos, sin)
                        q_row = (row * KV_HEADS + kv) * Q_PAD
                        q_padded = pl.assemble(q_padded, pl.cast(q_heads, target_type=STORE), [q_row, 0])
                        padding = pl.full([Q_PAD - GROUP, HEAD_DIM], dtype=pl.FP32, value=0.0)
                        q_padded = pl.assemble(q_padded, pl.cast(padding, target_type=STORE), [q_row + GROUP, 0])

            # The MLP's zeros are put down while attention runs.
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_seed", deps=[hidden_tids]) as down_seed_tid:
                down = zero_down(down)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_seed", deps=[hidden_tids]) as gate_seed_tid:
                gate = zero_mlp(gate)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="up_seed", deps=[hidden_tids]) as up_seed_tid:
                up = zero_mlp(up)

            with pl.spmd(
                CUBES, name_hint="fa_fused", optimizations=[pl.split(pl.SplitMode.UP_DOWN)], deps=[work_tid, rope_tid]
            ) as fa_tid:
                block = pl.get_block_idx()
                total = pl.cast(pl.read(work_total, [0, 0]), target_type=pl.INDEX)
                for i in pl.range(block, total, CUBES):
                    item = pl.cast(pl.read(work_table, [i, 0]), target_type=pl.INDEX)
                    row = item // SEQ_PAGES
                    part = item % SEQ_PAGES
                    valid = pl.min(PAGE, pl.read(seq_lens, [row]) - part * PAGE)
                    page = pl.cast(pl.read(block_table, [row * SEQ_PAGES + part]), target_type=pl.INDEX)
                    for kv in pl.pipeline(KV_HEADS, stage=2):
                        part_outs = attend(
                            q_padded, k_cache, v_cache, part_outs, part_tops, part_sums,
                            (row * KV_HEADS + kv) * Q_PAD,
                            cache_base + (page * KV_HEADS + kv) * PAGE,
                            ((row * KV_HEADS + kv) * SEQ_PAGES + part) * Q_PAD,
                            valid,
                        )  # fmt: skip

            with pl.spmd(2 * CUBES, name_hint="online_softmax", deps=[fa_tid]) as softmax_tid:
                block = pl.get_block_idx()
                for item in pl.range(block, ROWS * KV_HEADS, 2 * CUBES):
                    row = item // KV_HEADS
                    column = (item % KV_HEADS) * GROUP_WIDTH
                    filled = (pl.read(seq_lens, [row]) + (PAGE - 1)) // PAGE
                    if filled > 0:
                        attn_out = merge(
                            part_outs, part_tops, part_sums, attn_out, item * SEQ_PAGES * Q_PAD, filled, row, column
                        )
                    else:
                        nothing = pl.full([1, GROUP_WIDTH], dtype=pl.FP32, value=0.0)
                        attn_out = pl.assemble(attn_out, pl.cast(nothing, target_type=STORE), [row, column])

            with pl.at(level=pl.Level.CORE_GROUP, name_hint="out_seed", deps=[hidden_tids]) as out_seed_tid:
                attn_proj = zero_out(attn_proj)
            for n in pl.parallel(OUT_TILES):
                for k in pl.range(OUT_SPLITS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="out_proj", deps=[out_seed_tid, softmax_tid]
                    ) as out_tid:
                        attn_proj = out_tile(attn_out, wo, attn_proj, k * OUT_K, layer * Q_WIDTH + k * OUT_K, n * OUT_N)
                    out_tids[n * OUT_SPLITS + k] = out_tid

            # ── MLP ──
            for s in pl.unroll(SLABS):
                out_ready = pl.array.create(SLAB // OUT_N * OUT_SPLITS, pl.TASK_ID)
                for i in pl.unroll(SLAB // OUT_N * OUT_SPLITS):
                    out_ready[i] = out_tids[s * (SLAB // OUT_N * OUT_SPLITS) + i]
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual_rms_cast", deps=[out_ready]) as cast_tid:
                    for i in pl.pipeline(SLAB // CHUNK, stage=2):
                        c = s * SLAB + i * CHUNK
                        h1 = pl.add(attn_proj[:, c : c + CHUNK], hidden[:, c : c + CHUNK])
                        residual = pl.assemble(residual, h1, [0, c])
                        gamma = pl.slice(post_rms_weight, [1, CHUNK], [layer, c])
                        scaled = pl.col_expand_mul(h1, gamma)
                        mlp_in = pl.assemble(mlp_in, pl.cast(scaled, target_type=STORE), [0, c])
                cast_tids[s] = cast_tid

            with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_rms_reduce", deps=[out_tids]) as post_tid:
                squares = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
                for i in pl.pipeline(HIDDEN // CHUNK, stage=2):
                    h1 = pl.add(attn_proj[:, i * CHUNK : (i + 1) * CHUNK], hidden[:, i * CHUNK : (i + 1) * CHUNK])
                    squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(h1, h1)), [1, ROWS]))
                variance = pl.reshape(pl.add(pl.mul(squares, MEAN), EPS), [ROWS, 1])
                post_inv_rms = pl.assemble(post_inv_rms, pl.recip(pl.sqrt(variance)), [0, 0])

            for n in pl.parallel(MLP_TILES):
                for k in pl.range(SLABS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="gate_proj", deps=[cast_tids[k], gate_seed_tid]
                    ) as gate_tid:
                        gate = mlp_tile(mlp_in, w_gate, gate, k * SLAB, hidden_row + k * SLAB, n * MLP_N)
                    gate_tids[n * SLABS + k] = gate_tid
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="up_proj", deps=[cast_tids[k], up_seed_tid]
                    ) as up_tid:
                        up = mlp_tile(mlp_in, w_up, up, k * SLAB, hidden_row + k * SLAB, n * MLP_N)
                    up_tids[n * SLABS + k] = up_tid

            for n in pl.parallel(MLP_TILES):
                both = pl.array.create(2 * SLABS, pl.TASK_ID)
                for i in pl.unroll(SLABS):
                    both[i] = gate_tids[n * SLABS + i]
                    both[SLABS + i] = up_tids[n * SLABS + i]
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="silu", deps=[post_tid, both]) as silu_tid:
                    scale = post_inv_rms[:, 0:1]
                    for i in pl.pipeline(MLP_N // CHUNK, stage=2):
                        c = n * MLP_N + i * CHUNK
                        mlp_act = pl.assemble(
                            mlp_act, swiglu(gate[:, c : c + CHUNK], up[:, c : c + CHUNK], scale), [0, c]
                        )
                silu_tids[n] = silu_tid

            for n in pl.parallel(SLABS):
                for k in pl.range(MLP_TILES):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="down_proj", deps=[down_seed_tid, silu_tids[k]]
                    ) as down_tid:
                        down = down_tile(mlp_act, w_down, down, k * MLP_N, layer * INTER + k * MLP_N, n * SLAB)
                    down_tids[n * MLP_TILES + k] = down_tid

        # Outside the manual scope, so that whoever reads `out` next gets an edge to it.
        with pl.spmd(SLABS, name_hint="dcr_xgamma", deps=[down_tids]) as dcr_tid:
            c = pl.get_block_idx() * SLAB
            h2 = pl.add(down[:, c : c + SLAB], residual[:, c : c + SLAB])
            out = pl.assemble(out, h2, [0, c])
            gamma = pl.slice(input_rms_weight, [1, SLAB], [next_layer, c])
            scaled = pl.col_expand_mul(h2, gamma)
            normed_out = pl.assemble(normed_out, pl.cast(scaled, target_type=STORE), [0, c])
        for s in pl.unroll(SLABS):
            hidden_tids[s] = dcr_tid
            normed_tids[s] = dcr_tid
        return out

    return decode_layer
