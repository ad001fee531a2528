"""The page of rules: complete, and its examples are Python that the language knows."""

from __future__ import annotations

import ast

import pytest

import npuscope.tile as pl
from npuscope.check.rule import Example, Rule
from npuscope.check.rules import all_rules
from npuscope.report.reference import rule_text, rules_page


def test_the_page_has_every_rule() -> None:
    page = rules_page()
    for rule in all_rules():
        assert f"## {rule.id}" in page


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_a_rule_is_told_in_sentences(rule: Rule) -> None:
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
