"""Greedy decoding of a batch of prompts, whatever computes the step: a tile program or the NumPy golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qwen3_14b.batch import slot_mapping
from qwen3_14b.config import Qwen3

Array = npt.NDArray[Any]
Step = Callable[[Array, Array], tuple[Array, Array]]  # (token ids [rows], lengths [rows]) -> (logits, next token ids)


def prompts(model: Qwen3, lengths: tuple[int, ...], seed: int = 0) -> list[Array]:
    """Seeded token ids, one prompt per length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, model.vocab, length).astype(np.int32) for length in lengths]


def prefill(model: Qwen3, step: Step, texts: list[Array]) -> Array:
    """Feed all prompts but their last token, token by token; returns the lengths reached.

    All rows end together; a shorter one takes no part (length 0) until its time comes.
    """
    longest = max(len(text) for text in texts)
    lengths = np.zeros(model.rows, dtype=np.int32)
    for time in range(longest - 1):
        tokens = np.zeros(model.rows, dtype=np.int32)
        for row, text in enumerate(texts):
            at = time - (longest - len(text))
            if at >= 0:
                tokens[row], lengths[row] = text[at], at + 1
        step(tokens, lengths)
    return lengths


def greedy(
    model: Qwen3, step: Step, texts: list[Array], lengths: Array, count: int, forced: Array | None = None
) -> tuple[Array, Array]:
    """`count` tokens after each prompt, [prompts, count], and the logits they were chosen by, [prompts, count, vocab].

    `forced` tokens of the same shape are fed instead of those chosen, so that two models stay on the same text.
    """
    tokens = np.zeros(model.rows, dtype=np.int32)
    tokens[: len(texts)] = [text[-1] for text in texts]
    live = np.arange(model.rows) < len(texts)
    made, all_logits = [], []
    for at in range(count):
        lengths = np.where(live, lengths + 1, 0).astype(np.int32)
        logits, sampled = step(tokens, lengths)
        made.append(sampled[: len(texts)].copy())
        all_logits.append(logits[: len(texts), : model.vocab].copy())
        tokens = np.zeros_like(tokens)
        tokens[: len(texts)] = made[-1] if forced is None else forced[:, at]
    return np.stack(made, axis=1), np.stack(all_logits, axis=1)


def stepper(model: Qwen3, tensors: dict[str, Any], run: Callable[[dict[str, Any]], object]) -> Step:
    """A step over one set of tensors (a program's arguments by name); `run` uses them as the program does."""

    def step(tokens: Array, lengths: Array) -> tuple[Array, Array]:
        tensors["token_ids"][:, 0], tensors["seq_lens"][:] = tokens, lengths
        tensors["slot_mapping"][:] = slot_mapping(model, tensors["block_table"], lengths)
        run(tensors)
        return tensors["logits"], tensors["sampled"][:, 0]

    return step
