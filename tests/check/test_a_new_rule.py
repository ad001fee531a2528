"""The recipe of docs/howto/extend.md: a file in check/rules/ is a rule that runs, is documented and can be selected."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from linted import program

import npuscope.tile as pl
from docs.reference_pages import rules_page
from npuscope.check import rules
from npuscope.check.run import check, rules_of
from npuscope.report.reference import rule_text

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "extend.md"
ID = "one-element-load"


@pl.jit
def element(x: pl.Tensor[[16, 16], pl.FP32], out: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="element"):
        out[0:1, 0:1] = pl.add(x[0:1, 0:1], 1.0)  # one
    return out


@pytest.fixture
def new_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rule of the page in a folder beside the package's own."""
    (text,) = re.findall(r'```python\n("""Loads of one element.*?)```', PAGE.read_text(), re.DOTALL)
    (tmp_path / "one_element_load.py").write_text(text)
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    rules.all_rules.cache_clear()
    yield
    rules.all_rules.cache_clear()
    sys.modules.pop("npuscope.check.rules.one_element_load", None)


@pytest.mark.usefixtures("new_rule")
def test_a_file_in_the_folder_runs_is_documented_and_can_be_selected() -> None:
    checked = program(element)
    # WHEN everything is checked THEN it is among what was found
    (found,) = [one for one in check(checked).findings if one.id == ID]
    assert found.message == "loads one element as a tile"
    assert "# one" in Path(found.file).read_text().splitlines()[found.line - 1]
    # AND it is selected and left out by its name
    assert [rule.id for rule in rules_of((ID,))] == [ID]
    only = check(checked, rules_of(("one-*",)))
    assert [one.id for one in only.findings] == [ID]
    assert ID not in {one.id for one in check(checked, rules_of(ignore=(ID,))).findings}
    # AND the page and the terminal explain it
    assert f"| [{ID}](#{ID}) | hint | a tile of one element |" in rules_page()
    (rule,) = rules_of((ID,))
    assert "x = pl.read(a, [i, 0])" in rule_text(rule)


def test_without_the_file_there_is_no_such_rule() -> None:
    assert ID not in {rule.id for rule in rules.all_rules()}


def test_every_rule_is_found_in_its_family() -> None:
    # ids are a contract: comments in users' sources name them
    assert " ".join(rule.id for rule in rules.own_rules()) == (
        "add-matmul atomic-type buffer-overflow cast-chain false-serialisation gm-accumulate gm-round-trip "
        "illegal-cast illegal-move illegal-product implied-edge l2-overflow late-consumer many-tasks "
        "misaligned-tile needless-dep overlapping-tiles padded-rows "
        "partial-wave past-the-end pipeline-depth race retired-spelling ring-deadlock ring-room rounding-mode "
        "sequential-independent "
        "serialised-parallel shared-line shared-load short-row short-task split-halves stale-value store-type "
        "syncall-occupancy tile-size unequal-move uninitialised-read unknown-ignore unpipelined-k unused-load "
        "variance-not-rsqrt wide-fan-in zero-fill"
    )
