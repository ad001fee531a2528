"""A gated linear-attention layer: the gated delta rule of Qwen3-Next and Qwen3.8, a chunk of tokens through one layer.

Attention that never looks back: each head keeps a matrix S of 64 x 64 in place of a cache. A token fades it by its
gate, reads what S holds for its key, and writes the difference to its value in that place: S = g·S, S = S + k (β (v −
Sᵀk))ᵀ, o = Sᵀq. So its cost does not grow with the context, but tokens come one after the other: a head is one block,
and only as many cores work as there are heads. `npuscope simulate model:gated_delta_net` shows that first.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

TOKENS, HIDDEN, HEADS, DIM = 32, 256, 8, 64
WIDE = HEADS * DIM  # of q, k, v and of the output's gate
GATES = 16  # columns of the two gates of each head
COLUMNS, DEEP = 128, 128  # of a block of the projections
EPS = 1e-6
CORE = pl.Level.CORE_GROUP


@pl.jit.inline
def project(x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16], w: pl.Tensor[[HIDDEN, 4 * WIDE], pl.BF16], y: pl.Tensor):
    """y = x · w, a block for each 128 columns."""
    for n in pl.spmd(4 * WIDE // COLUMNS, name_hint="project"):
        acc = pl.matmul(x[:, 0:DEEP], w[0:DEEP, n * COLUMNS : (n + 1) * COLUMNS], out_dtype=pl.FP32)
        for k in pl.pipeline(DEEP, HIDDEN, DEEP, stage=2):
            acc = pl.matmul_acc(acc, x[:, k : k + DEEP], w[k : k + DEEP, n * COLUMNS : (n + 1) * COLUMNS])
        y = pl.assemble(y, acc, [0, n * COLUMNS])
    return y


@pl.jit.inline
def normalized(row):
    """A vector of length 1."""
    return pl.row_expand_mul(row, pl.rsqrt(pl.add(pl.row_sum(pl.mul(row, row)), EPS)))


@pl.jit
def gated_delta_net(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
    w_qkvz: pl.Tensor[[HIDDEN, 4 * WIDE], pl.BF16],
    w_gates: pl.Tensor[[HIDDEN, 2 * GATES], pl.BF16],
    w_out: pl.Tensor[[WIDE, HIDDEN], pl.BF16],
    state: pl.InOut[pl.Tensor[[WIDE, DIM], pl.FP32]],
    y: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    qkvz = pl.create_tensor([TOKENS, 4 * WIDE], dtype=pl.FP32)
    qkvz = project(x, w_qkvz, qkvz)
    gates = pl.create_tensor([TOKENS, 2 * GATES], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="gates"):
        raw = pl.matmul(x[:, 0:DEEP], w_gates[0:DEEP, :], out_dtype=pl.FP32)
        for k in pl.pipeline(DEEP, HIDDEN, DEEP, stage=2):
            raw = pl.matmul_acc(raw, x[:, k : k + DEEP], w_gates[k : k + DEEP, :])
        gates = pl.assemble(gates, pl.recip(pl.add(pl.exp(pl.neg(raw)), 1.0)), [0, 0])

    heads = pl.create_tensor([TOKENS, WIDE], dtype=pl.BF16)
    for h in pl.spmd(HEADS, name_hint="delta_rule"):
        memory = state[h * DIM : (h + 1) * DIM, :]
        for t in pl.range(TOKENS):
            query = normalized(qkvz[t : t + 1, h * DIM : (h + 1) * DIM])
            key = normalized(qkvz[t : t + 1, WIDE + h * DIM : WIDE + (h + 1) * DIM])
            value = qkvz[t : t + 1, 2 * WIDE + h * DIM : 2 * WIDE + (h + 1) * DIM]
            fade, rate = pl.read(gates, [t, h]), pl.read(gates, [t, GATES + h])
            memory = pl.mul(memory, fade)
            column = pl.reshape(key, [DIM, 1])
            held = pl.col_sum(pl.row_expand_mul(memory, column))  # what it has for this key
            change = pl.mul(pl.sub(value, held), rate)
            memory = pl.add(memory, pl.row_expand_mul(pl.col_expand(memory, change), column))
            out = pl.col_sum(pl.row_expand_mul(memory, pl.reshape(query, [DIM, 1])))
            z = qkvz[t : t + 1, 3 * WIDE + h * DIM : 3 * WIDE + (h + 1) * DIM]
            gate = pl.mul(z, pl.recip(pl.add(pl.exp(pl.neg(z)), 1.0)))  # SiLU
            heads[t : t + 1, h * DIM : (h + 1) * DIM] = pl.cast(pl.mul(out, gate), pl.BF16, mode="rint")
        state[h * DIM : (h + 1) * DIM, :] = memory

    for n in pl.spmd(HIDDEN // COLUMNS, name_hint="out_proj"):
        acc = pl.matmul(heads[:, 0:DEEP], w_out[0:DEEP, n * COLUMNS : (n + 1) * COLUMNS], out_dtype=pl.FP32)
        for k in pl.pipeline(DEEP, WIDE, DEEP, stage=2):
            acc = pl.matmul_acc(acc, heads[:, k : k + DEEP], w_out[k : k + DEEP, n * COLUMNS : (n + 1) * COLUMNS])
        y = pl.assemble(y, acc, [0, n * COLUMNS])
    return y


def golden(tensors: dict) -> None:
    x, w, w_gates, w_out = (tensors[name].astype(np.float32) for name in ("x", "w_qkvz", "w_gates", "w_out"))
    q, k, v, z = ((x @ w).reshape(TOKENS, 4, HEADS, DIM)[:, n] for n in range(4))
    q, k = (part / np.sqrt((part * part).sum(-1, keepdims=True) + EPS) for part in (q, k))
    fade, rate = (1 / (1 + np.exp(-(x @ w_gates)))).reshape(TOKENS, 2, GATES)[:, :, :HEADS].transpose(1, 0, 2)
    memory = tensors["state"].reshape(HEADS, DIM, DIM).copy()
    heads = np.zeros((TOKENS, HEADS, DIM), np.float32)
    for t in range(TOKENS):
        memory *= fade[t, :, None, None]
        held = np.einsum("hkv,hk->hv", memory, k[t])
        memory += np.einsum("hk,hv->hkv", k[t], rate[t, :, None] * (v[t] - held))
        heads[t] = np.einsum("hkv,hk->hv", memory, q[t]) * z[t] / (1 + np.exp(-z[t]))
    tensors["state"][:] = memory.reshape(WIDE, DIM)
    rounded = heads.reshape(TOKENS, WIDE).astype(pl.BF16.storage).astype(np.float32)
    tensors["y"][:] = rounded @ w_out


def run() -> RunResult:
    def drawn(scale: float, *shape: int):
        return lambda rng: rng.normal(0, scale, shape)

    specs = [
        TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, init_value=drawn(1, TOKENS, HIDDEN)),
        TensorSpec("w_qkvz", [HIDDEN, 4 * WIDE], pl.BF16, init_value=drawn(HIDDEN**-0.5, HIDDEN, 4 * WIDE)),
        TensorSpec("w_gates", [HIDDEN, 2 * GATES], pl.BF16, init_value=drawn(HIDDEN**-0.5, HIDDEN, 2 * GATES)),
        TensorSpec("w_out", [WIDE, HIDDEN], pl.BF16, init_value=drawn(WIDE**-0.5, WIDE, HIDDEN)),
        TensorSpec("state", [WIDE, DIM], pl.FP32, init_value=drawn(0.1, WIDE, DIM), is_output=True),
        TensorSpec("y", [TOKENS, HIDDEN], pl.FP32, is_output=True),
    ]
    # fp32 on both sides but for the heads' BF16, where a sum in another order may round the other way: 2^-8 of a value
    return run_jit(fn=gated_delta_net, specs=specs, golden_fn=golden, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
