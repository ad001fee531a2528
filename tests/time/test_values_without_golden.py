"""Who asks for a program's time does not wait for its golden, also where the program must be computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

from npuscope.models import file_of


@pytest.mark.parametrize("words", [("simulate", "--no-report"), ("check",)])
def test_a_golden_that_fails_costs_nothing_where_only_time_or_fit_is_asked_for(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    # GIVEN a program whose golden cannot be computed
    text = Path(file_of("model:basics/gemm")).read_text()
    broken = text.replace("def golden(tensors: dict) -> None:\n", "def golden(tensors: dict) -> None:\n    1 / 0\n")
    assert broken != text
    file = tmp_path / "gemm.py"
    file.write_text(broken)
    # WHEN it is simulated or checked with values, THEN nobody computes the golden
    done = npuscope(words[0], file, "--values", *words[1:], "--json")
    assert done.returncode == 0, done.stderr
    assert "ZeroDivisionError" not in done.stderr
    assert json.loads(done.stdout)
    # AND run, which is about numbers, does
    assert "ZeroDivisionError" in npuscope("run", file).stderr
