"""What runs on the device: compute, and communication and copies that nothing hides."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from npuscope.explain.diagnosis.known import Known, spans, top_kernel
from npuscope.explain.diagnosis.shape import Cause, Gain
from npuscope.explain.work import Work
from npuscope.table.formats import duration, many, percent, short

MOVES = ("aic_mte2_ratio", "aiv_mte2_ratio")
COMPUTES = ("aic_mac_ratio", "aiv_vec_ratio")
LATE = 5  # times the usual: a collective that takes longer waits for a rank that is late
RARE = 0.05  # of the collectives of a kind are late; where more are, they differ in size
FEWEST = 3  # collectives of a kind, to say what is usual for it
MOSTLY = 0.8  # of something: enough to name only this
NEARLY_ALL = 0.95  # of the time: nothing but faster kernels is left to gain
FASTER_KERNELS = "Make the kernels on top faster or fewer; `npuscope roofline` shows how far each is from the chip."
ONLY_FASTER_KERNELS = f"Nothing to gain here but from kernels themselves. {FASTER_KERNELS}"
LATE_RANK = "Find the rank that comes late: give `npuscope report` the folder with all ranks."


def compute(known: Known) -> Iterator[Cause]:
    """The device computes."""
    run = known.running("task")
    ns = int(run["ns"].sum())
    if ns == 0:
        return
    name, longest = top_kernel(run)
    share = ns / max(known.scope_ns, 1)
    counters = counters_of(known.work)
    kind = core_or_bandwidth(counters)
    told = f"The device computes {percent(share)} of the time ({duration(ns)})"
    evidence = [f"{name} takes most of it: {duration(longest)}, {percent(longest / ns)}"]
    yield Cause(
        kind,
        f"{told}, mostly moving data." if kind == "bandwidth" else f"{told}; {name} takes most, {duration(longest)}.",
        known.share(ns),
        tuple(evidence + counters_told(counters)),
        where=spans(run),
        remedy=ONLY_FASTER_KERNELS if share >= NEARLY_ALL else FASTER_KERNELS,
    )


def exposed_communication(known: Known) -> Iterator[Cause]:
    """Collectives that no compute hides."""
    run = known.running("comm")
    exposed = int(run["ns"].sum())
    if exposed == 0 or known.communication is None:
        return
    name, longest = top_kernel(run)
    total, compute_ns = known.communication.on_core_ns, known.communication.compute_ns
    free = compute_ns - known.communication.hidden_ns  # compute that nothing communicates beside
    late, words = _late_collectives(known.work)
    hideable = min(exposed, free)
    evidence = [f"{percent(1 - exposed / max(total, exposed))} of all communication is hidden by compute"]
    evidence.append(f"{name} is {percent(longest / exposed)} of what is not hidden")
    evidence.append(f"it is {percent(exposed / known.ran.length)} of the time in which anything runs")
    words = words or f", nearly all of it in {name}" if longest > MOSTLY * exposed else words
    remedy = "Overlap communication with compute, or send less."
    if late > exposed / 2:
        remedy = LATE_RANK
    elif hideable < exposed / 2:
        remedy = f"Send less or less often: there is only {duration(free)} of compute to hide it behind."
    yield Cause(
        "communication",
        f"Communication that no compute hides takes {known.told(exposed)}{words}.",
        known.share(exposed),
        tuple(evidence),
        Gain(min(max(late, round((hideable + exposed) / 2)), exposed), hideable, exposed),
        spans(run),
        remedy,
        "likely" if late else "sure",
    )


def exposed_copies(known: Known) -> Iterator[Cause]:
    """Copies that nothing hides."""
    run = known.running("copy")
    exposed = int(run["ns"].sum())
    if exposed == 0 or known.copies is None:
        return
    name, longest = top_kernel(run)
    hidden = 1 - exposed / max(known.copies.on_engine_ns, exposed)
    evidence = (
        f"{percent(hidden)} of all copying is hidden by compute or communication",
        f"{name} is {percent(longest / exposed)} of what is not hidden",
    )
    hideable = min(exposed, int(known.running("task")["ns"].sum()))
    yield Cause(
        "copy",
        f"Copies that nothing hides take {known.told(exposed)}; {name} is most of it.",
        known.share(exposed),
        evidence,
        Gain(round((hideable + exposed) / 2), hideable, exposed),
        spans(run),
        "Copy ahead on a stream of its own, from pinned memory, or keep the data on the device.",
    )


def _late_collectives(work: Work) -> tuple[int, str]:
    """What collectives take beyond LATE times the usual of their kind, and the longest of them in words."""
    comm = np.flatnonzero((work.slices["kind"] == "comm").to_numpy())
    # profilers number their collectives
    kind = [re.sub(r"(_+\d+)+$", "", work.kernels[number]) for number in work.kernel[comm].tolist()]
    table = pl.DataFrame({"kind": kind, "ns": (work.end - work.start)[comm]})
    if table.height < FEWEST:
        return 0, ""
    several = pl.len().over("kind") >= FEWEST  # a kind of its own is judged by all collectives
    usual = pl.when(several).then(pl.col("ns").median().over("kind")).otherwise(pl.col("ns").median())
    late = table.with_columns(usual=usual).filter(pl.col("ns") > LATE * pl.col("usual")).sort("ns", descending=True)
    if late.is_empty() or late.height > max(RARE * table.height, 1):
        return 0, ""
    name, ns, typical = late.select("kind", "ns", "usual").row(0)
    others = f" ({many(late.height - 1, 'other')} as well)" if late.height > 1 else ""
    words = f": one `{short(str(name), 40)}` takes {duration(ns)} where {duration(typical)} is usual{others}"
    return round((late["ns"] - late["usual"]).sum()), f"{words}, as if it waited for another rank"


def counters_of(work: Work) -> dict[str, float]:
    """Of the time of kernels with counters, the shares in which a core moved data in and in which it computed; and
    the share of core time that has counters. Nothing where none has."""
    if not all(column in work.trace.slices.columns for column in (*MOVES, *COMPUTES)):
        return {}
    ratio = pl.col(*MOVES, *COMPUTES).cast(pl.Float64, strict=False)
    told = work.told(*MOVES, *COMPUTES).lazy().filter(pl.col("kind") == "task").select("dur", ratio).collect()
    told = told.drop_nulls()
    whole = int(told["dur"].sum())
    if whole == 0:
        return {}
    weighted = [(pl.max_horizontal(*columns) * pl.col("dur")).sum() / whole for columns in (MOVES, COMPUTES)]
    moving, computing = told.select(weighted[0].alias("moving"), weighted[1].alias("computing")).row(0)
    return {"moving": float(moving), "computing": float(computing), "counted": whole / int(work.slices["dur"].sum())}


def core_or_bandwidth(counters: dict[str, float]) -> str:
    return "bandwidth" if counters and counters["moving"] > counters["computing"] else "core"


def counters_told(counters: dict[str, float]) -> list[str]:
    if not counters:
        return []
    moving, computing, counted = (percent(counters[name]) for name in ("moving", "computing", "counted"))
    return [f"by the counters of {counted} of core time, cores load data {moving} of the time and compute {computing}"]
