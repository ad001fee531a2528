"""Programs before and after a fix: what every patch must keep, whatever it changes."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import settings
from tiers import ALL_TESTS

from npuscope.answer.agreement import _outputs, _plain
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.unsaved import unsaved
from npuscope.check.fixes import Patch, patches_of
from npuscope.check.rules.safety import race_finding
from npuscope.tile.script.run import run_script

HEAD = "import numpy as np\nfrom ml_dtypes import bfloat16\n\nimport npuscope.tile as pl\n\n\n"

EXAMPLES = settings(max_examples=200 if ALL_TESTS else 3, deadline=None)


def written(folder: Path, text: str) -> str:
    """A program in a file of its own; the path."""
    file = folder / "program.py"
    file.write_text(HEAD + text)
    return str(file)


def patches(file: str, *fixes: str, text: str | None = None) -> list[Patch]:
    """What fixes make of a program's findings, or of a text that stands in for it."""
    request = Request(file, texts=() if text is None else ((file, text),))
    with unsaved(request.texts):
        prediction = Prediction(request)
        found = (*prediction.checked.errors, *map(race_finding, prediction.races.races), *prediction.checked.findings)
        made, _ = patches_of(found)
    return [one for one in made if not fixes or one.fix in fixes]


def outputs(file: str, text: str) -> dict[str, np.ndarray]:
    with unsaved(((file, text),)):
        found = _outputs(run_script(file, (), "values", golden=False))
    return {name: _plain(array).astype(np.float64) for name, array in found.items()}


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def errors_and_races(file: str, text: str) -> int:
    with unsaved(((file, text),)):
        found = Prediction(Request(file, texts=((file, text),))).examined()
    return len(found.errors) + len(found.races)


def keeps_everything(patch: Patch) -> None:
    """It parses and formats, keeps comments and numbers, still fits and races no more than before."""
    ast.parse(patch.after)
    if patch.fix not in ("stale-value", "ignore-name"):  # which mend comments
        assert comments(patch.before) - comments(patch.after) == Counter()
    before, after = (outputs(patch.file, text) for text in (patch.before, patch.after))
    assert before.keys() == after.keys()
    for name, values in before.items():
        largest = np.max(np.abs(values), initial=1e-30)
        off = np.max(np.abs(values - after[name]), initial=0.0)
        assert off <= (largest * 2.0**-12 if patch.reorders else 0.0), (patch.title, name)
    assert errors_and_races(patch.file, patch.after) <= errors_and_races(patch.file, patch.before)
    if ALL_TESTS:
        command = [sys.executable, "-m", "ruff", "format", "-q", "-"]
        subprocess.run(command, input=patch.after, text=True, check=True, capture_output=True)


def twice_changes_nothing(patch: Patch) -> None:
    """After a patch its fix finds nothing more to do for what it mended: in its place it would change nothing."""
    again = patches(patch.file, patch.fix, text=patch.after)
    assert not [one for one in again if one.title == patch.title], patch.title
