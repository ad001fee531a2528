"""Every row: published changes with their misses, blocks kernel by kernel, phases, single public measurements."""

# ruff: noqa: E501  (prose of a page)

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from published_changes.rows import EVERYTHING, Row
from published_changes.score import Prediction
from validation.blocks import PROGRAMS, SMALL, in_total
from validation.evidence import Evidence
from validation.markdown import DASH, number, percent, table
from validation.public import Result
from validation.reading import interval
from validation.score_table import HELD, SEEN

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
        "complete = `complete_turn` + `complete_block` × blocks + `poll_core` × the thread's cores; resolve and release, which are parts of others, = `resolve_edge` and `release_entry` × number; "
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
