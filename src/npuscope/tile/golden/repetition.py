"""Has a model's output fallen into repeating itself? The check that catches decode kernels that are subtly wrong.

A *loop* of period p is a stretch of tokens in which each equals the one p before it, and which holds at least
`least_copies` whole copies of its first p tokens. Its length counts all tokens of the stretch, the first copy
included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from npuscope.tile.golden.spec import misuse

NGRAM = 4


@dataclass(frozen=True)
class RepetitionReport:
    """`period`, `copies`, `start` and `length` are of the longest loop (all 0 where there is none), in tokens."""

    tokens: int
    distinct: float  # different tokens per token
    distinct_ngrams: float  # different 4-grams per 4-gram, 1 where there are none
    period: int
    copies: int
    start: int
    length: int
    most_looped: float
    least_distinct: float

    @property
    def looped(self) -> float:
        """The share of the tokens in the longest loop."""
        return self.length / self.tokens if self.tokens else 0.0

    @property
    def degenerate(self) -> bool:
        """If the longest loop covers `most_looped` of the tokens, or fewer 4-grams than `least_distinct` differ."""
        return self.looped >= self.most_looped or self.distinct_ngrams < self.least_distinct

    def text(self) -> str:
        found = (
            f"{self.copies} copies of {self.period} token(s) from token {self.start} cover {self.looped:.0%}"
            if self.length
            else "no loop"
        )
        verdict = "repeats itself" if self.degenerate else "does not repeat itself"
        return f"{self.tokens} tokens: {verdict} ({found}; {self.distinct_ngrams:.0%} of the {NGRAM}-grams differ)"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "looped": self.looped, "degenerate": self.degenerate}


def repetition(
    tokens: Sequence[int] | npt.NDArray[np.integer],
    *,
    least_copies: int = 3,
    longest_period: int = 512,
    most_looped: float = 0.5,
    least_distinct: float = 0.5,
) -> RepetitionReport:
    """Judge one sequence of generated token ids (without the prompt)."""
    ids = np.asarray(tokens)
    if ids.ndim != 1:
        raise misuse(f"one sequence of token ids has one dimension, not shape {ids.shape}")
    if least_copies < 2:
        raise misuse(f"least_copies must be 2 or more, not {least_copies}")
    period, start, length = _longest_loop(ids, least_copies, longest_period)
    grams = np.lib.stride_tricks.sliding_window_view(ids, NGRAM) if ids.size >= NGRAM else None
    return RepetitionReport(
        tokens=ids.size,
        distinct=len(np.unique(ids)) / ids.size if ids.size else 1.0,
        distinct_ngrams=1.0 if grams is None else len(np.unique(grams, axis=0)) / len(grams),
        period=period,
        copies=length // period if period else 0,
        start=start,
        length=length,
        most_looped=most_looped,
        least_distinct=least_distinct,
    )


def _longest_loop(ids: npt.NDArray[np.integer], least_copies: int, longest_period: int) -> tuple[int, int, int]:
    """Period, start and length of the longest loop (of the shortest period among equals); zeros where there is none."""
    best = (0, 0, 0)
    for period in range(1, min(longest_period, ids.size // least_copies) + 1):
        same = np.concatenate([[False], ids[period:] == ids[:-period], [False]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(same)).reshape(-1, 2)
        if not len(edges):
            continue
        longest = int(np.argmax(edges[:, 1] - edges[:, 0]))
        start, end = map(int, edges[longest])
        length = end - start + period
        if length >= least_copies * period and length > best[2]:
            best = (period, start, length)
    return best
