"""Writes docs/understand/trust.md, its tables and docs/understand/trust.svg."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from evidence_page import write_page
from published_changes.rows import EVERYTHING, Row
from published_changes.score import Prediction
from validation.blocks import PROGRAMS, SMALL, in_total
from validation.evidence import KEPT, Evidence
from validation.measured import Pair
from validation.plot import BLUE, GREEN, GREY, RED, Plot, Point, svg
from validation.public import Result
from validation.tables import (
    DASH,
    HELD,
    SEEN,
    interval,
    intervals_part,
    listed,
    mechanisms_part,
    number,
    percent,
    reading_part,
    score_part,
    side_times,
    table,
)

# ruff: noqa: E501  (prose of a page)


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

61 of these rows have been released since and are used from the next fit on; the other 64 stay unseen.

Of the 22 rows first **set aside** (`set_aside` in `benchmarks/published_changes/rows.py`; pl441b was looked at by mistake, pl506c and pl882 after a score), 91 % of directions were right, with a median error of 12 %, before the scheduler was changed on the other rows, 85 % and 19 % after it and the order of stores.
Eight were opened since to learn from their misses. On the other 14 (among them pl441b and pl506c) nothing was chosen; they have 86 % and 12 % before and after that, large changes 33 and 30 %.
**What changes gain on the rows they were chosen on hardly shows on these.** What was tried and dropped is in [how time is modelled](time.md).
**Everything below this section is about rows that were seen while the model was made**, and says so for each."""

TERMS = """*Used*: "fitted": constants were fitted on these rows; "held aside": none was fitted on them; "held aside, seen": nor on these, but whoever chose the program or a constant knew the measured values.
"Commit left out" is the same score with, for every row, constants that were fitted without its commit (the fitted ones, moved by what leaving out the commit moves in one step along the slopes); the mechanisms themselves were chosen with all rows in view. *Error*: a distance as a factor; half and double are both off by 100 %. *Published change*: a program of pypto-lib at two
commits with a time that was measured on both; a commit weighs one, however many rows it has. *Direction*: right where the signs agree; a change below 3 % is neutral, and right where less than 5 % is predicted
(`benchmarks/published_changes/score.py`)."""

FORMS = """The layer that was measured is not public. Public is the layer after its fixes, whose tasks opt out (`no_dep_args`) of the dependencies between siblings that write
parts of one tensor. With such opt-outs, as `models/qwen3_14b/decode_a8w8.py` has them unless told otherwise, the step comes out far too fast, with far more records in
flight than were measured (records per second times dispatch to finish). Without them (`--serialised`) siblings run one after another, gate beside up, and about as few records are in flight as were measured.
So the measured step most likely ran that way, and the rows above are simulated so. That explains the measurement, it did not foretell it. (`npuscope check … -- --serialised` names the loops and the waits.)
Both are for rows of 128 tokens, which is an assumption: the issue's checks decode 16 and 48 tokens, its prompts are not stated.
"""

