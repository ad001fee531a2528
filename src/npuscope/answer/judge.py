"""One answer for each candidate: does it run, is it right, does it compile, is it safe, how fast is it and why.

from npuscope import judge
answer = judge("layer.py")  # or the source itself, or several
answer.verdict, answer.time, answer.findings
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from npuscope.answer import answers
from npuscope.answer.answer import Answer, Verdict
from npuscope.answer.answers import KeptAnswer, kept_answer
from npuscope.answer.job_limits import Failed, Limits
from npuscope.answer.job_process import Place
from npuscope.answer.kept_lines import Kind, kept
from npuscope.answer.pool import WARM, Handle, Named, Pool, shared_pool
from npuscope.answer.variant import Variant
from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.surroundings import Surroundings

if TYPE_CHECKING:
    from npuscope.answer.examine import Compared, Examined

DEFAULT = Limits()
EXAMINE = "npuscope.answer.examine"
EXAMINED: Named[Variant, Examined] = Named(EXAMINE, "examine")
NUMBERS: Named[Variant, Compared] = Named(EXAMINE, "golden_of")
MODULES = (*WARM, EXAMINE)
HEARTBEAT_S = 0.5  # how often whoever waits for an answer is told that there is none yet
LINES = Kind(KeptAnswer, b'{"key": "', "judge")
ENDED: dict[str, Verdict] = {
    "refused": "fails", "raised": "fails", "exited": "exited", "crashed": "crashed", "time": "time",
    "memory": "memory", "cancelled": "exited", "lost": "crashed",
}  # fmt: skip


@dataclass(frozen=True)
class How:
    """How to judge. `limits` are of each of a candidate's two runs; `golden`: also compute and compare."""

    golden: bool = True
    limits: Limits = DEFAULT
    cache: bool = True
    results: Path | None = None
    engine: str = "processes"
    jobs: int | None = None


def judge(
    program: str | Path,
    argv: Sequence[str] = (),
    *,
    device: str = "ascend910b1",
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
    device: str = "ascend910b1",
    settings: Mapping[str, str] | None = None,
    number: int | None = None,
    baseline: str | Path | None = None,
    how: How = How(),
) -> list[Answer]:
    """Judges several, in parallel, each with a limit of time and memory; answers in their order."""
    with tempfile.TemporaryDirectory(prefix="npuscope-judge-") as place:
        alike = Variant("", "", tuple(argv), tuple((settings or {}).items()), device, number)
        every = [*programs, *([] if baseline is None else [baseline])]
        files = [_file(one, Path(place) / str(n)) for n, one in enumerate(every)]
        variants = [replace(alike, name=file.name, file=str(file)) for file in files]
        base = None if baseline is None else variants.pop()
        return judge_all(variants, base, how)


def _file(candidate: str | Path, place: Path) -> Path:
    if isinstance(candidate, str) and "\n" in candidate:
        place.mkdir()
        file = place / "candidate.py"
        file.write_text(candidate, encoding="utf-8")
        return file
    file = Path(candidate)
    if not file.is_file():
        raise BadInput("no such file" if not file.exists() else "not a Python file", path=candidate)
    return file.resolve()


def judge_all(
    variants: Sequence[Variant],
    baseline: Variant | None = None,
    how: How = How(),
    tell: Callable[[Answer], None] = lambda answer: None,
) -> list[Answer]:
    """An answer for each, in their order; `tell` hears each as it is there. The baseline is judged without numbers."""
    every = [*variants, *([baseline] if baseline is not None else [])]
    found: dict[int, Answer] = {}
    with kept(how.results, LINES) as (known, add):
        missing = []
        for n, variant in enumerate(every):
            _ = variant.told  # its text as it is now: a program may change or delete itself
            golden = how.golden and n < len(variants)
            held = answers.among([*known.values()], variant, golden) if known else None
            held = held or (answers.found(variant, golden) if how.cache else None)
            if held is None:
                missing.append(n)
            else:
                found[n] = held
        done = len(every) - len(missing)
        progress.report("judging", done, len(every))
        for n, answer in found.items():
            if n < len(variants):
                tell(answer)
        pieces = [(n, every[n], how.golden and n < len(variants)) for n in missing]
        with closing(_judged(pieces, how)) as judged:  # whoever stops listening ends what is under way
            for made in judged:
                if made is not None:
                    n, one = made[0], kept_answer(every[made[0]], *made[1:])
                    found[n] = one.answer
                    if one.answer.verdict in answers.LASTING or how.results is not None:
                        add(one)
                    if how.cache:
                        answers.keep(every[n], one)
                    if n < len(variants):
                        tell(one.answer)
                    done += 1
                progress.report("judging", done, len(every))
    base = found.get(len(variants))
    told = [found[n] for n in range(len(variants))]
    return told if base is None else [_against(base, answer) for answer in told]


