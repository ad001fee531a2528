"""Sizes of the layer, and the parts that both programs have: norm, router, experts; with their NumPy reference."""

import numpy as np

import npuscope.tile as pl

BATCH, HIDDEN = 16, 256
HEADS, LATENT, ROPE = 16, 128, 32
WIDE = LATENT + ROPE  # of a query, and of a row of the cache
CONTEXT, PAGE = 256, 64
EXPERTS, INNER, SLOTS = 8, 128, 16  # SLOTS: columns of the router, of which the first are experts
EPS = 1e-6
CORE = pl.Level.CORE_GROUP
BF16 = pl.BF16.storage


@pl.jit.inline
def rms_norm(x, gamma, y, rows):
    """y = x / rms(x) · gamma, in BF16, 16 rows a block."""
    for block in pl.spmd(rows // 16, name_hint="rms_norm"):
        tile = x[block * 16 : block * 16 + 16, :]
        scale = pl.rsqrt(pl.add(pl.mul(pl.row_sum(pl.mul(tile, tile)), 1.0 / HIDDEN), EPS))
        y[block * 16 : block * 16 + 16, :] = pl.cast(
            pl.col_expand_mul(pl.row_expand_mul(tile, scale), gamma), pl.BF16, mode="rint"
        )
    return y


@pl.jit.inline
def route(x, w_router, gates, counts):
    """The two best experts of each token: their shares, which add up to 1, and how many tokens each expert has."""
    with pl.at(level=CORE, name_hint="route"):
        logits = pl.set_validshape(pl.matmul(x, w_router, out_dtype=pl.FP32), BATCH, EXPERTS)
        logits = pl.fillpad(logits, pad_value=pl.PadValue.min)
        shares = pl.exp(pl.row_expand_sub(logits, pl.row_max(logits)))
        best = pl.row_max(shares)
        first = pl.cmp(shares, pl.row_expand(shares, best), cmp_type=0)
        rest = pl.mul(shares, pl.sub(1.0, first))
        next_best = pl.row_max(rest)
        second = pl.cmp(rest, pl.row_expand(rest, next_best), cmp_type=0)
        chosen = pl.add(pl.mul(shares, first), pl.mul(rest, second))
        gates = pl.assemble(gates, pl.row_expand_div(chosen, pl.add(best, next_best)), [0, 0])
        counts = pl.assemble(counts, pl.cast(pl.col_sum(pl.add(first, second)), pl.INT32, mode="rint"), [0, 0])
    return gates, counts


@pl.jit.inline
def expert(x, gate, w_gate_up, w_down, e, local):
    """What one expert makes of 16 tokens, weighed by its share of each; zero for those that did not choose it."""
    weights = w_gate_up[local * HIDDEN : (local + 1) * HIDDEN, :]
    both = pl.matmul(x, weights, out_dtype=pl.FP32)
    left, right = both[:, 0:INNER], both[:, INNER : 2 * INNER]
    silu = pl.mul(left, pl.recip(pl.add(pl.exp(pl.neg(left)), 1.0)))
    hidden = pl.cast(pl.mul(silu, right), pl.BF16, mode="rint")
    out = pl.matmul(hidden, w_down[local * INNER : (local + 1) * INNER, :], out_dtype=pl.FP32)
    return pl.row_expand_mul(out, gate)


# --- the reference


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(BF16).astype(np.float32)


def norm(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return rounded(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPS) * gamma)


def shares_of(x: np.ndarray, w_router: np.ndarray) -> np.ndarray:
    """[tokens, experts]; two of a row are not 0 and add up to 1."""
    logits = (x @ w_router)[:, :EXPERTS]
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    keep = np.argsort(-weights, axis=1, kind="stable")[:, :2]
    found = np.zeros_like(weights)
    np.put_along_axis(found, keep, np.take_along_axis(weights, keep, axis=1), axis=1)
    return found / found.sum(axis=1, keepdims=True)


def moe(x: np.ndarray, w_router: np.ndarray, w_gate_up: np.ndarray, w_down: np.ndarray) -> np.ndarray:
    """All experts of all tokens, weighed."""
    shares, out = shares_of(x, w_router), np.zeros((len(x), HIDDEN), np.float32)
    for e in range(EXPERTS):
        both = x @ w_gate_up[e * HIDDEN : (e + 1) * HIDDEN]
        left, right = both[:, :INNER], both[:, INNER:]
        hidden = rounded(left / (1 + np.exp(-left)) * right)
        out += shares[:, e : e + 1] * (hidden @ w_down[e * INNER : (e + 1) * INNER])
    return out


def drawn(scale: float, *shape: int):
    """Normal numbers for a spec."""
    return lambda rng: rng.normal(0, scale, shape)
