"""Qwen3-14B decode layer, BF16, batch 16, varied sequence lengths: run it, compare it with NumPy.

    python models/qwen3_14b/decode_layer.py --max-seq 4096
    npuscope run models/qwen3_14b/decode_layer.py -- --max-seq 512 --batch 5 --layers 2

24 kernels and 419 tasks per layer (layer.py). --small runs the same code at test size, --storage fp32 without rounding.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the package is the folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, ratio_allclose, run_jit
from qwen3_14b import batch, golden, weights
from qwen3_14b.config import PAGE, QWEN3_14B, ROWS, SMALL, Qwen3, sized
from qwen3_14b.layer import make_layer
from qwen3_14b.parts import store_type

LAYER_WEIGHTS = (
    "input_rms_weight", "wq", "wk", "wv", "q_norm_weight", "k_norm_weight", "wo", "post_rms_weight", "w_gate", "w_up",
    "w_down",
)  # fmt: skip


def make_program(model: Qwen3) -> Any:
    """All layers of the model, from (hidden, hidden * gamma) to the same after the last layer."""
    decode_layer = make_layer(model)
    STORE = store_type(model)
    HIDDEN, LAYERS, SLABS, SEQ_PAGES = model.hidden, model.layers, model.hidden // model.tiles.slab, model.seq_pages
    WINDOWS = model.windows

    @pl.jit
    def decode_layers(
        hidden: pl.Tensor, normed: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor, wv: pl.Tensor,
        q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, seq_lens: pl.Tensor, block_table: pl.Tensor,
        slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor, k_cache: pl.InOut[pl.Tensor],
        v_cache: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor], normed_out: pl.Out[pl.Tensor],
    ):  # fmt: skip
        for window in pl.unroll(WINDOWS):
            first = window * ROWS
            hidden_tids = pl.array.create(SLABS, pl.TASK_ID)
            normed_tids = pl.array.create(SLABS, pl.TASK_ID)
            window_lens = pl.slice(seq_lens, [ROWS], [first])
            window_table = pl.slice(block_table, [ROWS * SEQ_PAGES], [first * SEQ_PAGES])
            window_slots = pl.slice(slot_mapping, [ROWS], [first])
            current = pl.slice(hidden, [ROWS, HIDDEN], [first, 0])
            current_normed = pl.slice(normed, [ROWS, HIDDEN], [first, 0])
            for layer in pl.range(LAYERS - 1):
                following = pl.create_tensor([ROWS, HIDDEN], dtype=pl.FP32)
                following_normed = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
                current = decode_layer(
                    current, current_normed, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo,
                    post_rms_weight, w_gate, w_up, w_down, window_lens, window_table, window_slots, rope_cos, rope_sin,
                    k_cache, v_cache, following, following_normed, layer, layer + 1, hidden_tids, normed_tids,
                )  # fmt: skip
                current_normed = following_normed
            window_out = pl.slice(out, [ROWS, HIDDEN], [first, 0])
            window_normed_out = pl.slice(normed_out, [ROWS, HIDDEN], [first, 0])
            window_out = decode_layer(
                current, current_normed, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo,
                post_rms_weight, w_gate, w_up, w_down, window_lens, window_table, window_slots, rope_cos, rope_sin,
                k_cache, v_cache, window_out, window_normed_out, LAYERS - 1, LAYERS - 1, hidden_tids, normed_tids,
            )  # fmt: skip
        return out

    return decode_layers


def weight_specs(model: Qwen3, names: tuple[str, ...], seed: int) -> list[TensorSpec]:
    STORE = store_type(model)
    shapes = weights.shapes(model)
    return [
        TensorSpec(
            name, shapes[name], pl.FP32 if weights.is_norm(name) else STORE,
            init_value=lambda name=name: weights.draw(name, model, seed),
        )
        for name in names
    ]  # fmt: skip


def row_specs(model: Qwen3, seed: int) -> list[TensorSpec]:
    """What the step is told of its rows, and the KV cache: tokens before this one are random."""
    STORE = store_type(model)
    lengths, table = batch.lengths_of(model, seed), batch.block_table(model, seed)
    cos, sin = batch.rope_tables(model)
    cache = [model.layers * model.cache_rows, model.head_dim]

    def tokens(name: str) -> Any:
        return weights.normal(name, cache[0] * cache[1], seed, 0.0, 1.0).reshape(cache)

    return [
        TensorSpec("seq_lens", [model.rows], pl.INT32, init_value=lengths),
        TensorSpec("block_table", [model.pages], pl.INT32, init_value=table),
        TensorSpec("slot_mapping", [model.rows], pl.INT32, init_value=batch.slot_mapping(model, table, lengths)),
        TensorSpec("rope_cos", [model.max_seq, model.head_dim], pl.FP32, init_value=cos),
        TensorSpec("rope_sin", [model.max_seq, model.head_dim], pl.FP32, init_value=sin),
        TensorSpec("k_cache", cache, STORE, init_value=lambda: tokens("k_cache"), is_output=True),
        TensorSpec("v_cache", cache, STORE, init_value=lambda: tokens("v_cache"), is_output=True),
    ]


def specs(model: Qwen3, seed: int = 0) -> list[TensorSpec]:
    shape = [model.rows, model.hidden]

    def hidden() -> Any:
        return weights.normal("hidden", shape[0] * shape[1], seed, 0.0, 1.0).reshape(shape).astype(np.float32)

    def normed() -> Any:
        return golden.to_bf16(hidden() * weights.draw("input_rms_weight", model, seed)[:1])

    STORE = store_type(model)
    return [
        TensorSpec("hidden", shape, pl.FP32, init_value=hidden),
        TensorSpec("normed", shape, STORE, init_value=normed),
        *weight_specs(model, LAYER_WEIGHTS, seed),
        *row_specs(model, seed),
        TensorSpec("out", shape, pl.FP32, is_output=True),
        TensorSpec("normed_out", shape, STORE, is_output=True),
    ]


def make_golden(model: Qwen3) -> Any:
    def fill(tensors: dict[str, Any]) -> None:
        hidden, normed = tensors["hidden"], golden.widen(tensors["normed"])
        with golden.one_thread():
            for layer in range(model.layers):
                of_layer = slice(layer * model.cache_rows, (layer + 1) * model.cache_rows)
                caches = tensors["k_cache"][of_layer], tensors["v_cache"][of_layer]
                hidden, normed = golden.layer(model, tensors, layer, golden.rows_of(tensors), hidden, normed, *caches)
        tensors["out"][:], tensors["normed_out"][:] = hidden, normed.astype(tensors["normed_out"].dtype)

    return fill


def tolerances(model: Qwen3, names: tuple[str, ...] = ("out", "normed_out")) -> dict[str, Any]:
    """BF16: sums of another order flip roundings; one flip of an activation is 2^-9 of it.

    A few elements in a thousand then differ by a BF16 step of the sums they enter, more of them the more layers there
    are. FP32: only the order of sums differs.
    """
    bound, share = (2e-4, 0.0) if model.storage == "fp32" else (1e-2, 0.002 * 4 ** (model.layers - 1))
    close = ratio_allclose(atol=bound, rtol=bound, max_error_ratio=min(share, 0.05))
    return {**dict.fromkeys(names, close), **dict.fromkeys(("k_cache", "v_cache"), written_rows(model, close))}


def written_rows(model: Qwen3, close: Any) -> Any:
    """Compares the rows of a cache that the step wrote, and sees that it wrote no others (of 524,288)."""

    def compare(actual: Any, expected: Any, *, inputs: dict[str, Any], **others: Any) -> tuple[bool, str]:
        live = np.flatnonzero(inputs["seq_lens"])
        page, offset = np.divmod(inputs["slot_mapping"][live], PAGE)
        paged = (model.layers, model.pages, model.kv_heads, PAGE, model.head_dim)
        mine, golds = (cache.reshape(paged)[:, page, :, offset] for cache in (actual, expected))
        ok, message = close(mine, golds, inputs=inputs, **others)
        if ok:  # with these rows put into the golden, nothing may differ
            expected.reshape(paged)[:, page, :, offset] = mine
            bits = np.dtype(f"u{actual.itemsize}")
            ok = np.array_equal(actual.view(bits), expected.view(bits))
            expected.reshape(paged)[:, page, :, offset] = golds
            message = "" if ok else "    rows that no token of this step belongs to were written"
        return ok, message

    compare.__name__ = "written_rows"
    return compare


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-seq", type=int, help="longest sequence, a multiple of 128 (4096; small: 384)")
    parser.add_argument("--context", type=int, help="tokens of every row, the new one included (varied lengths)")
    parser.add_argument("--batch", type=int, help="rows that take part; over 16 run in windows of 16 (16; small: 4)")
    parser.add_argument("--layers", type=int, help="layers (1)")
    parser.add_argument("--storage", choices=["bf16", "fp32"], help="what weights and activations are kept in (bf16)")
    parser.add_argument("--small", action="store_true", help="the small model of the tests")
    parser.add_argument("--seed", type=int, default=0)


def chosen(options: argparse.Namespace, layers: int | None = 1) -> Qwen3:
    """The model that the command line asks for."""
    layers = layers if options.layers is None else options.layers
    model, longest = SMALL if options.small else QWEN3_14B, options.max_seq
    if longest is None and options.context is not None:  # as long as the context needs
        longest = max(model.max_seq, -(-options.context // PAGE) * PAGE)
    asked = {name: getattr(options, name) for name in ("batch", "context", "storage")}
    try:
        return sized(model, max_seq=longest, layers=layers, **asked)
    except ValueError as error:
        raise SystemExit(str(error)) from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Qwen3-14B decode layer, BF16")
    arguments(parser)
    options = parser.parse_args()
    model = chosen(options)
    result = run_jit(
        fn=make_program(model),
        specs=specs(model, options.seed),
        golden_fn=make_golden(model),
        compare_fn=tolerances(model),
    )
    print(result)
    raise SystemExit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
