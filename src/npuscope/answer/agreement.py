"""What processes of their own do for fixes: list them, keep the numbers of a program, and hold other numbers to them.

A change of the order of a sum moves its last bits. How far it may: an output of n-bit mantissa is allowed two of its
own steps, and everything summed in fp32 before it 1,024 steps of fp32, both of the largest value of the tensor, because
what was cancelled is as uncertain as what it was cancelled from.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npuscope.answer.answer import Answer
from npuscope.answer.fixes import Agreement, Given, Reference, Survey
from npuscope.answer.knobs import Knob, knobs_of
from npuscope.answer.numbers import Numbers, numbers_in
from npuscope.answer.prediction import Prediction, answer_of
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.process_memory import collected_rarely
from npuscope.base.unsaved import unsaved
from npuscope.check.fixes import Patch, patches_of
from npuscope.check.fixes.fix import mended
from npuscope.check.fixes.patch import no_patches
from npuscope.check.rule import Finding
from npuscope.check.rules.safety import race_finding
from npuscope.lower.source import read
from npuscope.tile.record import sites
from npuscope.tile.record.model import Site
from npuscope.tile.script.run import ScriptRun
from npuscope.tile.script.settings import with_settings

STEPS = 2.0  # of the output's own type
ORDER = 1024 * 2.0**-24  # of fp32
MANTISSA = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
Array = npt.NDArray[np.generic]


SMALLER, LARGER = 1, 2  # values of a setting that are tried at a time, the nearest
RESIZED = ("short-row", "tile-size", "shared-load", "partial-wave", "short-task", "buffer-overflow")


def surveyed(request: Request) -> Survey:
    """The program's answer, and what fixes and other sizes of its tiles make of it."""
    predictions: list[Prediction] = []  # it runs once for both

    def kept(one: Prediction) -> Answer:
        predictions.append(one)
        return one.answer()

    answer = answer_of(request, kept)
    with unsaved(request.texts):
        if answer.verdict in ("fails", "exited") or not predictions:
            return Survey(answer, (), (), ())
        (prediction,) = predictions
        races = tuple(map(race_finding, prediction.races.races))
        errors = prediction.checked.errors
        findings = prediction.checked.findings if errors else prediction.findings
        every = (*errors, *races, *findings)
        ran = prediction.recording.sites
        files = (site.file for site in ran if sites.is_users(site.file))
        patches, unmended = patches_of([one for one in every if sites.is_users(one.file)], files)
        resized = resizings(request, every, ran)
        left = {one for patch in resized for one in patch.mends}
        unmended = tuple(one for one in unmended if not set(mended([one.finding])) & left)
        return Survey(answer, every, (*patches, *resized), unmended)


def resizings(request: Request, findings: Sequence[Finding], ran: Sequence[Site]) -> tuple[Patch, ...]:
    """Settings with other values written into the text: those that cut something into pieces, and switches.

    What is given as an option of the command line stays as it was given.
    """
    found: dict[str, Patch] = {}
    for knob in knobs_of(request.file, request.argv):
        word = knob.name.rpartition(".")[2].lower().replace("_", "-")
        given = any(one.removeprefix("--no-").removeprefix("--") == word for one in request.argv)
        if given or knob.kind in ("jit", "variable", "option") or not _took_part(knob, ran):
            continue
        for value in _others(knob):
            try:
                changed = with_settings(Path(request.file), {knob.name: str(value)})
            except NpuscopeError:
                continue
            if len(changed) != 1:
                continue
            ((path, (before, after)),) = changed.items()
            if no_patches(str(path), before):
                continue
            title = f"{knob.name} = {value} in place of {knob.value}"
            mends = mended([one for one in findings if one.id in RESIZED and _names(one, knob.name)])
            fix = "switch" if isinstance(knob.value, bool) else "tile-size"
            patch = Patch(fix, title, str(path), before, after, mends, reorders=True)
            if patch.before != patch.after:
                found.setdefault(patch.key, patch)
    return tuple(found.values())


def _others(knob: Knob) -> list[object]:
    """The values of a setting to try: the other one of a switch, of a size the nearest."""
    now = knob.value
    if isinstance(now, bool):
        return [not now]
    if not isinstance(now, int) or not knob.cuts:
        return []
    values = [one for one in knob.values if isinstance(one, int)]
    return [*[one for one in values if one > now][:LARGER], *[one for one in values if one < now][-SMALLER:]]


