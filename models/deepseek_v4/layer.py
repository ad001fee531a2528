"""A decode layer as in DeepSeek-V4 on one card: multi-head latent attention, then a mixture of experts.

The cache holds one latent row of 128 and 32 rotary columns for all heads: a query is multiplied by it directly (the
projections of keys and values are absorbed), so that 16 heads share what is loaded once. Then each token goes to its
two best of eight experts: a block per expert, which leaves at once where nobody chose it. At this size no kernel is
long, and what the layer waits for is the scheduler between its nine tasks: `npuscope simulate
model:deepseek_v4/layer`.
"""

import numpy as np
from npuscope.models.deepseek_v4.parts import (
    BATCH,
    CONTEXT,
    CORE,
    EPS,
    EXPERTS,
    HEADS,
    HIDDEN,
    INNER,
    LATENT,
    PAGE,
    ROPE,
    SLOTS,
    WIDE,
    drawn,
    expert,
    moe,
    norm,
    rms_norm,
    rounded,
    route,
)

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

HALF = ROPE // 2
COLUMNS = 128


@pl.jit.inline
def rotated(x, cos, sin):
    """Rows of ROPE columns by the angles of a position."""
    left, right = x[:, 0:HALF], x[:, HALF:ROPE]
    first = pl.sub(pl.col_expand_mul(left, cos), pl.col_expand_mul(right, sin))
    second = pl.add(pl.col_expand_mul(right, cos), pl.col_expand_mul(left, sin))
    return pl.concat(first, second)


