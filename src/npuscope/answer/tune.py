"""Searches the settings of a program for the fastest: what does not fit is not simulated, the best is checked.

tuned = tune(Request("layer.py"), space_of([("TILE", ["64", "128"], "64")]), trials=20)
tuned.best, tuned.golden, tuned.front
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from itertools import islice
from math import prod
from pathlib import Path

from npuscope.answer.answer import Answer
from npuscope.answer.judge import WARM
from npuscope.answer.knobs import Knob, knobs_of
from npuscope.answer.numbers import Numbers, numbers_of
from npuscope.answer.rank import KIND, brief_answers
from npuscope.answer.request import Request
from npuscope.answer.results import results_in
from npuscope.answer.search import Goals, Point, Search, SearchSpace, front, space_of
from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed, Limits
from npuscope.base.pool import Workers, shared_pool
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.fault import NeedsValues
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script

GOALS = ("memory", "tasks")  # what may be held against time
CHECKED = 5  # of the best, until one is right
GOLDEN_S = 600.0
MOST_ASKED = 10  # points per trial wanted: where hardly any fits the search ends
NEARLY = 1.25  # times the trials asked for: a space that is no larger is tried to its end
Recordings = tuple[Recording, ...]


@dataclass(frozen=True)
class Tuned:
    """What a search found: answers in the order of the trials, the first being the program as it is.

    `golden` has the variants whose numbers were checked, the last of them being that of `best`.
    """

    space: SearchSpace
    variants: tuple[Request, ...]
    answers: tuple[Answer, ...]
    golden: tuple[tuple[str, Numbers], ...]
    front: tuple[Answer, ...]
    best: Answer | None

    @property
    def pruned(self) -> int:
        """Points that cannot run, which were not simulated."""
        return sum(one.error is not None for one in self.answers)

    @property
    def simulated(self) -> int:
        return len(self.answers) - self.pruned


def found_space(file: str, argv: Sequence[str]) -> SearchSpace:
    """The settings that a program itself offers: knobs that cut something into pieces, with several values.

    One that changes how much the program is given, as a number of heads does, is a size of the problem and stays; one
    that changes nothing is of a path that this run does not take.
    """
    now = _recorded(file, argv)
    knobs = [knob for knob in knobs_of(file, argv) if knob.cuts and len(knob.values) > 1]
    knobs = [knob for knob in knobs if now is None or _cuts_only(knob, now, file, argv)]
    if not knobs:
        remedy = "Name what to try: --set NAME=a,b,c."
        raise NpuscopeError("no knob was found that cuts something into pieces", path=file, remedy=remedy)
    return space_of([_setting(knob) for knob in knobs])


def _cuts_only(knob: Knob, now: Recordings, file: str, argv: Sequence[str]) -> bool:
    """By the nearest other value that runs; where none does the search will tell."""
    at = knob.values.index(knob.value)
    others = sorted((n for n in range(len(knob.values)) if n != at), key=lambda n: abs(n - at))
    for other in others:
        then = _recorded(file, argv, {knob.name: str(knob.values[other])})
        if then is not None:
            return _work(then) != _work(now) and _given_bytes(then) == _given_bytes(now)
    return True


def _recorded(file: str, argv: Sequence[str], settings: Mapping[str, str] | None = None) -> Recordings | None:
    """The script's programs by shape; None where it does not run."""
    try:
        with redirect_stderr(io.StringIO()):
            return run_script(file, argv, "shapes", settings=settings, golden=False).recordings
    except (NpuscopeError, NeedsValues, SystemExit):
        return None


def _work(recordings: Recordings) -> list[tuple[int, str]]:
    """What is done, in a form that can be compared."""
    return [(len(one.tasks), repr(one.bodies)) for one in recordings]


def _given_bytes(recordings: Recordings) -> int:
    """Of all that the programs are given and give back."""
    buffers = (one for recording in recordings for one in recording.buffers if one.origin == "parameter")
    return sum(BY_NAME[one.dtype].size(prod(one.shape)) for one in buffers)


def _setting(knob: Knob) -> tuple[str, list[str], str]:
    return knob.name, [str(value) for value in knob.values], str(knob.value)


def tune(
    alike: Request,
    space: SearchSpace,
    trials: int = 50,
    goal: str | None = None,
    results: Path | None = None,
    engine: str = "processes",
    jobs: int | None = None,
    seed: int = 0,
    golden: bool = True,
) -> Tuned:
    """Up to so many simulated points of the space; those that cannot run do not count. `goal`: held against time."""
    if space.size <= NEARLY * trials:
        trials = space.size  # what is nearly done is finished
    search = Search(space, seed)
    found: dict[Point, Answer] = {}
    variants: dict[Point, Request] = {}
    at_a_time = jobs or (2 if engine == "processes" else 8)
    workers = Workers(engine, at_a_time, Limits(), WARM)
    with results_in(results, KIND) as kept:
        ran = 0
        while ran < trials and len(found) < MOST_ASKED * trials:
            progress.report("simulating variants", ran, trials)
            points = list(islice(iter(search.ask, None), min(at_a_time, trials - ran)))
            if not points:
                break
            asked = [_variant(alike, space, point) for point in points]
            known = kept.known(asked)
            missing = [request for request, one in zip(asked, known, strict=True) if one is None]
            answers = iter(brief_answers(missing, workers))
            for point, request, one in zip(points, asked, known, strict=True):
                answer = kept.add(request, next(answers) if one is None else one)
                found[point] = replace(answer, candidate=request.name)
                variants[point] = request
                search.answer(point, _goals(found[point], goal))
            ran += sum(found[point].error is None for point in points)
        progress.report("simulating variants", trials, trials)
        # of equal times the one that changes least of the program as it is
        points = [point for point, one in found.items() if one.error is None]
        able = [found[point] for point in sorted(points, key=lambda one: (found[one].wall_ns, space.changes(one)))]
        by_name = {one.name: one for one in variants.values()}
        checked = _checked([by_name[one.candidate] for one in able[:CHECKED]]) if golden else []
    good = {name for name, numbers in checked if numbers.right is not False}
    best = next((one for one in able if not golden or one.candidate in good), None)
    goals = {point: reached for point, one in found.items() if (reached := _goals(one, goal)) is not None}
    ends = sorted((found[point] for point in front(goals)), key=lambda one: one.wall_ns or 0) if goal else []
    return Tuned(space, tuple(variants.values()), tuple(found.values()), tuple(checked), tuple(ends), best)


def _variant(alike: Request, space: SearchSpace, point: Point) -> Request:
    chosen = space.at(point)
    return replace(alike, name=" ".join(f"{name}={value}" for name, value in chosen), settings=chosen)


def _goals(one: Answer, goal: str | None) -> Goals | None:
    if one.wall_ns is None:
        return None
    if goal is None:
        return (one.wall_ns,)
    return one.wall_ns, float(one.tasks or 0) if goal == "tasks" else (one.memory.share if one.memory else 0.0)


def _checked(best: Sequence[Request]) -> list[tuple[str, Numbers]]:
    """The best variants with their numbers, until one is right."""
    found: list[tuple[str, Numbers]] = []
    for request in best:
        progress.report("checking the numbers of the best", len(found), len(best))
        answer = shared_pool(1, WARM).ask(numbers_of, request, Limits(seconds=GOLDEN_S)).result()
        numbers = Numbers(False, answer.message) if isinstance(answer, Failed) else answer
        found.append((request.name, numbers))
        if numbers.right is not False:
            break
    progress.report("checking the numbers of the best", len(best), len(best))
    return found
