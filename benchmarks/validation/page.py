"""Writes docs/understand/trust.md, its tables and docs/understand/trust.svg."""

# ruff: noqa: E501  (prose of a page)

from __future__ import annotations

import math
import tomllib
from pathlib import Path

from evidence_page import write_page
from validation.blocks import PROGRAMS
from validation.evidence import Evidence
from validation.intervals import intervals_part
from validation.markdown import listed, number, percent
from validation.mechanisms import mechanisms_part
from validation.plot import BLUE, GREEN, GREY, RED, Plot, Point, svg
from validation.reading import reading_part
from validation.results import Pair
from validation.row_tables import (
    blocks_part,
    changes_part,
    forms_part,
    miss,
    misses_part,
    phases_part,
    public_part,
)
from validation.score_table import score_part, side_times

DOCS = Path(__file__).resolve().parents[2] / "docs" / "understand"
NOTES = Path(__file__).parent / "notes.toml"
LABELLED = math.log(1.5)  # the miss of a ratio from which its point is named, and that of a time
FAR = 2.0

HEAD = """# How far to trust a simulated time

Written by `python benchmarks/validate.py --repo PYPTO_LIB.git --python PYTHON_WITH_TORCH`; do not edit. ("--page" in place of "--repo" writes it from the predictions that are kept in
`benchmarks/validation/predicted/`.) Validation of `npuscope predict`, which does not simulate, is in [its own page](trust_forward.md).

## In three sentences

Examined in November 2026 on 125 published changes that nobody who made version 0.2.0 had seen, of which it runs 114, npuscope says faster or slower rightly for 93 % of them, where a fixed guess of "10 % faster" is right for 76 to 88 %.
Half of the predicted ratios are off by less than 11 %; where the change is larger than 15 %, half are off by more than 21 %; a kernel's own time is off by 23 % in the median, and the rank correlation of ratios is 0.81.
The 80 % intervals hold 79 % of 144 unseen wall times, and of 46 blocks of an unseen model 63 % are within 25 %.

What npuscope adds to the fixed guess is the sign of slowdowns, the size and the order of changes. 61 of these rows have been released since and are used from the next fit on; the other 64 stay unseen.
**Everything below this section is about rows that were seen while the model was made**, and says so for each."""

TERMS = """*Used*: "fitted": constants were fitted on these rows; "held aside": none was; "held aside, seen": none was, but the values were known when the program, or a constant that decides it, was chosen.
"Commit left out" is the same score with, for every row, constants that were fitted without its commit (taken from the fitted ones in one step along the slopes); the mechanisms themselves were chosen with all rows in view. *Error*: a distance as a factor; half and double are both off by 100 %. *Published change*: a program of pypto-lib at two
commits with a time that was measured on both; a commit weighs one, however many rows it has. *Direction*: right where the signs agree; a change below 3 % is neutral, and right where less than 5 % is predicted
(`benchmarks/published_changes/score.py`)."""

FORMS = """The layer that was measured is not public. Public is the layer after its fixes, whose tasks opt out (`no_dep_args`) of the dependencies between siblings that write
parts of one tensor. With such opt-outs, as `models/qwen3_14b/decode_a8w8.py` has them unless told otherwise, the step comes out far too fast, with far more records in
flight than were measured (records per second times dispatch to finish). Without them (`--serialised`) siblings run one after another, gate beside up, and about as few records are in flight as were measured.
So the measured step most likely ran that way, and the rows above are simulated so. That explains the measurement, it did not foretell it. (`npuscope check … -- --serialised` names the loops and the waits.)
Both are for rows of 128 tokens, which is an assumption: the issue's checks decode 16 and 48 tokens, its prompts are not stated.
"""

PUBLIC = """"#n" is an issue of hw-native-sys/pypto-lib, "simpler" and "pto-isa" are documents of these projects, "msModeling" is the profile of a decode step in the fork Horacehxw/msModeling. Programs are in
`benchmarks/validation/` and `models/`.
"""


