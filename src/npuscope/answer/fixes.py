"""Fixes of a program: listed, tried in processes of their own, applied. What everybody who offers fixes calls.

survey = survey_of(Request("/home/me/layer.py"))          # it runs once: its answer, patches that are not tried
for one in tried(request, survey.patches, survey):         # each in a process of its own, as they come
    one.offered, one.why, one.versus, one.numbers          # `why` it is not offered, in a sentence
mending = mend(request)                                    # both at once: `mending.offered`, the best first
mending.offered[0].patch.diff(); mending.offered[0].patch.edits; mending.offered[0].patch.write()

A patch is offered only where the program with it runs, has the numbers of its golden (without one those of the program
before: bit for bit, or within what another order of a sum may move), fits, has no error and no race that it did not
have, and is predicted faster. A patch that mends an error or a race may cost time. `Request.texts` lets an editor ask
about a buffer that is not saved. `price` puts what a tried fix gave into its findings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from npuscope.answer.answer import Answer, Versus
from npuscope.answer.judge import ENDED, How, versus
from npuscope.answer.request import Request
from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed
from npuscope.base.pool import Caller, Named, Workers, each, shared_pool
from npuscope.check.fixes.patch import Patch
from npuscope.check.rule import TRIED, Finding, Price, TrialPrice, with_trials
from npuscope.table.formats import duration

if TYPE_CHECKING:
    from npuscope.answer.numbers import Numbers
    from npuscope.check.fixes.fix import Unmended

WARM = ("npuscope.answer.prediction", "npuscope.answer.numbers", "npuscope.answer.agreement")
RACING = "it would race"
SAME_TIME = "it would take as long as now"
LEAST = 0.001  # of the time: a patch that is predicted to save less is not worth a change
Given = tuple[tuple[str, tuple[int, ...], str], ...]  # name, shape and type of each
Proof = Literal["", "golden", "bits", "order"]


@dataclass(frozen=True)
class Survey:
    """What a program says of itself: its answer, what fixes make of it, and the findings that none mends."""

    answer: Answer
    findings: tuple[Finding, ...]  # with whole paths, priced by what goes with them
    patches: tuple[Patch, ...]
    unmended: tuple[Unmended, ...]


@dataclass(frozen=True)
class Reference:
    """The numbers of the program before: whether its golden held, the files of its outputs by name, and what it is
    given and gives: a patch that makes the problem smaller is none."""

    numbers: Numbers
    files: tuple[tuple[str, str], ...]
    given: Given


@dataclass(frozen=True)
class Agreement:
    """Whether numbers agree, and with what; else `message` says where not."""

    agrees: bool
    message: str
    proof: Proof = ""


EXAMINED: Named[Request, Answer] = Named("npuscope.answer.prediction", "examined_answer_of")
SURVEY: Named[Request, Survey] = Named("npuscope.answer.agreement", "surveyed")
REFERENCE: Named[tuple[Request, str], Reference] = Named("npuscope.answer.agreement", "reference_of")
AGREEMENT: Named[tuple[Request, Reference, bool], Agreement] = Named("npuscope.answer.agreement", "agreement_of")


@dataclass(frozen=True)
class Tried:
    """One patch after its trial. `versus` holds it against the program before; `numbers` says what they agree with:
    the golden, the program before bit by bit, or that within what another order may move."""

    patch: Patch
    offered: bool
    why: str = ""
    answer: Answer | None = None
    versus: Versus | None = None
    numbers: Proof = ""

    @property
    def wall_ns(self) -> int | None:
        return None if self.answer is None else self.answer.wall_ns

    def saves_ns(self, before: Answer) -> int | None:
        """What it takes off the predicted time; None where one of them has none."""
        return None if self.wall_ns is None or before.wall_ns is None else before.wall_ns - self.wall_ns


@dataclass(frozen=True)
class Mending:
    """Everything that fixes can do for a program, each alone."""

    survey: Survey
    tried: tuple[Tried, ...]

    @property
    def offered(self) -> tuple[Tried, ...]:
        """What is worth a change, the fastest first; of patches that exclude one another the best comes first."""
        found = [one for one in self.tried if one.offered]
        return tuple(sorted(found, key=lambda one: one.wall_ns or 0))

    @property
    def refused(self) -> tuple[Tried, ...]:
        return tuple(one for one in self.tried if not one.offered)


def survey_of(request: Request, how: How = How()) -> Survey:
    """Runs the program once, in a process of its own, and lists what fixes make of it."""
    found = shared_pool(how.jobs or 2, WARM).ask(SURVEY, request, how.limits).result()
    if isinstance(found, Failed):
        raise found.error or NpuscopeError(found.message, path=request.file)
    return found


def tried(request: Request, patches: Sequence[Patch], survey: Survey, how: How = How()) -> Iterator[Tried]:
    """Each patch on top of the request's own texts, two at a time, as they are done."""
    with tempfile.TemporaryDirectory(prefix="npuscope-fixes-") as place:
        reference: Reference | Failed | None = None
        if how.golden and patches:
            reference = shared_pool(how.jobs or 2, WARM).ask(REFERENCE, (request, place), how.limits).result()
        pieces = [Trial(with_patch(request, one), one, survey.answer, reference) for one in patches]
        workers = Workers(how.engine, how.jobs or 2, how.limits, WARM)
        done = 0
        progress.report("trying fixes", 0, len(pieces))
        with closing(each(_tried, pieces, workers)) as found:
            for _, one in found:
                done += 1
                progress.report("trying fixes", done, len(pieces))
                yield one


