"""A search over a program's settings as a report: the best, how it was found, what it is worth."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.answer.answer import Answer
from npuscope.answer.rank import ranked, variant_rows, variant_table
from npuscope.answer.tune import Tuned
from npuscope.explain.comparison import Comparison
from npuscope.report.rank import rank, why
from npuscope.table.formats import duration, many, percent
from npuscope.table.parts import Heading, Notes, Part, Rows, Say


def tune(file: str, device: str, tuned: Tuned, top: int, comparison: Comparison | None) -> Iterator[Part]:
    """The headline, the table of the best, the front where one was asked for, and why the best one wins."""
    first = tuned.answers[0]
    yield Heading(headline(file, device, tuned), 1)
    if tuned.best is not None and tuned.best.bound_message:
        yield Say(tuned.best.bound_message, strong=True)
    yield Notes(_how(tuned))
    able = {one.candidate: one for one in tuned.answers if one.error is None}
    if able:
        tried = [variant for variant in tuned.variants if variant.name in able]
        yield from rank("the best of them", ranked([*able.values()]), first, top, tried)
    if tuned.front:
        yield Heading("none of these is beaten in both: time against what it takes")
        yield Rows(variant_table(tuned.front, first), top)
    if comparison is not None and tuned.best is not None:
        yield from why((first.candidate, tuned.best.candidate), comparison)


def headline(file: str, device: str, tuned: Tuned) -> str:
    """`layer.py: 45.1 µs with TILE=128, from 96 µs (−53.0 %)`."""
    best, first = tuned.best, tuned.answers[0]
    if best is None:
        return f"{file} on {device}: nothing was found that runs and is right"
    told = f"{file} on {device}: {duration(best.wall_ns or 0)} with {best.candidate}"
    if first.wall_ns is None:
        return f"{told}; as it is it does not run"
    if best.candidate == first.candidate or not best.wall_ns or best.wall_ns >= first.wall_ns:
        return f"{file} on {device}: {duration(first.wall_ns)} as it is, and nothing faster was found"
    return f"{told}, from {duration(first.wall_ns)} (−{percent(1 - best.wall_ns / first.wall_ns)})"


def _how(tuned: Tuned) -> list[str]:
    tried, size = len(tuned.answers), tuned.space.size
    lines = [
        f"{'all' if tried == size else f'{tried:,} of {size:,}'} combinations of "
        f"{many(len(tuned.space.settings), 'setting')} were tried: {tuned.simulated:,} simulated, {tuned.pruned:,} "
        "dropped because they cannot run"
    ]
    lines += [f"{name}: {', '.join(values)}" for name, values in tuned.space.settings]
    if failed := [one for one in tuned.answers if one.error is not None]:
        lines.append(f"one of those dropped: {failed[0].candidate}: {failed[0].error}")
    for name, numbers in tuned.golden:
        taken = ", and so it is not taken" if numbers.right is False else ""
        lines.append(f"{name}: {numbers.message or 'its numbers are right'}{taken}")
    return lines


def tune_dict(file: str, device: str, tuned: Tuned) -> dict[str, object]:
    """The contract of `npuscope tune --json` (docs/reference/json.md)."""
    settings = {variant.name: dict(variant.settings) for variant in tuned.variants}
    first = tuned.answers[0]

    def rows(found: list[Answer]) -> list[dict[str, object]]:
        return variant_rows(found, first, settings)

    return {
        "file": file,
        "device": device,
        "space": {name: list(values) for name, values in tuned.space.settings},
        "size": tuned.space.size,
        "simulated": tuned.simulated,
        "dropped": tuned.pruned,
        "best": None if tuned.best is None else rows([tuned.best])[0],
        "golden": [{"variant": name, "passed": one.right, "message": one.message} for name, one in tuned.golden],
        "front": rows(list(tuned.front)),
        "variants": rows(ranked(tuned.answers)),
    }
