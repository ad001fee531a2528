"""Several ranks together: those that come late to collectives, and what the slowest rank suffers from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from npuscope.explain.collective_waits import CollectiveWaits
from npuscope.explain.diagnosis.known import WORTH_A_WORD
from npuscope.explain.diagnosis.ranking import less, ranked
from npuscope.explain.diagnosis.shape import Cause, Diagnosis, Gain
from npuscope.table.formats import duration, percent


def diagnose_ranks(names: Sequence[str], each: Sequence[Diagnosis], waits: CollectiveWaits) -> Diagnosis:
    """The causes of the rank with the longest window, and above them, where it is worth more, the rank that is late."""
    slowest = max(range(len(each)), key=lambda number: each[number].wall_ns)
    one = each[slowest]
    if len(each) == 1:
        return one
    causes = [replace(cause, sentence=f"{names[slowest]}: {cause.sentence}") for cause in one.causes]
    late = _late(one, waits)
    if late is None:
        return replace(one, causes=tuple(causes))
    straggler, wait = late
    causes = [less(cause, wait, one.wall_ns, "for the late rank") if cause.kind == "communication" else cause
              for cause in causes] if (waits.wait_ns[names[slowest]] >= wait) else causes  # fmt: skip
    return replace(one, causes=tuple(ranked([straggler, *causes], one.wall_ns)))


def _late(slowest: Diagnosis, waits: CollectiveWaits) -> tuple[Cause, int] | None:
    """The rank that makes others wait longest, and how long the one waits that waits most for it."""
    if waits.table.is_empty():
        return None
    caused = waits.table.group_by("waits_for").agg(
        pl.col("wait_ns").sum(), most=pl.col("wait_ns").max(), least=pl.col("wait_ns").min()
    )
    name, total, most, least = caused.sort("wait_ns", "waits_for", descending=[True, False]).row(0)
    share = most / slowest.wall_ns if slowest.wall_ns else 0.0
    if share < WORTH_A_WORD:
        return None
    cause = Cause(
        "rank",
        f"{name} comes late to {waits.last[name]:,} of {waits.matched:,} collectives, and another rank waits "
        f"{duration(most)} for it ({percent(share)} of the time).",
        min(share, 1.0),
        (f"all others together wait {duration(total)} for it",),
        Gain(round((least + most) / 2), int(least), int(most)),
        remedy=f"Look at what {name} does longer than the others before its collectives: `npuscope report --rank`.",
    )
    return cause, int(most)