def mend(request: Request, how: How = How(), rules: Collection[str] | None = None) -> Mending:
    """Everything at once, or only what mends findings of some rules; in the order of the patches."""
    survey = survey_of(request, how)
    if rules is not None:
        patches = tuple(one for one in survey.patches if any(mended.id in rules for mended in one.mends))
        unmended = tuple(one for one in survey.unmended if one.finding.id in rules)
        findings = tuple(one for one in survey.findings if one.id in rules)
        survey = replace(survey, findings=findings, patches=patches, unmended=unmended)
    found = {one.patch.key: one for one in tried(request, survey.patches, survey, how)}
    return Mending(survey, tuple(found[one.key] for one in survey.patches))


def with_patch(request: Request, patch: Patch) -> Request:
    """The same question with the patch in place."""
    texts: dict[str, str] = dict(request.texts) | {patch.file: patch.after}
    return replace(request, texts=tuple(texts.items()))


@dataclass(frozen=True)
class Trial:
    """One patch to try: `request` has it in place, `before` is the answer without it."""

    request: Request
    patch: Patch
    before: Answer
    reference: Reference | Failed | None  # None where numbers are not compared


def _tried(call: Caller, trial: Trial) -> Tried:
    """By what costs least first: does it run, fit, stay safe, is it faster; then its numbers."""
    examined, _ = call(EXAMINED, trial.request)
    if isinstance(examined, Failed):
        return Tried(trial.patch, False, f"{ENDED[examined.kind]}: {examined.message}")
    against = versus(trial.before, examined)
    why = _unsound(trial.before, examined) or _no_gain(trial, examined)
    if why:
        return Tried(trial.patch, False, why, examined, against)
    proof: Proof = ""
    if trial.reference is not None:
        if isinstance(trial.reference, Failed):
            why = f"the numbers before it are not known: with values {trial.reference.message}"
            return Tried(trial.patch, False, why, examined, against)
        agreed, _ = call(AGREEMENT, (trial.request, trial.reference, trial.patch.reorders))
        if isinstance(agreed, Failed):
            return Tried(trial.patch, False, f"with values {agreed.message}", examined, against)
        if not agreed.agrees:
            return Tried(trial.patch, False, agreed.message, examined, against)
        proof = agreed.proof
    return Tried(trial.patch, True, "", examined, against, proof)


def _unsound(before: Answer, after: Answer) -> str:
    """Why a program may not be offered, whatever it takes; "" where nothing speaks against it."""
    if after.verdict in ("fails", "exited"):
        return f"it does not run: {after.message}"
    new = _new(before.errors, after.errors)
    if new:
        return f"it would not fit or compile: {new[0].message}"
    racing = _new(before.races, after.races)
    return f"{RACING}: {racing[0].message}" if racing else ""


def _new(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """Errors beyond those that were there; lines move, so they are counted by rule and kernel."""
    known = [(one.id, one.kernel) for one in before]
    found = []
    for one in after:
        if (one.id, one.kernel) in known:
            known.remove((one.id, one.kernel))
        else:
            found.append(one)
    if len(after) <= len(before):
        return [] if len(found) <= len(known) else found
    return found or list(after[:1])


def _no_gain(trial: Trial, after: Answer) -> str:
    """Why it is not worth it; a patch that leaves fewer errors or races is."""
    before = trial.before
    if len(after.errors) + len(after.races) < len(before.errors) + len(before.races):
        return ""
    if after.wall_ns is None or before.wall_ns is None:
        return "" if before.wall_ns is None and after.wall_ns else f"it has no time: {after.message}"
    saved = before.wall_ns - after.wall_ns
    if trial.patch.quality:
        return f"it would take {duration(-saved)} longer" if saved < -LEAST * before.wall_ns else ""
    if saved < 0:
        return f"it would take {duration(-saved)} longer"
    if saved <= LEAST * before.wall_ns:
        return SAME_TIME
    return ""


def trial_prices(mending: Mending) -> tuple[TrialPrice, ...]:
    """What was learned of each finding, for `Request.tried`: every later answer of the same program shows it."""
    best: dict[tuple[str, str, int], Tried] = {}
    refused: dict[tuple[str, str, int], Tried] = {}
    for one in sorted(mending.tried, key=lambda one: -(one.wall_ns or 0)):
        for mended in one.patch.mends:
            (best if one.offered else refused)[mended.id, mended.file, mended.line] = one
    why = {(one.finding.id, one.finding.file, one.finding.line): one.why for one in mending.survey.unmended}
    before = mending.survey.answer
    found: dict[tuple[str, str, int], Price | None] = {}
    for finding in mending.survey.findings:
        key = (finding.id, finding.file, finding.line)
        if key in best:
            one = best[key]
            found[key] = Price(f"tried: {one.patch.title}", one.wall_ns, one.saves_ns(before), TRIED)
        elif key in refused:
            one, saved = refused[key], refused[key].saves_ns(before)
            least = LEAST * (before.wall_ns or 0)
            if saved is None or finding.severity == "error" or saved > least:  # not its time speaks against it
                found[key] = Price("", tried=f"not offered: {one.why}")
            else:
                found[key] = None if saved < -least else Price(f"tried: {one.patch.title}", one.wall_ns, saved, TRIED)
        else:
            found[key] = Price("", tried=f"not tried: {why.get(key, 'no fix rewrites this yet')}")
    return tuple(TrialPrice(*key, price) for key, price in found.items())


def price(mending: Mending) -> tuple[Finding, ...]:
    """Its findings worth what their fixes gave; what was not tried says so, and is ranked by what it would save without
    its waste."""
    return with_trials(mending.survey.findings, trial_prices(mending))


def relative_to(file: str, folder: Path) -> str:
    """A path as a diff names it."""
    try:
        return str(Path(file).resolve().relative_to(folder.resolve()))
    except ValueError:
        return file


__all__ = ["Mending", "Survey", "Tried", "mend", "price", "survey_of", "trial_prices", "tried", "with_patch"]
