"""Whether a program's numbers are right: run with values and compared with the goldens of its script."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from npuscope.answer.answer import Wrong
from npuscope.answer.prediction import near, refusals
from npuscope.answer.request import Request
from npuscope.base.frozen import dataclass
from npuscope.base.process_memory import collected_rarely
from npuscope.base.unsaved import unsaved
from npuscope.tile.golden import RunResult
from npuscope.tile.script.run import ScriptRun, imported, run_script

_WRITTEN = re.compile(r"last written by .* at (?P<file>\S+):(?P<line>\d+)")


@dataclass(frozen=True)
class Numbers:
    """`right` is None where there was nothing to compare, and `message` says why."""

    right: bool | None
    message: str = ""
    wrong: Wrong | None = None


def numbers_of(request: Request) -> Numbers:
    """Runs with values and compares."""
    return numbers_in(request)[0]


def numbers_in(request: Request) -> tuple[Numbers, ScriptRun]:
    """The same with the run itself."""
    with (
        collected_rarely(),
        unsaved(request.texts),
        imported() as modules,
        refusals(request.file, request.argv),
    ):
        ran = run_script(request.file, request.argv, "values", settings=dict(request.settings))
    found = _judged(ran)
    if found.wrong is None:
        return found, ran
    files = [Path(request.file), *map(Path, sorted(modules))]
    whole = next((near(str(file.resolve())) for file in files if file.name == found.wrong.file), found.wrong.file)
    return replace(found, wrong=replace(found.wrong, file=whole)), ran


def _judged(ran: ScriptRun) -> Numbers:
    wrong = next((one for one in ran.results if one.compared and not one.passed), None)
    if wrong is not None:
        return Numbers(False, "its numbers are wrong", _wrong(wrong))
    if ran.passed is False:
        error = ran.failure or next((one.error for one in ran.results if one.error), None)
        return Numbers(False, error or f"it ends with exit code {ran.exit_code}")
    if any(one.compared for one in ran.results):
        return Numbers(True)
    why = next((one.unchecked for one in ran.results if one.unchecked), "it has no golden")
    return Numbers(None, f"nothing was compared: {why}")


def _wrong(result: RunResult) -> Wrong:
    """Out of the message of the golden: the tensor's own line, the first element that differs."""
    lines = (result.error or "").splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("  '")), 0)
    tensor = lines[at].split("'")[1] if lines and lines[at].startswith("  '") else ""
    details = [line.strip() for line in lines[at + 1 : at + 5]]
    first = next((line for line in details if _WRITTEN.search(line)), "")
    place = _WRITTEN.search(first)
    message = "; ".join(filter(None, (details[0] if details else "", first)))
    return Wrong(tensor, message, place["file"] if place else "", int(place["line"]) if place else None)
