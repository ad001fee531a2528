"""A layer is one attention of any kind, a draft is called so on evidence, and training is no prefill."""

import pytest
from written_passes import Call, a_pass

from npuscope.explain.passes import Passes, passes
from npuscope.trace import Trace

SLIDING, FULL = "fmhaSm100aKernel_SlidingOrChunkedCausal", "fmhaSm100aKernel_Causal"
BEFORE, AFTER = (
    ("nvjet_qkv", "rotary_embedding_kernel"),
    ("nvjet_o", "fused_add_rms_norm_kernel", "nvjet_up", "nvjet_down"),
)
HEAD, TAIL = ("vectorized_gather_kernel",), ("nvjet_head", "argmax_kernel")


def trace_of(*kernels: str) -> Trace:
    calls: list[Call] = [(kernel, 5.0) for kernel in kernels]
    return a_pass(calls, gap=1.0)


def layer(*attention: str) -> tuple[str, ...]:
    return *BEFORE, *attention, *AFTER


def model(layers: int, *kinds: tuple[str, ...]) -> tuple[str, ...]:
    """A pass whose layers have the kinds of attention in turns."""
    return *HEAD, *(kernel for n in range(layers) for kernel in layer(*kinds[n % len(kinds)])), *TAIL


def found(*kernels: str) -> Passes:
    return passes(trace_of(*kernels))


@pytest.mark.parametrize(
    "kinds",
    [
        ((SLIDING,), (FULL,)),  # two kernels take turns
        (("kernel_unified_attention_2d",), ("kernel_unified_attention_2d", "reduce_segments")),  # full ones are split
        ((SLIDING,), (SLIDING,), (SLIDING,), (FULL,)),  # one in four
    ],
)
@pytest.mark.parametrize("runs", [1, 3])
def test_kinds_of_attention_that_take_turns_are_a_layer_each(kinds: tuple[tuple[str, ...], ...], runs: int) -> None:
    result = found(*model(12, *kinds) * runs)
    assert result.attentions_per_layer == 1
    assert result.table["layers"].to_list() == [12] * runs
    layers = result.order.filter(result.order["layer"].is_not_null())
    of_layer = layers.group_by("layer", maintain_order=True).agg("kernel")
    for number, kernels in of_layer.iter_rows():
        assert tuple(kernels) == layer(*kinds[number % len(kinds)]) * runs


def test_two_attentions_with_other_products_between_are_one_layer() -> None:
    """Experts follow the first attention of a layer, as in LongCat, and not the second."""
    both = (*BEFORE, FULL, "nvjet_o", "GroupedMatmul", "GroupedMatmul", *layer(FULL))
    result = found(*HEAD, *both * 8, *TAIL)
    assert (result.attentions_per_layer, result.table["layers"].to_list()) == (2, [8])


DRAFT = (*HEAD, *layer(FULL), *TAIL)


def test_short_passes_behind_the_main_ones_with_ends_of_their_own_are_drafts() -> None:
    result = found(*(model(8, (FULL,)) + DRAFT * 2) * 3)
    assert result.table["phase"].to_list()[:-1] == ["unknown", "draft", "draft"] * 2 + ["unknown", "draft"]
    assert result.table["complete"].to_list()[1:-1] == [True] * 7


def test_a_model_that_runs_before_the_main_one_is_no_draft() -> None:
    """Text encoders look up tokens and pick one, too."""
    encoder = (*HEAD, *("clip_qkv", FULL, "clip_o") * 4, "argmax_kernel")
    result = found(*encoder * 2, *model(12, (FULL,)), *model(12, (FULL,)))
    assert result.table["attentions"].to_list() == [4, 4, 12, 12]
    assert "draft" not in result.table["phase"].to_list()
    assert result.table["complete"][1]


def test_a_pass_that_lost_attentions_is_incomplete_and_no_draft() -> None:
    """Without an embedding of its own a short pass is a piece of one."""
    whole = model(8, (FULL,))
    piece = model(3, (FULL,))[len(HEAD) :]
    result = found(*whole, *piece, *whole, *whole)
    assert result.table["attentions"].to_list() == [8, 3, 8, 8]
    assert result.table["phase"].to_list() == ["unknown"] * 4
    assert result.table["complete"].to_list()[1:3] == [False, True]
    assert "3 of 8 attentions" in result.reasons[1]


@pytest.mark.parametrize("backward", ["FlashAttentionScoreGrad", "void flash_bwd_dq_dk_dv_loop_kernel<64>"])
def test_a_pass_with_a_backward_attention_is_training(backward: str) -> None:
    forward: list[Call] = [("FlashAttentionScore", 5.0, "4,2048,32,128;4,2048,8,128;4,2048,8,128"), ("MatMulV2", 5.0)]
    back: list[Call] = [("MatMulV2", 5.0), (backward, 9.0)]
    assert passes(a_pass(forward * 6)).table["phase"].to_list() == ["unknown"]
    assert passes(a_pass(forward * 6 + back * 6)).table["phase"].to_list() == ["training"]