RUNTIMES = """Device walls of one program under both runtimes, paired, on one die (hbg_pairs.csv; of benchmark_bgemm the host's run around it). The programs are our own, with the tasks, tiles and edges of
simpler's scene tests (`benchmarks/runtime_pairs/`). All rows were seen: what a call pays around its run under each runtime and the launch (three constants) are fitted on them, so the errors
are in-sample; "left out" takes what a call pays from the other rows. What a submission costs is documented, not fitted. Rows of other pairs have not been predicted. (`python benchmarks/runtimes.py hbg_pairs.csv`)
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
        "\n### Runtimes\n",
        RUNTIMES,
        (KEPT / "runtimes.md").read_text(encoding="utf-8").rstrip(),
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


# ruff: noqa: E501  (prose of a page)


MISSED = math.log(1.25)
LINK = "https://github.com/hw-native-sys/pypto-lib/commit/"


def missed(one: Prediction) -> bool:
    return not one.right or one.error > MISSED


def misses_part(known: Evidence, notes: Mapping[str, str]) -> list[str]:
    """The rows that are missed, worst first, each with its reason or called unexplained."""
    rows = []
    for one in sorted((one for one in known.changes if missed(one)), key=lambda one: -one.error):
        predicted = f"{one.ratio:.2f}" if one.ran else DASH
        wrong = "" if one.right else "wrong direction; "
        why = notes.get(one.row.id, "**unexplained**" if one.ran else f"does not run: {one.reason}")
        rows.append((one.row.id, f"{one.row.ratio:.2f}", predicted, miss(one), wrong + why))
    head = f"{len(rows)} of {len(known.changes)} have the wrong direction or are off by more than 25 %:"
    return [head, "", *table(("row", "measured ratio", "predicted", "off by", "why"), rows)]


def miss(one: Prediction) -> str:
    return percent(math.expm1(one.error)) if one.ran else DASH


def changes_part(known: Evidence) -> list[str]:
    """All published changes, in the table's order."""
    left_out = {one.row.id: one for one in known.left_out or ()}
    rows = []
    for one in known.changes:
        row, held = one.row, left_out.get(one.row.id)
        measured = f"{number(row.before)} → {number(row.after)}"
        named = (f"[{row.id}]({LINK}{row.commit})", _program(row), measured, f"{row.ratio:.2f}")
        if not one.ran:
            rows.append((*named, f"does not run: {one.reason}", *[DASH] * 5))
            continue
        assert one.before is not None
        assert one.after is not None
        unit = row.nanoseconds or 1e3
        told = interval(one, known).ratio
        inside = told.low <= row.ratio <= told.high
        reach = f"{told.low:.2f} to {told.high:.2f}"
        rows.append(
            (
                *named,
                f"{number(one.before / unit)} → {number(one.after / unit)}",
                f"{one.ratio:.2f}" if one.right else f"**{one.ratio:.2f}**",
                reach if inside else f"**{reach}**",
                f"{held.ratio:.2f}" if held and held.ran else DASH,
                miss(one),
                " → ".join(dict.fromkeys(one.bounds)) or DASH,
            )
        )
    head = (
        "row",
        "program, quantity",
        "measured",
        "ratio",
        "predicted",
        "ratio",
        "80 % interval",
        "commit left out",
        "off by",
        "limited by",
    )
    return table(head, rows)


def _program(row: Row) -> str:
    scopes = (
        "" if EVERYTHING in row.scopes["after"] else " of " + ", ".join(f"`{name}`" for name in row.scopes["after"])
    )
    chip = "" if row.platform == "a2a3" else f" on {row.platform}"
    return f"{PurePath(row.sides['after'].file).stem}, {row.quantity_name}{scopes}{chip}"


def blocks_part(known: Evidence) -> list[str]:
    lines: list[str] = []
    for program in PROGRAMS:
        found = known.blocks[program.key]
        lines += [f"\n### Blocks of the {program.title}\n", _blocks_head(program.side.file, program.side.commit)]
        rows = []
        for kernel, one in found.pairs:
            error = max(one.mean / kernel.mean, kernel.mean / one.mean) - 1
            far = error > (0.25 if kernel.mean <= SMALL else 0.15)
            ratio = f"{one.mean / kernel.mean:.2f}"
            again = f"{number(min(kernel.again))} to {number(max(kernel.again))}" if kernel.again else DASH
            rows.append(
                (
                    f"{kernel.name}, {kernel.unit}",
                    f"{kernel.blocks}" if kernel.blocks == one.blocks else f"{kernel.blocks}, here {one.blocks}",
                    number(kernel.mean),
                    again,
                    number(one.mean),
                    f"**{ratio}**" if far else ratio,
                )
            )
        head = ("kernel", "blocks", "measured mean, µs", "in six serving shapes", "predicted", "ratio")
        body = table(head, rows)
        lines += (
            body
            if any(kernel.again for kernel, _ in found.pairs)
            else table((*head[:3], *head[4:]), [(*r[:3], *r[4:]) for r in rows])
        )
        if program.other:
            lines.append(
                "\nAttention is another program in the measured table (`attn_swpipe`) than at this commit (`fa_fused`, an external kernel): not compared."
            )
        for names, where in (
            (found.only_measured, "measured, not simulated"),
            (found.only_simulated, "simulated, not measured"),
        ):
            if names:
                lines.append(f"\nOnly {where}: {', '.join(names)}.")
    return lines


