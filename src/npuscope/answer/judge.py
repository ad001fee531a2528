"""One answer for each candidate: does it run, is it right, does it compile, is it safe, how fast is it and why.

from npuscope import judge
answer = judge("layer.py")  # or the source itself, or several
answer.verdict, answer.time, answer.findings
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from npuscope.answer.answer import Answer, KernelShare, Verdict, Versus
from npuscope.answer.request import Request
from npuscope.answer.results import results_in
from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed, Limits, Used
from npuscope.base.pool import Caller, Named, Workers, each
from npuscope.models import program_file
from npuscope.table.formats import duration, many

if TYPE_CHECKING:
    from npuscope.answer.numbers import Numbers

DEFAULT = Limits()
WARM = ("npuscope.answer.prediction", "npuscope.answer.numbers")  # what a warm process has loaded
EXAMINED: Named[Request, Answer] = Named("npuscope.answer.prediction", "answer_of")
NUMBERS: Named[Request, Numbers] = Named("npuscope.answer.numbers", "numbers_of")
MOST_CHANGES = 4  # changes that are told
LEAST_RUN = 0.01  # of the baseline's time over all blocks: a kernel that changes by less is not told
LEAST_MEMORY = 0.05  # of a memory
ENDED: dict[str, Verdict] = {
    "refused": "fails", "raised": "fails", "exited": "exited", "crashed": "crashed", "time": "time",
    "memory": "memory", "cancelled": "exited", "lost": "crashed",
}  # fmt: skip


@dataclass(frozen=True)
class How:
    """How to judge. `limits` are of each of a candidate's two runs; `golden`: also compute and compare."""

    golden: bool = True
    limits: Limits = DEFAULT
    results: Path | None = None
    engine: str = "processes"
    jobs: int | None = None


def judge(
    program: str | Path,
    argv: Sequence[str] = (),
    *,
    device: str = "",
    settings: Mapping[str, str] | None = None,
    number: int | None = None,
    baseline: str | Path | None = None,
    how: How = How(),
) -> Answer:
    """Judges a file, or the source of a program: text of several lines. A warm process is kept for the next one."""
    (answer,) = judge_many([program], argv, device=device, settings=settings, number=number, baseline=baseline, how=how)
    return answer


def judge_many(
    programs: Sequence[str | Path],
    argv: Sequence[str] = (),
    *,
    device: str = "",
    settings: Mapping[str, str] | None = None,
    number: int | None = None,
    baseline: str | Path | None = None,
    how: How = How(),
) -> list[Answer]:
    """Judges several, in parallel, each with a limit of time and memory; answers in their order."""
    with tempfile.TemporaryDirectory(prefix="npuscope-judge-") as place:
        alike = Request("", tuple(argv), tuple((settings or {}).items()), device, number)
        every = [*programs, *([] if baseline is None else [baseline])]
        files = [_file(one, Path(place) / str(n)) for n, one in enumerate(every)]
        requests = [replace(alike, name=file.name, file=str(file)) for file in files]
        base = None if baseline is None else requests.pop()
        return judge_all(requests, base, how)


def _file(candidate: str | Path, place: Path) -> Path:
    if isinstance(candidate, str) and "\n" in candidate:
        place.mkdir()
        file = place / "candidate.py"
        file.write_text(candidate, encoding="utf-8")
        return file
    return program_file(candidate).resolve()


