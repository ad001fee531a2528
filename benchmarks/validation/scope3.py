"""Scope 3 of a Qwen3 decode layer of spring 2026: output projection, norm, MLP, in many small tasks.

The form that the changes #90, #94, #185 and #275 were measured on: row-major weights, narrow N chunks, K loops without
double buffering (`pl.range`). What the reports leave open is taken from the tilelet as found (models/), cut into
tasks so that their number comes near the reported one.

    npuscope simulate benchmarks/validation/scope3.py -- --steps apart           before #90: every K step its own task
    npuscope simulate benchmarks/validation/scope3.py                            after #90, before #94
    npuscope simulate benchmarks/validation/scope3.py -- --together gate_up      after the first part of #94
    npuscope simulate benchmarks/validation/scope3.py -- --together down         after the second
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ROWS, N = 16, 64
SIZES = {"32b": (8192, 25600), "14b": (5120, 17408)}


def apart(hidden: int, inter: int, chunk: int):
    """Every step of every sum a task: product on the cube, sum on the vector cores, through GM."""
    N_BLOCKS, I_BLOCKS, K_BLOCKS = hidden // N, inter // N, hidden // chunk

    @pl.jit
    def scope3_apart(
        attn: pl.Tensor[[ROWS, hidden], pl.BF16],
        wo: pl.Tensor[[hidden, hidden], pl.BF16],
        w_gate: pl.Tensor[[hidden, inter], pl.BF16],
        w_up: pl.Tensor[[hidden, inter], pl.BF16],
        w_down: pl.Tensor[[inter, hidden], pl.BF16],
        out: pl.Out[pl.Tensor[[ROWS, hidden], pl.FP32]],
    ):
        mlp = pl.create_tensor([ROWS, inter], dtype=pl.BF16)
        normed = pl.create_tensor([ROWS, hidden], dtype=pl.BF16)
        first = pl.create_tensor([ROWS, hidden], dtype=pl.FP32)
        for block in pl.parallel(0, N_BLOCKS, 8):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="o_proj", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
                for i in pl.range(8):
                    n0 = (block + i) * N
                    acc = pl.full([ROWS, N], dtype=pl.FP32, value=0.0)
                    for step in pl.range(K_BLOCKS):
                        k0 = step * chunk
                        acc = pl.add(acc, pl.matmul(attn[:, k0 : k0 + chunk], wo[k0 : k0 + chunk, n0 : n0 + N]))
                    first[:, n0 : n0 + N] = acc
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
            for k in pl.range(K_BLOCKS):
                x = pl.cast(first[:, k * chunk : (k + 1) * chunk], target_type=pl.BF16)
                normed[:, k * chunk : (k + 1) * chunk] = x
        for block in pl.range(I_BLOCKS):
            n0 = block * N
            gate = pl.create_tensor([ROWS, N], dtype=pl.FP32)
            up = pl.create_tensor([ROWS, N], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
                gate[:, :] = pl.full([ROWS, N], dtype=pl.FP32, value=0.0)
                up[:, :] = pl.full([ROWS, N], dtype=pl.FP32, value=0.0)
            for step in pl.range(K_BLOCKS):
                k0 = step * chunk
                with pl.at(
                    level=pl.Level.CORE_GROUP, name_hint="gate_up", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]
                ):
                    x = normed[:, k0 : k0 + chunk]
                    gate[:, :] = pl.add(gate[:, :], pl.matmul(x, w_gate[k0 : k0 + chunk, n0 : n0 + N]))
                    up[:, :] = pl.add(up[:, :], pl.matmul(x, w_up[k0 : k0 + chunk, n0 : n0 + N]))
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="silu"):
                g = gate[:, :]
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(g)), 1.0))
                mlp[:, n0 : n0 + N] = pl.cast(pl.mul(pl.mul(g, sigmoid), up[:, :]), target_type=pl.BF16)
        for block in pl.parallel(0, K_BLOCKS):
            n0 = block * chunk
            down = pl.create_tensor([ROWS, chunk], dtype=pl.FP32)
            for part in pl.range(100):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="down", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
                    acc = pl.full([ROWS, chunk], dtype=pl.FP32, value=0.0)
                    for step in pl.range(I_BLOCKS // 100):
                        k0 = (part * (I_BLOCKS // 100) + step) * N
                        acc = pl.add(acc, pl.matmul(mlp[:, k0 : k0 + N], w_down[k0 : k0 + N, n0 : n0 + chunk]))
                    if part == 0:
                        down[:, :] = acc
                    else:
                        down[:, :] = pl.add(down[:, :], acc)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual"):
                out[:, n0 : n0 + chunk] = pl.add(down[:, :], pl.cast(attn[:, n0 : n0 + chunk], target_type=pl.FP32))
        return out

    return scope3_apart


def acc_tile(chunk: int, width: int, steps: int):
    """[ROWS, width] of a product, `steps` of `chunk` along K in the accumulator, one after the other."""

    @pl.jit.inline
    def tile(x: pl.Tensor, w: pl.Tensor, n0: pl.Scalar):
        acc = pl.matmul(x[:, 0:chunk], w[0:chunk, n0 : n0 + width], out_dtype=pl.FP32)
        for step in pl.range(1, steps):
            k0 = step * chunk
            acc = pl.matmul_acc(acc, x[:, k0 : k0 + chunk], w[k0 : k0 + chunk, n0 : n0 + width])
        return acc

    return tile


def kept(hidden: int, inter: int, chunk: int, out_chunk: int, together: str):
    """Sums stay in the accumulator. `together`: "" all apart, "gate_up" these in one region, "down" also down's sum."""
    N_BLOCKS, I_BLOCKS, K_BLOCKS = hidden // N, inter // N, hidden // chunk
    o_tile, mlp_tile = acc_tile(out_chunk, N, hidden // out_chunk), acc_tile(chunk, N, K_BLOCKS)
    down_tile = acc_tile(N, chunk, I_BLOCKS)
    BOTH, DOWN = together in ("gate_up", "down"), together == "down"

    @pl.jit
    def scope3(
        attn: pl.Tensor[[ROWS, hidden], pl.BF16],
        wo: pl.Tensor[[hidden, hidden], pl.BF16],
        w_gate: pl.Tensor[[hidden, inter], pl.BF16],
        w_up: pl.Tensor[[hidden, inter], pl.BF16],
        w_down: pl.Tensor[[inter, hidden], pl.BF16],
        out: pl.Out[pl.Tensor[[ROWS, hidden], pl.FP32]],
    ):
        mlp = pl.create_tensor([ROWS, inter], dtype=pl.BF16)
        normed = pl.create_tensor([ROWS, hidden], dtype=pl.BF16)
        first = pl.create_tensor([ROWS, hidden], dtype=pl.FP32)
        for block in pl.parallel(0, N_BLOCKS, 8):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="o_proj"):
                for i in pl.range(8):
                    n0 = (block + i) * N
                    first[:, n0 : n0 + N] = o_tile(attn, wo, n0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="post_norm"):
            squares = pl.full([1, ROWS], dtype=pl.FP32, value=0.0)
            for k in pl.range(K_BLOCKS):
                x = first[:, k * chunk : (k + 1) * chunk]
                squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(x, x)), [1, ROWS]))
            inverse = pl.reshape(pl.rsqrt(pl.add(pl.mul(squares, 1.0 / hidden), 1e-6)), [ROWS, 1])
            for k in pl.range(K_BLOCKS):
                x = pl.row_expand_mul(first[:, k * chunk : (k + 1) * chunk], inverse)
                normed[:, k * chunk : (k + 1) * chunk] = pl.cast(x, target_type=pl.BF16)
        for block in pl.parallel(I_BLOCKS):
            n0 = block * N
            gate = pl.create_tensor([ROWS, N], dtype=pl.FP32)
            up = pl.create_tensor([ROWS, N], dtype=pl.FP32)
            if BOTH:
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
                    x = normed[:, 0:chunk]
                    g_acc = pl.matmul(x, w_gate[0:chunk, n0 : n0 + N], out_dtype=pl.FP32)
                    u_acc = pl.matmul(x, w_up[0:chunk, n0 : n0 + N], out_dtype=pl.FP32)
                    for step in pl.range(1, K_BLOCKS):
                        k0 = step * chunk
                        x = normed[:, k0 : k0 + chunk]
                        g_acc = pl.matmul_acc(g_acc, x, w_gate[k0 : k0 + chunk, n0 : n0 + N])
                        u_acc = pl.matmul_acc(u_acc, x, w_up[k0 : k0 + chunk, n0 : n0 + N])
                    gate[:, :] = g_acc
                    up[:, :] = u_acc
            else:
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate"):
                    gate[:, :] = mlp_tile(normed, w_gate, n0)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="up"):
                    up[:, :] = mlp_tile(normed, w_up, n0)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="silu"):
                g = gate[:, :]
                sigmoid = pl.recip(pl.add(pl.exp(pl.neg(g)), 1.0))
                mlp[:, n0 : n0 + N] = pl.cast(pl.mul(pl.mul(g, sigmoid), up[:, :]), target_type=pl.BF16)
        for block in pl.parallel(K_BLOCKS):
            n0 = block * chunk
            if DOWN:
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="down_residual"):
                    out[:, n0 : n0 + chunk] = pl.add(down_tile(mlp, w_down, n0), first[:, n0 : n0 + chunk])
            else:
                down = pl.create_tensor([ROWS, chunk], dtype=pl.FP32)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="down"):
                    down[:, :] = down_tile(mlp, w_down, n0)
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual"):
                    out[:, n0 : n0 + chunk] = pl.add(down[:, :], first[:, n0 : n0 + chunk])
        return out

    return scope3


