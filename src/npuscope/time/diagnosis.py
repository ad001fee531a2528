"""What bounds a simulated run and what each limit is worth, as the diagnosis that measured runs have, too.

A cause is a limit of `bound.py` with the time in which it holds. What it is worth: the wall as it is less the wall
simulated without the limit, or without the finding that is its remedy, whichever saves more: fewer tasks help the
scheduler and the orchestrator, each of which hides what the other costs. Of full cores, which nothing takes away, it is
the wall with their main kernel TUNABLE faster, at most twice as fast. The bounds are where 80% of measured ratios that
were predicted like this one lie (`uncertainty.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npuscope.check.rule import Finding, Waste
from npuscope.explain.diagnosis import Cause, Diagnosis, Gain, Span, Together
from npuscope.table.formats import duration, rough_percent, significant
from npuscope.tile.record.model import short_name
from npuscope.time.bound import KIND_OF, LIMITS, UNKNOWN
from npuscope.time.change_job import REMOVABLE, scaled, without_limit
from npuscope.time.chip.job import AIC, AIV, MIX, Floats
from npuscope.time.chip.trace import bandwidth
from npuscope.time.core.costs import NS
from npuscope.time.inside import block_diagnosis, inside
from npuscope.time.priced import Owners, Priced, named
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import against

SURE = {"measured": "sure", "documented": "sure", "fitted": "likely", "guessed": "a guess"}
TUNABLE = 0.25  # of a kernel's time: kernels get faster, they do not vanish
NOTHING_RAN = "Nothing ran."
LEAST = 0.005  # of the wall: a limit that holds for less is not told
WORTH_TELLING = 0.005  # of the wall: a finding that saves less is not what to do about a limit
MAIN = 3  # kernels that a limit is mostly about
MOST_SPANS = 50  # of a cause, the longest
CORES = {MIX: 3, AIC: 1, AIV: 1}  # that a block of a shape runs on
CORES_OF = {AIC: 1, AIV: 2}  # of a kind, per cluster
REMEDIES = {
    "memory": "Move fewer bytes: keep tiles on the chip, load what several blocks share once, take narrower types.",
    "cube": "Make {kernel} cheaper: it has most of the time of the full cores.",
    "vector": "Make {kernel} cheaper: it has most of the time of the full cores.",
    "scheduler": "Give it fewer and longer tasks, so that there is less to hand out and to see done.",
    "orchestrator": "Submit fewer tasks: make equal ones blocks of one pl.spmd launch.",
    "dependency": "Let more run beside {kernel}: cut it into more blocks, or let its consumers wait for less.",
    "tail": "Cut the last blocks of {kernel} smaller, or start them earlier.",
}
FITS: dict[str, Callable[[Waste], int]] = {  # a limit -> what of a finding is about it
    "memory": lambda waste: waste.bytes,
    "cube": lambda waste: waste.bytes + waste.flops,
    "vector": lambda waste: waste.bytes,
    "scheduler": lambda waste: waste.tasks,
    "orchestrator": lambda waste: waste.tasks,
    "dependency": lambda waste: waste.waits,
    "tail": lambda waste: 0,
}


@dataclass(frozen=True)
class _Limit:
    """One limit of a run: when it holds, and the kernels with most time of blocks then, the first with most."""

    name: str
    share: float
    spans: tuple[tuple[float, float], ...]
    kernels: tuple[str, ...]


def diagnosis_of(simulated: Simulated, priced: Priced | None = None) -> Diagnosis:
    """The limits of a run, the one that holds longest first; a priced finding that fits is told as what to do."""
    window = (0, simulated.wall_ns)
    limits = _limits(simulated)
    if not limits:
        return Diagnosis((Cause(UNKNOWN, NOTHING_RAN, 0.0),), window[1], window)
    owner = Owners(simulated.prepared)
    causes = tuple(_cause(simulated, _limit(simulated, name), owner, priced) for name in limits)
    together = None
    if priced is not None and priced.together_ns is not None:
        together = Together(len(priced.savers), gain_of(simulated, priced.together_ns))
    return Diagnosis(causes, window[1], window, together)


def first_sentence(simulated: Simulated) -> str:
    """The verdict of `diagnosis_of` alone, without running anything again: for one of many runs."""
    limits = _limits(simulated)
    return _sentence(simulated, _limit(simulated, limits[0])) if limits else NOTHING_RAN


def _limits(simulated: Simulated) -> list[str]:
    """The limits that are worth telling, the one that holds longest first."""
    shares = simulated.bound.shares
    if simulated.bound.kind == UNKNOWN:
        return []
    return sorted((name for name in LIMITS if shares[name] >= LEAST), key=lambda name: -shares[name])


def _limit(simulated: Simulated, name: str) -> _Limit:
    spans = simulated.bound.stretches.joined(name)
    return _Limit(name, simulated.bound.shares[name], tuple(spans), _kernels_in(simulated, spans))


def _kernels_in(simulated: Simulated, spans: list[tuple[float, float]]) -> tuple[str, ...]:
    job, times = simulated.prepared.job, simulated.times
    edges = np.array(spans).ravel()
    so_far = np.repeat(np.concatenate([[0.0], np.cumsum(edges[1::2] - edges[::2])]), 2)[1:-1]

    def passed(moments: Floats) -> Floats:
        """How long the limit had held by then."""
        held: Floats = np.interp(moments, edges, so_far)
        return held

    inside_of = passed(times.end) - passed(times.start)
    tasks = simulated.prepared.program.recording.tasks
    numbers = {name: n for n, name in enumerate(dict.fromkeys(task.kernel for task in tasks))}
    per_task = np.bincount(job.task_of, inside_of, minlength=len(tasks))
    per_kernel = np.bincount([numbers[task.kernel] for task in tasks], per_task, minlength=len(numbers))
    names = list(numbers)
    return tuple(names[n] for n in np.argsort(-per_kernel, kind="stable").tolist() if per_kernel[n] > 0)


def _cause(simulated: Simulated, limit: _Limit, owner: Owners, priced: Priced | None) -> Cause:
    spans = sorted(sorted(limit.spans, key=lambda span: span[0] - span[1])[:MOST_SPANS])
    gain, finding = _gain(simulated, limit, owner), _finding(limit, priced)
    kernel = f"`{short_name(limit.kernels[0])}`" if limit.kernels else "what runs"
    remedy = REMEDIES[limit.name].format(kernel=kernel)
    if finding is not None and finding.price is not None and finding.price.wall_ns is not None:
        saved = gain_of(simulated, finding.price.wall_ns)
        wholly = gain is None or saved.ns >= gain.ns
        gain = saved if wholly else gain
        remedy = f"{finding.fix} ({named(finding)}{'' if wholly else f': {duration(saved.ns)} of it'}, simulated.)"
    return Cause(
        KIND_OF[limit.name],
        _sentence(simulated, limit),
        limit.share,
        _evidence(simulated, limit),
        gain,
        tuple(Span(round(start), round(end)) for start, end in spans if round(end) > round(start)),
        remedy,
        SURE[simulated.prepared.program.device.timing["hbm_rate"].confidence] if limit.name == "memory" else "likely",
    )


def _finding(limit: _Limit, priced: Priced | None) -> Finding | None:
    """What `check` found about this limit that is worth most, if it is worth anything."""
    if priced is None:
        return None
    about = [one for one in priced.findings if FITS[limit.name](one.waste) and _is_about(limit, one)]
    best = max(about, key=lambda one: one.saves_ns or 0, default=None)
    return best if best is not None and (best.saves_ns or 0) >= max(WORTH_TELLING * priced.wall_ns, 1) else None


def _is_about(limit: _Limit, finding: Finding) -> bool:
    """Tasks are everybody's to submit and hand out; bytes, FLOPs and waits are of kernels that run under the limit."""
    return limit.name in ("scheduler", "orchestrator") or finding.kernel in limit.kernels[:MAIN]


