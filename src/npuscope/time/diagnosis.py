"""What a simulation knows of the causes of a run beyond its trace: what mending each is worth, what bounds a block of
its kernel, and the finding of `check` that mends it.

What a cause is worth is what somebody could get: the wall as it is less the wall simulated with what no program is
without. Of the scheduler that is as few tasks as the graph allows, of HBM a TUNABLE part fewer bytes, of full cores
the kernels on top TUNABLE faster, of a chain of tasks half of its time, of last blocks what free cores could take off
them. The upper bound is the run without the cause at all (a kernel: twice as fast), as sure as such a ratio is
(`uncertainty.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from npuscope.check.columns import worth_text
from npuscope.check.rule import Finding, Waste
from npuscope.explain import explain
from npuscope.explain.diagnosis import Cause, Diagnosis, Gain, Together
from npuscope.explain.diagnosis.cause import MAIN, TUNABLE, Refine
from npuscope.explain.diagnosis.on_cores import BEST_CASE
from npuscope.explain.explanation import Explanation
from npuscope.table.formats import duration, percent, significant
from npuscope.tile.record.model import short_name
from npuscope.time.change_job import TINY, fewer_bytes, fewest_tasks, scaled, without_limit, without_scheduler
from npuscope.time.core.costs import NS
from npuscope.time.inside import block_diagnosis, inside
from npuscope.time.priced import Owners, Priced, named
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import against

SURE = {"measured": "sure", "documented": "sure", "fitted": "likely", "guessed": "a guess"}
WORTH_TELLING = 0.005  # of the wall: a finding that saves less is not what to do about a cause
FITS: Mapping[str, Callable[[Waste], int]] = {  # a kind of cause -> what of a finding is about it
    "bandwidth": lambda waste: waste.bytes,
    "core": lambda waste: waste.bytes + waste.flops,
    "dispatch": lambda waste: waste.tasks,
    "dependency": lambda waste: waste.waits,
}


def refined(simulated: Simulated) -> Refine:
    """Makes of a cause that the trace shows what the simulation knows of it."""
    owner = Owners(simulated.prepared)

    def refine(cause: Cause) -> Cause:
        gain = _gain(simulated, cause, owner)
        evidence = (*cause.evidence, *_evidence(simulated, cause))
        return replace(cause, gain=gain, evidence=evidence, confidence=_sure(simulated, cause))

    return refine


def explained(simulated: Simulated) -> Explanation:
    """The run's trace explained; its diagnosis has what the simulation knows."""
    return explain(simulated.trace, cores=3 * simulated.prepared.machine.clusters, refine=refined(simulated))


def with_findings(simulated: Simulated, found: Diagnosis, priced: Priced) -> Diagnosis:
    """The same diagnosis, with the finding that fits a cause as what to do about it."""
    together = None
    if priced.together_ns is not None:
        together = Together(len(priced.savers), gain_of(simulated, priced.together_ns))
    used: set[Finding] = set()
    causes = []
    for cause in found.causes:
        finding = _finding(cause, priced)
        if finding is not None and finding not in used:
            used.add(finding)
            cause = replace(cause, remedy=f"{finding.remedy} ({named(finding)}: {worth_text(finding)}.)")
        causes.append(cause)
    return replace(found, causes=tuple(causes), together=together)


def _finding(cause: Cause, priced: Priced) -> Finding | None:
    """What `check` found about this cause that is worth most, if it is worth anything."""
    if cause.kind not in FITS:
        return None
    about = [one for one in priced.findings if FITS[cause.kind](one.waste) and _is_about(cause, one)]
    best = max(about, key=lambda one: one.saves_ns or 0, default=None)
    return best if best is not None and (best.saves_ns or 0) >= max(WORTH_TELLING * priced.wall_ns, 1) else None


def _is_about(cause: Cause, finding: Finding) -> bool:
    """Tasks are everybody's to submit and hand out; bytes, FLOPs and waits are of kernels."""
    return cause.kind == "dispatch" or finding.kernel in cause.kernels[:MAIN]


