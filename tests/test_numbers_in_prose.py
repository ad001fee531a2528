"""Numbers in the sentences and tables of README, start, how-to and stories: printed by a session of the page, or of
known descent.

A number that nobody checks is wrong a year later. Counts up to ten are words and not looked at.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from sessions import FENCE, ROOT

PAGES = [
    "README.md",
    *(
        str(p.relative_to(ROOT))
        for part in ("start", "howto", "stories")
        for p in sorted((ROOT / "docs" / part).glob("*.md"))
    ),
]
NUMBER = re.compile(r"(?<![\w.,–-])\d[\d,]*(?:\.\d+)?(?![\w])")
CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|!\[[^\]]*\]|^\d\. ", re.MULTILINE)
WORD = re.compile(r"(10|\d)(?!\d|[.,]\d)(?!\s*(?:%|[µmn]?s\b|[kMGT]i?B\b|×|times\b))")  # and no quantity

# What no session of the page prints, and where it comes from.
GIVEN: dict[str, dict[str, str]] = {}


def prose(text: str) -> str:
    return CODE.sub(" ", FENCE.sub("", text))


def numbers(text: str) -> set[str]:
    return {found[0].rstrip(",") for found in NUMBER.finditer(text) if not WORD.match(text, found.start())}


def unproven(text: str) -> set[str]:
    """Numbers of the prose that no block of the page has."""
    code = " ".join([*(block for _, block in FENCE.findall(text)), *re.findall(r"`[^`]*`", text)])
    printed = {Decimal(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", code)}
    return {number for number in numbers(prose(text)) if not any(is_said_by(number, one) for one in printed)}


def is_said_by(number: str, printed: Decimal) -> bool:
    """Whether it is the printed one, or that one rounded."""
    said = Decimal(number.replace(",", ""))
    return said in (printed, round(printed, max(-int(said.as_tuple().exponent), 0)))


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_printed_or_of_known_descent(page: str) -> None:
    assert unproven((ROOT / page).read_text()) == set(GIVEN.get(page, {}))


def test_a_number_out_of_the_air_would_be_found() -> None:
    page = "It takes 54 µs, as `--tokens 99` says, or 12.5 %.\n```console\n$ npuscope x\n12.5 %\n```\n"
    assert unproven(page) == {"54"}
    assert unproven(page.replace("12.5 %.", "13.5 %.")) == {"54", "13.5"}
    assert unproven(page.replace("54", "12")) == set()
