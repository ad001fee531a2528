"""The MLP of the A8W8 layer: residual, norm, quantisation, gate and up in INT8, silu, down in the storage type."""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b import parts, parts_a8w8
from qwen3_14b.config import ROWS, Qwen3
from qwen3_14b.flags import Flags

DOWN_SPLITS = 2  # parts of K, where down_proj is split


def make_mlp(model: Qwen3, flags: Flags) -> Any:
    """mlp(hidden, what attention adds to it, …, out) → out."""
    t, STORE = model.tiles, parts.store_type(model)
    HIDDEN, INTER, CHUNK, EPS, MEAN = model.hidden, model.intermediate, t.chunk, model.eps, 1.0 / model.hidden
    MLP_N, DOWN_N, DOWN_TK, PAIR_TK = flags.mlp_tn or t.a8_tn, t.a8_tn, t.a8_down_tk, t.tk
    if INTER % MLP_N or (MLP_N % CHUNK and CHUNK % MLP_N):
        raise ValueError(f"MLP_TN {MLP_N}: it must divide {INTER} and be a multiple of {CHUNK}")
    SILU_CHUNK = min(CHUNK, MLP_N)
    MLP_TILES, DOWN_TILES = INTER // MLP_N, HIDDEN // DOWN_N
    DUAL, DUAL_DOWN, ATOMIC = flags.dual_gate_up_proj, flags.dual_down_proj, flags.down_splitk_atomic
    K_PART = INTER // DOWN_SPLITS
    PARTS = DOWN_SPLITS if DUAL_DOWN else 1  # of the sum in GM
    DOWN_TASKS = DOWN_TILES * DOWN_SPLITS if ATOMIC else DOWN_TILES
    OUT_TASKS = HIDDEN // (t.a8_out_n * (2 if flags.fuse_out_proj_npair else 1))

    ACT = pl.INT8 if DUAL else pl.FP16  # gate and up apart make INT8 of the activation themselves
    quantise = parts_a8w8.quantise(HIDDEN, CHUNK, flags.quant_rowmax_transpose, ACT)
    tile = parts_a8w8.cast_tile(t.a8_tk, MLP_N, HIDDEN // t.a8_tk)
    dual = parts_a8w8.dual_tile(t.a8_tk, MLP_N, HIDDEN // t.a8_tk)
    dequantise, swiglu = parts_a8w8.dequantise(), parts.swiglu(model)
    zero_down = parts.zero_columns(HIDDEN, t.slab)
    down_atomic = parts.split_k_tile(DOWN_TK, DOWN_N, K_PART // DOWN_TK)
    down_pair = parts_a8w8.down_pair(PAIR_TK, DOWN_N, K_PART // PAIR_TK)

    @pl.jit.inline
    def mlp(
        hidden: pl.Tensor, attn_proj: pl.Tensor, post_rms_weight: pl.Tensor, w_gate: pl.Tensor, w_up: pl.Tensor,
        w_down: pl.Tensor, w_gate_scale: pl.Tensor, w_up_scale: pl.Tensor, out: pl.Tensor, layer: pl.Scalar,
        out_tids: pl.Array[OUT_TASKS, pl.TASK_ID],
    ):  # fmt: skip
        hidden_row = layer * HIDDEN
        inter_row = layer * INTER
        residual = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
        mlp_in = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
        inv_rms = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        mlp_whole = pl.create_tensor([ROWS, HIDDEN], dtype=ACT)
        mlp_scales = pl.create_tensor([ROWS, 1], dtype=pl.FP32)
        gate = pl.create_tensor([ROWS, INTER], dtype=pl.FP32)
        up = pl.create_tensor([ROWS, INTER], dtype=pl.FP32)
        mlp_act = pl.create_tensor([ROWS, INTER], dtype=STORE)
        down = pl.create_tensor([PARTS * ROWS, HIDDEN], dtype=pl.FP32)
        silu_tids = pl.array.create(MLP_TILES, pl.TASK_ID)
        down_tids = pl.array.create(DOWN_TASKS, pl.TASK_ID)

        with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual_rms_cast", deps=[out_tids]):
            for i in pl.pipeline(HIDDEN // CHUNK, stage=2):
                c = i * CHUNK
                before = pl.cast(hidden[:, c : c + CHUNK], target_type=pl.FP32)
                h1 = pl.add(attn_proj[:, c : c + CHUNK], before)
                residual = pl.assemble(residual, pl.cast(h1, target_type=STORE), [0, c])
                scaled = pl.col_expand_mul(h1, pl.slice(post_rms_weight, [1, CHUNK], [layer, c]))
                mlp_in = pl.assemble(mlp_in, pl.cast(scaled, target_type=STORE), [0, c])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_rms_reduce", deps=[out_tids]):
            squares = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
            for i in pl.pipeline(HIDDEN // CHUNK, stage=2):
                before = pl.cast(hidden[:, i * CHUNK : (i + 1) * CHUNK], target_type=pl.FP32)
                h1 = pl.add(attn_proj[:, i * CHUNK : (i + 1) * CHUNK], before)
                squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(h1, h1)), [1, ROWS]))
            variance = pl.reshape(pl.add(pl.mul(squares, MEAN), EPS), [ROWS, 1])
            inv_rms = pl.assemble(inv_rms, pl.recip(pl.sqrt(variance)), [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="mlp_act_quant"):
            mlp_whole = quantise(mlp_in, mlp_whole, mlp_scales)

        for n in pl.parallel(MLP_TILES):
            n0 = n * MLP_N
            ready = pl.array.create(2, pl.TASK_ID)
            if DUAL:
                with pl.at(
                    level=pl.Level.CORE_GROUP, name_hint="gate_up_dual_proj", no_dep_args=flags.apart(gate, up)
                ) as dual_tid:
                    gate_acc, up_acc = dual(mlp_whole, w_gate, w_up, hidden_row, n0)
                    rows = mlp_scales[:, 0:1]
                    gate_columns = pl.slice(w_gate_scale, [1, MLP_N], [layer, n0])
                    up_columns = pl.slice(w_up_scale, [1, MLP_N], [layer, n0])
                    gate = pl.assemble(gate, dequantise(gate_acc, gate_columns, rows), [0, n0])
                    up = pl.assemble(up, dequantise(up_acc, up_columns, rows), [0, n0])
                ready[0] = dual_tid
            else:
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_proj", no_dep_args=flags.apart(gate)) as gate_tid:
                    gate_acc = tile(mlp_whole, w_gate, 0, hidden_row, n0)
                    gate_columns = pl.slice(w_gate_scale, [1, MLP_N], [layer, n0])
                    gate = pl.assemble(gate, dequantise(gate_acc, gate_columns, mlp_scales[:, 0:1]), [0, n0])
                ready[0] = gate_tid
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="up_proj", no_dep_args=flags.apart(up)) as up_tid:
                    up_acc = tile(mlp_whole, w_up, 0, hidden_row, n0)
                    up_columns = pl.slice(w_up_scale, [1, MLP_N], [layer, n0])
                    up = pl.assemble(up, dequantise(up_acc, up_columns, mlp_scales[:, 0:1]), [0, n0])
                ready[1] = up_tid
            with pl.at(
                level=pl.Level.CORE_GROUP, name_hint="silu", deps=[ready], no_dep_args=flags.apart(mlp_act, gate, up)
            ) as silu_tid:
                scale = inv_rms[:, 0:1]
                for i in pl.range(MLP_N // SILU_CHUNK):
                    c = n0 + i * SILU_CHUNK
                    act = swiglu(gate[:, c : c + SILU_CHUNK], up[:, c : c + SILU_CHUNK], scale)
                    mlp_act = pl.assemble(mlp_act, act, [0, c])
            silu_tids[n] = silu_tid
        activated = pl.system.task_dummy(deps=[silu_tids])

        if DUAL_DOWN:
            for n in pl.parallel(DOWN_TILES // 2):
                for k in pl.range(DOWN_SPLITS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="down_dual_proj", deps=[activated],
                        no_dep_args=flags.apart(mlp_act, down),
                    ) as down_tid:  # fmt: skip
                        down = down_pair(
                            mlp_act, w_down, down, k * K_PART, inter_row + k * K_PART, n * 2 * DOWN_N, k * ROWS
                        )
                    down_tids[n * DOWN_SPLITS + k] = down_tid
        elif ATOMIC:
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_seed") as seed_tid:
                down = zero_down(down)
            for n in pl.parallel(DOWN_TILES):
                for k in pl.range(DOWN_SPLITS):
                    with pl.at(
                        level=pl.Level.CORE_GROUP, name_hint="down_proj", deps=[activated, seed_tid],
                        no_dep_args=flags.apart(mlp_act, down),
                    ) as down_tid:  # fmt: skip
                        down = down_atomic(mlp_act, w_down, down, k * K_PART, inter_row + k * K_PART, n * DOWN_N)
                    down_tids[n * DOWN_SPLITS + k] = down_tid
        else:
            for n in pl.parallel(DOWN_TILES):
                with pl.at(
                    level=pl.Level.CORE_GROUP,
                    name_hint="down_proj",
                    deps=[activated],
                    no_dep_args=flags.apart(mlp_act, down),
                ) as down_tid:
                    n0 = n * DOWN_N
                    acc = pl.matmul(
                        mlp_act[:, 0:DOWN_TK], w_down[inter_row : inter_row + DOWN_TK, n0 : n0 + DOWN_N],
                        out_dtype=pl.FP32,
                    )  # fmt: skip
                    for k in pl.pipeline(DOWN_TK, INTER, DOWN_TK, stage=2):
                        row = inter_row + k
                        acc = pl.matmul_acc(
                            acc, mlp_act[:, k : k + DOWN_TK], w_down[row : row + DOWN_TK, n0 : n0 + DOWN_N]
                        )
                    down = pl.assemble(down, acc, [0, n0])
                down_tids[n] = down_tid

        with pl.spmd(DOWN_TILES, name_hint="down_cast_residual", deps=[down_tids]) as _cast_tid:
            c = pl.get_block_idx() * DOWN_N
            total = down[0:ROWS, c : c + DOWN_N]
            for part in pl.range(1, PARTS):
                total = pl.add(total, down[part * ROWS : (part + 1) * ROWS, c : c + DOWN_N])
            rounded = pl.cast(pl.cast(total, target_type=STORE), target_type=pl.FP32)
            h1 = pl.cast(residual[:, c : c + DOWN_N], target_type=pl.FP32)
            out = pl.assemble(out, pl.cast(pl.add(rounded, h1), target_type=STORE), [0, c])
        return out

    return mlp
