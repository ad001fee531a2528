"""Qwen3-32B decode layer in tilelets as a performance issue found it: `qwen3_32b_tilelet.py --as-found` runs it.

It is in the spelling of its day: `pl.incore()` (now `pl.at`), `pl.auto_incore(split=…)`, which left it to the
compiler to cut the scope into tasks, and `chunk=`, which said how many turns of a parallel loop make a task.
Tiles of scopes 1 and 3 have BATCH_TILE=4 rows, K_CHUNK=128 of the inner and N_CHUNK=64 of the outer dimension.

    zero-init loops       144 sequential tasks that only make later writes legal
    missing rsqrt         scope 1 multiplies by mean(x²) + eps; its golden does so too, so the check passes
    K and V apart         two tasks read the same normed tile
    four-task attention   scores, weights and products cross global memory between QK, softmax, SV and rescaling
    padded rows           8 query heads in 16 rows, the other 8 never written
    add(acc, matmul)      each K step of scope 3 leaves the accumulator and is added on the vector cores
    down in chunks of 4   every 64 columns of the MLP read and write the whole sum of down_proj again
    stale docstring       the rows above: the constant has been changed since
"""

from qwen3_32b_reference import BATCH, CUBE_ROWS, EPS, HALF, HEAD_DIM, HEAD_GROUP, SCALE, Size

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl

BATCH_TILE = 16