def _sentence(simulated: Simulated, limit: _Limit) -> str:
    share = rough_percent(limit.share)
    names = " and ".join(f"`{short_name(name)}`" for name in limit.kernels[:2])
    during = f", most of it in {names}" if names else ""
    match limit.name:
        case "memory":
            rates = f"{_tera(_drawn(simulated))} of {_tera(simulated.prepared.machine.limit * NS)} TB/s"
            return f"HBM is at its limit {share} of the time: {rates} on average over the run{during}."
        case "cube" | "vector":
            return f"Nearly all {limit.name} cores are busy {share} of the time{during}."
        case "scheduler":
            return f"Blocks that could run wait for the scheduler {share} of the time."
        case "orchestrator":
            return f"Tasks that could run are not submitted yet {share} of the time."
        case "tail":
            kernel = f" of {names}" if names else ""
            return (
                f"For the last {share} of the time no block is left to start: the last ones{kernel} leave cores idle."
            )
    return f"What is left to do waits for blocks that leave cores idle {share} of the time{during}."


def _evidence(simulated: Simulated, limit: _Limit) -> tuple[str, ...]:
    """What only a simulation can show for a limit."""
    bound, found = simulated.bound, []
    match limit.name:
        case "memory":
            most, documented = simulated.prepared.machine.limit * NS, simulated.prepared.program.device.bandwidth
            sheet = f"the chip's data sheet says {_tera(documented)}"
            found.append(f"All cores together draw at most {_tera(most)} TB/s; {sheet}.")
        case "cube":
            found.append(f"Over the whole run the cube cores are busy {rough_percent(bound.cube_busy)}.")
        case "vector":
            found.append(f"Over the whole run the vector cores are busy {rough_percent(bound.vector_busy)}.")
        case "scheduler":
            each = duration(simulated.wall / len(simulated.prepared.job.block_class))
            found.append(f"Its threads are busy {rough_percent(bound.scheduler_busy)}; a block is done every {each}.")
        case "orchestrator":
            found.append(f"The orchestrator is busy {rough_percent(bound.orchestrator_busy)}.")
            if bound.ring_wait_ns >= 1:
                found.append(f"It waits {duration(bound.ring_wait_ns)} for room in its rings.")
    if limit.kernels and limit.name not in ("scheduler", "orchestrator"):
        found.append(_of_kernel(simulated, limit.kernels[0]))
    return tuple(found)


