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

from npuscope.answer.agreement import _outputs, _plain, resizings
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.unsaved import unsaved
from npuscope.check.fixes import Patch, patches_of
from npuscope.check.rules.safety import race_finding
from npuscope.tile.script.run import run_script

HEAD = "import numpy as np\nfrom ml_dtypes import bfloat16\n\nimport npuscope.tile as pl\n\n\n"

EXAMPLES = settings(max_examples=200 if ALL_TESTS else 2, deadline=None)


def written(folder: Path, text: str) -> str:
    """A program in a file of its own; the path."""
    file = folder / "program.py"
    file.write_text(HEAD + text)
    return str(file)


def patches(file: str, *fixes: str, text: str | None = None) -> list[Patch]:
    """What fixes make of a program, or of a text that stands in for it."""
    return [one for one in looked_at(file, text)[0] if not fixes or one.fix in fixes]


def looked_at(file: str, text: str | None = None, only: str = "") -> tuple[list[Patch], int]:
    """Patches of a program, all or of one fix, and how many errors and races it has."""
    request = Request(file, texts=() if text is None else ((file, text),))
    with unsaved(request.texts):
        prediction = Prediction(request)
        wrong = (*prediction.checked.errors, *map(race_finding, prediction.races.races))
        found = (*wrong, *prediction.checked.findings)
        made, _ = patches_of(found, [file], only)
        resized = resizings(request, found, prediction.recording.sites) if only in ("tile-size", "") else ()
        return [*made, *resized], len(wrong)


def outputs(file: str, text: str) -> dict[str, np.ndarray]:
    with unsaved(((file, text),)):
        found = _outputs(run_script(file, (), "values", golden=False))
    return {name: _plain(array).astype(np.float64) for name, array in found.items()}


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


DECIDED_BY_TRIAL = ("no-dep", "tile-size")  # a wait that others need, a size that does not fit: a trial refuses it


def keeps_everything(patch: Patch, wrong: int | None = None, alike: int = 1) -> bool:
    """It parses, keeps comments and numbers, still fits, races no more than before (`wrong` errors and races), and in
    its place nothing more is to be done: `alike` patches had its title. Whether it may be offered: of few fixes only a
    trial knows.
    """
    ast.parse(patch.after)
    if patch.fix not in ("stale-value", "ignore-name"):  # which mend comments
        assert comments(patch.before) - comments(patch.after) == Counter()
    wrong = looked_at(patch.file, patch.before)[1] if wrong is None else wrong
    try:
        again, still = looked_at(patch.file, patch.after, patch.fix)
        before, after = (outputs(patch.file, text) for text in (patch.before, patch.after))
    except NpuscopeError:
        assert patch.fix in DECIDED_BY_TRIAL, patch.diff()
        return False
    if still > wrong:
        assert patch.fix in DECIDED_BY_TRIAL, patch.diff()
        return False
    assert [one.title for one in again].count(patch.title) < alike, patch.diff()
    assert before.keys() == after.keys()
    for name, values in before.items() if patch.fix != "rsqrt" else ():  # which mends numbers
        largest = np.max(np.abs(values), initial=1e-30)
        off = np.max(np.abs(values - after[name]), initial=0.0)
        assert off <= (largest * 2.0**-12 if patch.reorders else 0.0), patch.diff()
    return True


def formats(text: str) -> bool:
    command = [sys.executable, "-m", "ruff", "format", "-q", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0