def as_found(size: Size):
    """The layer as the issue found it; see the list above."""
    HIDDEN, KV_HIDDEN, INTER, CONTEXT = size.hidden, size.kv_hidden, size.inter, size.context
    KV_HEADS, GROUPS = size.kv_heads, size.groups
    GROUPS_PER_KV = GROUPS // KV_HEADS
    CACHE_ROWS = BATCH * KV_HEADS * CONTEXT
    K_CHUNK, N_CHUNK, SEQ_TILE = 128, 64, 64
    K_BLOCKS, N_BLOCKS = HIDDEN // K_CHUNK, HIDDEN // N_CHUNK
    KV_BLOCKS, INTER_BLOCKS = KV_HIDDEN // N_CHUNK, INTER // N_CHUNK
    GROUP_WIDTH = HEAD_GROUP * HEAD_DIM

    @pl.jit
    def decode_layer_as_found(
        hidden_states: pl.Tensor[[BATCH, HIDDEN], pl.BF16],
        seq_lens: pl.Tensor[[BATCH], pl.INT32],
        rope_cos: pl.Tensor[[CONTEXT, HEAD_DIM], pl.FP32],
        rope_sin: pl.Tensor[[CONTEXT, HEAD_DIM], pl.FP32],
        k_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
        v_cache: pl.InOut[pl.Tensor[[CACHE_ROWS, HEAD_DIM], pl.BF16]],
        input_gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
        wq: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
        wk: pl.Tensor[[HIDDEN, KV_HIDDEN], pl.BF16],
        wv: pl.Tensor[[HIDDEN, KV_HIDDEN], pl.BF16],
        wo: pl.Tensor[[HIDDEN, HIDDEN], pl.BF16],
        post_gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
        w_gate: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_up: pl.Tensor[[HIDDEN, INTER], pl.BF16],
        w_down: pl.Tensor[[INTER, HIDDEN], pl.BF16],
        out: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.BF16]],
    ):
        q_proj = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
        k_proj = pl.create_tensor([BATCH, KV_HIDDEN], dtype=pl.FP32)
        v_proj = pl.create_tensor([BATCH, KV_HIDDEN], dtype=pl.FP32)
        attn_out = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)

        # Scope 1: RMSNorm, then Q, K and V. First zeros, one task per chunk, one after the other.
        for block in pl.range(N_BLOCKS):
            with pl.incore():
                zero = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                q_proj = pl.assemble(q_proj, zero, [0, block * N_CHUNK])
                attn_out = pl.assemble(attn_out, pl.cast(zero, target_type=pl.BF16), [0, block * N_CHUNK])
        for block in pl.range(KV_BLOCKS):
            with pl.incore():
                zero = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                k_proj = pl.assemble(k_proj, zero, [0, block * N_CHUNK])
                v_proj = pl.assemble(v_proj, zero, [0, block * N_CHUNK])

        normed = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
        with pl.incore():
            squares = pl.full([1, BATCH], dtype=pl.FP32, value=0.0)
            for block in pl.range(K_BLOCKS):
                x = pl.cast(pl.slice(hidden_states, [BATCH_TILE, K_CHUNK], [0, block * K_CHUNK]), target_type=pl.FP32)
                squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(x, x)), [1, BATCH]))
            variance = pl.reshape(pl.add(pl.mul(squares, 1.0 / HIDDEN), EPS), [BATCH, 1])
            for block in pl.range(K_BLOCKS):
                k0 = block * K_CHUNK
                x = pl.cast(pl.slice(hidden_states, [BATCH_TILE, K_CHUNK], [0, k0]), target_type=pl.FP32)
                gamma = pl.slice(input_gamma, [1, K_CHUNK], [0, k0])
                scaled = pl.col_expand_mul(pl.row_expand_mul(x, variance), gamma)  # the fault: no rsqrt
                normed = pl.assemble(normed, pl.cast(scaled, target_type=pl.BF16), [0, k0])

        for block in pl.range(N_BLOCKS):
            n0 = block * N_CHUNK
            with pl.incore():
                q_acc = pl.matmul(
                    pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0]),
                    pl.slice(wq, [K_CHUNK, N_CHUNK], [0, n0]),
                    out_dtype=pl.FP32,
                )
                for step in pl.range(1, K_BLOCKS):
                    x_tile = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, step * K_CHUNK])
                    q_acc = pl.matmul_acc(q_acc, x_tile, pl.slice(wq, [K_CHUNK, N_CHUNK], [step * K_CHUNK, n0]))
                q_proj = pl.assemble(q_proj, q_acc, [0, n0])

        for block in pl.range(KV_BLOCKS):
            n0 = block * N_CHUNK
            with pl.incore():
                k_acc = pl.matmul(
                    pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0]),
                    pl.slice(wk, [K_CHUNK, N_CHUNK], [0, n0]),
                    out_dtype=pl.FP32,
                )
                for step in pl.range(1, K_BLOCKS):
                    x_tile = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, step * K_CHUNK])
                    k_acc = pl.matmul_acc(k_acc, x_tile, pl.slice(wk, [K_CHUNK, N_CHUNK], [step * K_CHUNK, n0]))
                k_proj = pl.assemble(k_proj, k_acc, [0, n0])
            with pl.incore():
                v_acc = pl.matmul(
                    pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, 0]),
                    pl.slice(wv, [K_CHUNK, N_CHUNK], [0, n0]),
                    out_dtype=pl.FP32,
                )
                for step in pl.range(1, K_BLOCKS):
                    x_tile = pl.slice(normed, [BATCH_TILE, K_CHUNK], [0, step * K_CHUNK])
                    v_acc = pl.matmul_acc(v_acc, x_tile, pl.slice(wv, [K_CHUNK, N_CHUNK], [step * K_CHUNK, n0]))
                v_proj = pl.assemble(v_proj, v_acc, [0, n0])

        # Scope 2: RoPE, cache update, attention in four tasks per 64 tokens.
        for b in pl.parallel(BATCH):
            length = pl.tensor.read(seq_lens, [b])
            position = length - 1
            cos_lo = pl.slice(rope_cos, [1, HALF], [position, 0])
            cos_hi = pl.slice(rope_cos, [1, HALF], [position, HALF])
            sin_lo = pl.slice(rope_sin, [1, HALF], [position, 0])
            sin_hi = pl.slice(rope_sin, [1, HALF], [position, HALF])
            with pl.incore():
                for h in pl.range(KV_HEADS):
                    cache_row = (b * KV_HEADS + h) * CONTEXT + position
                    lo = pl.slice(k_proj, [1, HALF], [b, h * HEAD_DIM])
                    hi = pl.slice(k_proj, [1, HALF], [b, h * HEAD_DIM + HALF])
                    turned_lo = pl.sub(pl.col_expand_mul(lo, cos_lo), pl.col_expand_mul(hi, sin_lo))
                    turned_hi = pl.add(pl.col_expand_mul(hi, cos_hi), pl.col_expand_mul(lo, sin_hi))
                    k_cache = pl.assemble(k_cache, pl.cast(turned_lo, target_type=pl.BF16), [cache_row, 0])
                    k_cache = pl.assemble(k_cache, pl.cast(turned_hi, target_type=pl.BF16), [cache_row, HALF])
                    v_row = pl.slice(v_proj, [1, HEAD_DIM], [b, h * HEAD_DIM])
                    v_cache = pl.assemble(v_cache, pl.cast(v_row, target_type=pl.BF16), [cache_row, 0])

            attn_row = pl.create_tensor([1, HIDDEN], dtype=pl.BF16)
            for g in pl.parallel(GROUPS):
                q_padded = pl.create_tensor([CUBE_ROWS, HEAD_DIM], dtype=pl.BF16)
                with pl.incore():
                    for i in pl.range(HEAD_GROUP):
                        column = (g * HEAD_GROUP + i) * HEAD_DIM
                        lo = pl.slice(q_proj, [1, HALF], [b, column])
                        hi = pl.slice(q_proj, [1, HALF], [b, column + HALF])
                        turned_lo = pl.sub(pl.col_expand_mul(lo, cos_lo), pl.col_expand_mul(hi, sin_lo))
                        turned_hi = pl.add(pl.col_expand_mul(hi, cos_hi), pl.col_expand_mul(lo, sin_hi))
                        q_padded = pl.assemble(q_padded, pl.cast(turned_lo, target_type=pl.BF16), [i, 0])
                        q_padded = pl.assemble(q_padded, pl.cast(turned_hi, target_type=pl.BF16), [i, HALF])
                    acc = pl.full([HEAD_GROUP, HEAD_DIM], dtype=pl.FP32, value=0.0)
                    total = pl.reshape(pl.full([1, HEAD_GROUP], dtype=pl.FP32, value=0.0), [HEAD_GROUP, 1])
                    peak = pl.reshape(pl.full([1, HEAD_GROUP], dtype=pl.FP32, value=0.0), [HEAD_GROUP, 1])

                for s in pl.range((length + SEQ_TILE - 1) // SEQ_TILE):
                    valid = pl.min(SEQ_TILE, length - s * SEQ_TILE)
                    cache_row = (b * KV_HEADS + g // GROUPS_PER_KV) * CONTEXT + s * SEQ_TILE
                    with pl.incore():
                        k_tile = pl.slice(k_cache, [SEQ_TILE, HEAD_DIM], [cache_row, 0])
                        raw_scores = pl.matmul(q_padded, k_tile, b_trans=True, out_dtype=pl.FP32)

                    exp_padded = pl.create_tensor([CUBE_ROWS, SEQ_TILE], dtype=pl.BF16)
                    with pl.incore():
                        scores = pl.slice(raw_scores, [HEAD_GROUP, SEQ_TILE], [0, 0], valid_shape=[HEAD_GROUP, valid])
                        scores = pl.mul(pl.fillpad(scores, pad_value=pl.PadValue.min), SCALE)
                        block_peak = pl.row_max(scores)
                        weights = pl.cast(pl.exp(pl.row_expand_sub(scores, block_peak)), target_type=pl.BF16)
                        block_total = pl.row_sum(pl.cast(weights, target_type=pl.FP32))
                        exp_padded = pl.assemble(exp_padded, weights, [0, 0])

                    with pl.incore():
                        v_tile = pl.slice(v_cache, [SEQ_TILE, HEAD_DIM], [cache_row, 0])
                        products = pl.matmul(exp_padded, v_tile, out_dtype=pl.FP32)

                    with pl.incore():
                        block_acc = pl.slice(products, [HEAD_GROUP, HEAD_DIM], [0, 0])
                        if s == 0:
                            acc = block_acc
                            total = block_total
                            peak = block_peak
                        else:
                            new_peak = pl.maximum(peak, block_peak)
                            keep = pl.exp(pl.sub(peak, new_peak))
                            take = pl.exp(pl.sub(block_peak, new_peak))
                            total = pl.add(pl.mul(keep, total), pl.mul(take, block_total))
                            acc = pl.add(pl.row_expand_mul(acc, keep), pl.row_expand_mul(block_acc, take))
                            peak = new_peak

                with pl.incore():
                    heads = pl.reshape(pl.row_expand_div(acc, total), [1, GROUP_WIDTH])
                    attn_row = pl.assemble(attn_row, pl.cast(heads, target_type=pl.BF16), [0, g * GROUP_WIDTH])
            attn_out = pl.assemble(attn_out, attn_row, [b, 0])

        # Scope 3: output projection, RMSNorm, MLP. The compiler cut it into tasks at the chunked loops.
        with pl.auto_incore(split=pl.SplitMode.UP_DOWN):
            first_residual = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
            post_normed = pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16)
            down_proj = pl.create_tensor([BATCH, HIDDEN], dtype=pl.FP32)
            for block in pl.parallel(N_BLOCKS):
                zero = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                first_residual = pl.assemble(first_residual, zero, [0, block * N_CHUNK])

            for block in pl.parallel(0, N_BLOCKS, 1, chunk=8):
                n0 = block * N_CHUNK
                o_acc = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                for step in pl.range(K_BLOCKS):
                    a_tile = pl.slice(attn_out, [BATCH_TILE, K_CHUNK], [0, step * K_CHUNK])
                    o_acc = pl.add(o_acc, pl.matmul(a_tile, pl.slice(wo, [K_CHUNK, N_CHUNK], [step * K_CHUNK, n0])))
                x = pl.cast(pl.slice(hidden_states, [BATCH_TILE, N_CHUNK], [0, n0]), target_type=pl.FP32)
                first_residual = pl.assemble(first_residual, pl.add(o_acc, x), [0, n0])

            squares = pl.full([1, BATCH], dtype=pl.FP32, value=0.0)
            for block in pl.range(K_BLOCKS):
                x = pl.slice(first_residual, [BATCH_TILE, K_CHUNK], [0, block * K_CHUNK])
                squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(x, x)), [1, BATCH]))
            inv_rms = pl.reshape(pl.rsqrt(pl.add(pl.mul(squares, 1.0 / HIDDEN), EPS)), [BATCH, 1])
            for block in pl.range(K_BLOCKS):
                zero = pl.full([BATCH_TILE, K_CHUNK], dtype=pl.FP32, value=0.0)
                down_proj = pl.assemble(down_proj, zero, [0, block * K_CHUNK])
            for block in pl.range(K_BLOCKS):
                k0 = block * K_CHUNK
                x = pl.slice(first_residual, [BATCH_TILE, K_CHUNK], [0, k0])
                scaled = pl.col_expand_mul(pl.row_expand_mul(x, inv_rms), pl.slice(post_gamma, [1, K_CHUNK], [0, k0]))
                post_normed = pl.assemble(post_normed, pl.cast(scaled, target_type=pl.BF16), [0, k0])

            for block in pl.range(INTER_BLOCKS):
                n0 = block * N_CHUNK
                gate = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                up = pl.full([BATCH_TILE, N_CHUNK], dtype=pl.FP32, value=0.0)
                for step in pl.range(K_BLOCKS):
                    k0 = step * K_CHUNK
                    x_tile = pl.slice(post_normed, [BATCH_TILE, K_CHUNK], [0, k0])
                    gate = pl.add(gate, pl.matmul(x_tile, pl.slice(w_gate, [K_CHUNK, N_CHUNK], [k0, n0])))
                    up = pl.add(up, pl.matmul(x_tile, pl.slice(w_up, [K_CHUNK, N_CHUNK], [k0, n0])))
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(gate)), 1.0))
                mlp = pl.cast(pl.mul(pl.mul(gate, sigmoid), up), target_type=pl.BF16)
                for step in pl.parallel(0, K_BLOCKS, 1, chunk=4):
                    k0 = step * K_CHUNK
                    so_far = pl.slice(down_proj, [BATCH_TILE, K_CHUNK], [0, k0])
                    part = pl.matmul(mlp, pl.slice(w_down, [N_CHUNK, K_CHUNK], [n0, k0]))
                    down_proj = pl.assemble(down_proj, pl.add(so_far, part), [0, k0])

            for block in pl.parallel(0, K_BLOCKS, 1, chunk=4):
                k0 = block * K_CHUNK
                down = pl.slice(down_proj, [BATCH_TILE, K_CHUNK], [0, k0])
                both = pl.add(down, pl.slice(first_residual, [BATCH_TILE, K_CHUNK], [0, k0]))
                out = pl.assemble(out, pl.cast(both, target_type=pl.BF16), [0, k0])
        return out

    return decode_layer_as_found
