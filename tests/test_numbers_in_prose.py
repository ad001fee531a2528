"""Numbers in the sentences and tables of README, start, how-to and stories: printed by a session of the page, or of
known descent.

A number that nobody checks is wrong a year later. Counts up to ten are words and not looked at.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

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

# What no session of the page prints, and where it comes from: a page that has the number too, or a reason.
TRUST, FORWARD = "docs/understand/trust.md", "docs/understand/trust_forward.md"
PUBLISHED = "published with the question, measured by others"
A_910B1 = "24 cube and 48 vector cores, as docs/reference says of the 910B1"
GIVEN: dict[str, dict[str, str]] = {
    "README.md": {
        **dict.fromkeys(("125", "114", "93", "10", "76", "88", "11", "21", "15", "80", "79", "144", "23"), TRUST),
        "0.2": "CHANGELOG.md",
        "3.11": "pyproject.toml",
    },
    "docs/start/install.md": dict.fromkeys(("3.11", "3.12", "3.13", "3.14"), "pyproject.toml"),
    "docs/howto/build.md": dict.fromkeys(("1", "16", "18", "22", "32", "68", "629"), "benchmarks/lowering.py"),
    "docs/howto/captures.md": dict.fromkeys(("1.8", "1.85", "2026"), "trace/readers/cann_pypto.py"),
    "docs/howto/cards.md": {
        "256": "pieces of PyPTO's collectives: facts of host and ranks",
        "8.08": "timing.launch_rank of the device file",
        **dict.fromkeys(("1.8", "91", "83", "87"), "simulate of scripts over ranks, by hand"),
        **dict.fromkeys(("12,288", "6"), "what simulate says of a public script"),
        "15": "benchmarks/links.py",
        **dict.fromkeys(("46", "6.2", "0.5", "0.56", "0.79", "1.41", "1.73"), "benchmarks/links.py, which fits them"),
    },
    "docs/howto/fix.md": {
        "20": "--trials of benchmarks/improve.py",
        **dict.fromkeys(("80", "86", "97", "36", "85", "38", "75", "24"), "benchmarks/selection.py"),
    },
    "docs/howto/runtimes.md": {
        "1000": "benchmarks/runtime_pairs",
        **dict.fromkeys(("0.6", "0.9", "16"), "chip/runtimes/*.toml"),
        "2026": "a year",
    },
    "docs/howto/step.md": {"1": "the allowance for a notification in trace/clocks.py"},
    "docs/howto/compare.md": {"5": "docs/understand/noise.md", "95": "docs/understand/noise.md"},
    "docs/howto/judge.md": {
        "1,500": "MOST_IN_PLAIN of simulate/run.py",
        "256": "MOST_PROCESSES of study/fork_server.py",
    },
    "docs/howto/lab.md": {"60": "the limit of a run in the lab"},
    "docs/howto/simulate.md": {"5": "NOISE of --jitter"},
    "docs/howto/sql.md": dict.fromkeys(("30", "2"), "LIMITS of explain/sql.py"),
    "docs/howto/predict.md": {"1.6": "computed below", "5.2": "computed below"},
    "docs/stories/a8w8_fan_out.md": {
        **dict.fromkeys(("356", "252", "35.4", "0.71"), TRUST),
        **dict.fromkeys(("38,705", "6.6"), PUBLISHED),
        "72": A_910B1,
    },
    "docs/stories/a_chip_that_does_not_exist.md": {"24": A_910B1},
    "docs/stories/attention_alone_and_in_the_layer.md": {"72": A_910B1},
    "docs/stories/tilelet_mended.md": dict.fromkeys(
        ("0.0312", "2.57", "3.45", "12", "80", "73"), "what the page's session prints where it is shortened"
    ),
    "docs/stories/attention_gap.md": dict.fromkeys(("548", "1,263"), PUBLISHED),
}


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


def with_tables(page: Path) -> str:
    """A page's text and that of the tables it takes from files."""
    text = page.read_text()
    return "\n".join([text, *((page.parent / name).read_text() for name in re.findall(r"^:file: (\S+)$", text, re.M))])


@pytest.mark.parametrize("page", PAGES)
def test_numbers_are_printed_or_of_known_descent(page: str) -> None:
    assert unproven((ROOT / page).read_text()) == set(GIVEN.get(page, {}))


@pytest.mark.parametrize("page", GIVEN)
def test_the_page_that_a_number_comes_from_has_it(page: str) -> None:
    for number, source in GIVEN[page].items():
        if source.endswith(".md") and (ROOT / source).exists():
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", with_tables(ROOT / source)), number


def test_how_much_longer_whole_passes_took_than_predicted() -> None:
    """The sentence of docs/howto/predict.md, from the rows of the page of evidence."""
    rows = re.findall(r"^\| (\S+) (?:prefill|decode),.*?\| ([\d.]+) \| ([\d.]+) \|", (ROOT / FORWARD).read_text(), re.M)
    ratios = {model: sorted(float(m) / float(p) for one, m, p in rows if one == model) for model, _, _ in rows}
    said = " ".join((ROOT / "docs/howto/predict.md").read_text().split())
    for model, found in ratios.items():
        assert re.search(rf"{found[0]:.1f} to {found[-1]:.1f} times (as long )?for {model}", said), (model, found)


def test_a_number_out_of_the_air_would_be_found() -> None:
    page = "It takes 54 µs, as `--tokens 99` says, or 12.5 %.\n```console\n$ npuscope x\n12.5 %\n```\n"
    assert unproven(page) == {"54"}
    assert unproven(page.replace("12.5 %.", "13.5 %.")) == {"54", "13.5"}
    assert unproven(page.replace("54", "12")) == set()
