"""Qwen3-14B A8W8 decode layer: INT8 activations and weights, and the experiments of its tracking issue as flags.

    python models/qwen3_14b/decode_layer_a8w8.py --max-seq 512
    QWEN_A8W8_DUAL_GATE_UP_PROJ=1 npuscope run models/qwen3_14b/decode_layer_a8w8.py -- --max-seq 512
    npuscope graph models/qwen3_14b/decode_layer_a8w8.py -- --fused-qkv-dequant --spmd

flags.py names the flags; each is an option and an environment variable. Batch, sizes and storage as in decode_layer.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: the package is the folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, ratio_allclose, run_jit
from qwen3_14b import decode_layer, flags, golden, golden_a8w8, weights
from qwen3_14b.config import ROWS, Qwen3
from qwen3_14b.flags import Flags
from qwen3_14b.layer_a8w8 import make_layer
from qwen3_14b.parts import store_type

RING_HEAP = 1 << 30  # partial sums of 4096 tokens take 256 MiB of every layer, which is all a ring has by default


def make_program(model: Qwen3, chosen: Flags = Flags()) -> Any:
    """All layers of the model, from hidden states to hidden states."""
    layer_of = make_layer(model, chosen)
    STORE = store_type(model)
    HIDDEN, LAYERS, WINDOWS, SEQ_PAGES = model.hidden, model.layers, model.windows, model.seq_pages

    @pl.jit
    def decode_layers_a8w8(
        hidden: pl.Tensor, input_rms_weight: pl.Tensor, wq: pl.Tensor, wk: pl.Tensor, wv: pl.Tensor,
        q_norm_weight: pl.Tensor, k_norm_weight: pl.Tensor, wo: pl.Tensor, post_rms_weight: pl.Tensor,
        w_gate: pl.Tensor, w_up: pl.Tensor, w_down: pl.Tensor, wq_scale: pl.Tensor, wk_scale: pl.Tensor,
        wv_scale: pl.Tensor, wo_scale: pl.Tensor, w_gate_scale: pl.Tensor, w_up_scale: pl.Tensor, seq_lens: pl.Tensor,
        block_table: pl.Tensor, slot_mapping: pl.Tensor, rope_cos: pl.Tensor, rope_sin: pl.Tensor,
        k_cache: pl.InOut[pl.Tensor], v_cache: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor],
    ):  # fmt: skip
        for window in pl.unroll(WINDOWS):
            first = window * ROWS
            window_lens = pl.slice(seq_lens, [ROWS], [first])
            window_table = pl.slice(block_table, [ROWS * SEQ_PAGES], [first * SEQ_PAGES])
            window_slots = pl.slice(slot_mapping, [ROWS], [first])
            current = pl.slice(hidden, [ROWS, HIDDEN], [first, 0])
            for layer in pl.range(LAYERS - 1):
                following = pl.create_tensor([ROWS, HIDDEN], dtype=STORE)
                current = layer_of(
                    current, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo, post_rms_weight, w_gate,
                    w_up, w_down, wq_scale, wk_scale, wv_scale, wo_scale, w_gate_scale, w_up_scale, window_lens,
                    window_table, window_slots, rope_cos, rope_sin, k_cache, v_cache, following, layer,
                )  # fmt: skip
            window_out = pl.slice(out, [ROWS, HIDDEN], [first, 0])
            window_out = layer_of(
                current, input_rms_weight, wq, wk, wv, q_norm_weight, k_norm_weight, wo, post_rms_weight, w_gate, w_up,
                w_down, wq_scale, wk_scale, wv_scale, wo_scale, w_gate_scale, w_up_scale, window_lens, window_table,
                window_slots, rope_cos, rope_sin, k_cache, v_cache, window_out, LAYERS - 1,
            )  # fmt: skip
        return out

    return decode_layers_a8w8


def weight_specs(model: Qwen3, seed: int) -> list[TensorSpec]:
    """A layer's weights in the programs' order: the projections in INT8, then their scales."""
    shapes, INT8 = weights.shapes(model), golden_a8w8.INT8
    whole = {
        name: TensorSpec(name, shapes[name], pl.INT8, init_value=lambda name=name: weights.draw_int8(name, model, seed))
        for name in INT8
    }
    others = {spec.name: spec for spec in decode_layer.weight_specs(model, decode_layer.LAYER_WEIGHTS, seed)}
    scales = [
        TensorSpec(
            f"{name}_scale", [model.layers, shapes[name][1]], pl.FP32,
            init_value=lambda name=name: weights.int8_scales(name, model, seed),
        )
        for name in INT8
    ]  # fmt: skip
    return [*(whole.get(name, others[name]) for name in decode_layer.LAYER_WEIGHTS), *scales]


def specs(model: Qwen3, seed: int = 0) -> list[TensorSpec]:
    shape, STORE = [model.rows, model.hidden], store_type(model)

    def hidden() -> Any:
        return weights.normal("hidden", shape[0] * shape[1], seed, 0.0, 1.0).reshape(shape)

    return [
        TensorSpec("hidden", shape, STORE, init_value=hidden),
        *weight_specs(model, seed),
        *decode_layer.row_specs(model, seed),
        TensorSpec("out", shape, STORE, is_output=True),
    ]


def make_golden(model: Qwen3) -> Any:
    def fill(tensors: dict[str, Any]) -> None:
        hidden = golden.widen(tensors["hidden"])
        with golden.one_thread():
            for layer in range(model.layers):
                of_layer = slice(layer * model.cache_rows, (layer + 1) * model.cache_rows)
                caches = tensors["k_cache"][of_layer], tensors["v_cache"][of_layer]
                hidden = golden_a8w8.layer(model, tensors, layer, golden.rows_of(tensors), hidden, *caches)
        tensors["out"][:] = hidden.astype(tensors["out"].dtype)

    return fill


def tolerances(model: Qwen3, names: tuple[str, ...] = ("out",)) -> dict[str, Any]:
    """Integer sums are exact. What differs is the order of fp32 sums before a rounding.

    One flip of a quantised activation is 1/127 of its row's largest, so the rare outlier may be larger than in BF16.
    """
    bound, share = (2e-4, 0.005) if model.storage == "fp32" else (2e-2, 0.005 * 4 ** (model.layers - 1))
    close = ratio_allclose(atol=bound, rtol=bound, max_error_ratio=min(share, 0.05))
    written = decode_layer.written_rows(model, close)
    return {**dict.fromkeys(names, close), "k_cache": written, "v_cache": written}


def main() -> None:
    parser = argparse.ArgumentParser(description="Qwen3-14B decode layer, A8W8")
    decode_layer.arguments(parser)
    flags.arguments(parser)
    options = parser.parse_args()
    model = decode_layer.chosen(options)
    result = run_jit(
        fn=make_program(model, flags.chosen(options)),
        specs=specs(model, options.seed),
        golden_fn=make_golden(model),
        compare_fn=tolerances(model),
        runtime_cfg={"ring_heap": RING_HEAP},
    )
    print(result)
    raise SystemExit(0 if result.passed else 1)


if __name__ == "__main__":
    main()
