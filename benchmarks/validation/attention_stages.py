"""Attention of one decode step in four tasks per (row, KV head), each a loop over the context in tiles (#185).

QK, softmax, SV and online_softmax hand everything on through GM. Eight query heads per KV head, padded to 16 rows.

    npuscope simulate benchmarks/validation/attention_stages.py -- --tile 256
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ITEMS, ROWS, HEADS, DIM, CONTEXT = 32, 16, 8, 128, 4096  # items: a quarter of 16 rows x 8 KV heads


def program(tile: int):
    STEPS = CONTEXT // tile

    @pl.jit
    def attention_stages(
        q: pl.Tensor[[ITEMS * ROWS, DIM], pl.BF16],
        k_cache: pl.Tensor[[ITEMS * CONTEXT, DIM], pl.BF16],
        v_cache: pl.Tensor[[ITEMS * CONTEXT, DIM], pl.BF16],
        out: pl.Out[pl.Tensor[[ITEMS * HEADS, DIM], pl.FP32]],
    ):
        for item in pl.parallel(ITEMS):
            scores = pl.create_tensor([STEPS * ROWS, tile], dtype=pl.FP32)
            weights = pl.create_tensor([STEPS * ROWS, tile], dtype=pl.BF16)
            peaks = pl.create_tensor([STEPS * HEADS, 1], dtype=pl.FP32)
            sums = pl.create_tensor([STEPS * HEADS, 1], dtype=pl.FP32)
            parts = pl.create_tensor([STEPS * ROWS, DIM], dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="qk"):
                query = q[item * ROWS : (item + 1) * ROWS, :]
                for s in pl.range(STEPS):
                    row = item * CONTEXT + s * tile
                    scores[s * ROWS : (s + 1) * ROWS, :] = pl.matmul(
                        query, k_cache[row : row + tile, :], b_trans=True, out_dtype=pl.FP32
                    )
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
                for s in pl.range(STEPS):
                    x = pl.mul(scores[s * ROWS : s * ROWS + HEADS, :], 0.088)
                    peak = pl.row_max(x)
                    e = pl.cast(pl.exp(pl.row_expand_sub(x, peak)), target_type=pl.BF16)
                    weights[s * ROWS : s * ROWS + HEADS, :] = e
                    peaks[s * HEADS : (s + 1) * HEADS, :] = peak
                    sums[s * HEADS : (s + 1) * HEADS, :] = pl.row_sum(pl.cast(e, target_type=pl.FP32))
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="sv"):
                for s in pl.range(STEPS):
                    row = item * CONTEXT + s * tile
                    parts[s * ROWS : (s + 1) * ROWS, :] = pl.matmul(
                        weights[s * ROWS : (s + 1) * ROWS, :], v_cache[row : row + tile, :], out_dtype=pl.FP32
                    )
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="online_softmax"):
                acc = parts[0:HEADS, :]
                peak = peaks[0:HEADS, :]
                total = sums[0:HEADS, :]
                for s in pl.range(1, STEPS):
                    part = parts[s * ROWS : s * ROWS + HEADS, :]
                    part_peak = peaks[s * HEADS : (s + 1) * HEADS, :]
                    part_sum = sums[s * HEADS : (s + 1) * HEADS, :]
                    new_peak = pl.maximum(peak, part_peak)
                    keep = pl.exp(pl.sub(peak, new_peak))
                    take = pl.exp(pl.sub(part_peak, new_peak))
                    total = pl.add(pl.mul(keep, total), pl.mul(take, part_sum))
                    acc = pl.add(pl.row_expand_mul(acc, keep), pl.row_expand_mul(part, take))
                    peak = new_peak
                out[item * HEADS : (item + 1) * HEADS, :] = pl.row_expand_div(acc, total)
        return out

    return attention_stages


def main() -> None:
    parser = argparse.ArgumentParser(description="attention in four tasks per item")
    parser.add_argument("--tile", type=int, default=64, help="SEQ_TILE")
    tile = parser.parse_args().tile
    cache = [ITEMS * CONTEXT, DIM]
    specs = [TensorSpec("q", [ITEMS * ROWS, DIM], pl.BF16)]
    specs += [TensorSpec(name, cache, pl.BF16) for name in ("k_cache", "v_cache")]
    specs.append(TensorSpec("out", [ITEMS * HEADS, DIM], pl.FP32, is_output=True))
    raise SystemExit(run_jit(fn=program(tile), specs=specs).error)


if __name__ == "__main__":
    main()
