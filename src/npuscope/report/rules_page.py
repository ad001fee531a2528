"""the page of rules, and what `npuscope check --explain ID` prints: each rule with its reason, an example and its cost.

The site has it (docs/generate.py).
"""

from __future__ import annotations

from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules

PAGE = """# What `npuscope check` looks for

Every kind of finding has an id that stays: `--select` and `--ignore` take it (or `prefix*`), `# npuscope: ignore[ID]`
at the end of a statement or on the line above silences it there, `npuscope check --explain ID` prints its section.
[Check a program](../../howto/check.md) says how findings are shown, ranked and used in CI.

*error*: it will not work. *warning*: wrong numbers, or a large waste. *hint*: a waste worth knowing; rules that weigh a
cost hint where it is a small part of the program. In the examples `CORE` is `pl.Level.CORE_GROUP`.

| id | severity | finds |
|---|---|---|
{table}

{sections}
"""


def rules_page() -> str:
    """The whole page."""
    table = "\n".join(f"| [{rule.id}](#{rule.id}) | {rule.severity} | {rule.title} |" for rule in all_rules())
    return PAGE.format(table=table, sections="\n\n".join(_section(rule) for rule in all_rules()))


def _section(rule: Rule) -> str:
    example = rule.example
    costs = f"\n\nCost: {example.costs}." if example.costs else ""
    return (
        f"## {rule.id}\n\n*{rule.severity}*: {rule.title}. {rule.why}\n\n"
        f"```python\n{example.before}\n```\n\nbetter\n\n```python\n{example.after}\n```{costs}"
    )


def rule_text(rule: Rule) -> str:
    """One rule for a terminal."""
    example = rule.example
    lines = [f"{rule.id} ({rule.severity}): {rule.title}", "", rule.why, ""]
    lines += [f"    {line}" for line in example.before.splitlines()] + ["", "better:", ""]
    lines += [f"    {line}" for line in example.after.splitlines()]
    return "\n".join([*lines, "", f"Waste: {example.costs}."] if example.costs else lines)


if __name__ == "__main__":
    print(rules_page(), end="")
