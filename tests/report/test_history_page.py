"""The page of old spellings has every one."""

from __future__ import annotations

from npuscope.report.reference import history_page
from npuscope.tile.language.history import HISTORY


def test_the_page_has_every_spelling() -> None:
    page = history_page()
    for spelling in HISTORY:
        assert spelling.old in page
