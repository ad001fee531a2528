"""What a job of the judge does with one candidate: `examine` without numbers, `golden_of` with them.

Two jobs, because the second computes: it may take far longer, or more memory, and what the first found must not be
lost with it. Both run in a process of their own (pool.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from npuscope.answer.answer import KernelTold, Reason, Time, Verdict, Worth, Wrong
from npuscope.answer.variant import Variant
from npuscope.base.errors import NpuscopeError
from npuscope.base.process_memory import collected_rarely
from npuscope.base.surroundings import Surroundings
from npuscope.check.findings import Finding
from npuscope.check.gm_traffic import seconds_of
from npuscope.check.memory_use import usages
from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules
from npuscope.check.rules.safety import RACE
from npuscope.check.run import looked_for
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import Program
from npuscope.tile.golden import RunResult
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import short_name
from npuscope.tile.script.run import ScriptRun, run_script
from npuscope.tile.script.surroundings import heard
from npuscope.time.diagnosis import diagnosis_of
from npuscope.time.priced import prices_of
from npuscope.time.programs import Refused, chip_to_time, refusals
from npuscope.time.run import Simulated, simulate
from npuscope.time.uncertainty import time_estimate

PRICED = 8  # findings that are simulated without, the costliest by the rules' own reckoning
WORTH = 3  # of those that are told
_WRITTEN = re.compile(r"last written by .* at (?P<file>\S+):(?P<line>\d+)")


@dataclass(frozen=True)
class Examined:
    """Everything that needs no numbers. `verdict` is good as long as nothing speaks against it."""

    verdict: Verdict
    seen: Surroundings
    told: str = ""
    line: int | None = None
    reasons: tuple[Reason, ...] = ()
    races: tuple[Reason, ...] = ()
    time: Time | None = None
    bound: str = ""  # the kind of the first cause
    bound_told: str = ""
    findings: tuple[Worth, ...] = ()
    together_ns: int | None = None
    tasks: int | None = None
    blocks: int | None = None
    kernels: tuple[KernelTold, ...] = ()


@dataclass(frozen=True)
class Compared:
    """The numbers: `right` is None where there was nothing to compare, and `told` says why."""

    right: bool | None
    seen: Surroundings
    told: str = ""
    wrong: Wrong | None = None


def examine(variant: Variant) -> Examined:
    """Records by shape, checks, and simulates what can run."""
    with collected_rarely(), heard() as around:
        try:
            found = _examined(variant)
        except Refused as error:
            found = Examined("exited", Surroundings(), str(error))
        except NpuscopeError as error:
            found = Examined("fails", Surroundings(), str(error), error.line)
    return _seeing(found, around)


def golden_of(variant: Variant) -> Compared:
    """Runs with values and compares with the goldens of the script."""
    with collected_rarely(), heard() as around:
        with refusals(variant.file, variant.argv):
            ran = run_script(variant.file, variant.argv, "values", settings=dict(variant.settings))
        found = _judged(ran)
    seen = around[-1] if around else Surroundings()
    return replace(
        found, seen=seen, wrong=found.wrong and replace(found.wrong, file=_whole(found.wrong.file, variant, seen))
    )


def _whole(name: str, variant: Variant, seen: Surroundings) -> str:
    """The path of a file that is known by its name."""
    own = Path(variant.file)
    files = [own, *(own.parent / module for module in seen.modules)]
    return next((near(str(file.resolve())) for file in files if file.name == name), name)


def _seeing(found: Examined, around: list[Surroundings]) -> Examined:
    return replace(found, seen=around[-1] if around else Surroundings())


def _examined(variant: Variant) -> Examined:
    chip = chip_to_time(variant.device)
    with refusals(variant.file, variant.argv):
        ran = run_script(variant.file, variant.argv, "shapes", settings=dict(variant.settings))
    number = the_one(ran.recordings, variant.program, variant.file)
    goldens: dict[int, Callable[..., object] | None] = {id(one.run): one.golden_fn for one in ran.results}
    lowering = LoweringOptions(ring_slots=variant.ring_slots)
    program = Program(ran.recordings[number], chip, lowering, goldens.get(id(ran.runs[number])))
    kept, _ = looked_for(program, _rules())
    errors = [finding for finding in kept if finding.severity == "error"]
    reasons = tuple(_reason(error) for error in errors if error.id != RACE.id)
    races = tuple(_reason(error) for error in errors if error.id == RACE.id)
    if any(error.id in _unfit() for error in errors):
        return Examined("unfit", Surroundings(), reasons[0].message, reasons[0].line, reasons, races)
    simulated = simulate(program)
    costly = sorted((one for one in kept if any(astuple(one.waste))), key=lambda one: -seconds_of(one.waste, chip))
    prices = prices_of(simulated, costly[:PRICED])
    diagnosis = diagnosis_of(simulated, prices)
    worth = sorted(prices.each, key=lambda price: -(prices.gain_ns(price) or 0))[:WORTH]
    likely = time_estimate(simulated.wall_ns, "wall", simulated.bound.kind)
    job = simulated.prepared.job
    bad = races or reasons
    return Examined(
        "race" if races else "unfit" if reasons else "good",
        Surroundings(),
        bad[0].message if bad else "; ".join(notice.message for notice in simulated.grave),
        bad[0].line if bad else None,
        reasons,
        races,
        Time(simulated.wall_ns, round(likely.low), round(likely.high), likely.coverage),
        simulated.bound.kind,
        diagnosis.verdict.sentence,
        tuple(
            Worth(f.id, f.message, near(f.file), f.line, f.fix, gain, short_name(f.kernel))
            for f, gain in ((price.finding, prices.gain_ns(price) or 0) for price in worth)
            if gain > 0
        ),
        None if prices.together_ns is None else simulated.wall_ns - prices.together_ns,
        len(job.shape),
        len(job.block_class),
        tuple(_kernels(simulated)),
    )


@cache
def _rules() -> tuple[Rule, ...]:
    """All that is told of: what keeps a program from running, what races, and what costs time."""
    return tuple(rule for rule in all_rules() if rule.about != "quality" or rule.severity == "error")


@cache
def _unfit() -> frozenset[str]:
    """The rules whose errors keep a program from being simulated."""
    return frozenset(rule.id for rule in all_rules() if rule.about == "chip")


def _reason(finding: Finding) -> Reason:
    return Reason(
        finding.id, finding.message, near(finding.file), finding.line, finding.fix, short_name(finding.kernel)
    )


def near(file: str) -> str:
    """A path as people write it from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _kernels(simulated: Simulated) -> Iterator[KernelTold]:
    """Every kernel that ran, the one with most time first."""
    program, job, times = simulated.prepared.program, simulated.prepared.job, simulated.times
    memory: dict[str, dict[str, float]] = {}
    for usage in usages(program.planned.values()):
        spaces = memory.setdefault(usage.body.kernel, {})
        spaces[usage.space.space] = max(spaces.get(usage.space.space, 0.0), usage.share)
    names = [task.kernel for task in program.recording.tasks]
    numbers = {name: n for n, name in enumerate(dict.fromkeys(names))}
    of_task = np.array([numbers[name] for name in names], np.int64)
    tasks = np.bincount(of_task, minlength=len(numbers))
    of_block = of_task[job.task_of]
    blocks = np.bincount(of_block, minlength=len(numbers))
    run = np.bincount(of_block, times.end - times.start, minlength=len(numbers))
    for name, n in sorted(numbers.items(), key=lambda pair: -run[pair[1]]):
        yield KernelTold(short_name(name), int(tasks[n]), int(blocks[n]), round(float(run[n])), memory.get(name, {}))


