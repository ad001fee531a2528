"""Several runs against several as a report: who is faster and how sure that is, then the kernels that changed."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.comparison import Comparison
from npuscope.explain.many.ratio import ENOUGH, Ratio
from npuscope.explain.many.runs import SeveralRuns
from npuscope.table.formats import duration, many, percent, significant
from npuscope.table.parts import Heading, In, Notes, Part, Rows, Say

KERNELS = 12


def several(
    names: tuple[str, str], found: SeveralRuns, middle: Comparison | None = None, wide: bool = False
) -> Iterator[Part]:
    """`middle` compares the run in the middle of each side, which says where a difference comes from."""
    yield Heading(f"{names[0]} against {names[1]}, several runs of each", 1, In.POSTED)
    yield Say(headline(found), strong=True)
    yield Notes(_basis(names, found))
    table = found.tables()["changed"]
    if table.frame.height:
        yield Heading("Kernels that changed", where=In.POSTED)
        yield Heading(f"{many(table.frame.height, 'kernel')} changed (core time, medians):", where=In.TEXT)
        yield Rows(table, KERNELS, wide=wide)
    yield Notes(_kernels_told(found))
    if middle is not None:
        yield Heading("Where the difference comes from", where=In.POSTED)
        yield Heading(f"in the middle run of each side, {middle.waterfall.title()}", where=In.TEXT)
        yield Say(f"In the middle run of each side, {middle.waterfall.title()}.", where=In.POSTED)
        yield Rows(middle.tables()["waterfall"])


def headline(found: SeveralRuns) -> str:
    """The one sentence to read."""
    total, (a, b) = found.total, found.medians_ns
    medians = f"{duration(b)} against {duration(a)}"
    if not total.has_interval:
        return (
            f"Undecided: {medians} in {found.what}, {significant(total.value)}x, but fewer than {ENOUGH} "
            f"{_samples(found)} of each side do not show how much they differ by themselves."
        )
    if total.verdict == "undecided":
        return (
            f"Undecided: B takes {significant(total.low)}x to {significant(total.high)}x the time of A "
            f"({_sure(total)}); {found.what} {medians}, medians."
        )
    return (
        f"B is {faster_or_slower(total.value)}: {found.what} {medians}, medians. "
        f"{_sure(total)}, it takes {significant(total.low)}x to {significant(total.high)}x the time of A."
    )


def faster_or_slower(ratio: float) -> str:
    """`1.34x slower`, `1.2x faster`; small differences in per cent."""
    word = "slower" if ratio > 1 else "faster"
    if 0.9 < ratio < 1.1:
        return f"{significant(abs(ratio - 1) * 100)}% {word}"
    return f"{significant(max(ratio, 1 / ratio))}x {word}"


def _sure(total: Ratio) -> str:
    return f"{total.confidence * 100:.0f}% sure"


def _samples(found: SeveralRuns) -> str:
    return "steps" if found.steps else "runs"


def _basis(names: tuple[str, str], found: SeveralRuns) -> list[str]:
    """What was compared, and what would decide it."""
    of = _samples(found)
    counts = [many(len(side), of.removesuffix("s")) for side in (found.a, found.b)]
    told = [f"A = {names[0]} ({counts[0]}), B = {names[1]} ({counts[1]})"]
    total = found.total
    if not total.has_interval:
        told.append(f"give at least {ENOUGH} {of} of each side")
    elif total.verdict == "undecided":
        ruled_out = f"a difference above {percent(total.largest_difference)} is ruled out"
        if total.more_runs is None:
            told.append(f"{ruled_out}; the difference seen is so small that no number of {of} worth trying decides it")
        else:
            more = f"about {total.more_runs:,} more {of} of each side would decide it"
            told.append(f"{ruled_out}; {more}, if the difference is as large as it looks")
    if found.steps:
        told.append(
            "steps of one capture share its clock rates, neighbours and memory layout: what differs from run to run "
            "only several captures show"
        )
    return told


def _kernels_told(found: SeveralRuns) -> list[str]:
    """What is not in the table."""
    same = found.tested - sum(verdict in ("faster", "slower") for verdict in found.changed["verdict"].to_list())
    told = []
    if found.tested and found.total.has_interval:
        told.append(
            f"{many(same, 'other kernel')} of {found.tested} compared: no change that noise would not explain. "
            f"The list is corrected for looking at {found.tested} (Holm): 95 times in 100 nothing in it is noise"
        )
    if found.small:
        told.append(f"{many(found.small, 'kernel')} below 0.1% of the time not compared")
    return told
