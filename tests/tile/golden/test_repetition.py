from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.tile.golden import repetition


def longest_loop_by_trying(tokens: list[int], copies: int) -> int:
    """The length of the longest loop, by the definition."""
    best = 0
    for period in range(1, len(tokens) + 1):
        for start in range(len(tokens)):
            end = start + period
            while end < len(tokens) and tokens[end] == tokens[end - period]:
                end += 1
            if start + copies * period <= end:
                best = max(best, end - start)
    return best


@given(st.lists(st.integers(0, 2), max_size=24), st.integers(2, 4))
def test_the_longest_loop_is_the_longest(tokens, copies) -> None:
    report = repetition(tokens, least_copies=copies)
    assert report.length == longest_loop_by_trying(tokens, copies)
    loop = tokens[report.start : report.start + report.length]
    assert loop[report.period :] == loop[: len(loop) - report.period]
    assert report.copies == (report.length // report.period if report.period else 0)


def test_a_text_that_falls_into_a_loop_is_caught() -> None:
    report = repetition([5, 6, 7, 8, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3])
    assert (report.period, report.copies, report.start, report.length) == (3, 4, 4, 12)
    assert report.looped == 0.75
    assert report.degenerate
    assert (
        report.text()
        == "16 tokens: repeats itself (4 copies of 3 token(s) from token 4 cover 75%; 54% of the 4-grams differ)"
    )


def test_a_text_that_stutters_without_a_steady_period_is_caught() -> None:
    # "a b c d" again and again with a different word between: no loop, but few 4-grams differ where the word is rare
    tokens = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 8] * 2 + [1, 2, 3, 4, 5, 6, 7]
    report = repetition(tokens)
    assert report.length < len(tokens) / 2
    assert report.distinct_ngrams < 0.5
    assert report.degenerate


def test_plain_text_is_not_caught() -> None:
    report = repetition([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
    assert not report.degenerate
    assert report.length == 0
    assert report.text() == "16 tokens: does not repeat itself (no loop; 100% of the 4-grams differ)"


@pytest.mark.parametrize("tokens", [[], [1], [1, 2, 3]])
def test_a_few_tokens_prove_nothing(tokens) -> None:
    assert not repetition(tokens).degenerate


def test_one_token_for_ever_is_a_loop_of_period_one() -> None:
    report = repetition(np.full(48, 151643))
    assert (report.period, report.copies, report.looped) == (1, 48, 1.0)
    assert report.as_dict()["degenerate"] is True


def test_a_batch_is_not_one_sequence() -> None:
    with pytest.raises(ValueError, match="one sequence"):
        repetition(np.zeros((2, 8), int))