def _sure(simulated: Simulated, cause: Cause) -> str:
    rests_on = simulated.prepared.program.device.timing["hbm_rate"].confidence
    return SURE[rests_on] if cause.kind == "bandwidth" else "likely"


def _evidence(simulated: Simulated, cause: Cause) -> list[str]:
    """What only a simulation can show."""
    found, bound = [], simulated.bound
    if cause.kind == "bandwidth":
        most, sheet = (
            significant(rate / 1e12)
            for rate in (simulated.prepared.machine.limit * NS, simulated.prepared.program.device.bandwidth)
        )
        found.append(f"all cores together draw at most {most} TB/s; the chip's data sheet says {sheet}")
        found.append(f"what it is worth: {percent(TUNABLE)} fewer bytes; at most: no limit")
    if cause.kind == "dispatch":
        found.append(BEST_CASE.format(fewest_tasks(simulated.prepared)))
    if cause.kind == "dispatch" and bound.ring_wait_ns >= 1:
        found.append(f"the orchestrator waits {duration(bound.ring_wait_ns)} for room in its rings")
    if cause.kernels and cause.kernels[0] in Owners(simulated.prepared).classes:  # of the program that is told of
        sentence = block_diagnosis(inside(simulated, cause.kernels[0])).verdict.sentence
        found.append(f"`{short_name(cause.kernels[0])}`: {sentence}")
    return found


def _gain(simulated: Simulated, cause: Cause, owner: Owners) -> Gain | None:
    wall, trials = simulated.wall_ns, simulated.trials
    job = simulated.prepared.job
    match cause.kind:
        case "dispatch":
            least = fewest_tasks(simulated.prepared)
            likely = without_scheduler(simulated, max(least.handing_out, TINY), least.submitting)
            found = _gain_up_to(simulated, likely, without_scheduler(simulated, TINY))
            return Gain.around(found.ns, found.low_ns, min(found.high_ns, cause.share * wall))
        case "bandwidth":
            job, endless = without_limit(simulated.prepared, "memory")
            fewer = trials.wall_ns(job, fewer_bytes(simulated.prepared.machine, TUNABLE))
            return _gain_up_to(simulated, fewer, trials.wall_ns(job, endless))
        case "dependency":
            # a program in which nothing waits for data is none: the time in which cores idle for it is what can be had
            found = gain_of(simulated, trials.wall_ns(*without_limit(simulated.prepared, "dependency")))
            return Gain.around(min(found.ns, cause.share * wall) / 2, 0, found.high_ns)
        case "core" if cause.kernels and owner.classes.keys() >= set(cause.kernels):
            classes = np.unique(np.concatenate([owner.classes[kernel] for kernel in cause.kernels]))
            tuned, half = (trials.wall_ns(scaled(job, classes, left, left)) for left in (1 - TUNABLE, 0.5))
            return Gain.around(wall - tuned, 0, wall - half)
    return cause.gain


def _gain_up_to(simulated: Simulated, likely_ns: int, without_ns: int) -> Gain:
    """From the run to a likely wall, at most to the one without the cause."""
    likely, most = gain_of(simulated, likely_ns), gain_of(simulated, without_ns)
    return Gain.around(likely.ns, likely.low_ns, most.high_ns)


def gain_of(simulated: Simulated, wall_ns: int) -> Gain:
    """From the run to one with this wall: what it saves, and where 80% of measured savings lie; none is below zero."""
    saved = simulated.wall_ns - wall_ns
    if min(wall_ns, simulated.wall_ns) <= 0:
        return Gain.around(saved, 0, simulated.wall_ns)
    regime = simulated.bound.regime
    ratio = against(simulated.wall_ns, wall_ns, regime, regime).ratio
    return Gain.around(saved, *(max(simulated.wall_ns * (1 - end), 0) for end in (ratio.high, ratio.low)))