def _took_part(knob: Knob, ran: Sequence[Site]) -> bool:
    """Whether the function that a constant stands in ran; one of a file or class may serve any."""
    source = read(knob.file)
    function = None if source is None else source.function_at(knob.line)
    if function is None:
        return True
    lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
    return any(site.line in lines and Path(site.file).resolve() == Path(knob.file).resolve() for site in ran)


def _names(finding: Finding, knob: str) -> bool:
    """Whether the statement of a finding, or a loop around it, says the name."""
    source = read(finding.file)
    around = [] if source is None else source.around(finding.line)
    statement = around[-1] if around else None
    heads = [one.iter for one in around if isinstance(one, ast.For)]
    words = {
        node.id if isinstance(node, ast.Name) else node.attr
        for part in ([statement] if statement is not None else []) + heads
        for node in ast.walk(part)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    return knob.rpartition(".")[2] in words


def reference_of(question: tuple[Request, str]) -> Reference:
    """Runs with values and keeps the outputs in a folder."""
    request, folder = question
    numbers, outputs, given = _ran(request)
    files = []
    for number, (name, array) in enumerate(outputs.items()):
        file = Path(folder) / f"{number}.npy"
        np.save(file, _plain(array), allow_pickle=False)
        files.append((name, str(file)))
    return Reference(numbers, tuple(files), given)


def agreement_of(question: tuple[Request, Reference, bool]) -> Agreement:
    """Runs with values: the golden decides; without one, or where it did not hold before, the numbers of before do."""
    request, reference, reorders = question
    numbers, outputs, given = _ran(request)
    if given != reference.given:
        return Agreement(False, "it would be another problem: what the program is given or gives has another size")
    if numbers.right:
        return Agreement(True, "", "golden")
    if numbers.right is False and reference.numbers.right is not False:
        more = f": {numbers.wrong.message}" if numbers.wrong else ""
        return Agreement(False, f"its numbers would be wrong{more}" if numbers.wrong else numbers.message)
    if not reference.files:
        return Agreement(False, "there are no numbers to compare: it has no golden and no output")
    worst = 0.0
    for name, file in reference.files:
        if name not in outputs:
            return Agreement(False, f"its output {name} would be gone")
        old, new = np.load(file, allow_pickle=False), _plain(outputs[name])
        if old.shape != new.shape or old.dtype != new.dtype:
            return Agreement(False, f"its output {name} would have another shape or type")
        worst = max(worst, _off(old, new, str(outputs[name].dtype)))
    if worst == 0.0:
        return Agreement(True, "", "bits")
    if reorders and worst <= 1.0:
        return Agreement(True, "", "order")
    what = "by more than another order may move" if reorders else "although no order changes"
    return Agreement(False, f"its numbers would change, {what}")


def _off(old: Array, new: Array, dtype: str) -> float:
    """The largest difference as a multiple of what an order may move; 0 where all are equal."""
    if old.dtype.kind not in "fV":
        return 0.0 if np.array_equal(old, new) else np.inf
    a, b = old.astype(np.float64), new.astype(np.float64)
    if np.array_equal(a, b, equal_nan=True):
        return 0.0
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    sound = np.isfinite(a)
    largest = float(np.max(np.abs(a[sound]), initial=0.0)) or 1.0
    allowed = largest * (STEPS * 2.0 ** -MANTISSA.get(dtype, 24) + ORDER)
    return float(np.max(np.abs(a[sound] - b[sound]), initial=0.0)) / allowed


def _plain(array: Array) -> Array:
    """In a type that NumPy keeps in files."""
    return array.astype(np.float32) if str(array.dtype) == "bfloat16" or array.dtype.kind == "V" else array


def _ran(request: Request) -> tuple[Numbers, dict[str, Array], Given]:
    with collected_rarely():
        numbers, ran = numbers_in(request)
    given = (one for run in ran.runs for one in run.recording.buffers if one.origin == "parameter")
    return numbers, _outputs(ran), tuple((one.name, tuple(one.shape), str(one.dtype)) for one in given)


def _outputs(ran: ScriptRun) -> dict[str, Array]:
    """What the programs of a script gave back, by the number of the program and the name of the tensor."""
    found: dict[str, Array] = {}
    for number, run in enumerate(ran.runs):
        named = run.named
        for buffer in run.recording.buffers:
            if buffer.origin == "parameter" and buffer.direction in ("Out", "InOut") and buffer.name in named:
                found[f"{number}.{buffer.name}"] = named[buffer.name]
    return found
