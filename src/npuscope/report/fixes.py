"""Fixes that were tried: each patch with what it gives and why others are not offered; and a search over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from npuscope.answer.answer import Answer
from npuscope.answer.fixes import Mending, Tried, price, relative_to
from npuscope.answer.improve import Improved
from npuscope.base.interval import chance_text, never_certain
from npuscope.check.rule import Rule
from npuscope.report.check import sarif, sarif_rule
from npuscope.table.columns import Column, Columns
from npuscope.table.formats import COUNT, TEXT, TIME, duration, figures, many, sentence_start
from npuscope.table.parts import CodeLines, Heading, In, Notes, Part, Rows, Say

PROOFS = {
    "golden": "the golden holds",
    "bits": "its numbers are those of before, bit by bit",
    "order": "its numbers are those of before, within what another order of its sums moves",
    "": "its numbers were not compared",
}
MOST_TRIALS = 200  # rows
MOST_REASONS = 40  # findings without a fix that are listed


def fixes(file: str, mending: Mending, folder: Path, written: Sequence[str] = ()) -> Iterator[Part]:
    """Patches that are offered, the one that saves most first; then what is not offered, each with why."""
    before, offered = mending.survey.answer, _best_of_each(mending)
    yield Heading(f"Fixes of {file} on {before.device}", 1, In.MARKDOWN)
    if before.wall_ns is None:
        yield Say(f"As it is, it does not run: {before.message}", kind="error")
    elif not offered:
        tried = f"{many(len(mending.tried), 'patch', 'patches')} tried" if mending.tried else "no finding has a patch"
        yield Say(f"{duration(before.wall_ns)}, simulated; nothing to offer: {tried}.", strong=True)
    else:
        count = many(len(offered), "fix", "fixes")
        yield Say(
            f"{duration(before.wall_ns)}, simulated; {count}, each tried alone: gains do not add up.", strong=True
        )
    for number, (one, others) in enumerate(offered, 1):
        place = f"{relative_to(one.patch.file, folder)}:{one.patch.line}"
        yield Heading(f"{number}. {place}: {one.patch.title} [{one.patch.fix}]", 2)
        yield Say(gain_text(before, one))
        if others:
            also = ", ".join(f"{other.patch.title} ({duration(other.wall_ns or 0)})" for other in others)
            yield Say(f"Instead of it: {also}.")
        yield CodeLines(one.patch.diff(relative_to(one.patch.file, folder)), "diff")
    refused = [
        f"{relative_to(one.patch.file, folder)}:{one.patch.line}: {one.patch.title} [{one.patch.fix}]: {one.why}"
        for one in mending.refused
        if not _is_beaten(one, mending)
    ]
    if refused:
        yield Heading("Tried and not offered")
        yield Notes(refused)
    unmended = [
        f"{relative_to(one.finding.file, folder)}:{one.finding.line}: {one.finding.id}: {one.why}"
        for one in mending.survey.unmended
    ]
    if unmended:
        yield Heading("Findings without a patch: their prices are what goes with them, not tried")
        more = [f"… and {len(unmended) - MOST_REASONS} more"] if len(unmended) > MOST_REASONS else []
        yield Notes([*unmended[:MOST_REASONS], *more])
    if written:
        yield Notes(written, where=In.TEXT)


def gain_text(before: Answer, one: Tried) -> str:
    """1.74 ms → 1.37 ms: 0.79 times (80%: 0.6 to 1.05), undecided, 87% likely faster; the golden holds."""
    proof = PROOFS[one.numbers]
    versus = one.versus
    if versus is None or before.wall_ns is None:
        return f"It runs then: {duration(one.wall_ns or 0)}, simulated; {proof}."
    return (
        f"{duration(before.wall_ns)} → {duration(one.wall_ns or 0)}, simulated: {figures(versus.ratio)} times "
        f"(80%: {figures(versus.low)} to {figures(versus.high)}), "
        f"{chance_text(versus.probability_faster, versus.verdict)}; {proof}."
    )


def _best_of_each(mending: Mending) -> list[tuple[Tried, list[Tried]]]:
    """Offered patches, each with those that exclude it: of one fix and for the same findings."""
    found: dict[object, list[Tried]] = {}
    for one in mending.offered:
        found.setdefault((one.patch.fix, one.patch.file, one.patch.mends), []).append(one)
    return [(first, others) for first, *others in found.values()]


def _is_beaten(one: Tried, mending: Mending) -> bool:
    """Whether another patch of the same fix and findings is offered: then nobody asks why this one is not."""
    alike = (one.patch.fix, one.patch.file, one.patch.mends)
    return any((other.patch.fix, other.patch.file, other.patch.mends) == alike for other in mending.offered)


def fixes_data(file: str, mending: Mending) -> dict[str, object]:
    """The JSON contract of `check --fix`."""
    before = mending.survey.answer
    return {
        "file": file,
        "device": before.device,
        "wall_ns": before.wall_ns,
        "findings": [
            {"id": one.id, "file": one.file, "line": one.line, "saves_ns": one.saves_ns, "tried": one.price.tried}
            for one in price(mending)
            if one.price is not None
        ],
        "fixes": [tried_data(one, before) for one in mending.offered],
        "not_offered": [tried_data(one, before) for one in mending.refused],
        "unmended": [
            {"id": one.finding.id, "file": one.finding.file, "line": one.finding.line, "why": one.why}
            for one in mending.survey.unmended
        ],
    }


def fixes_sarif(mending: Mending, rules: Sequence[Rule]) -> str:
    """Findings with the patches that are offered for them, for code review."""
    offered = [(one.patch, gain_text(mending.survey.answer, one)) for one in mending.offered]
    return sarif(price(mending), [sarif_rule(rule) for rule in rules], offered)


def tried_data(one: Tried, before: Answer) -> dict[str, object]:
    """One patch after its trial."""
    patch = one.patch
    whole = {
        "fix": patch.fix,
        "title": patch.title,
        "file": patch.file,
        "line": patch.line,
        "mends": [list(mended) for mended in patch.mends],
        "wall_ns": one.wall_ns,
        "saves_ns": one.saves_ns(before),
        "versus": one.versus and asdict(one.versus),
        "numbers": one.numbers,
        "why": one.why,
        "diff": patch.diff(),
    }
    return {name: value for name, value in whole.items() if value not in (None, "")}


TRIALS = Columns(
    "improve",
    "A trial of a search over fixes and settings, in their order.",
    Column("trial", COUNT, "its number"),
    Column("fix", TEXT, "the fix; `a+b` where two were tried at once"),
    Column("title", TEXT, "what it does", title="patch"),
    Column("line", COUNT, "the first line that changes"),
    Column("before_ns", TIME, "predicted time of the program that it was tried on", title="before"),
    Column("wall_ns", TIME, "predicted time with it", title="with it"),
    Column("taken", TEXT, "the number of the step, where it was taken", title="step"),
    Column("why", TEXT, "why it was not taken"),
)


def improvement(file: str, found: Improved, folder: Path, written: Sequence[str] = ()) -> Iterator[Part]:
    """The best program of a search, a patch per step, and all that was tried."""
    first, best, sure = found.first, found.best, found.versus
    tried = f"{many(len(found.tried), 'trial')}, {many(found.compared, 'fix', 'fixes')} compared; {found.ended}"
    yield Heading(f"{file} improved on {first.device}", 1, In.MARKDOWN)
    if sure is None or first.wall_ns is None or best.wall_ns is None:
        start = f"{duration(first.wall_ns)}, simulated: " if first.wall_ns else ""
        what = "nothing to improve was found" if not found.taken else "it runs now"
        yield Say(f"{start}{what} ({tried}).", strong=True)
    else:
        yield Say(
            f"{duration(first.wall_ns)} → {duration(best.wall_ns)}, simulated: {figures(first.wall_ns / best.wall_ns)} "
            f"times as fast, in {many(len(found.taken), 'step')}.",
            strong=True,
        )
        yield Say(
            f"How sure: measured, the ratio of {figures(sure.ratio)} lies from {figures(sure.low)} to "
            f"{figures(sure.high)} 80% of the time; {never_certain(sure.probability_faster)} likely faster. "
            f"Of {many(found.compared, 'fix', 'fixes')} {found.chosen} were taken because they were predicted faster: "
            f"they look better than they are, so misses count {figures(found.selected)} times."
        )
        yield Say(f"{sentence_start(tried)}.")
    for number, step in enumerate(found.taken, 1):
        place = f"{relative_to(step.patch.file, folder)}:{step.patch.line}"
        yield Heading(f"Step {number}. {place}: {step.patch.title} [{step.patch.fix}]")
        yield Say(gain_text(step.before, step.tried))
        yield CodeLines(step.patch.diff(relative_to(step.patch.file, folder)), "diff")
    yield Heading("All trials")
    yield Rows(TRIALS.table(_rows(found)), text=MOST_TRIALS)
    if written:
        yield Notes(written, where=In.TEXT)


def _rows(found: Improved) -> Iterator[dict[str, object]]:
    taken = {id(step.tried): number for number, step in enumerate(found.taken, 1)}
    for number, (one, before) in enumerate(found.tried, 1):
        step = taken.get(id(one))
        again = "a better one was taken" if one.offered and step is None else ""
        yield {
            "trial": number,
            "fix": one.patch.fix,
            "title": one.patch.title,
            "line": one.patch.line,
            "before_ns": before,
            "wall_ns": one.wall_ns,
            "taken": "" if step is None else f"{step}",
            "why": one.why or again,
        }


def improved_data(file: str, found: Improved) -> dict[str, object]:
    """The JSON contract of `improve`."""
    return {
        "file": file,
        "device": found.first.device,
        "wall_ns": found.first.wall_ns,
        "best_ns": found.best.wall_ns,
        "versus": found.versus and asdict(found.versus),
        "compared": found.compared,
        "chosen": found.chosen,
        "ended": found.ended,
        "steps": [tried_data(step.tried, step.before) for step in found.taken],
        "trials": list(_rows(found)),
        "texts": dict(found.texts),
    }
