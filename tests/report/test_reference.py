"""The pages that are made from declarations are complete, and what they say of an op or a rule is so."""

import ast
from functools import cache
from typing import Any

import pytest

import npuscope.tile as pl
from docs.reference_pages import history_page, ops_page, rules_page
from npuscope.check.rule import Example, Rule
from npuscope.check.rules import all_rules
from npuscope.chip.devices import load
from npuscope.ops import table
from npuscope.report.reference import op_table, op_text, ops_text, rule_text
from npuscope.tile.language.history import HISTORY

CHIP = load("ascend910b1")


@cache
def listed_ops() -> dict[str, Any]:
    return {str(row["name"]): row for row in op_table(table.BY_NAME.values(), CHIP).rows()}


def test_pages_have_every_op_rule_and_spelling() -> None:
    page = ops_page()
    assert [spec.name for spec in table.BY_NAME.values() if spec.doc not in page] == []
    listed = ops_text(CHIP)
    assert [name for name in table.BY_NAME if f"\n  {name} " not in listed] == []
    page = rules_page()
    assert [rule.id for rule in all_rules() if f"## {rule.id}" not in page] == []
    page = history_page()
    assert [one.old for one in HISTORY if one.old not in page] == []


@pytest.mark.parametrize("spec", table.BY_NAME.values(), ids=lambda spec: spec.name)
def test_every_op_has_its_signature_and_its_cost(spec) -> None:
    assert spec.doc in op_text(spec, CHIP)
    row = listed_ops()[spec.name]
    assert "(" in row["signatures"][0] or not spec.names
    assert (row["cycles"] is None) == (not spec.cost)


def test_a_cost_taken_over_from_another_op_is_a_guess_and_says_whose_it_is() -> None:
    largest, smallest = listed_ops()["row_max"], listed_ops()["row_min"]
    assert smallest["cycles"] == largest["cycles"]
    assert (largest["confidence"], smallest["confidence"]) == ("fitted", "guessed")
    assert smallest["source"] == "as reduce.row_max: its mirror image"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_a_rule_is_described_in_sentences(rule: Rule) -> None:
    assert rule.id == rule.id.lower()
    assert not rule.title.endswith(".")
    assert rule.title[0].islower()
    assert rule.why.endswith(".")
    assert rule.title in rule_text(rule)


@pytest.mark.parametrize("example", [rule.example for rule in all_rules()], ids=[rule.id for rule in all_rules()])
def test_an_example_is_written_in_the_language(example: Example) -> None:
    for text in (example.before, example.after):
        whole = text + "\n    pass" if text.split("#")[0].rstrip().endswith(":") else text
        for node in ast.walk(ast.parse(whole)):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("pl."):
                value: object = pl
                for name in ast.unparse(node).split(".")[1:]:
                    value = getattr(value, name)
    assert example.before != example.after