def main() -> None:
    parser = argparse.ArgumentParser(description="scope 3 of a Qwen3 decode layer in small tasks")
    parser.add_argument("--model", choices=SIZES, default="32b")
    parser.add_argument("--steps", choices=["apart", "kept"], default="kept", help="sums through GM, or on chip")
    parser.add_argument("--chunk", type=int, default=128, help="K_CHUNK: along K, and the columns of down")
    parser.add_argument("--out-chunk", type=int, help="along K of the output projection; as --chunk")
    parser.add_argument("--together", choices=["", "gate_up", "down"], default="")
    options = parser.parse_args()
    hidden, inter = SIZES[options.model]
    if options.steps == "apart":
        fn = apart(hidden, inter, options.chunk)
    else:
        fn = kept(hidden, inter, options.chunk, options.out_chunk or options.chunk, options.together)
    shapes = {"attn": [ROWS, hidden], "wo": [hidden, hidden], "w_gate": [hidden, inter], "w_up": [hidden, inter]}
    shapes["w_down"] = [inter, hidden]
    specs = [TensorSpec(name, shape, pl.BF16) for name, shape in shapes.items()]
    specs.append(TensorSpec("out", [ROWS, hidden], pl.FP32, is_output=True))
    raise SystemExit(run_jit(fn=fn, specs=specs).error)


if __name__ == "__main__":
    main()
