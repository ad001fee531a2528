"""Prefill or decode, and how many tokens: read from the attention's tensors, or from its name. A pass with a backward
attention is training's.

The query has one row per token. Decode has about one token per sequence, prefill many; keys and values that are as
long as the query come straight from the projection, not from a paged cache, which only prefill does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from npuscope.chip import kernels
from npuscope.trace.tensors import slots

PHASES = ("prefill", "decode", "draft", "training", "unknown")
PER_SEQUENCE = 8  # tokens of one sequence in a decode step with speculation, at most
ALONE = 256  # tokens above which a pass whose sequences are not told is a prefill
SEQUENCES = 5  # the input slot of FusedInferAttentionScore with the sequences' lengths


class Phase(NamedTuple):
    """`name` is prefill, decode, training or unknown; tokens of the pass and sequences in it where shapes tell."""

    name: str
    tokens: int | None = None
    sequences: int | None = None

    @property
    def scale(self) -> str:
        """Passes whose kernels may be held against one another: of one phase, with tokens of one order."""
        order = self.tokens.bit_length() if self.tokens and self.tokens > ALONE else 0
        return f"{self.name}-{order}"


@lru_cache(maxsize=4096)
def phase_of(kernel: str, shapes: str | None) -> Phase:
    """The phase that one attention kernel tells."""
    query, key, sequences = _tensors(shapes)
    tokens = _tokens(query)
    if query and len(query) == 4:
        sequences = query[0]
    made_for = kernels.phase_of(kernel)
    if made_for == "prefill":
        return Phase("prefill", tokens, sequences)
    if tokens is None:
        return Phase(made_for or "unknown")
    if sequences:
        name = "prefill" if tokens > PER_SEQUENCE * sequences or _not_paged(query, key) else "decode"
    else:
        name = "prefill" if tokens > ALONE else "decode"
    return Phase(name, tokens, sequences)


def _tensors(shapes: str | None) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Query, key, and the number of sequences."""
    found = slots(shapes or "")
    found += [()] * (SEQUENCES + 1 - len(found))
    lengths = found[SEQUENCES]
    return found[0], found[1], lengths[0] if len(lengths) == 1 else None


def _tokens(query: Sequence[int]) -> int | None:
    if len(query) == 4:  # batch, then heads and tokens in either order: the head dimension comes last
        return query[0] * min(query[1], query[2])
    return query[0] if len(query) in (2, 3) else None


def _not_paged(query: Sequence[int], key: Sequence[int]) -> bool:
    return len(key) == len(query) == 3 and key[0] == query[0] and query[0] > 1
