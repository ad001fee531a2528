"""What `npuscope check` says of the programs in models/ is what docs/reference/models.md says it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import check_file

ROOT = Path(__file__).resolve().parents[2]
SECTION = (
    (ROOT / "docs/reference/models.md").read_text().partition("## What check says of them")[2].partition("\n## ")[0]
)
TABLE = [
    (program, set() if found == "none" else set(found.split(", ")))
    for programs, found in re.findall(r"^\| (`.*?) \| (.*?) \|", SECTION, re.M)
    for program in re.findall(r"`(.*?)`", programs)
]


def test_every_program_is_in_the_table() -> None:
    """But for the whole models, which are their layers forty times, those of several ranks, and parts of programs."""
    runs = {path for path in (ROOT / "models").rglob("*.py") if '__name__ == "__main__"' in path.read_text()}
    left_out = {"decode.py", "decode_a8w8.py", "generate.py", "quality.py", "expert_parallel.py"}
    assert {path.relative_to(ROOT / "models").as_posix() for path in runs if path.name not in left_out} == {
        program for program, _ in TABLE
    }


@pytest.mark.parametrize(("program", "told"), TABLE, ids=[program for program, _ in TABLE])
def test_a_program_has_the_findings_that_the_page_argues(program: str, told: set[str]) -> None:
    checked = check_file(ROOT / "models" / program)
    found = {one.id for one in checked.findings} | {error.id for error in checked.errors}
    assert found == told
    assert not checked.races
