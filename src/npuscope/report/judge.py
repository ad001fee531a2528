"""What the judge says of candidates: a line each for people, Markdown for a pull request, SARIF for code review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from npuscope.answer.answer import MEANING, MOST_FINDINGS, Answer
from npuscope.base.interval import chance_text
from npuscope.check.columns import worth_text
from npuscope.check.rule import Finding
from npuscope.report.check import sarif, sarif_rule
from npuscope.table.formats import TIMES, duration, fitting, many, printable, significant
from npuscope.table.parts import Heading, In, Marked, Part, Say, marked_down

SHOWN = 3  # reasons of a candidate in Markdown
NUMBERS, DOES_NOT_RUN = "wrong-numbers", "does-not-run"  # beside the ids of rules


def judge(answers: Sequence[Answer]) -> Iterator[Part]:
    """A line per candidate and how many are good; in Markdown with the reasons of those that are not."""
    yield Say(f"npuscope: {_sum(answers)}", strong=True, where=In.MARKDOWN)
    yield Marked("\n".join(line for answer in answers for line in _bullets(answer)))
    width = max((len(answer.candidate) for answer in answers), default=0)
    for one in answers:
        yield Say(f"{one.candidate:<{width}}  {one.verdict:<7}  {_line(one)}", where=In.TEXT)
    yield Heading(_sum(answers), where=In.TEXT)


def judge_data(answers: Sequence[Answer], budget: int | None) -> dict[str, object]:
    """The JSON contract: docs/howto/judge.md."""
    good = sum(answer.is_good for answer in answers)
    return {"good": good, "of": len(answers), "answers": [answer.to_dict(budget) for answer in answers]}


def _sum(answers: Sequence[Answer]) -> str:
    bad = [one.verdict for one in answers if not one.is_good]
    kinds = [f"{bad.count(kind)} {kind}" for kind in dict.fromkeys(bad)]
    return ", ".join([f"{len(answers) - len(bad)} of {len(answers)} good", *kinds])


def _line(answer: Answer) -> str:
    parts = [_time(answer), _numbers(answer), _size(answer), _why_not(answer), _versus(answer), _best(answer)]
    return "; ".join(filter(None, parts)) or MEANING[answer.verdict]


def _time(answer: Answer) -> str:
    if answer.time is None:
        return ""
    time = answer.time
    unit = fitting(time.value, TIMES)
    low, high = (significant(ns / unit.worth) for ns in (time.low, time.high))
    return f"{duration(round(time.value))} ({time.coverage:.0%}: {low} to {high}), limited by {answer.bound}"


def _numbers(answer: Answer) -> str:
    if answer.wrong is not None:
        place = f" at {answer.wrong.file}:{answer.wrong.line}" if answer.wrong.line else ""
        return f"{answer.wrong.tensor} differs from its golden{place}"
    return {True: "golden passed", False: answer.message, None: ""}[answer.right]


def _size(answer: Answer) -> str:
    if answer.tasks is None or answer.blocks is None:
        return ""
    return f"{many(answer.tasks, 'task')}, {many(answer.blocks, 'block')}"


def _why_not(answer: Answer) -> str:
    bad = (*answer.errors, *answer.races)
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return f"{_place(bad[0])}: {bad[0].message} [{bad[0].id}]. {bad[0].remedy}{more}"
    return answer.message if answer.verdict != "wrong" else ""


def _place(reason: Finding) -> str:
    return f"{reason.file}:{reason.line}"


def _best(answer: Answer) -> str:
    if not answer.findings or not answer.is_good or (answer.findings[0].saves_ns or 0) <= 0:
        return ""
    best = answer.findings[0]
    all_of_them = "" if answer.together_ns is None else f", {duration(answer.together_ns)} by all findings together"
    return f"most to gain: {best.id} at {best.file}:{best.line}: {worth_text(best)}{all_of_them}"


def _versus(answer: Answer) -> str:
    found = answer.versus
    if found is None or answer.time is None:
        return ""
    why = f": {'; '.join(found.why)}" if found.why else ""
    return f"{change(answer)}{why}"


def change(answer: Answer) -> str:
    """989 µs → 941 µs (-4.9%, 93% likely faster)."""
    found, time = answer.versus, answer.time
    assert found is not None
    assert time is not None
    before = duration(round(time.value / found.ratio))
    if found.ratio == 1:
        return f"{before}, as {found.baseline}"
    sure = chance_text(found.probability_faster, found.verdict)
    return f"{before} → {duration(round(time.value))} ({found.ratio - 1:+.1%}, {sure})"


def _bullets(answer: Answer) -> Iterator[str]:
    yield f"- `{_code(answer.candidate)}` {_headline(answer)}"
    for detail in _details(answer):
        yield f"  - {detail}"


def _headline(answer: Answer) -> str:
    if not answer.is_good:
        return f"**{answer.verdict}**: {marked_down(_numbers(answer) if answer.verdict == 'wrong' else answer.message)}"
    if answer.versus is not None:
        return marked_down(_versus(answer))
    return marked_down("; ".join(filter(None, (_time(answer), _numbers(answer), _size(answer)))))


def _details(answer: Answer) -> Iterator[str]:
    for reason in (*answer.errors, *answer.races)[:SHOWN]:
        yield f"`{_code(_place(reason))}` {marked_down(reason.message)}. {marked_down(reason.remedy)}"
    if answer.wrong is not None:
        yield marked_down(answer.wrong.message)
    for worth in _worth(answer)[:1] if answer.is_good else ():
        yield f"`{_code(worth.file)}:{worth.line}`, {worth_text(worth)}: {marked_down(worth.remedy)}"


def _code(text: str) -> str:
    """Text of programs inside a code span, which nothing in it may end."""
    return printable(text).replace("`", "'")


def judge_sarif(answers: Sequence[Answer], files: Sequence[str]) -> str:
    """Reasons and races are errors, findings are notes; `files` are those of the answers."""
    from npuscope.check.rules import all_rules

    found = [one for answer, file in zip(answers, files, strict=True) for one in _findings(answer, file)]
    own = (_rule(NUMBERS, "The numbers are not those of the golden."), _rule(DOES_NOT_RUN, "The program does not run."))
    return sarif(found, [*(sarif_rule(rule) for rule in all_rules()), *own])


def _rule(name: str, meaning: str) -> dict[str, object]:
    """What the judge finds and no rule of `check`."""
    about = {"text": meaning}
    return {
        "id": name, "name": name.title().replace("-", ""), "shortDescription": about, "fullDescription": about,
        "help": about, "defaultConfiguration": {"level": "error"}, "properties": {"tags": ["quality"]},
    }  # fmt: skip


def _worth(answer: Answer) -> list[Finding]:
    """Findings that save time."""
    return [one for one in answer.findings if (one.saves_ns or 0) > 0]


def _findings(answer: Answer, file: str) -> Iterator[Finding]:
    for one in (*answer.errors, *answer.races):
        yield replace(one, file=_absolute(one.file))
    for one in _worth(answer)[:MOST_FINDINGS]:
        yield replace(one, severity="hint", file=_absolute(one.file))
    if answer.wrong is not None:
        place = _absolute(answer.wrong.file) if answer.wrong.line else file
        message = f"'{answer.wrong.tensor}' differs from its golden: {answer.wrong.message}"
        yield Finding(NUMBERS, "error", place, answer.wrong.line or 1, message, "")
    elif not (answer.is_good or answer.errors or answer.races):
        yield Finding(DOES_NOT_RUN, "error", file, answer.line or 1, f"{answer.verdict}: {answer.message}", "")


def _absolute(file: str) -> str:
    return str(Path(file).absolute())