def _drawn(simulated: Simulated) -> float:
    """Bytes per second of HBM, on average over the run."""
    time, rate = bandwidth(simulated.prepared.job, simulated.prepared.machine, simulated.times)
    return float(np.sum(np.diff(time) * rate[:-1])) / simulated.wall * NS


def _tera(rate: float) -> str:
    return significant(rate / 1e12)


def _of_kernel(simulated: Simulated, kernel: str) -> str:
    """A block of the kernel, in the words of `--pipes`."""
    sentence = block_diagnosis(inside(simulated, kernel)).verdict.sentence
    return f"`{short_name(kernel)}`: {sentence}"


def _gain(simulated: Simulated, limit: _Limit, owner: Owners) -> Gain | None:
    wall, name = simulated.wall_ns, limit.name
    held = round(limit.share * wall)
    if name in REMOVABLE:
        found = gain_of(simulated, simulated.trials.wall_ns(*without_limit(simulated.prepared, name)))
        # a program in which nothing waits for data is none: the time in which cores idle for it is what can be had
        return Gain(min(found.ns, held), 0, found.ns) if name == "dependency" else found
    if name == "tail":
        return Gain(round(held * (1 - _used(simulated, limit))), 0, held)
    if not limit.kernels:
        return None
    job, classes = simulated.prepared.job, owner.classes[limit.kernels[0]]
    tuned, half = (simulated.trials.wall_ns(scaled(job, classes, left, left)) for left in (1 - TUNABLE, 0.5))
    return Gain(max(wall - tuned, 0), 0, max(wall - half, 0))


def gain_of(simulated: Simulated, wall_ns: int) -> Gain:
    """From the run to one with this wall: what it saves, and where 80% of measured savings lie; none is below zero."""
    if min(wall_ns, simulated.wall_ns) <= 0:
        return Gain(max(simulated.wall_ns - wall_ns, 0), 0, simulated.wall_ns)
    kind = simulated.bound.kind
    ratio = against(simulated.wall_ns, wall_ns, kind, kind).ratio
    low, high = (max(round(simulated.wall_ns * (1 - end)), 0) for end in (ratio.high, ratio.low))
    return Gain(max(simulated.wall_ns - wall_ns, 0), low, high)


def _used(simulated: Simulated, limit: _Limit) -> float:
    """The share of the cores, of the kinds that the tail's blocks run on, that they keep busy on average."""
    job, times, clusters = simulated.prepared.job, simulated.times, simulated.prepared.machine.clusters
    start, end = limit.spans[0][0], limit.spans[-1][1]
    inside_of = np.maximum(np.minimum(times.end, end) - np.maximum(times.start, start), 0.0)
    shapes = job.shape[job.task_of]
    busy = sum(float(np.sum(inside_of[shapes == shape])) * cores for shape, cores in CORES.items())
    met = {shape for shape in CORES if np.any(inside_of[shapes == shape] > 0)}
    there = clusters * max(3 if MIX in met else 0, sum(CORES_OF[shape] for shape in met - {MIX}))
    return busy / (there * max(end - start, 1e-9)) if there else 1.0
