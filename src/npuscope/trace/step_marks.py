"""Annotations that mark steps: how profilers and serving frameworks spell them, and what they say of phase and tokens.

torch.profiler numbers its steps (ProfilerStep#7). vLLM tells requests and tokens of prompts and of answers
(execute_context_1(888)_generation_4(4), at times with all tokens in front), SGLang its mode (step[EXTEND bs=15
toks=15360]).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import polars as pl

ON_DEVICE = "gpu_user_annotation"  # category of what Kineto says ran on the device for an annotation
PREFIXES = ("ProfilerStep#", "execute_", "step[")  # in the order in which they are believed where all mark as much
_NUMBERED = re.compile(r"ProfilerStep#([0-9]{1,18})")
_VLLM = re.compile(r"execute_(?:[0-9]+_)?context_([0-9]+)\(([^()]*)\)_generation_([0-9]+)\(([^()]*)\)")
_SGLANG = re.compile(r"step\[([A-Z_]+)(?: bs=([0-9]{1,9}))?(?: toks=([0-9]{1,9}))?[^\[\]]*\]")
_FIRST_NUMBER = re.compile(r"[0-9]{1,15}")
_PHASES = {"EXTEND": "prefill", "DECODE": "decode"}


class StepMark(NamedTuple):
    """What the name of an annotation says of its step."""

    spelling: str  # one of PREFIXES
    number: int | None = None
    phase: str | None = None  # prefill, decode, mixed, or the framework's own word
    tokens: int | None = None  # that the step computes, over all requests


@lru_cache(maxsize=65536)
def step_mark(name: str) -> StepMark | None:
    """What an annotation's name marks; None where it marks no step."""
    if told := _NUMBERED.fullmatch(name):
        return StepMark(PREFIXES[0], int(told[1]))
    if told := _VLLM.fullmatch(name):
        prompts, answers = int(told[1]), int(told[3])
        phase = ("mixed" if answers else "prefill") if prompts else ("decode" if answers else None)
        return StepMark(PREFIXES[1], None, phase, sum(_tokens(text) for text in (told[2], told[4])))
    if told := _SGLANG.fullmatch(name):
        mode, requests, tokens = told.groups()
        counted = tokens if tokens is not None else requests if mode == "DECODE" else None
        return StepMark(PREFIXES[2], None, _PHASES.get(mode, mode.lower()), None if counted is None else int(counted))
    return None


def _tokens(text: str) -> int:
    """The tokens of requests: the first number, whatever is told of their squares after it."""
    found = _FIRST_NUMBER.search(text)
    return int(found[0]) if found else 0


def marked(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices that mark a step, not the device's telling of them, with `phase` and `tokens`."""
    begins = pl.any_horizontal(pl.col("kernel").str.starts_with(prefix) for prefix in PREFIXES)
    # one after the other: most rows are of another kind, or belong to no step
    rows = slices.lazy().filter(pl.col("step").is_not_null()).filter(pl.col("kind").is_in(["derived", "host"]))
    told = ("kernel", "start", "dur", "step", *(column for column in ("cat",) if column in slices.columns))
    found = rows.filter(begins).select(told).collect()
    marks = [step_mark(name) for name in found["kernel"]]
    found = found.with_columns(
        pl.Series("phase", [mark and mark.phase for mark in marks], dtype=pl.String),
        pl.Series("tokens", [mark and mark.tokens for mark in marks], dtype=pl.Int64),
    ).filter(pl.Series([mark is not None for mark in marks], dtype=pl.Boolean))
    return found.filter(pl.col("cat").cast(pl.String) != ON_DEVICE) if "cat" in found.columns else found


def numbered(names: Sequence[str]) -> list[int | None]:
    """The steps of annotations in the order of their starts; None for those that are another's inside.

    One spelling counts: that with most marks, since a profiler's step may hold many of a server. Steps without a number
    are counted from 0; a number told twice is one step.
    """
    marks = [step_mark(name) for name in names]
    spellings = [mark.spelling for mark in marks if mark is not None]
    chosen = max(PREFIXES, key=spellings.count) if spellings else None
    steps: list[int | None] = []
    count = 0
    for mark in marks:
        ours = mark is not None and mark.spelling == chosen
        steps.append((count if mark.number is None else mark.number) if mark is not None and ours else None)
        count += ours
    return steps
