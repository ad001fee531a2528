"""A kernel call: its type and the tensors it was called with, from a trace's row or from a model's config alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tensor:
    """A tensor as kernel tables describe it; dtype and format are null where the table does not tell."""

    shape: tuple[int, ...]
    dtype: str | None = "BF16"  # names of npuscope.explain.work.BITS
    format: str | None = "ND"


@dataclass(frozen=True)
class Call:
    """One kernel call. An absent input is None, as in the empty slots of a table.

    `given` holds what shapes cannot tell: `context` (cached tokens per sequence), `ranks` (of a
    collective), `bytes` (a collective's message per rank), `tokens_per_expert`, `causal`
    (1: no token sees a later one).
    """

    type: str  # as the profiler lists it: MatMulV2, FusedInferAttentionScore, hcom_allReduce_
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor | None, ...] = ()
    given: Mapping[str, float] = field(default_factory=dict, hash=False)
