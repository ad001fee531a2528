"""What bounds one block: its busiest pipe, or, where none is busy throughout, the pipe that others wait for."""

from __future__ import annotations

from npuscope.explain.diagnosis import Cause, Diagnosis, Span
from npuscope.table.formats import rough_percent, significant
from npuscope.time.inside import NAMES, Inside

THROUGHOUT = 0.7  # of the block: a pipe that is busy for as long bounds it
DOES = {
    "MTE2": "loads",
    "MTE1": "moves into the cube's own buffers",
    "M": "the matrix unit",
    "FIXP": "writing results out of the cube core",
    "V": "vector work",
    "MTE3": "stores",
    "S": "scalar work",
}
MANY = ("MTE2", "MTE1", "MTE3")  # spoken of in the plural
KIND = {"MTE2": "bandwidth", "FIXP": "bandwidth", "MTE3": "bandwidth"}
REMEDY = {
    "MTE2": "Load less or load earlier: larger tiles that are used more often, narrower types, more turns in flight.",
    "MTE1": "Use what lies in the cube's buffers more often before it is replaced.",
    "M": "Multiply less: fewer padded rows, shapes that fill the unit.",
    "FIXP": "Write results out less often: add up longer in the accumulator.",
    "V": "Do less vector work: fewer passes over the data, narrower types.",
    "MTE3": "Store less: keep what is read again on the chip.",
    "S": "Fewer and longer instructions: larger tiles, fewer accesses to single elements.",
}


def block_diagnosis(block: Inside) -> Diagnosis:
    """The pipes of a block as causes, the busiest first."""
    whole = block.timing.duration
    busy = {name: float(ns) / whole if whole else 0.0 for name, ns in zip(NAMES, block.timing.busy, strict=True)}
    ordered = sorted((name for name in NAMES if busy[name] > 0), key=lambda name: -busy[name])
    window = (0, round(whole))
    if not ordered:
        return Diagnosis((Cause("unknown", "Nothing runs in this block.", 0.0),), window[1], window)
    waits = {name: (ns, told) for name, ns, told in block.pipes().select("pipe", "waited_ns", "waited_for").iter_rows()}
    causes = [_cause(name, busy, waits, rank == 0, window) for rank, name in enumerate(ordered)]
    return Diagnosis(tuple(causes), window[1], window)


def _cause(
    name: str, busy: dict[str, float], waits: dict[str, tuple[float, str]], first: bool, window: tuple[int, int]
) -> Cause:
    unit, pipe = name.split(" ")
    does = DOES[pipe] + (" of the vector core" if unit == "AIV" and pipe in ("MTE2", "S") else "")
    verb = "" if pipe in MANY else "s"
    share = busy[name]
    busy_told = f"{name} is busy {rough_percent(share)} of it"
    if first and share >= THROUGHOUT:
        sentence = f"{does[:1].upper()}{does[1:]} bound{verb} this block: {busy_told}."
    elif first:
        sentence = f"No pipe is busy throughout this block: {does} come{verb} nearest, {busy_told}."
    else:
        sentence = f"{busy_told[:1].upper()}{busy_told[1:]} ({does})."
    waited, told = waits.get(name, (0.0, ""))
    evidence = (f"It waits {significant(waited / 1000)} µs, for: {told}.",) if waited else ()
    where = (Span(*window, lane=NAMES.index(name)),)
    return Cause(KIND.get(pipe, "core"), sentence, share, evidence, None, where, REMEDY[pipe])
