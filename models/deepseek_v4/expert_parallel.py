"""The experts of the layer over several cards: each rank has its own tokens and half of the experts.

Tokens and their shares are gathered to every rank, each rank runs the experts that it has over all of them, and a
reduce-scatter adds up what came of each token and gives it back to its rank. So weights are loaded by one rank alone,
and tokens travel twice: the trade of expert parallelism. Attention is as on one card (`layer.py`), each rank for its
tokens.
"""

from types import SimpleNamespace

import numpy as np
from npuscope.models.deepseek_v4.parts import (
    BATCH,
    CORE,
    EXPERTS,
    HIDDEN,
    INNER,
    SLOTS,
    drawn,
    expert,
    moe,
    norm,
    rms_norm,
    route,
)

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
import npuscope.tile.distributed as pld
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

RANKS = 2
MINE = EXPERTS // RANKS
TOKENS = RANKS * BATCH


@pl.jit
def choose(
    x: pl.Tensor[[BATCH, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    w_router: pl.Tensor[[HIDDEN, SLOTS], pl.BF16],
    sent: pl.InOut[pld.DistributedTensor[[BATCH, HIDDEN], pl.BF16]],
    gates: pl.InOut[pld.DistributedTensor[[BATCH, SLOTS], pl.FP32]],
):
    """A rank's tokens, ready to be sent, and where they want to go."""
    sent = rms_norm(x, gamma, sent, BATCH)
    route(sent, w_router, gates, pl.create_tensor([1, SLOTS], dtype=pl.INT32))


@pl.jit
def compute(
    tokens: pld.DistributedTensor[[TOKENS, HIDDEN], pl.BF16],
    gates: pld.DistributedTensor[[TOKENS, SLOTS], pl.FP32],
    w_gate_up: pl.Tensor[[MINE * HIDDEN, 2 * INNER], pl.BF16],
    w_down: pl.Tensor[[MINE * INNER, HIDDEN], pl.BF16],
    out: pl.InOut[pld.DistributedTensor[[TOKENS, HIDDEN], pl.FP32]],
    rank: pl.Scalar[pl.INT32],
):
    """The experts of a rank over everybody's tokens, 16 rows a block."""
    for block in pl.spmd(RANKS, name_hint="experts"):
        row = block * BATCH
        rows = tokens[row : row + BATCH, :]
        total = pl.full([BATCH, HIDDEN], dtype=pl.FP32, value=0.0)
        for local in pl.range(MINE):
            column = rank * MINE + local
            gate = gates[row : row + BATCH, column : column + 1]
            total = pl.add(total, expert(rows, gate, w_gate_up, w_down, column, local))
        out = pl.assemble(out, total, [row, 0])


@pl.jit
def finish(
    x: pl.Tensor[[BATCH, HIDDEN], pl.FP32],
    added: pld.DistributedTensor[[TOKENS, HIDDEN], pl.FP32],
    y: pl.Out[pl.Tensor[[BATCH, HIDDEN], pl.FP32]],
    rank: pl.Scalar[pl.INT32],
):
    with pl.at(level=CORE, name_hint="residual"):
        y[:, :] = pl.add(x, added[rank * BATCH : (rank + 1) * BATCH, :])


@pl.jit.host
def expert_parallel(
    x: pl.Tensor[[RANKS, BATCH, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    w_router: pl.Tensor[[HIDDEN, SLOTS], pl.BF16],
    w_gate_up: pl.Tensor[[RANKS, MINE * HIDDEN, 2 * INNER], pl.BF16],
    w_down: pl.Tensor[[RANKS, MINE * INNER, HIDDEN], pl.BF16],
    y: pl.Out[pl.Tensor[[RANKS, BATCH, HIDDEN], pl.FP32]],
):
    sent = pld.window(pld.alloc_window_buffer(BATCH * HIDDEN * 2), [BATCH, HIDDEN], dtype=pl.BF16)
    tokens = pld.window(pld.alloc_window_buffer(TOKENS * HIDDEN * 2), [TOKENS, HIDDEN], dtype=pl.BF16)
    chosen = pld.window(pld.alloc_window_buffer(BATCH * SLOTS * 4), [BATCH, SLOTS], dtype=pl.FP32)
    gates = pld.window(pld.alloc_window_buffer(TOKENS * SLOTS * 4), [TOKENS, SLOTS], dtype=pl.FP32)
    out = pld.window(pld.alloc_window_buffer(TOKENS * HIDDEN * 4), [TOKENS, HIDDEN], dtype=pl.FP32)
    first = pld.window(pld.alloc_window_buffer(RANKS * 4), [RANKS], dtype=pl.INT32)
    second = pld.window(pld.alloc_window_buffer(RANKS * 4), [RANKS], dtype=pl.INT32)
    third = pld.window(pld.alloc_window_buffer(RANKS * 4), [RANKS], dtype=pl.INT32)
    for r in pl.range(pld.world_size()):
        choose(x[r], gamma, w_router, sent, chosen, device=r)
    tokens = pld.tensor.allgather(sent, tokens, first)
    gates = pld.tensor.allgather(chosen, gates, second)
    for r in pl.range(pld.world_size()):
        compute(tokens, gates, w_gate_up[r], w_down[r], out, r, device=r)
    out = pld.tensor.reduce_scatter(out, third)
    for r in pl.range(pld.world_size()):
        finish(x[r], out, y[r], r, device=r)
    return y


def golden(tensors: dict) -> None:
    w_router, w_gate_up, w_down = (tensors[n].astype(np.float32) for n in ("w_router", "w_gate_up", "w_down"))
    x = tensors["x"].reshape(TOKENS, HIDDEN)
    added = moe(norm(x, tensors["gamma"]), w_router, w_gate_up.reshape(-1, 2 * INNER), w_down.reshape(-1, HIDDEN))
    tensors["y"][:] = (x + added).reshape(RANKS, BATCH, HIDDEN)


def run() -> RunResult:
    wide, deep = (RANKS, MINE * HIDDEN, 2 * INNER), (RANKS, MINE * INNER, HIDDEN)
    specs = [
        TensorSpec("x", [RANKS, BATCH, HIDDEN], pl.FP32, init_value=drawn(1, RANKS, BATCH, HIDDEN)),
        TensorSpec("gamma", [1, HIDDEN], pl.FP32, init_value=1.0),
        TensorSpec("w_router", [HIDDEN, SLOTS], pl.BF16, init_value=drawn(HIDDEN**-0.5, HIDDEN, SLOTS)),
        TensorSpec("w_gate_up", list(wide), pl.BF16, init_value=drawn(0.06, *wide)),
        TensorSpec("w_down", list(deep), pl.BF16, init_value=drawn(0.06, *deep)),
        TensorSpec("y", [RANKS, BATCH, HIDDEN], pl.FP32, is_output=True),
    ]
    ranks = {"distributed_config": SimpleNamespace(device_ids=list(range(RANKS)))}
    # sums of experts in another order; a hidden value may round to the next BF16
    return run_jit(fn=expert_parallel, specs=specs, golden_fn=golden, compile_cfg=ranks, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
