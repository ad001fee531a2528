"""docs/history.md says what the table of old spellings says."""

from __future__ import annotations

from pathlib import Path

from npuscope.report.history_page import history_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "history.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == history_page(), "python -m npuscope.report.history_page > docs/history.md"
