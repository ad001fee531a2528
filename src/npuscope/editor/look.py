"""Looks at a program for the editor: in a process of its own, because a program may loop, crash or exit.

Errors and races are sent as soon as they are known, then times and memory (`LookJob.early`); findings with prices are
the answer.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from npuscope.answer.answer import Trouble
from npuscope.answer.prediction import Prediction
from npuscope.base.errors import NpuscopeError
from npuscope.base.futures import send_early
from npuscope.check.rule import Finding
from npuscope.check.rules.safety import race_finding
from npuscope.editor.messages import NO_RUN, KernelCost, LineCost, Look, LookJob, Place, TileRoom
from npuscope.lower.model import line_of
from npuscope.lower.program import PlannedBody, Program
from npuscope.tile.record.model import short_name
from npuscope.tile.script.places import own_files
from npuscope.tile.script.run import imported
from npuscope.time.per_line import line_times
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import against


def look(job: LookJob) -> Look:
    """The program as its files are now."""
    one = Prediction(job.request)
    main = Path(job.request.file).resolve()
    paths = {str(main): None, **{str(own.path): None for own in own_files(main)}}
    with imported() as modules:
        trouble = one.broken
    texts = dict(_texts([*paths, *sorted(modules)]))
    if trouble is None and job.early:  # before it is simulated, which takes longer
        with contextlib.suppress(NpuscopeError):
            send_early(job.early, Look(str(main), False, texts, _placed(_wrong(one))))
    trouble = trouble or one.trouble
    if trouble is not None:
        return Look(str(main), True, texts, tuple(_troubles(trouble, str(main))))
    early = Look(
        str(main),
        False,
        texts,
        wall=one.estimate,
        regime=one.simulated.bound.regime,
        verdict=one.limits.verdict.sentence,
        versus=against(job.wall_ns, one.estimate.value, job.regime, one.simulated.bound.regime)
        if job.wall_ns
        else None,
        lines=_lines(one),
        kernels=tuple(_kernels(one.simulated)),
        tiles=_tiles(one.program),
    )
    if job.early:
        send_early(job.early, early)
    findings = _placed([*_wrong(one), *one.findings])
    return replace(early, whole=True, findings=findings, verdict=one.diagnosis.verdict.sentence)


def _wrong(one: Prediction) -> list[Finding]:
    """Errors and races: what is known without a simulation."""
    return [*one.checked.errors, *map(race_finding, one.races.races)]


def _placed(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(finding, file=str(Path(finding.file).resolve())) for finding in findings)


def _texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in dict.fromkeys(paths):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            yield path, Path(path).read_text(encoding="utf-8")


def _troubles(trouble: Trouble, main: str) -> Iterator[Finding]:
    """Those without a place stand at the head of the program."""
    yield Finding(NO_RUN, "error", trouble.file or main, trouble.line or 1, trouble.message, trouble.remedy)
    for message, file, line in trouble.more:
        yield Finding(NO_RUN, "error", file or main, line or 1, message, "")


def _lines(one: Prediction) -> dict[Place, LineCost]:
    """Several sites of one line are one; the unit is that of the costliest."""
    times = line_times(one.simulated, one.timeline)
    together: dict[Place, LineCost] = {}
    for row in times.rows.sort("core_ns", descending=True).iter_rows(named=True):
        place = row["file"], row["line"]
        known = together.get(place, LineCost(0.0, 0.0, row["place"], 0, 0))
        core_ns = known.core_ns + row["core_ns"]
        together[place] = LineCost(
            core_ns,
            core_ns / (times.core_ns or 1.0),
            known.unit,
            known.bytes + row["bytes"],
            known.flops + row["flops"],
        )
    return together


def _kernels(simulated: Simulated) -> Iterator[KernelCost]:
    """By the lines that submit them."""
    recording, job, times = simulated.prepared.program.recording, simulated.prepared.job, simulated.times
    tasks: dict[tuple[Place, str], list[int]] = defaultdict(list)
    for number, task in enumerate(recording.tasks):
        site = recording.sites[task.site]
        tasks[(site.file, site.line), short_name(task.kernel)].append(number)
    run = np.bincount(job.task_of, times.end - times.start, minlength=len(recording.tasks))
    blocks = np.bincount(job.task_of, minlength=len(recording.tasks))
    whole = float(run.sum()) or 1.0
    for (place, kernel), numbers in tasks.items():
        spent = float(run[numbers].sum())
        yield KernelCost(place, kernel, len(numbers), int(blocks[numbers].sum()), spent, spent / whole)


def _tiles(program: Program) -> dict[Place, tuple[TileRoom, ...]]:
    """Every tile of every kernel that has a place in a memory."""
    found: dict[Place, dict[TileRoom, None]] = defaultdict(dict)
    for body in program.in_memory.values():
        for place, room in _rooms(program, body):
            found[place][room] = None
    return {place: tuple(rooms) for place, rooms in found.items()}


def _rooms(program: Program, body: PlannedBody) -> Iterator[tuple[Place, TileRoom]]:
    lines = [None if one is None else program.site_in(body.lowered, one.site).line for one in line_of(body.lowered)[0]]

    def line_at(moment: int, otherwise: int) -> int:
        number = moment // 2  # an instruction begins and ends
        return (lines[number] if 0 <= number < len(lines) else None) or otherwise

    for space in body.plan:
        for slot in space.slots:
            for tenant in slot.tenants:
                value, site = tenant.value, program.site_in(body.lowered, tenant.value.site)
                copies = prod(depth for _, _, depth in tenant.turns)
                first, last = line_at(tenant.first, site.line), line_at(tenant.last, site.line)
                room = TileRoom(
                    short_name(body.kernel), space.space, value.shape, value.dtype, value.bytes, copies, first, last
                )
                yield (site.file, site.line), room
