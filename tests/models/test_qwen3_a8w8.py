"""The A8W8 layer: groups per layer as its issue counted them, every flag, and the fault that made text repeat."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from command import npuscope
from qwen3 import recorded
from qwen3_14b import decode_layer_a8w8, flags, quality
from qwen3_14b.config import QWEN3_14B, SMALL, sized
from qwen3_14b.flags import AFTER, Flags
from tile_programs import MODELS, counts

from npuscope.tile.golden import diff_runs, run_jit
from npuscope.tile.record.summary import summarise

MLP = ("gate_proj", "up_proj", "gate_up_dual_proj", "silu", "down_seed", "down_proj", "down_dual_proj")
QKV = ("q_proj", "k_proj", "v_proj")
ONE, FAULTY = sized(SMALL, layers=1), Flags(fused_qkv_dequant=True, fused_qk_norm=True, batched_q_rope=True)


def groups(chosen: Flags) -> dict[str, Any]:
    """Tasks and blocks of a full-size layer at context 4096 by area; a dummy is no work."""
    model = sized(QWEN3_14B, layers=1)
    found = counts(recorded(decode_layer_a8w8.make_program(model, chosen), decode_layer_a8w8.specs(model)))
    found.pop("task_dummy")
    area = {name: "MLP" if name in MLP else "QKV" if name in QKV else name for name in found}
    total: dict[str, Any] = {}
    for name, (tasks, blocks, _) in found.items():
        where = area[name] if area[name] in ("MLP", "QKV", "out_proj") else "other"
        before = total.get(where, (0, 0))
        total[where] = (before[0] + tasks, before[1] + blocks)
    return {"kernels": found, **total}


def test_the_default_layer_has_224_40_28_and_32_groups() -> None:
    found = groups(Flags())
    assert {area: found[area][0] for area in ("MLP", "out_proj", "QKV", "other")} == {
        "MLP": 224,
        "out_proj": 40,
        "QKV": 28,
        "other": 32,
    }
    kernels = found["kernels"]
    assert [kernels[k][0] for k in ("gate_proj", "up_proj", "silu", "down_proj")] == [68, 68, 68, 20]
    assert [kernels[k][:2] for k in ("rope_qkv", "fa_fused", "online_softmax")] == [(1, 32), (1, 24), (1, 48)]


def test_the_layer_after_the_fixes() -> None:
    found = groups(AFTER)
    assert found["MLP"][0] == 156
    assert found["kernels"]["out_proj"] == (1, 20, "MIX")
    assert [found["kernels"][k] for k in QKV] == [(1, 20, "MIX"), (1, 4, "MIX"), (1, 4, "MIX")]
    assert found["kernels"]["gate_up_dual_proj"] == (68, 68, "MIX")
    assert found["kernels"]["down_dual_proj"] == (20, 20, "AIC")


def test_dual_gate_up_reads_the_activations_once() -> None:
    model = sized(QWEN3_14B, layers=1, max_seq=128)
    read = {}
    for dual in (False, True):
        program = decode_layer_a8w8.make_program(model, Flags(dual_gate_up_proj=dual))
        work = {k.kernel: k for k in summarise([recorded(program, decode_layer_a8w8.specs(model))]).kernels}
        read[dual] = sum(k.gm_read for name, k in work.items() if name in MLP[:3])
    # Apart, each of 68 pairs reads the whole numbers in FP16 and their scales twice; together once, as INT8.
    apart, together = 2 * (16 * 5120 * 2 + 16 * 4), 16 * 5120 + 16 * 4
    assert read[False] - read[True] == 68 * (apart - together)


VARIANTS = {
    "as found": Flags(),
    "after the fixes": AFTER,
    "fused dequantisation": Flags(fused_qkv_dequant=True),
    "fused norm, per-head RoPE": Flags(fused_qkv_dequant=True, fused_qk_norm=True),
    "fused norm alone": Flags(fused_qk_norm=True),
    "dual gate and up": Flags(dual_gate_up_proj=True),
    "MLP_TN": Flags(mlp_tn=128),
    "pairs of out_proj tiles": Flags(fuse_out_proj_npair=True),
    "row maxima as a row": Flags(quant_rowmax_transpose=True),
    "SPMD": Flags(spmd=True),
    "serialised": Flags(serialised=True),
    "split K, atomic": Flags(down_splitk_atomic=True),
}
SAME_SUMS = [name for name in VARIANTS if name not in ("as found", "after the fixes", "split K, atomic")]


@pytest.mark.parametrize("name", ["as found", "after the fixes", "split K, atomic", "fused norm, per-head RoPE"])
def test_a_variant_passes_the_golden(name: str) -> None:
    result = run_jit(
        fn=decode_layer_a8w8.make_program(ONE, VARIANTS[name]),
        specs=decode_layer_a8w8.specs(ONE),
        golden_fn=decode_layer_a8w8.make_golden(ONE),
        compare_fn=decode_layer_a8w8.tolerances(ONE),
    )
    assert result.passed, result.error


@pytest.mark.parametrize("name", SAME_SUMS)
def test_a_variant_that_adds_in_the_same_order_gives_the_same_bits(name: str) -> None:
    programs = [decode_layer_a8w8.make_program(ONE, chosen) for chosen in (Flags(), VARIANTS[name])]
    found = diff_runs(*programs, *decode_layer_a8w8.specs(ONE))
    compared = {one.name: one.apart for one in found.tensors if one.compared}
    assert [compared[name] for name in ("out", "k_cache", "v_cache", "q_rotated")] == [None] * 4


@pytest.mark.full
def test_16_and_48_tokens_of_the_default_layer() -> None:
    found = quality.check(SMALL, Flags(), 48)
    assert found.passed, found.text()
    sixteen = quality.check(SMALL, Flags(fused_qkv_dequant=True, fused_qk_norm=True, dual_gate_up_proj=True), 16)
    assert sixteen.passed, sixteen.text()
    assert (sixteen.tokens == found.tokens[:, :16]).all()


@pytest.mark.full
def test_the_batched_rope_repeats_itself() -> None:
    found = quality.check(SMALL, FAULTY, 48)
    assert not found.passed
    assert found.repeats, found.text()


def test_the_bitwise_diff_says_where_the_batched_rope_goes_wrong() -> None:
    found = quality.located(SMALL, FAULTY)
    assert found.first is not None
    assert found.first.name == "q_rotated"
    before = {one.name for one in found.tensors if one.compared and one.apart is None}
    assert {"q_pre_rope", "k_pre_rope", "k_cache", "v_cache"} <= before
    right = quality.located(SMALL, Flags(fused_qkv_dequant=True, fused_qk_norm=True))
    assert right.first is None, right.text()


def chosen(*options: str, **environment: str) -> Flags:
    parser = argparse.ArgumentParser()
    flags.arguments(parser)
    return flags.chosen(parser.parse_args(options), environment)


def test_flags_come_from_the_environment_and_options_go_before_it() -> None:
    assert chosen() == Flags()
    assert chosen(QWEN_A8W8_FUSED_QKV_DEQUANT="1", QWEN_A8W8_FUSED_QK_NORM="0") == Flags(fused_qkv_dequant=True)
    assert chosen(MLP_TN="512", QWEN_A8W8_DUAL_GATE_UP_PROJ="1") == Flags(mlp_tn=512, dual_gate_up_proj=True)
    assert chosen("--mlp-tn", "256", MLP_TN="512") == Flags(mlp_tn=256)
    assert chosen("--no-fuse-out-proj-npair", FUSE_OUT_PROJ_NPAIR="1") == Flags()
    assert chosen(DOWN_SPLITK_ATOMIC="1") == Flags(down_splitk_atomic=True)


def test_flags_that_make_no_sense_are_refused() -> None:
    for options, message in (
        (("--batched-q-rope",), "QWEN_A8W8_FUSED_QK_NORM"),
        (("--dual-down-proj", "--down-splitk-atomic"), "set one"),
    ):
        with pytest.raises(SystemExit, match=message):
            chosen(*options)
    with pytest.raises(SystemExit, match="MLP_TN is 'wide'"):
        chosen(MLP_TN="wide")
    with pytest.raises(ValueError, match="MLP_TN 48"):
        decode_layer_a8w8.make_program(ONE, Flags(mlp_tn=48))


def test_an_environment_variable_reaches_the_script() -> None:
    script = MODELS / "qwen3_14b" / "decode_layer_a8w8.py"
    ran = npuscope("run", script, "--json", "--", "--small", QWEN_A8W8_DUAL_GATE_UP_PROJ="1")
    assert ran.returncode == 0, ran.stderr
    assert "gate_up_dual_proj" in ran.stdout


def test_the_whole_step_passes_its_golden_as_a_script() -> None:
    ran = npuscope("run", MODELS / "qwen3_14b" / "decode_a8w8.py", "--", "--small")
    assert ran.returncode == 0, ran.stdout + ran.stderr