def _judged(ran: ScriptRun) -> Compared:
    wrong = next((one for one in ran.results if one.compared and not one.passed), None)
    if wrong is not None:
        return Compared(False, Surroundings(), "its numbers are wrong", _wrong(wrong))
    if ran.passed is False:
        told = ran.failure or next((one.error for one in ran.results if one.error), None)
        return Compared(False, Surroundings(), told or f"it ends with exit code {ran.exit_code}")
    if any(one.compared for one in ran.results):
        return Compared(True, Surroundings())
    why = next((one.unchecked for one in ran.results if one.unchecked), "it has no golden")
    return Compared(None, Surroundings(), f"nothing was compared: {why}")


def _wrong(result: RunResult) -> Wrong:
    """Out of the message of the golden: the tensor's own line, the first element that differs."""
    lines = (result.error or "").splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("  '")), 0)
    tensor = lines[at].split("'")[1] if lines and lines[at].startswith("  '") else ""
    details = [line.strip() for line in lines[at + 1 : at + 5]]
    first = next((line for line in details if _WRITTEN.search(line)), "")
    place = _WRITTEN.search(first)
    told = "; ".join(filter(None, (details[0] if details else "", first)))
    return Wrong(tensor, told, place["file"] if place else "", int(place["line"]) if place else None)