def _against(base: Answer, answer: Answer) -> Answer:
    if base.time is None:
        raise NpuscopeError(f"the baseline {base.candidate} has no time: {base.told or base.verdict}")
    if answer.time is None:
        return answer
    from npuscope.answer.versus import versus

    return replace(answer, versus=versus(base, answer))


Piece = tuple[int, Variant, bool]  # its number, what, whether its numbers are compared
Made = tuple[int, Answer, list[Surroundings], bool]  # the number, what came of it, what both runs took from around


def _judged(pieces: Sequence[Piece], how: How) -> Generator[Made | None]:
    """What came of each, as it is there; None from time to time: nothing yet."""
    if not pieces:
        return
    if how.engine == "processes":
        yield from _in_pool(shared_pool(how.jobs or os.cpu_count() or 1, MODULES), pieces, how.limits, Place.here())
    else:
        from npuscope.base import engine as workers

        work = partial(_elsewhere, how.limits, Place.here())
        yield from workers.as_they_end(work, pieces, how.engine, how.jobs)


def _elsewhere(limits: Limits, place: Place, piece: Piece) -> Made:
    """On a machine of a Ray cluster, whose worker keeps a warm process of its own."""
    (made,) = filter(None, _in_pool(shared_pool(1, MODULES), [piece], limits, place))
    return made


def _in_pool(pool: Pool, pieces: Sequence[Piece], limits: Limits, place: Place) -> Generator[Made | None]:
    """Each piece is examined and then, where it ran, computed; whatever is done first comes first.

    Where somebody ended the server, all pieces under way are lost with it. Each is then judged once more, when nothing
    else is: whoever ends the server again did it, and takes nobody along.
    """
    events: SimpleQueue[tuple[Piece, Handle[Examined], Handle[Compared] | None]] = SimpleQueue()
    handles: dict[int, Handle[Examined] | Handle[Compared]] = {}

    def ask(piece: Piece) -> None:
        handle = pool.ask(EXAMINED, piece[1], limits, place)
        handles[piece[0]] = handle
        handle.when_done(lambda done: events.put((piece, done, None)))

    def ask_numbers(piece: Piece, examined: Handle[Examined]) -> None:
        handle = pool.ask(NUMBERS, piece[1], limits, place)
        handles[piece[0]] = handle
        handle.when_done(lambda done: events.put((piece, examined, done)))

    try:
        for piece in pieces:
            ask(piece)
        left, tried, alone = len(pieces), set[int](), deque[Piece]()
        while left:
            try:
                piece, first, second = events.get(timeout=HEARTBEAT_S)
            except Empty:
                yield None
                continue
            number, variant, golden = piece
            examined = first.result()
            last = second.result() if second is not None else None
            ran = not isinstance(examined, Failed) and examined.verdict not in ("fails", "exited")
            if any(isinstance(one, Failed) and one.kind == "lost" for one in (examined, last)) and number not in tried:
                tried.add(number)
                alone.append(piece)
            elif golden and second is None and ran:
                ask_numbers(piece, first)
            else:
                left -= 1
                del handles[number]
                seconds = first.used.cpu_seconds + (second.used.cpu_seconds if second is not None else 0.0)
                answer, seen = _answer(variant, examined, last, golden)
                yield number, replace(answer, cpu_seconds=round(seconds, 4)), seen, golden
            if alone and len(alone) == left:
                ask(alone.popleft())
    finally:
        for handle in handles.values():
            handle.cancel()


def _answer(
    variant: Variant, examined: Examined | Failed, numbers: Compared | Failed | None, golden: bool
) -> tuple[Answer, list[Surroundings]]:
    """Both runs as one answer. What keeps it from the chip weighs more than wrong numbers."""
    if isinstance(examined, Failed):
        return Answer(variant.name, ENDED[examined.kind], examined.told, device=variant.device), []
    answer = Answer(
        variant.name, examined.verdict, examined.told, None, None, examined.reasons, examined.races, examined.time,
        examined.bound, examined.bound_told, examined.findings, examined.together_ns, examined.tasks, examined.blocks,
        kernels=examined.kernels, device=variant.device, line=examined.line,
    )  # fmt: skip
    if numbers is None:
        why = "its numbers were not compared (--no-golden)" if not golden else ""
        return (_telling(answer, why) if answer.is_good else answer), [examined.seen]
    if isinstance(numbers, Failed):
        verdict = ENDED[numbers.kind]
        told = f"with values {numbers.told}"
        return (replace(answer, verdict=verdict, told=told) if answer.is_good else answer), [examined.seen]
    answer = replace(answer, right=numbers.right, wrong=numbers.wrong)
    if answer.is_good and numbers.right is False:
        answer = replace(answer, verdict="wrong", told=numbers.told, line=numbers.wrong.line if numbers.wrong else None)
    elif answer.is_good and numbers.right is None:
        answer = _telling(answer, numbers.told)
    return answer, [examined.seen, numbers.seen]


def _telling(answer: Answer, more: str) -> Answer:
    return replace(answer, told="; ".join(filter(None, [answer.told, more])))
