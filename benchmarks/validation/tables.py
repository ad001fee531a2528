"""Tables and numbers of a page in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from published_changes.learn import WALLS
from published_changes.score import Prediction, Score, guessed, scores, weights_of
from validation.blocks import PROGRAMS, SMALL, TURNS
from validation.evidence import Ablated, Evidence
from validation.measured import Pair, agreement, share_within

from npuscope.base.interval import COVERAGE, Against
from npuscope.chip.devices import Device
from npuscope.time.bound import KIND_OF
from npuscope.time.uncertainty import (
    QUANTITIES,
    Misses,
    against,
    learnt_as,
    left_out,
    ratio_inside,
    time_estimate,
    time_inside,
)

DASH = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]


def number(value: float) -> str:
    """Three digits, or whole numbers; never a power of ten."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def percent(value: float | None) -> str:
    return DASH if value is None or value != value else f"{100 * value:.0f} %"


def correlation(value: float) -> str:
    return DASH if value != value else f"{value:.2f}"


def listed(lines: Iterable[str]) -> list[str]:
    return [f"* {line}" for line in lines]


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


# ruff: noqa: E501  (prose of a page)


def interval(one: Prediction, known: Evidence) -> Against:
    """The predicted ratio with the interval that the misses of other commits teach."""
    assert one.before is not None
    assert one.after is not None
    quantity = "wall" if one.row.quantity in WALLS else "kernel"
    others = known.misses.without(one.row.commit[:10])
    return against(one.before, one.after, *one.bounds, others, quantity)


def reading_part(known: Evidence) -> list[str]:
    found = scores(known.changes)
    told = [(one, interval(one, known)) for one in known.changes if one.ran]
    decided = [(one, told) for one, told in told if told.verdict != "undecided"]
    right = sum((told.ratio.value < 1) == (one.row.ratio < 1) for one, told in decided)
    ratios, times = (left_out(known.misses, inside).share for inside in (ratio_inside, time_inside))
    wall, cube, vector = (_width(quantity, known.misses) for quantity in QUANTITIES)
    absolute = agreement(side_times(known.changes))
    sentences = [
        f"Every predicted time and every ratio carries an **{percent(COVERAGE)} interval**: of five measured values four lie in it and one does not. It is learnt from the misses of the published changes, and on commits that it was not learnt from it held {percent(ratios)} of the ratios and {percent(times)} of the times.",
        f"**Trust a ratio more than a time**: half of the ratios are off by less than {percent(found['all'].median_error)}, half of the times by less than {percent(absolute.median_error)}; a wall time's interval goes from {wall} of what is predicted, a kernel's with products from {cube}, that of a kernel of vector cores alone from {vector}{_without_rare(known)}.",
        f'**Trust a verdict more than a size**: "faster" or "slower" was said for {len(decided)} of {len(told)} published changes and its sign was right for {right} of these; the others were called "undecided", which is the answer wherever the interval or the noise of a measurement (3 to 5 %) leaves both open.',
        f"**Read a large gain as rough**: where a change made a program faster by over 15 %, half of the predicted ratios are off by more than {percent(found[LARGE].median_error)}.",
        "**Distrust** what rests on guessed constants, which the coverage beside every number names, a chip other than the 910B1, and a kernel whose kind is missing in the tables below; with a capture of the program before the change (`--measured`) all but the change is measured.",
    ]
    return [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]


def _width(quantity: str, misses: Misses) -> str:
    one = time_estimate(1.0, quantity, "", misses)
    return f"{one.low:.2f} to {one.high:.2f}"


def _without_rare(known: Evidence) -> str:
    """Which commits the upper end of the widest interval rests on, and what it would be without them."""
    rare = dict.fromkeys(
        one.name.split()[0] for one in side_times(known.changes) if one.measured > RARE * one.predicted
    )
    commits = {one.row.commit[:10] for one in known.changes if one.row.id in rare}
    rest = Misses(tuple(row for row in known.misses.rows if row.commit not in commits))
    told = f" ({_width('vector', rest)} without {', '.join(rare)}, which took over {RARE} times what is predicted)"
    return told if rare else ""


SETS = {
    "wall": "walls",
    "cube": "kernels with products",
    "vector": "kernels of vector cores",
    "any": "walls and kernels",
}
CHANGE = 0.8  # a predicted ratio to show an interval of
RARE = 3  # times what is predicted; from here the model lacks something


