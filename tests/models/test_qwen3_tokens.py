"""A whole small Qwen3 decodes as transformers' does. benchmarks/record_qwen3.py made the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from qwen3_14b import decode, generate, quality
from qwen3_14b.config import SMALL, Qwen3, sized
from qwen3_14b.quality import tensors_of

pytestmark = pytest.mark.full

RECORD = Path(__file__).resolve().parents[1] / "data" / "qwen3_small.npz"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    with np.load(RECORD) as found:
        return {name: found[name] for name in found.files}


def decoded(model: Qwen3, record: dict[str, Any], count: int, forced: Any = None) -> tuple[Any, Any]:
    """Tokens and logits by the tile program; the golden fills the KV cache with the prompts."""
    seed, specs = int(record["seed"]), decode.specs(model, int(record["seed"]))
    program, tensors = decode.make_program(model), tensors_of(specs)
    texts = generate.prompts(model, tuple(record["lengths"]), seed)
    lengths = generate.prefill(model, generate.stepper(model, tensors, decode.make_golden(model)), texts)
    step = generate.stepper(model, tensors, lambda given: program(*(given[spec.name] for spec in specs)))
    return generate.greedy(model, step, texts, lengths, count, forced)


def kept(logits: Any, record: dict[str, Any], count: int) -> Any:
    """The logits that the record has: transformers' five best in fp32, and the watched entries."""
    best = np.take_along_axis(logits, record["fp32_top"][:, :count].astype(np.int64), axis=-1)
    return np.concatenate([best, logits[..., record["watched"]]], axis=-1)


def test_48_tokens_in_fp32_are_exactly_those_of_transformers(record: dict[str, Any]) -> None:
    tokens, logits = decoded(sized(SMALL, storage="fp32"), record, 48)
    assert np.array_equal(tokens, record["tokens"])
    theirs = np.concatenate([record["fp32_top_logits"], record["fp32_watched"]], axis=-1)
    # fp32 sums in another order; the smallest gap between a best and a second logit is 2e-3
    assert float(np.max(np.abs(kept(logits, record, 48) - theirs))) < 2e-4


def test_bf16_is_nearer_to_fp32_than_transformers_own_bf16(record: dict[str, Any]) -> None:
    count = 24
    tokens, logits = decoded(SMALL, record, count, forced=record["tokens"])
    theirs = np.concatenate([record["fp32_top_logits"], record["fp32_watched"]], axis=-1)[:, :count]
    error = float(np.sqrt(np.mean((kept(logits, record, count) - theirs) ** 2)))
    # transformers rounds the residual to BF16 after every layer, the tile program keeps it in fp32: 0.01 against 0.06
    assert error < 0.5 * float(np.sqrt(np.mean(record["bf16_error"][:, :count] ** 2)))
    # another token only where fp32 had two within what BF16 moves logits
    gap = record["fp32_top_logits"][:, :count, 0] - record["fp32_top_logits"][:, :count, 1]
    other = tokens != record["tokens"][:, :count]
    assert np.all(gap[other] < 6 * error)
    assert np.mean(other) < 0.05


def test_prompts_may_go_token_by_token_through_the_program(record: dict[str, Any]) -> None:
    model = sized(SMALL, storage="fp32")
    specs, texts = decode.specs(model), generate.prompts(model, (3, 1, 4))  # rows begin when their time comes
    by_program, by_golden = tensors_of(specs), tensors_of(specs)
    program = decode.make_program(model)
    generate.prefill(
        model, generate.stepper(model, by_program, lambda given: program(*(given[s.name] for s in specs))), texts
    )
    generate.prefill(model, generate.stepper(model, by_golden, decode.make_golden(model)), texts)
    for cache in ("k_cache", "v_cache"):
        np.testing.assert_allclose(by_program[cache], by_golden[cache], atol=1e-4)
    assert np.count_nonzero(np.any(by_program["k_cache"], axis=1)) == (2 + 0 + 3) * model.kv_heads * model.layers


def test_the_recorded_text_is_worth_comparing(record: dict[str, Any]) -> None:
    assert RECORD.stat().st_size < 40_000
    assert min(map(quality.distinct_ngrams, record["tokens"])) > quality.LEAST_DISTINCT
    assert all(len(set(row.tolist())) > 24 for row in record["tokens"])
