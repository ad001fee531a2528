"""Small tile scripts for tests of `npuscope check`: written to a folder, run in shapes mode, checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuscope.answer.checks import checks
from npuscope.answer.request import Request
from npuscope.check.rule import Finding
from npuscope.check.run import Checked, rules_of

HEAD = """import numpy as np
import npuscope.tile as pl
"""


def checked(folder: Path, text: str, *argv: str, select: Sequence[str] = (), races: bool = True) -> Checked:
    """What is found in the one program that a script runs; the script is `folder/script.py`."""
    file = folder / "script.py"
    file.write_text(HEAD + text)
    return check_file(file, *argv, select=select, races=races)


def check_file(file: Path, *argv: str, select: Sequence[str] = (), races: bool = True) -> Checked:
    """What is found in the one program of a file, without prices."""
    (found,) = checks(Request(str(file), argv), rules_of(select, (), races), price=False)
    return found


def findings(folder: Path, text: str, id: str, *argv: str) -> list[Finding]:
    """The findings of one rule, in the order of their lines."""
    found = checked(folder, text, *argv, select=(id,)).findings
    return sorted(found, key=lambda finding: finding.line)


def line_of(text: str, mark: str) -> int:
    """The line in `script.py` that holds a mark."""
    (number,) = [n for n, line in enumerate((HEAD + text).splitlines(), 1) if mark in line]
    return number