def intervals_part(known: Evidence) -> list[str]:
    """Of each kind with enough commits to learn from, and of all kinds together."""
    rows = []
    for quantity in QUANTITIES:
        for bound in (*dict.fromkeys(map(learnt_as, KIND_OF.values())), ""):
            time = time_estimate(1.0, quantity, bound, known.misses)
            ratio = against(1.0, CHANGE, bound, bound, known.misses, quantity).ratio
            if bound and time.basis.bound is None and ratio.basis.bound is None:
                continue
            name = f"limited by {bound}" if bound else "any"
            told = [f"{one.low:.2f} to {one.high:.2f}" for one in (time, ratio)]
            basis = f"{time.basis.rows} of {time.basis.commits} commits, {SETS[time.basis.quantity]}"
            rows.append((quantity, name, *told, basis))
    head = f"{percent(COVERAGE)} interval"
    return table(("of a", "run", f"time, {head}", f"ratio {CHANGE}, {head}", "times learnt from"), rows)


COLUMNS = {
    "direction": "direction right",
    "median": "median error",
    "median_large": f"{LARGE}: median error",
    "within_15": "within 15 %",
}
ABLATION_HEAD = ("mechanism", "constants", "brings nearer", "takes further away", *COLUMNS.values())
Scored = Mapping[str, float | None]


def mechanisms_part(known: Evidence) -> list[str]:
    head = "Each is a part of the model with constants of its own in `src/npuscope/chip/devices/ascend910b1.toml`."
    if known.ablation is None:
        told = ["What each mechanism is worth was not run: there is no `predicted/ablation.json`.", ""]
    else:
        whole = next((one.without for one in known.ablation if not one.constants), _whole(known))
        rows = [("the whole model", "", "", "", *(percent(whole[name]) for name in COLUMNS))]
        rows += [_line(one, whole, known.device) for one in known.ablation if one.constants]
        told = [
            "The last columns are the score of all published changes without it, the other constants as they are; "
            "in bold where that is better than with it.",
            "",
            *table(ABLATION_HEAD, rows),
            "",
        ]
    return [head, *told, "Constants that were fitted:", "", *fitted(known.device)]


def _whole(known: Evidence) -> Scored:
    found = scores(known.changes)
    whole = found["all"]
    values = (whole.direction, whole.median_error, found[LARGE].median_error, whole.within_15)
    return dict(zip(COLUMNS, values, strict=True))


def _line(one: Ablated, whole: Scored, device: Device) -> tuple[str, ...]:
    constants = ", ".join(_constant(name, device) for name in one.constants)
    scored = (_scored(name, one.without[name], whole[name]) for name in COLUMNS)
    return (f"without {one.mechanism}", constants, ", ".join(one.fixed), ", ".join(one.cost), *scored)


def _scored(name: str, without: float | None, now: float | None) -> str:
    if without is None or now is None or percent(without) == percent(now):
        return percent(without)
    better = without < now if name.startswith("median") else without > now
    return f"**{percent(without)}**" if better else percent(without)


def _constant(name: str, device: Device) -> str:
    """A constant of the device file with its value: `timing.x`, or a part of what an op costs, `op.x.row`."""
    group, _, rest = name.partition(".")
    key, _, part = rest.partition(".")
    if group == "timing" and key in device.timing:
        return f"`{key}` {device.timing[key].value:.3g} {device.timing[key].unit}"
    if group == "op" and key in device.op and part:
        return f"`{rest}` {getattr(device.op[key], part):.3g} cycles"
    return f"`{name}`"


def fitted(device: Device) -> list[str]:
    """Constants that somebody fitted, with what their file says of them."""
    rows = [
        (f"`{name}`", f"{one.value:.3g} {one.unit}", one.source)
        for name, one in device.timing.items()
        if one.confidence == "fitted"
    ]
    for name, op in device.op.items():
        if op.confidence == "fitted":
            parts = ", ".join(f"{part} {getattr(op, part):g}" for part in ("head", "slope", "tail", "row"))
            rows.append((f"`{name}`", f"{parts} cycles", op.source))
    return table(("constant", "value", "source"), rows)
