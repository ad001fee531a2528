"""The score: one table with what was fitted on and what was not, and which goals are reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from published_changes.learn import WALLS
from published_changes.score import Prediction, Score, guessed, scores, weights_of
from validation.blocks import PROGRAMS, SMALL, TURNS
from validation.evidence import Evidence
from validation.markdown import DASH, correlation, percent, table
from validation.results import Pair, agreement, share_within

from npuscope.base.interval import COVERAGE
from npuscope.time.uncertainty import left_out, ratio_inside, time_inside

NEUTRAL, LARGE = "neutral or slower", "faster by over 15 %"
HEAD = (
    "what",
    "rows",
    "used",
    "direction right",
    "median error",
    "within 15 %",
    "rank correlation",
    f"{NEUTRAL}: direction right",
    f"{LARGE}: median error",
)
FITTED, HELD, SEEN = "fitted", "held aside", "held aside, seen"
LEFT_OUT, NOT_RUN = "… commit left out", "not run"
Line = tuple[str, str, str, str, str, str, str, str, str]


def score_part(known: Evidence, used: Mapping[str, str]) -> list[str]:
    return [*table(HEAD, [*change_lines(known, used), *pair_lines(known, used)]), "", *goal_lines(known)]


def change_lines(known: Evidence, used: Mapping[str, str]) -> list[Line]:
    rows = [one.row for one in known.changes]
    commits = len({row.commit for row in rows})
    number = f"{len(rows)} of {commits} commits"
    lines = [_changes("**published changes, ratio after/before**", number, used["changes"], known.changes)]
    if known.left_out is None:
        lines.append((LEFT_OUT, number, NOT_RUN, DASH, DASH, DASH, DASH, DASH, DASH))
    else:
        lines.append(_changes(LEFT_OUT, number, HELD, known.left_out))
    lines.append(_changes('… said of all: "always −10 %"', number, "a guess", guessed(rows, 0.9)))
    lines.append(_changes('… said of all: "no change"', number, "a guess", guessed(rows, 1.0)))
    for name, wall in (("walls alone", True), ("single kernels alone", False)):
        mine = [one for one in known.changes if (one.row.quantity in WALLS) == wall]
        commits = len({one.row.commit for one in mine})
        lines.append(
            _changes(f"… {name}", f"{len(mine)} of {commits} commits", used["changes"], mine, weights_of(rows))
        )
    lines.append(_pairs("… the times themselves, both sides", used["changes"], side_times(known.changes)))
    return lines


def _changes(
    what: str, number: str, used: str, predictions: Sequence[Prediction], weights: dict[str, float] | None = None
) -> Line:
    found = scores(predictions, weights)
    whole = found["all"]
    ran = "" if whole.ran == whole.rows else f", {whole.ran} ran"
    neutral, large = found.get(NEUTRAL), found.get(LARGE)
    return (
        what,
        number + ran,
        used,
        percent(whole.direction),
        percent(whole.median_error),
        percent(whole.within_15),
        correlation(whole.rho),
        percent(None if neutral is None else neutral.direction),
        percent(None if large is None else large.median_error),
    )


def side_times(predictions: Sequence[Prediction]) -> list[Pair]:
    """Both times of every row in µs, where the table states a unit of time; a commit weighs one."""
    weights = weights_of([one.row for one in predictions])
    found = []
    for one in predictions:
        if one.row.nanoseconds is None or one.before is None or one.after is None:
            continue
        unit = one.row.nanoseconds / 1e3
        sides = (("before", one.row.before, one.before), ("after", one.row.after, one.after))
        for name, measured, predicted in sides:
            found.append(Pair(f"{one.row.id} {name}", measured * unit, predicted / 1e3, weights[one.row.id] / 2))
    return found


def pair_lines(known: Evidence, used: Mapping[str, str]) -> list[Line]:
    lines = []
    for program in PROGRAMS:
        pairs = known.blocks[program.key].all
        lines.append(_pairs(f"**mean block of a kernel**, {program.title}", used[program.key], pairs))
    turns = [pair for phase, pair in known.phases if phase.name in TURNS]
    others = [pair for phase, pair in known.phases if phase.name not in TURNS]
    lines.append(_pairs("**scheduler phases**, dispatch and complete", used["phases"], turns))
    lines.append(_pairs("… resolve, release and submit", HELD, others))
    counted = [one for one in known.public if not one.row.beside]
    for change, what in ((True, "changes"), (False, "times and shares")):
        for name, fitted, seen in (
            (HELD, False, False),
            (SEEN, False, True),
            (FITTED, True, False),
        ):
            mine = [one for one in counted if one.row.change == change and bool(one.row.decides) == fitted]
            mine = [one for one in mine if one.row.seen == seen]
            if mine:
                line = _pairs(f"**single public measurements**, {what}", name, [one.pair for one in mine])
                right = sum(one.right for one in mine)
                lines.append((*line[:3], f"{right} of {len(mine)}" if change else DASH, *line[4:]))
    return lines


def _pairs(what: str, used: str, pairs: Sequence[Pair]) -> Line:
    found = agreement(pairs)
    shown = percent(found.median_error), percent(found.within_15)
    rho = correlation(found.rho) if len(pairs) >= 5 else DASH
    return (what, str(len(pairs)), used, DASH, *shown, rho, DASH, DASH)


def goal_lines(known: Evidence) -> list[str]:
    """The goals that were set before the fit, each with what was found."""
    lines = []
    for name, predictions in (("fitted", known.changes), ("each commit left out", known.left_out)):
        if predictions is not None:
            lines += _judged(f"published changes, {name}", change_goals(scores(predictions)))
    lines += _judged("blocks and phases", block_goals(known))
    lines += _judged("intervals, each commit left out", interval_goals(known))
    return ["Goals, set before the fit:", "", *lines]


Goal = tuple[str, str, bool]


def change_goals(found: Mapping[str, Score]) -> list[Goal]:
    whole, neutral, large = (found[name] for name in ("all", NEUTRAL, LARGE))
    return [
        ("direction right of at least 92 %", _tenths(whole.direction), whole.direction >= 0.92),
        ("median error at most 10 %", percent(whole.median_error), whole.median_error <= 0.10),
        (f"at most 15 % where {LARGE}", percent(large.median_error), large.median_error <= 0.15),
        ("at least 75 % within 15 %", _tenths(whole.within_15), whole.within_15 >= 0.75),
        ("rank correlation at least 0.85", correlation(whole.rho), whole.rho >= 0.85),
        (f"direction right of at least 85 % where {NEUTRAL}", _tenths(neutral.direction), neutral.direction >= 0.85),
    ]


def block_goals(known: Evidence) -> list[Goal]:
    goals = []
    for small, bound in ((False, 0.15), (True, 0.25)):
        pairs = [pair for one in known.blocks.values() for pair in one.of_size(small)]
        size = f"{'up to' if small else 'above'} {SMALL:g} µs"
        within = sum(pair.error <= bound for pair in pairs)
        told = f"every kernel {size} within {bound:.0%}".replace("%", " %")
        goals.append((told, f"{within} of {len(pairs)}", within == len(pairs)))
    turns = [pair for phase, pair in known.phases if phase.name in TURNS]
    share = share_within(turns, 0.20)
    goals.append(("every phase within 20 %", f"{percent(share)} of records", math.isclose(share, 1.0)))
    return goals


def interval_goals(known: Evidence) -> list[Goal]:
    goals = []
    for name, inside in (("ratios", ratio_inside), ("times", time_inside)):
        share = left_out(known.misses, inside).share
        goals.append(
            (f"{percent(COVERAGE)} intervals hold 75 to 85 % of {name}", _tenths(share), 0.75 <= share <= 0.85)
        )
    return goals


def _tenths(share: float) -> str:
    """A share beside its goal, with a digit more than elsewhere: 84.6 % is not 85 %."""
    return f"{100 * share:.1f} %"


def _judged(what: str, goals: Sequence[Goal]) -> list[str]:
    lines = []
    for wanted, word in ((False, "**missed**"), (True, "reached")):
        mine = [f"{goal} ({found})" for goal, found, reached in goals if reached == wanted]
        if mine:
            lines.append(f"* {what}, {word}: {'; '.join(mine)}")
    return lines
