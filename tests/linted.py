"""Small tile programs under one lint rule: run, checked, and findings told by the lines they are at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from npuscope.check.rule import Finding, Rule, Waste
from npuscope.check.rules import own_rules
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import collecting, mode_of_runs
from npuscope.tile.script.run import run_script

MODELS = Path(__file__).resolve().parents[1] / "models"
TYPES: dict[str, Any] = {"BF16": bfloat16, "FP32": np.float32, "INT8": np.int8, "INT32": np.int32, "FP16": np.float16}


def program(entry: Any, *arguments: tuple[str, int, int] | int, device: str = "ascend910b1") -> Program:
    """An entry run on tensors of these types and shapes (or on numbers), shapes only, and a chip to check it for."""
    given = [a if isinstance(a, int) else np.zeros(a[1:], TYPES[a[0]]) for a in arguments]
    with mode_of_runs("shapes"), collecting() as runs:
        entry(*given)
    (run,) = runs
    return Program(run.recording, load(device))


def model(name: str, *arguments: str) -> Program:
    """The (last) program that a script of models/ runs."""
    return Program(run_script(MODELS / f"{name}.py", arguments, "shapes").recordings[-1], load("ascend910b1"))


def rule_of(id: str) -> Rule:
    return {rule.id: rule for rule in own_rules()}[id]


def found(id: str, checked: Program) -> dict[int, Finding]:
    """The findings of a rule by line; of several at one line the first, with the cost of all."""
    findings: dict[int, Finding] = {}
    costs: dict[int, Waste] = {}
    for finding in rule_of(id).check(checked):
        assert finding.id == id
        assert finding.remedy.endswith(".")
        findings.setdefault(finding.line, finding)
        costs[finding.line] = costs.get(finding.line, Waste()) + finding.waste
    return {line: replace(finding, waste=costs[line]) for line, finding in findings.items()}


def line_of(file: str, text: str) -> int:
    """The one line of a file that has this text, other than as a string of its own."""
    lines = Path(file).read_text().splitlines()
    (line,) = [number for number, line in enumerate(lines, 1) if text in line and f'"{text}"' not in line]
    return line
