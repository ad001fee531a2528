"""Every fix is right on random programs that it applies to: alone, and beside what others mend."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mended import DECIDED_BY_TRIAL, EXAMPLES, formats, keeps_everything, looked_at, written
from planted_for_fixes import PLANTED, program
from tiers import ALL_TESTS

from npuscope.check.fixes import all_fixes


def test_every_fix_has_a_program_to_mend() -> None:
    mended = {name.split()[0] for name in PLANTED}
    assert {one.id for one in all_fixes()} - mended == {"ring"}  # of a script: test_dependencies.py


@pytest.mark.parametrize("name", PLANTED)
@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_a_fix_keeps_numbers_comments_fit_and_order(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random, fix = Random(seed), name.split()[0]
    stages = [PLANTED[name](random)]
    if random.random() < 0.3:
        stages.insert(random.choice([0, 1]), PLANTED[random.choice([*PLANTED])](random))
    found, wrong = looked_at(written(tmp_path_factory.mktemp("p"), program(*stages)), only=fix)
    assert found
    for patch in found:
        kept = keeps_everything(patch, wrong, [one.title for one in found].count(patch.title))
        assert kept or fix in DECIDED_BY_TRIAL
        assert fix != "deps" or looked_at(patch.file, patch.after)[1] < wrong
        assert not ALL_TESTS or seed % 20 or formats(patch.after)
