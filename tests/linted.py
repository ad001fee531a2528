"""Small tile programs under one lint rule: run, checked, and findings told by the lines they are at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from npuscope.check.rule import Finding, Rule, Waste
from npuscope.check.rules import own_rules
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import collecting, mode_of_runs
from npuscope.tile.script.run import run_script

MODELS = Path(__file__).resolve().parents[1] / "models"


def program(entry: Any, *numbers: int, device: str = "ascend910b1") -> Program:
    """An entry run on tensors of its declared shapes and on numbers, shapes only, and a chip to check it for."""
    left = iter(numbers)
    arrays = [parameter.new_array() for parameter in entry.parameters]
    with mode_of_runs("shapes"), collecting() as runs:
        entry(*(next(left) if array is None else array for array in arrays))
    (run,) = runs
    return Program(run.recording, load(device))


def model(name: str, *arguments: str) -> Program:
    """The (last) program that a script of models/ runs."""
    return Program(run_script(MODELS / f"{name}.py", arguments, "shapes").recordings[-1], load("ascend910b1"))


def rule_of(id: str) -> Rule:
    return {rule.id: rule for rule in own_rules()}[id]


def found(id: str, checked: Any) -> dict[int, Finding]:
    """The findings of a rule in a program or an entry, by line; of several at one line the first, with all costs."""
    checked = checked if isinstance(checked, Program) else program(checked)
    findings: dict[int, Finding] = {}
    costs: dict[int, Waste] = {}
    for finding in rule_of(id).check(checked):
        assert finding.id == id
        assert finding.remedy.endswith(".")
        findings.setdefault(finding.line, finding)
        costs[finding.line] = costs.get(finding.line, Waste()) + finding.waste
    return {line: replace(finding, waste=costs[line]) for line, finding in findings.items()}


def only(id: str, checked: Any, mark: str = "") -> Finding:
    """The one finding of a rule, which is at the line with this mark."""
    (finding,) = found(id, checked).values()
    assert not mark or finding.line == line_of(finding.file, mark)
    return finding


def line_of(file: str, text: str) -> int:
    """The one line of a file that has this text, other than as a string of its own."""
    lines = Path(file).read_text().splitlines()
    (line,) = [number for number, line in enumerate(lines, 1) if text in line and f'"{text}"' not in line]
    return line