@pl.jit.inline
def attend(query, cache, lengths, cos, sin, context):
    """A block per sequence: its 16 heads over its pages, with a running maximum and sum."""
    for b in pl.spmd(BATCH, name_hint="attend"):
        length = pl.read(lengths, [b])
        rows = query[b * HEADS : (b + 1) * HEADS, :]
        angle = length - 1
        turned = rotated(rows[:, LATENT:WIDE], cos[angle : angle + 1, :], sin[angle : angle + 1, :])
        q = pl.cast(pl.concat(rows[:, 0:LATENT], turned), pl.BF16, mode="rint")
        most = pl.full([HEADS, 1], dtype=pl.FP32, value=-1e30)
        total = pl.full([HEADS, 1], dtype=pl.FP32, value=0.0)
        mixed = pl.full([HEADS, LATENT], dtype=pl.FP32, value=0.0)
        for page in pl.range((length + PAGE - 1) // PAGE):
            at = b * CONTEXT + page * PAGE
            scores = pl.mul(pl.matmul(q, cache[at : at + PAGE, :], b_trans=True, out_dtype=pl.FP32), WIDE**-0.5)
            scores = pl.set_validshape(scores, HEADS, pl.min(length - page * PAGE, PAGE))
            scores = pl.fillpad(scores, pad_value=pl.PadValue.min)
            larger = pl.maximum(most, pl.row_max(scores))
            fade = pl.exp(pl.sub(most, larger))
            weights = pl.exp(pl.row_expand_sub(scores, larger))
            total = pl.add(pl.mul(total, fade), pl.row_sum(weights))
            part = pl.matmul(pl.cast(weights, pl.BF16, mode="rint"), cache[at : at + PAGE, 0:LATENT], out_dtype=pl.FP32)
            mixed = pl.add(pl.row_expand_mul(mixed, fade), part)
            most = larger
        mixed = pl.cast(pl.row_expand_div(mixed, total), pl.BF16, mode="rint")
        context[b * HEADS : (b + 1) * HEADS, :] = mixed
    return context


@pl.jit
def layer(
    x: pl.Tensor[[BATCH, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    w_query: pl.Tensor[[HIDDEN, HEADS * WIDE], pl.BF16],
    w_latent: pl.Tensor[[HIDDEN, WIDE], pl.BF16],
    gamma_latent: pl.Tensor[[1, LATENT], pl.FP32],
    w_out: pl.Tensor[[HEADS * LATENT, HIDDEN], pl.BF16],
    cos: pl.Tensor[[CONTEXT, HALF], pl.FP32],
    sin: pl.Tensor[[CONTEXT, HALF], pl.FP32],
    lengths: pl.Tensor[[BATCH], pl.INT32],
    cache: pl.InOut[pl.Tensor[[BATCH * CONTEXT, WIDE], pl.BF16]],
    gamma_moe: pl.Tensor[[1, HIDDEN], pl.FP32],
    w_router: pl.Tensor[[HIDDEN, SLOTS], pl.BF16],
    w_gate_up: pl.Tensor[[EXPERTS * HIDDEN, 2 * INNER], pl.BF16],
    w_down: pl.Tensor[[EXPERTS * INNER, HIDDEN], pl.BF16],
    y: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.FP32]],
):
    normed = rms_norm(x, gamma, pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16), BATCH)
    query = pl.create_tensor([BATCH, HEADS * WIDE], dtype=pl.FP32)
    for n in pl.spmd(HEADS * WIDE // 160, name_hint="q_proj"):
        query[:, n * 160 : (n + 1) * 160] = pl.matmul(normed, w_query[:, n * 160 : (n + 1) * 160], out_dtype=pl.FP32)
    latent = pl.create_tensor([BATCH, WIDE], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="kv_proj"):
        latent[:, :] = pl.matmul(normed, w_latent, out_dtype=pl.FP32)
    for b in pl.spmd(BATCH, name_hint="kv_write"):
        angle = pl.read(lengths, [b]) - 1
        row = latent[b : b + 1, 0:LATENT]
        scale = pl.rsqrt(pl.add(pl.mul(pl.row_sum(pl.mul(row, row)), 1.0 / LATENT), EPS))
        key = pl.col_expand_mul(pl.row_expand_mul(row, scale), gamma_latent)
        turned = rotated(latent[b : b + 1, LATENT:WIDE], cos[angle : angle + 1, :], sin[angle : angle + 1, :])
        at = b * CONTEXT + angle
        cache[at : at + 1, :] = pl.cast(pl.concat(key, turned), pl.BF16, mode="rint")
    context = pl.create_tensor([BATCH * HEADS, LATENT], dtype=pl.BF16)
    context = attend(pl.reshape(query, [BATCH * HEADS, WIDE]), cache, lengths, cos, sin, context)
    heads = pl.reshape(context, [BATCH, HEADS * LATENT])
    for n in pl.spmd(HIDDEN // COLUMNS, name_hint="out_proj"):
        acc = pl.matmul(heads[:, 0:256], w_out[0:256, n * COLUMNS : (n + 1) * COLUMNS], out_dtype=pl.FP32)
        for k in pl.pipeline(256, HEADS * LATENT, 256, stage=2):
            acc = pl.matmul_acc(acc, heads[:, k : k + 256], w_out[k : k + 256, n * COLUMNS : (n + 1) * COLUMNS])
        y[:, n * COLUMNS : (n + 1) * COLUMNS] = pl.add(acc, x[:, n * COLUMNS : (n + 1) * COLUMNS])

    tokens = rms_norm(y, gamma_moe, pl.create_tensor([BATCH, HIDDEN], dtype=pl.BF16), BATCH)
    gates = pl.create_tensor([BATCH, SLOTS], dtype=pl.FP32)
    counts = pl.create_tensor([1, SLOTS], dtype=pl.INT32)
    gates, counts = route(tokens, w_router, gates, counts)
    for e in pl.spmd(EXPERTS, name_hint="experts"):
        if pl.read(counts, [0, e]) > 0:
            added = expert(tokens, gates[:, e : e + 1], w_gate_up, w_down, e, e)
            y = pl.assemble(y, added, [0, 0], atomic=pl.AtomicType.Add)
    return y


def golden(tensors: dict) -> None:
    names = ("w_query", "w_latent", "w_out", "w_router", "w_gate_up", "w_down")
    w_query, w_latent, w_out, w_router, w_gate_up, w_down = (tensors[name].astype(np.float32) for name in names)
    x, cos, sin, lengths = (tensors[name] for name in ("x", "cos", "sin", "lengths"))

    def turned(rows: np.ndarray, b: int) -> np.ndarray:
        angle = int(lengths[b]) - 1
        left, right = rows[..., :HALF], rows[..., HALF:]
        c, s = cos[angle], sin[angle]
        return np.concatenate([left * c - right * s, right * c + left * s], axis=-1)

    normed = norm(x, tensors["gamma"])
    query, latent = (normed @ w_query).reshape(BATCH, HEADS, WIDE), normed @ w_latent
    cache = tensors["cache"]
    heads = np.zeros((BATCH, HEADS, LATENT), np.float32)
    for b in range(BATCH):
        row, length = latent[b, :LATENT], int(lengths[b])
        key = row / np.sqrt((row * row).mean() + EPS) * tensors["gamma_latent"][0]
        cache[b * CONTEXT + length - 1] = np.concatenate([key, turned(latent[b, LATENT:], b)])
        kept = cache[b * CONTEXT : b * CONTEXT + length].astype(np.float32)
        q = rounded(np.concatenate([query[b, :, :LATENT], turned(query[b, :, LATENT:], b)], axis=-1))
        scores = q @ kept.T * WIDE**-0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        heads[b] = rounded(weights / weights.sum(axis=1, keepdims=True) @ kept[:, :LATENT])
    y = x + heads.reshape(BATCH, -1) @ w_out
    tensors["y"][:] = y + moe(norm(y, tensors["gamma_moe"]), w_router, w_gate_up, w_down)


def run() -> RunResult:
    angles = np.arange(CONTEXT)[:, None] / 1e4 ** (np.arange(HALF) / HALF)
    lengths = np.linspace(1, CONTEXT, BATCH).astype(np.int32)
    w, b = pl.BF16, pl.FP32
    specs = [
        TensorSpec("x", [BATCH, HIDDEN], b, init_value=drawn(1, BATCH, HIDDEN)),
        TensorSpec("gamma", [1, HIDDEN], b, init_value=1.0),
        TensorSpec("w_query", [HIDDEN, HEADS * WIDE], w, init_value=drawn(HIDDEN**-0.5, HIDDEN, HEADS * WIDE)),
        TensorSpec("w_latent", [HIDDEN, WIDE], w, init_value=drawn(HIDDEN**-0.5, HIDDEN, WIDE)),
        TensorSpec("gamma_latent", [1, LATENT], b, init_value=1.0),
        TensorSpec("w_out", [HEADS * LATENT, HIDDEN], w, init_value=drawn(0.02, HEADS * LATENT, HIDDEN)),
        TensorSpec("cos", [CONTEXT, HALF], b, init_value=np.cos(angles)),
        TensorSpec("sin", [CONTEXT, HALF], b, init_value=np.sin(angles)),
        TensorSpec("lengths", [BATCH], pl.INT32, init_value=lengths),
        TensorSpec("cache", [BATCH * CONTEXT, WIDE], w, init_value=drawn(1, BATCH * CONTEXT, WIDE), is_output=True),
        TensorSpec("gamma_moe", [1, HIDDEN], b, init_value=1.0),
        TensorSpec("w_router", [HIDDEN, SLOTS], w, init_value=drawn(HIDDEN**-0.5, HIDDEN, SLOTS)),
        TensorSpec("w_gate_up", [EXPERTS * HIDDEN, 2 * INNER], w, init_value=drawn(0.06, EXPERTS * HIDDEN, 2 * INNER)),
        TensorSpec("w_down", [EXPERTS * INNER, HIDDEN], w, init_value=drawn(0.06, EXPERTS * INNER, HIDDEN)),
        TensorSpec("y", [BATCH, HIDDEN], b, is_output=True),
    ]
    # BF16 between the kernels on both sides; weights of the softmax are rounded before they are divided, here after
    return run_jit(fn=layer, specs=specs, golden_fn=golden, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
