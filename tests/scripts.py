"""Small tile scripts for tests of `npuscope check`: written to a folder, run in shapes mode, checked."""

from __future__ import annotations

from pathlib import Path

from npuscope.check.checked import Checked, CheckOptions, check_all
from npuscope.check.findings import Finding
from npuscope.chip.devices import load

HEAD = """import numpy as np
import npuscope.tile as pl
"""


def checked(folder: Path, text: str, *argv: str, **options: object) -> Checked:
    """What is found in the one program that a script runs; the script is `folder/script.py`."""
    file = folder / "script.py"
    file.write_text(HEAD + text)
    (found,) = check_all(str(file), argv, load("ascend910b1"), CheckOptions(**options))  # type: ignore[arg-type]
    return found


def findings(folder: Path, text: str, id: str, *argv: str) -> list[Finding]:
    """The findings of one rule, in the order of their lines."""
    found = [one.finding for one in checked(folder, text, *argv, select=(id,)).findings]
    return sorted(found, key=lambda finding: finding.line)


def line_of(text: str, mark: str) -> int:
    """The line in `script.py` that holds a mark."""
    (number,) = [n for n, line in enumerate((HEAD + text).splitlines(), 1) if mark in line]
    return number