def _blocks_head(file: str, commit: str) -> str:
    return f"`{file}` at [{commit[:8]}]({LINK}{commit}). In bold: off by more than 15 %, of kernels up to {SMALL:g} µs more than 25 %.\n"


def phases_part(known: Evidence) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            phase.name,
            str(phase.blocks),
            str(len(phase.times)),
            number(pair.measured),
            number(pair.predicted),
            f"{pair.ratio:.2f}",
        )
        for phase, pair in known.phases
    ]
    for name, pair in in_total(known.phases).items():
        rows.append(
            (
                f"**{name}, all together**",
                "",
                f"{pair.weight:g}",
                number(pair.measured),
                number(pair.predicted),
                f"{pair.ratio:.2f}",
            )
        )
    return [
        "Records of one scheduler thread of a Qwen3-14B layer, recorded at level 4 with its instrumentation. Predicted: dispatch = `dispatch_turn` + `dispatch_block` × blocks; "
        "complete = `complete_turn` + `complete_block` × blocks + `poll_core` × the thread's cube cores, which run most of the layer; resolve and release, which are parts of others, = `resolve_edge` and `release_entry` × number; "
        "submit = the median of the layer in `models/qwen3_14b`. Medians by number of blocks, µs; then sums of all records.\n",
        *table(("phase", "blocks", "records", "measured", "predicted", "ratio"), rows),
    ]


def public_part(known: Evidence, notes: Mapping[str, str]) -> list[str]:
    counted = [one for one in known.public if not one.row.beside]
    return [
        *_values([one for one in counted if not one.row.change], notes),
        "",
        *_changes([one for one in counted if one.row.change], notes),
    ]


def _used(one: Result) -> str:
    if one.row.decides:
        return f"fitted: {one.row.decides}"
    return SEEN if one.row.seen else HELD


def _values(chosen: Sequence[Result], notes: Mapping[str, str]) -> list[str]:
    rows = [
        (
            one.row.what,
            one.row.source,
            _used(one),
            f"{number(one.row.measured)} {one.row.unit}",
            f"{number(one.predicted)} {one.row.unit}",
            f"{one.pair.ratio:.2f}",
            notes.get(one.row.key, ""),
        )
        for one in chosen
    ]
    return table(("what", "source", "used", "measured", "predicted", "ratio", "note"), rows)


def _changes(chosen: Sequence[Result], notes: Mapping[str, str]) -> list[str]:
    rows = []
    for one in chosen:
        assert one.row.pair is not None
        assert isinstance(one.value, tuple)
        measured, predicted = (f"{number(a)} → {number(b)}" for a, b in (one.row.pair, one.value))
        ratio = f"{one.predicted:.3f}" if one.right else f"**{one.predicted:.3f}**"
        told = (one.row.what, one.row.source, _used(one), measured, f"{one.row.measured:.3f}", predicted, ratio)
        rows.append((*told, percent(one.pair.error), notes.get(one.row.key, "")))
    head = ("change", "source", "used", "measured", "after/before", "predicted", "after/before", "off by", "note")
    return table(head, rows)


def forms_part(known: Evidence) -> list[str]:
    """Rows of A8W8 in the other form of the program."""
    by_key = {one.row.key: one for one in known.public}
    rows = []
    for one in known.public:
        if one.row.beside:
            main = by_key[one.row.key.replace("_apart", "")]
            told = (f"{number(form.predicted)} ({form.pair.ratio:.2f})" for form in (main, one))
            rows.append((one.row.what, f"{number(one.row.measured)} {one.row.unit}", *told))
    return table(("what", "measured", "serialised", "with opt-outs"), rows)
