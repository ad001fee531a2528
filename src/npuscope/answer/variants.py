"""Variants of a program, each simulated on its own: in processes of this machine or on a Ray cluster, and resumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from npuscope.answer.alone import Runner, alone
from npuscope.answer.job_limits import Failed
from npuscope.answer.results import Fullest, Outcome, kept
from npuscope.answer.variant import Variant
from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.surroundings import Surroundings
from npuscope.check.memory_use import usages
from npuscope.lower.lowering import LoweringOptions
from npuscope.tile.script.places import UnknownSetting
from npuscope.tile.script.surroundings import heard
from npuscope.time.diagnosis import first_sentence
from npuscope.time.jitter import with_jitter
from npuscope.time.measured.base import anchored
from npuscope.time.programs import chip_to_time, fitting, program_of, refusals
from npuscope.time.run import Simulated, simulate


def simulated(variant: Variant) -> Simulated:
    """Runs one variant; raises NpuscopeError where it does not run or does not fit."""
    lowering = LoweringOptions(ring_slots=variant.ring_slots)
    chip = chip_to_time(variant.device)
    with refusals(variant.file, variant.argv):
        program = program_of(
            variant.file, variant.argv, chip, lowering, variant.program, settings=dict(variant.settings)
        )
    found = simulate(fitting(program))
    if variant.footing is not None:
        found = anchored(found.prepared, variant.footing.factors)
    return found if variant.jitter is None else with_jitter(found, variant.jitter)


def outcome(variant: Variant) -> Outcome:
    """Runs one variant and keeps what a ranking needs; a setting that it does not have is an error of the whole."""
    with heard() as around:
        try:
            one: Simulated | str = simulated(variant)
        except UnknownSetting:
            raise
        except NpuscopeError as error:
            one = str(error)
    seen = around[-1] if around else Surroundings()
    key = variant.key(seen)
    if isinstance(one, str):
        return Outcome(variant.name, key, error=one, seen=seen)
    job, footing = one.prepared.job, variant.footing
    fullest = max(usages(one.prepared.program.planned.values()), key=lambda usage: usage.share, default=None)
    memory = None if fullest is None else Fullest(fullest.function, fullest.space.space, fullest.share)
    return Outcome(
        variant.name,
        key,
        one.wall_ns,
        len(job.shape),
        len(job.block_class),
        one.bound.kind,
        memory,
        finding="; ".join(notice.message for notice in one.grave) or None,
        verdict=first_sentence(one),
        before_ns=None if footing is None else footing.wall_ns,
        before_bound=None if footing is None else footing.bound,
        seen=seen,
    )


def outcomes(
    variants: Sequence[Variant], results: Path | None = None, engine: str = "processes", jobs: int | None = None
) -> list[Outcome]:
    """What came of every variant, in their order; those in `results` are taken from there, the others added to it."""
    with kept(results) as (known, add):
        places = {one.seen for one in known.values() if one.seen is not None}
        found: dict[str, Outcome] = {}
        for variant in variants:
            keys = (variant.key(seen) for seen in places)
            key = next((key for key in keys if key in known), None)
            if key is not None:
                found[variant.told] = known[key]
        missing = {v.told: v for v in variants if v.told not in found}
        ran = _run([*missing.values()], len(variants) - len(missing), engine, jobs)
        for told, one in zip(missing, ran, strict=True):
            found[told] = one
            if one.seen is not None:
                add(one)
    return [replace(found[variant.told], variant=variant.name) for variant in variants]


def _run(missing: list[Variant], done: int, engine: str, jobs: int | None) -> Iterator[Outcome]:
    what, total = "simulating variants", done + len(missing)
    progress.report(what, done, total)
    for one in _each(missing, engine, jobs):
        yield one
        done += 1
        progress.report(what, done, total)


def _each(variants: list[Variant], engine: str, jobs: int | None) -> Iterator[Outcome]:
    if engine == "processes" and jobs == 1:
        yield from map(outcome, variants)  # this process has loaded what another would have to load first
    elif variants:
        with alone(engine, jobs) as run:
            yield from run_outcomes(run, variants)


def run_outcomes(run: Runner, variants: Sequence[Variant]) -> Iterator[Outcome]:
    """What came of each; one that ended its process without an answer cannot run, and is tried again another time."""
    for variant, one in zip(variants, run(outcome, variants), strict=True):
        yield Outcome(variant.name, variant.told[:24], error=one.told) if isinstance(one, Failed) else one


def ranked(found: Sequence[Outcome]) -> list[Outcome]:
    """The fastest first; those that do not run last, as they came."""
    return sorted(found, key=lambda one: (one.wall_ns is None, one.wall_ns or 0))


def best_by_setting(variants: Sequence[Variant], found: Iterable[Outcome]) -> dict[str, dict[str, int | None]]:
    """Per setting with several values the best time in nanoseconds of each; None where no variant with it runs."""
    times = {one.variant: one.wall_ns for one in found}
    best: dict[str, dict[str, int | None]] = {}
    for variant in variants:
        time = times[variant.name]
        for name, value in variant.settings:
            values = best.setdefault(name, {})
            so_far = values.setdefault(value, time)
            if time is not None:
                values[value] = time if so_far is None else min(so_far, time)
    return {name: values for name, values in best.items() if len(values) > 1}