def write(known: Evidence, docs: Path = DOCS) -> None:
    write_page(docs / "trust.md", page(known))
    (docs / "trust.svg").write_text(svg([changes_plot(known), times_plot(known)]), encoding="utf-8")


def page(known: Evidence) -> str:
    notes = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    parts = [
        HEAD,
        "\n## The score\n",
        *score_part(known, notes["used"]),
        "",
        "[![Predicted against measured, every row a point](trust.svg)](trust.svg)\n",
        "Open the plot by itself and rest the pointer on a point to see its row and its miss.\n",
        TERMS,
        "\n## How to read it\n",
        *reading_part(known),
        "\n## Mechanisms\n",
        *mechanisms_part(known),
        "\n## Rows\n",
        _versions(known),
        "\n### Intervals\n",
        "Of a predicted time and of a predicted ratio; a kind of cause that too few commits have takes the interval of any.\n",
        *intervals_part(known),
        "\n### Published changes that are missed\n",
        *misses_part(known, notes["changes"]),
        "\n### Published changes\n",
        "In bold: a predicted ratio with the wrong direction, an interval (learnt from other commits) that does not hold the measured ratio. Times in the unit of the table, most in µs.\n",
        *changes_part(known),
        *blocks_part(known),
        "\n### Scheduler phases\n",
        *phases_part(known),
        "\n### Single public measurements\n",
        PUBLIC,
        *public_part(known, notes["row"]),
        "\n### The A8W8 step in two forms\n",
        FORMS,
        *forms_part(known),
        "\n## What was assumed\n",
        *listed(notes["page"]["assumed"]),
        "\n## What is not here\n",
        *listed(notes["page"]["missing"]),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _versions(known: Evidence) -> str:
    old = (
        f" **Predicted with constants that may not be those of the device file: {', '.join(known.old)}.**"
        if known.old
        else ""
    )
    if len(set(known.simulators.values())) == 1:
        return f"All were predicted by one version of the simulator, `{next(iter(known.simulators.values()))}`.{old}"
    told = ", ".join(f"{name} by `{one}`" for name, one in known.simulators.items())
    return f"**They were predicted by different versions of the simulator:** {told}.{old}"


def changes_plot(known: Evidence) -> Plot:
    left_out = {one.row.id: one.ratio for one in known.left_out or () if one.ran}
    points = []
    for one in known.changes:
        if one.ran:
            held = left_out.get(one.row.id)
            apart = "" if held is None else f"; with its commit left out {held:.2f}"
            title = f"{one.row.id}, {one.row.quantity_name}: measured {one.row.ratio:.2f}, predicted {one.ratio:.2f}, off by {miss(one)}{apart}"
            label = one.row.id if one.error > LABELLED else ""
            points.append(Point(one.row.ratio, one.ratio, title, BLUE if one.right else RED, other=held, label=label))
    legend = [(BLUE, False, "direction right"), (RED, False, "direction wrong")]
    if left_out:
        legend.append((BLUE, True, "small: the same row with constants fitted without its commit"))
    return Plot("Published changes", "time after / before", points, legend)


def times_plot(known: Evidence) -> Plot:
    points = [_point(pair, GREY, False, "") for pair in side_times(known.changes)]
    for program in PROGRAMS:
        found = known.blocks[program.key]
        points += [_point(pair, BLUE, False, f"block of {program.title}: ") for pair in found.all]
    for one in known.public:
        if one.time and not one.row.beside:
            points.append(_point(one.time, GREEN, bool(one.row.decides), ""))
    legend = [
        (GREY, False, "before or after a published change"),
        (BLUE, False, "a kernel's block, mean"),
        (GREEN, False, "single public time, held aside"),
        (GREEN, True, "single public time, fitted on"),
    ]
    return Plot("Times", "time, µs", points, legend, over=True)


def _point(pair: Pair, colour: str, hollow: bool, kind: str) -> Point:
    title = f"{kind}{pair.name}: measured {number(pair.measured)} µs, predicted {number(pair.predicted)} µs, off by {percent(pair.error)}"
    return Point(pair.measured, pair.predicted, title, colour, hollow, label=pair.name if pair.error > FAR else "")
