"""How to read a predicted number: what its interval means and when to trust it."""

# ruff: noqa: E501  (prose of a page)

from __future__ import annotations

from published_changes.learn import WALLS
from published_changes.score import Prediction, scores
from validation.evidence import Evidence
from validation.markdown import percent
from validation.results import agreement
from validation.score_table import LARGE, side_times

from npuscope.base.interval import COVERAGE, Against
from npuscope.time.uncertainty import against, left_out, ratio_inside, time_estimate, time_inside


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
    wall, kernel = (_width(quantity, known) for quantity in ("wall", "kernel"))
    absolute = agreement(side_times(known.changes))
    sentences = [
        f"Every predicted time and every ratio carries an **{percent(COVERAGE)} interval**: of five measured values four lie in it and one does not. It is learnt from the misses of the published changes, and on commits that it was not learnt from it held {percent(ratios)} of the ratios and {percent(times)} of the times.",
        f"**Trust a ratio more than a time**: half of the ratios are off by less than {percent(found['all'].median_error)}, half of the times by less than {percent(absolute.median_error)}; a wall time's interval goes from {wall} of what is predicted, a single kernel's from {kernel}.",
        f'**Trust a verdict more than a size**: "faster" or "slower" was said for {len(decided)} of {len(told)} published changes and its sign was right for {right} of these; the others were called "undecided", which is the answer wherever the interval or the noise of a measurement (3 to 5 %) leaves both open.',
        f"**Read a large gain as rough**: where a change made a program faster by over 15 %, half of the predicted ratios are off by more than {percent(found[LARGE].median_error)}.",
        "**Distrust** what rests on guessed constants, which the coverage beside every number names, a chip other than the 910B1, and a kernel whose kind is missing in the tables below; with a capture of the program before the change (`--measured`) all but the change is measured.",
    ]
    return [f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1)]


def _width(quantity: str, known: Evidence) -> str:
    one = time_estimate(1.0, quantity, "", known.misses)
    return f"{one.low:.2f} to {one.high:.2f}"
