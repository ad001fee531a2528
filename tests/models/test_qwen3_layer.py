"""The Qwen3-14B decode layer: right at small size, of the published structure at full size."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from command import npuscope
from qwen3 import recorded, waits
from qwen3_14b import decode, decode_layer, golden, weights
from qwen3_14b.config import QWEN3_14B, SMALL, Qwen3, sized
from tile_programs import MODELS, counts

from npuscope.tile.golden import run_jit
from npuscope.tile.record.summary import summarise

# facts/qwen3_decode.md §2: kernel → tasks, blocks, core
LAYER = {
    "rms_recip": (1, 1, "AIV"),
    "q_seed": (1, 1, "AIV"),
    "q_proj": (50, 50, "AIC"),  # 10 N tiles of 512, 5 K splits
    "k_seed": (1, 1, "AIV"),
    "k_proj": (10, 10, "AIC"),
    "v_seed": (1, 1, "AIV"),
    "v_proj": (10, 10, "AIC"),
    "fa_work_build": (1, 1, "AIV"),
    "qk_norm": (8, 8, "AIV"),
    "rope_qkv": (1, 32, "AIV"),
    "down_seed": (1, 1, "AIV"),
    "gate_seed": (1, 1, "AIV"),
    "up_seed": (1, 1, "AIV"),
    "fa_fused": (1, 24, "MIX"),
    "online_softmax": (1, 48, "AIV"),
    "out_seed": (1, 1, "AIV"),
    "out_proj": (50, 50, "AIC"),
    "residual_rms_cast": (5, 5, "AIV"),
    "post_rms_reduce": (1, 1, "AIV"),
    "gate_proj": (85, 85, "AIC"),
    "up_proj": (85, 85, "AIC"),
    "silu": (17, 17, "AIV"),
    "down_proj": (85, 85, "AIC"),
    "dcr_xgamma": (1, 5, "AIV"),
}
# the last column of that table, in tasks; the previous layer's dcr_xgamma is one task
WAITS = {
    "rms_recip": {"dcr_xgamma": 1},
    "q_seed": {},
    "q_proj": {"dcr_xgamma": 1, "q_seed": 1},
    "k_seed": {"dcr_xgamma": 1},
    "k_proj": {"dcr_xgamma": 1, "k_seed": 1},
    "v_seed": {"dcr_xgamma": 1},
    "v_proj": {"dcr_xgamma": 1, "v_seed": 1},
    "fa_work_build": {},
    "qk_norm": {"k_proj": 5, "q_proj": 10, "rms_recip": 1},
    "rope_qkv": {"qk_norm": 8, "rms_recip": 1, "v_proj": 10},
    "down_seed": {"dcr_xgamma": 1},
    "gate_seed": {"dcr_xgamma": 1},
    "up_seed": {"dcr_xgamma": 1},
    "fa_fused": {"fa_work_build": 1, "rope_qkv": 1},
    "online_softmax": {"fa_fused": 1},
    "out_seed": {"dcr_xgamma": 1},
    "out_proj": {"online_softmax": 1, "out_seed": 1},
    "residual_rms_cast": {"out_proj": 10},
    "post_rms_reduce": {"out_proj": 50},
    "gate_proj": {"gate_seed": 1, "residual_rms_cast": 1},
    "up_proj": {"residual_rms_cast": 1, "up_seed": 1},
    "silu": {"gate_proj": 5, "post_rms_reduce": 1, "up_proj": 5},
    "down_proj": {"down_seed": 1, "silu": 1},
    "dcr_xgamma": {"down_proj": 85},
}


@pytest.fixture(scope="module")
def two_layers() -> Any:
    """Two full-size layers at context 4096, recorded without computing."""
    model = sized(QWEN3_14B, layers=2)
    return recorded(decode_layer.make_program(model), decode_layer.specs(model))


def test_a_layer_has_24_kernels_and_419_tasks(two_layers: Any) -> None:
    assert counts(replace(two_layers, tasks=two_layers.tasks[:419])) == LAYER
    assert len(two_layers.tasks) == 2 * 419


def test_a_layer_waits_for_what_the_table_says(two_layers: Any) -> None:
    assert waits(two_layers, range(419, 838)) == {k: {tuple(sorted(v.items()))} for k, v in WAITS.items()}


def test_only_the_last_kernel_is_outside_the_manual_scope_and_only_rope_resolves_early(two_layers: Any) -> None:
    assert {t.kernel for t in two_layers.tasks if not t.manual_scope} == {"dcr_xgamma"}
    assert {t.kernel for t in two_layers.tasks if t.early} == {"rope_qkv"}


def test_a_layer_moves_its_weights_once(two_layers: Any) -> None:
    work = {k.kernel: k for k in summarise([two_layers]).kernels}
    slab = 16 * 1024 * 2  # one K split of the activations, bf16
    wide = 1024 * 1024 * 2  # one task's weights of the MLP
    assert work["gate_proj"].gm_read == 2 * 85 * (slab + wide)
    assert work["gate_proj"].gm_written == 2 * 85 * 16 * 1024 * 4  # fp32, added up in GM: 5 times 1.11 MB a layer
    assert work["q_proj"].gm_read == 2 * 50 * 2 * (slab + 1024 * 256 * 2)  # two sub-tiles, each reads the activations
    assert work["down_proj"].flops == 2 * 2 * 16 * 17408 * 5120


@pytest.mark.parametrize(
    "model",
    [
        sized(SMALL, layers=1),
        sized(SMALL, layers=1, storage="fp32"),
        sized(SMALL, batch=20, max_seq=256),  # two windows of rows, the second one padded
    ],
    ids=["bf16", "fp32", "two windows, two layers"],
)
def test_the_small_layer_passes_its_golden(model: Qwen3) -> None:
    result = run_jit(
        fn=decode_layer.make_program(model),
        specs=decode_layer.specs(model),
        golden_fn=decode_layer.make_golden(model),
        compare_fn=decode_layer.tolerances(model),
    )
    assert result.passed, result.error


def test_a_layer_that_forgets_a_page_fails() -> None:
    model = sized(SMALL, layers=1)
    right = decode_layer.make_golden(model)

    def forgets(tensors: dict[str, Any]) -> None:
        tensors["seq_lens"] = np.minimum(tensors["seq_lens"], 256)
        right(tensors)

    result = run_jit(
        fn=decode_layer.make_program(model),
        specs=decode_layer.specs(model),
        golden_fn=forgets,
        compare_fn=decode_layer.tolerances(model),
    )
    assert not result.passed


def test_a_cache_row_written_beside_its_slot_is_seen() -> None:
    model = sized(SMALL, layers=1)
    tensors: dict[str, Any] = {spec.name: spec.create_tensor() for spec in decode_layer.specs(model)}
    compare = decode_layer.tolerances(model)["k_cache"]
    mine = tensors["k_cache"].copy()
    others: dict[str, Any] = {"rtol": 0.0, "atol": 0.0, "actual_outputs": {}, "expected_outputs": {}}
    assert compare(mine, tensors["k_cache"], inputs=tensors, **others)[0]
    page, offset = divmod(int(tensors["slot_mapping"][0]), 128)
    mine.reshape(model.pages, model.kv_heads, 128, model.head_dim)[page, 0, offset - 1, 0] += 1  # the token before
    ok, message = compare(mine, tensors["k_cache"], inputs=tensors, **others)
    assert (ok, message.strip()) == (False, "rows that no token of this step belongs to were written")


def test_sampling_takes_the_first_of_equal_logits_and_never_the_padding() -> None:
    model = sized(SMALL, layers=1, storage="fp32")
    specs = decode.specs(model)
    tensors: dict[str, Any] = {spec.name: spec.create_tensor() for spec in specs}
    tensors["lm_head"][: model.vocab] = 0
    tensors["lm_head"][
        : model.vocab, 0
    ] = -1  # coordinate 0 is positive in every row: all logits are equal and negative
    decode.make_program(model)(*(tensors[spec.name] for spec in specs))
    assert np.all(tensors["logits"][:, : model.vocab] < 0)
    assert np.all(tensors["logits"][:, model.vocab :] == 0)
    assert tensors["sampled"].tolist() == [[0]] * 16


def test_recording_without_computing_tells_the_same() -> None:
    model = sized(SMALL, layers=1)
    program, specs = decode_layer.make_program(model), decode_layer.specs(model)
    assert summarise([recorded(program, specs)]) == summarise([recorded(program, specs, mode="values")])


def test_a_step_is_embedding_layers_head_and_sampling() -> None:
    model = sized(QWEN3_14B, max_seq=128, layers=3)  # forty are the same loop; benchmarks/tile.py records them
    found = counts(recorded(decode.make_program(model), decode.specs(model)))
    assert {k: v for k, v in found.items() if k not in LAYER} == {
        "token_embed": (16, 16, "AIV"),
        "copy_hidden": (1, 1, "AIV"),
        "x_gamma0": (1, 5, "AIV"),
        "final_rms_recip": (1, 1, "AIV"),
        "cast_lmhead_in": (1, 1, "AIV"),
        "lm_head": (1, 297, "AIC"),  # 152,064 / 512
        "greedy_part": (1, 27, "AIV"),
        "greedy_merge": (1, 1, "AIV"),
    }
    assert {k: found[k] for k in LAYER} == {k: (3 * t, 3 * b, core) for k, (t, b, core) in LAYER.items()}


def test_sizes_that_tiles_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="100 does not divide 256"):
        sized(SMALL, tiles=replace(SMALL.tiles, slab=100))
    for option, message in (
        ("--max-seq=1000", "128 does not divide 1000"),
        ("--batch=0", "0 rows"),
        ("--layers=0", "0 l"),
    ):
        parser = argparse.ArgumentParser()
        decode_layer.arguments(parser)
        with pytest.raises(SystemExit, match=message):
            decode_layer.chosen(parser.parse_args([option]))


def test_rounding_is_away_from_zero_at_ties() -> None:
    ties = np.array([1 + 2**-8, -1 - 2**-8, 1 + 2**-8 - 2**-20], dtype=np.float32)  # BF16 steps by 2^-7 above 1
    assert golden.to_bf16(ties).tolist() == [1 + 2**-7, -1 - 2**-7, 1.0]


def test_weights_are_exact_in_bf16_and_do_not_depend_on_each_other() -> None:
    exact, narrow = (weights.draw("wq", replace(SMALL, storage=storage), seed=3) for storage in ("fp32", "bf16"))
    assert np.array_equal(exact, narrow.astype(np.float32))
    again = weights.all_weights(replace(SMALL, storage="fp32"), seed=3)
    assert np.array_equal(again["wq"], exact)
    assert abs(float(np.std(exact[1:256])) - 1 / 16) < 1e-3  # 1 / sqrt(256), row 0 left out


def test_the_layer_runs_as_a_script_and_by_the_command() -> None:
    ran = npuscope("run", MODELS / "qwen3_14b" / "decode_layer.py", "--json", "--", "--small")
    assert ran.returncode == 0, ran.stderr
    assert '"passed":true' in ran.stdout.replace(" ", "")


def test_a_context_makes_every_row_that_takes_part_as_long() -> None:
    model = sized(SMALL, context=300)
    lengths = next(spec.init_value for spec in decode_layer.row_specs(model, 0) if spec.name == "seq_lens")
    assert np.asarray(lengths).tolist() == [300] * 4 + [0] * 12
    with pytest.raises(ValueError, match="a context of 385 tokens: it is 1 to 384"):
        sized(SMALL, context=385)