def judge_all(
    requests: Sequence[Request],
    baseline: Request | None = None,
    how: How = How(),
    tell: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """An answer for each, in their order; `tell` hears each as it is there. The baseline is judged without numbers."""
    every = [*requests, *([baseline] if baseline is not None else [])]
    found: dict[int, Answer] = {}
    with results_in(how.results, f"judge{'' if how.golden else '-shapes'}") as kept:
        known = kept.known(requests)
        if how.results is not None:
            _ = [request.key for request in requests]  # of their text as it is now: a program may change itself
        for n, one in enumerate(known):
            if one is not None:
                found[n] = replace(one, candidate=requests[n].name)
                tell(found[n])
        progress.report("judging", len(found), len(every))
        missing = [n for n in range(len(every)) if n not in found]
        pieces = [(every[n], how.golden and n < len(requests)) for n in missing]
        workers = Workers(how.engine, how.jobs, how.limits, WARM)
        with closing(
            each(_judged, pieces, workers, lambda: progress.report("judging", len(found), len(every)))
        ) as all_of:
            for number, answer in all_of:
                n = missing[number]
                found[n] = kept.add(every[n], answer) if how.results is not None and n < len(requests) else answer
                if n < len(requests):
                    tell(found[n])
                progress.report("judging", len(found), len(every))
    base = found.get(len(requests))
    answers = [found[n] for n in range(len(requests))]
    return answers if base is None else [_against(base, answer) for answer in answers]


def _against(base: Answer, answer: Answer) -> Answer:
    if base.time is None:
        raise NpuscopeError(f"the baseline {base.candidate} has no time: {base.message or base.verdict}")
    if answer.time is None:
        return answer
    return replace(answer, versus=versus(base, answer))


Piece = tuple[Request, bool]  # what, and whether its numbers are compared


def _judged(call: Caller, piece: Piece) -> Answer:
    """Examined and then, where it ran, computed: two jobs, because the second may take far longer, or more memory, and
    what the first found must not be lost with it."""
    request, golden = piece
    examined, used = call(EXAMINED, request)
    ran = not isinstance(examined, Failed) and examined.verdict not in ("fails", "exited")
    numbers, more = call(NUMBERS, request) if golden and ran else (None, Used())
    seconds = used.cpu_seconds + more.cpu_seconds
    return replace(_answer(request, examined, numbers, golden), cpu_seconds=round(seconds, 4))


def _answer(request: Request, examined: Answer | Failed, numbers: Numbers | Failed | None, golden: bool) -> Answer:
    """Both runs as one answer. What keeps it from the chip weighs more than wrong numbers."""
    if isinstance(examined, Failed):
        return Answer(request.name, ENDED[examined.kind], examined.message, device=request.device)
    if numbers is None:
        return (
            examined.with_message("its numbers were not compared (--no-golden)")
            if not golden and examined.is_good
            else examined
        )
    if isinstance(numbers, Failed):
        verdict, message = ENDED[numbers.kind], f"with values {numbers.message}"
        return replace(examined, verdict=verdict, message=message) if examined.is_good else examined
    answer = replace(examined, right=numbers.right, wrong=numbers.wrong)
    if answer.is_good and numbers.right is False:
        line = numbers.wrong.line if numbers.wrong else None
        return replace(answer, verdict="wrong", message=numbers.message, line=line)
    return answer.with_message(numbers.message) if answer.is_good and numbers.right is None else answer


def versus(base: Answer, other: Answer, of: float = 1.0) -> Versus | None:
    """None where one of them has no time. The other was chosen among `of` times as many."""
    from npuscope.time.uncertainty import against

    if not base.wall_ns or not other.wall_ns:
        return None
    found = against(base.wall_ns, other.wall_ns, base.regime, other.regime, of=of)
    ratio = found.ratio
    verdict = "undecided" if base.wall_ns == other.wall_ns else found.verdict
    why = tuple(_why(base, other))[:MOST_CHANGES]
    return Versus(base.candidate, verdict, ratio.value, ratio.low, ratio.high, found.faster, why)


def _why(base: Answer, other: Answer) -> Iterator[str]:
    """What changed, the kernel whose blocks changed most first."""
    old = {one.kernel: one for one in base.kernels}
    new = {one.kernel: one for one in other.kernels}
    whole = sum(one.run_ns for one in base.kernels) or 1
    names = sorted(old.keys() | new.keys(), key=lambda name: -abs(_run(new, name) - _run(old, name)))
    for name in names:
        a, b = old.get(name), new.get(name)
        if a is None and b is not None:
            yield f"{name} is new: {many(b.tasks, 'task')}, {duration(b.run_ns)} on cores"
        elif b is None and a is not None:
            yield f"{name} is gone: {many(a.tasks, 'task')}, {duration(a.run_ns)} on cores"
        elif a is not None and b is not None:
            parts = [f"{a.tasks:,} → {b.tasks:,} tasks"] if a.tasks != b.tasks else []
            parts += [f"{a.blocks:,} → {b.blocks:,} blocks"] if a.blocks != b.blocks else []
            if abs(a.run_ns - b.run_ns) >= LEAST_RUN * whole:
                parts.append(f"{duration(a.run_ns)} → {duration(b.run_ns)} on cores")
            parts += _memory(a, b)
            if parts:
                yield f"{name} {'; '.join(parts)}"
    if base.bound != other.bound:
        yield f"limited by {base.bound} → {other.bound}"


def _run(kernels: dict[str, KernelShare], name: str) -> int:
    return kernels[name].run_ns if name in kernels else 0


def _memory(a: KernelShare, b: KernelShare) -> Iterator[str]:
    for space in a.memory.keys() | b.memory.keys():
        before, after = a.memory.get(space, 0.0), b.memory.get(space, 0.0)
        if abs(before - after) >= LEAST_MEMORY:
            yield f"{space} {before:.0%} → {after:.0%}".replace("%", " %").replace(" % →", " →")
