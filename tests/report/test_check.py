"""What was found, as text and as Markdown: grouped, cut sensibly, and harmless whatever the source holds."""

import json
from pathlib import Path

import pytest

from npuscope.check.columns import amount, saving_text
from npuscope.check.rule import Example, Finding, Price, Rule, Waste
from npuscope.check.rules import all_rules
from npuscope.check.run import Checked, ranked
from npuscope.chip.devices import load
from npuscope.report.check import TOP, check, check_sarif
from npuscope.table.parts import as_markdown, as_text

SOURCE = """def layer():
    # Scope 1: norm
    a = 1
    # Scope 2: attention
    b = 2
    return b
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "layer.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "layer.py")


def checked(*findings: Finding) -> Checked:
    return Checked("factory.<locals>.layer", ranked(findings, load("ascend910b1")), device="chip")


def text_of(*findings: Finding, everything: bool = False, file: str = "layer.py") -> str:
    return as_text(check(file, [checked(*findings)], everything))


def review_of(*findings: Finding) -> str:
    return as_markdown(check("layer.py", [checked(*findings)]), "npuscope check layer.py")


def finding(file: str, line: int, id: str = "short-row", **more: object) -> Finding:
    return Finding(id, "hint", file, line, "what", "How.", **more)  # type: ignore[arg-type]


def test_scopes_come_by_what_they_cost_and_their_findings_too(source: str) -> None:
    text = text_of(finding(source, 3, waste=Waste(bytes=10)), finding(source, 5, waste=Waste(bytes=10**9, tasks=2)))
    assert text.splitlines()[:2] == ["Fits on chip and is safe to schedule: 2 hints", "layer.py: layer on chip"]
    assert text.index("Scope 2: attention (layer.py, lines 4 to 6): 1 finding") < text.index("Scope 1: norm")
    assert "costs 1 GB of GM traffic, 2 tasks\n" in text  # no microseconds: nothing was simulated


def test_long_scopes_are_cut_but_never_wrong_numbers(source: str) -> None:
    cheap = [finding(source, 3, f"rule-{n}", waste=Waste(bytes=100 - n)) for n in range(TOP + 3)]
    wrong = Finding("variance-not-rsqrt", "warning", source, 3, "wrong", "How.")
    short = text_of(*cheap, wrong)
    assert "… and 3 more here; --all shows them" in short
    assert "[variance-not-rsqrt]" in short
    whole = text_of(*cheap, wrong, everything=True)
    assert [f"[rule-{n}]" in whole for n in range(TOP + 3)] == [True] * (TOP + 3)
    assert "more here" not in whole


def test_a_review_has_performance_quality_what_spans_scopes_and_costs(source: str) -> None:
    review = review_of(
        finding(source, 3, waste=Waste(bytes=1000)),
        finding(source, 3, "rounding-mode"),
        finding(source, 5, "gm-round-trip", waste=Waste(bytes=2000), also=((source, 3),)),
        finding(source, 5, "short-row", also=((source, 6),)),
    )
    order = ["## Scope 1: norm (layer.py, lines 2–3)", "**Performance**", "**short-row**", "**Code quality**",
             "**rounding-mode**", "## Scope 2", "Also: 6.", "## Across scopes", "**gm-round-trip**", "Also: 3.",
             "## What it costs", "| gm-round-trip | layer.py | 5 | 2 kB of GM traffic |",
             "npuscope check layer.py"]  # fmt: skip
    places = [review.index(part) for part in order]
    assert places == sorted(places)


def test_nothing_from_the_source_acts_on_a_terminal_or_on_markdown(tmp_path: Path) -> None:
    file = str(tmp_path / "la[y]er.py")
    Path(file).write_text("def f():\n    # Scope 1: <b>x</b> | \x1b[31m\n    a = 1\n")
    nasty = Finding("x", "hint", file, 3, "<script> *b* `c` | \x1b[2J", "How.", change="a ``` b \x1b\n# c")
    text = text_of(nasty, file="l\x1b.py")
    assert "\x1b" not in text
    review = review_of(nasty)
    assert "\x1b" not in review
    assert "<script>" not in review
    assert "<b>" not in review
    assert "a ''' b   # c" in review
    sarif = json.loads(
        check_sarif(
            [checked(nasty)], [*all_rules(), Rule("x", "hint", "t", "w", lambda program: [], Example("a", "b"))]
        )
    )
    place = sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place.startswith("file:///")
    assert place.endswith("/la%5By%5Der.py")


def test_nothing_found_says_so(source: str) -> None:
    first = text_of().splitlines()[0]
    assert first == "Fits on chip and is safe to schedule: nothing found"
    assert "nothing found." in review_of()


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 "), (999, "999 "), (1000, "1 k"), (1234567, "1.23 M"), (10**13, "10 T")]
)
def test_numbers_have_three_figures(number: int, told: str) -> None:
    assert amount(number) == told


def test_microseconds_are_simulated_or_not_named() -> None:
    def said(saves_ns: int | None, tried: str = "") -> str:
        return saving_text(finding("layer.py", 3, price=Price("", 100_000, saves_ns, tried)))

    assert said(None) == ""
    assert said(51_100) == "without it the simulated time is 51.1 µs shorter; no fix was tried"
    assert said(51_100, "tried") == "its fix was tried: the simulated time is 51.1 µs shorter"
    assert said(3, "not tried: no line") == "without it the simulated time is the same; not tried: no line"
