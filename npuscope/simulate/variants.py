"""Variants of a program, each simulated on its own: in processes of this machine or on a Ray cluster, and resumed.

Finished variants stand in a file of JSON lines, each with a key made of the program's text, its settings, the chip's
constants and npuscope's version, so that what has been simulated is not simulated again, and what has changed is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from npuscope import __version__, progress
from npuscope import engine as workers
from npuscope.device.listing import listed
from npuscope.errors import BadInput, NpuscopeError
from npuscope.lower.memory import usages
from npuscope.lower.passes import Options
from npuscope.simulate.bound import bound_of
from npuscope.simulate.jitter import with_jitter
from npuscope.simulate.programs import chip_to_time, program_of, unfit
from npuscope.simulate.run import Simulated, is_compiled, simulate
from npuscope.tile.settings import UnknownSetting


@dataclass(frozen=True)
class Variant:
    """A file with its arguments and settings on a chip; `jitter` is the seed of the noise on its blocks."""

    name: str
    file: str
    argv: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    device: str = "ascend910b1"
    program: int | None = None
    ring_slots: int | None = None
    jitter: int | None = None

    @cached_property
    def key(self) -> str:
        """Equal for variants that must come out equal: also modules beside the file count."""
        told = hashlib.sha256()
        own = Path(self.file)
        for path in (own, *sorted(own.parent.glob("*.py"))):
            told.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        rows = [(row.place, row.value) for row in listed(chip_to_time(self.device))]
        rest = (__version__, self.argv, self.settings, rows, self.program, self.ring_slots, self.jitter)
        told.update(repr(rest).encode())
        return told.hexdigest()[:24]


@dataclass(frozen=True)
class Outcome:
    """What came of a variant: a time, or the error that keeps it from running; `memory` is the fullest of all."""

    variant: str
    key: str
    wall_ns: int | None = None
    tasks: int | None = None
    blocks: int | None = None
    bound: str | None = None
    memory: dict[str, Any] | None = None  # function, space, share
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The contract of `rank` and `sweep --json`: what there is."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def simulated(variant: Variant) -> Simulated:
    """Runs one variant; raises NpuscopeError where it does not run or does not fit."""
    options = Options(ring_slots=variant.ring_slots)
    chip = chip_to_time(variant.device)
    try:
        program = program_of(
            variant.file, variant.argv, chip, options, variant.program, settings=dict(variant.settings)
        )
    except SystemExit as stop:  # it refused its arguments
        raise BadInput(f"the program left with code {stop.code} before it ran", path=variant.file) from stop
    errors = unfit(program)
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        file = Path(errors[0].file)
        near = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
        raise BadInput(f"{errors[0].message}{more}", path=near, line=errors[0].line, remedy=errors[0].fix)
    found = simulate(program, options)
    return found if variant.jitter is None else with_jitter(found, variant.jitter)


def outcome(variant: Variant) -> Outcome:
    """Runs one variant and keeps what a ranking needs; a setting that it does not have is an error of the whole."""
    try:
        one = simulated(variant)
    except UnknownSetting:
        raise
    except NpuscopeError as error:
        return Outcome(variant.name, variant.key, error=str(error))
    job, machine = one.prepared.job, one.prepared.machine
    fullest = max(usages(one.prepared.kernels), key=lambda usage: usage.share, default=None)
    memory = None
    if fullest is not None:
        memory = {"function": fullest.function, "space": fullest.space.space, "share": fullest.share}
    return Outcome(
        variant.name,
        variant.key,
        one.wall_ns,
        len(job.shape),
        len(job.block_class),
        bound_of(job, machine, one.times, one.wall).name,
        memory,
    )


def outcomes(
    variants: Sequence[Variant], results: Path | None = None, engine: str = "processes", jobs: int | None = None
) -> list[Outcome]:
    """What came of every variant, in their order; those in `results` are taken from there, the others added to it."""
    known = {} if results is None else dict(_read(results))
    found = {v.key: replace(known[v.key], variant=v.name) for v in variants if v.key in known}
    missing = list({v.key: v for v in variants if v.key not in found}.values())
    for one in _run(missing, len(variants) - len(missing), engine, jobs):
        found[one.key] = one
        if results is not None:
            with results.open("a") as file:
                file.write(json.dumps(one.as_dict()) + "\n")
    return [replace(found[variant.key], variant=variant.name) for variant in variants]


def _run(missing: list[Variant], done: int, engine: str, jobs: int | None) -> Iterator[Outcome]:
    what, total = "simulating variants", done + len(missing)
    progress.report(what, done, total)
    if missing and not is_compiled():  # here, once, and not in every process
        yield outcome(missing.pop(0))
        done += 1
    if not missing:
        return
    for one in workers.run(outcome, missing, engine, jobs):
        yield one
        done += 1
        progress.report(what, done, total)


def _read(path: Path) -> Iterator[tuple[str, Outcome]]:
    """Results so far. A last line that an interrupt cut off is taken out."""
    if not path.exists():
        return
    lines = path.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        path.write_text("".join(lines[:-1]))
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            one = Outcome(**json.loads(line))
        except (ValueError, TypeError) as error:
            remedy = "Name the file that an earlier rank or sweep wrote, or a new one."
            raise BadInput("not a result of rank or sweep", path=path, line=number, remedy=remedy) from error
        yield one.key, one


def ranked(found: Sequence[Outcome]) -> list[Outcome]:
    """The fastest first; those that do not run last, as they came."""
    return sorted(found, key=lambda one: (one.wall_ns is None, one.wall_ns or 0))
