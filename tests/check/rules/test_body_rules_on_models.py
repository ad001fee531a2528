"""What the rules over bodies say of the programs in models/: all of it is mended, or argued in its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from linted import found, model

from npuscope.check.rule import Finding
from npuscope.lower.program import Program

RULES = ["add-matmul", "cast-chain", "padded-rows", "pipeline-depth", "short-row"]
RULES += ["tile-size", "unpipelined-k", "unused-load", "zero-fill"]
BETWEEN_TASKS = ["gm-accumulate", "gm-round-trip", "many-tasks", "shared-load", "short-task", "split-halves"]


def all_of(checked: Program) -> list[Finding]:
    return [finding for rule in RULES for finding in found(rule, checked).values()]


def text(finding: Finding) -> str:
    """The finding's line of the source."""
    return Path(finding.file).read_text().splitlines()[finding.line - 1].strip()


def test_the_tilelet_as_found_wastes_more_of_the_same_kinds() -> None:
    lines: dict[str, list[str]] = {}
    for finding in all_of(model("qwen3_32b_tilelet", "--as-found")):
        lines.setdefault(finding.id, []).append(text(finding).split(" = ")[0])
    # beside those of its issue (test_third_seed): zeros for the residual and under down_proj, and as starts of sums
    assert sorted(lines["zero-fill"]) == ["gate", "o_acc", "up", "zero", "zero", "zero", "zero"]
    assert sorted(lines["add-matmul"]) == ["down_proj", "gate", "o_acc", "products", "raw_scores", "up"]
    assert len(lines["unpipelined-k"]) == 6  # every loop with a matmul in it
    assert set(lines) == {"zero-fill", "add-matmul", "padded-rows", "unpipelined-k", "short-row"}


def test_the_improved_tilelet_hands_over_loads_and_launches_nothing_for_nothing() -> None:
    made = model("qwen3_32b_tilelet", "--full", "--even")
    assert {rule: [*found(rule, made)] for rule in BETWEEN_TASKS} == {rule: [] for rule in BETWEEN_TASKS}


def test_the_improved_tilelet_has_none_of_them() -> None:
    left = all_of(model("qwen3_32b_tilelet"))
    # K and V have few columns: tiles of 128 give them blocks enough, at the price of half lines (see check.md)
    assert {(finding.id, finding.kernel) for finding in left} == {("short-row", "kv_proj")}


ARGUED = {
    ("qwen3_14b/decode_layer",): {("padded-rows", "fa_fused")},
    ("qwen3_14b/decode_layer_a8w8", "--max-seq", "512"): {
        ("add-matmul", "out_proj"),
        ("padded-rows", "fa_fused"),
        ("short-row", "gate_proj"),
        ("short-row", "out_proj"),
        ("short-row", "q_proj"),
        ("tile-size", "fa_fused"),
        ("unpipelined-k", "fa_fused"),
        ("unpipelined-k", "out_proj"),
        ("unpipelined-k", "q_proj"),
        ("zero-fill", "out_proj"),
    },
    ("paged_attention",): {("add-matmul", "pv_matmul"), ("add-matmul", "qk_matmul")},
    ("paged_attention_highperf",): set(),
    ("basics/gemm",): {("short-row", "gemm")},
    ("basics/layer_norm",): set(),
    ("basics/rms_norm",): set(),
    ("basics/rope",): set(),
    ("basics/softmax",): set(),
    ("basics/topk",): set(),
}


@pytest.mark.parametrize("script", sorted(ARGUED), ids=lambda script: script[0])
def test_our_other_models_report_what_the_docs_argue(script: tuple[str, ...]) -> None:
    findings = all_of(model(*script))
    assert {(finding.id, finding.kernel) for finding in findings} == ARGUED[script]
