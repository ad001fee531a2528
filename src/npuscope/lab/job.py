"""One version of a program, made in a process of its own: run, checked, planned and simulated.

The timeline is sent as soon as it is known (`Job.early` is the socket to send it to), what takes longer is the job's
answer. Nothing here runs in the server: a program may loop, crash or exit.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from npuscope.answer.knobs import knobs_in
from npuscope.base.errors import NpuscopeError
from npuscope.base.surroundings import Surroundings
from npuscope.check.checked import check
from npuscope.check.run import unfit
from npuscope.explain import explain
from npuscope.explain.comparison import compare_explained
from npuscope.explain.explanation import Explanation
from npuscope.lab.document import as_json
from npuscope.lab.made import Job, Made, Pair, Perfetto, Trouble
from npuscope.lab.panels import panels_of
from npuscope.lab.payload.overview import comparison
from npuscope.lab.payload.source import source_changes
from npuscope.lab.runs import run_of
from npuscope.lab.versions import text_of
from npuscope.lower.program import Program
from npuscope.report.simulate import wall_dict
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.sites import is_users
from npuscope.tile.script.observed import Reads, reads
from npuscope.tile.script.places import own_files, places_of
from npuscope.tile.script.run import run_script
from npuscope.tile.script.surroundings import heard
from npuscope.time.diagnosis import diagnosis_of
from npuscope.time.priced import prices_of
from npuscope.time.programs import chip_to_time, refusals
from npuscope.time.run import Simulated, simulate


def perform(job: Job) -> Made:
    """Runs the program. The answer has what was not sent before."""
    began = time.process_time()
    sources = _sources(Path(job.file))
    with heard() as around, reads() as seen:
        try:
            simulated = simulated_of(job)
        except NpuscopeError as error:
            simulated = _trouble(error)
    sources |= _around(job, around)
    if isinstance(simulated, Trouble):
        return Made(job.id, trouble=simulated, sources=_with_its_file(simulated, sources))
    cores = 3 * simulated.prepared.machine.clusters
    explained = explain(simulated.trace, cores=cores, diagnosis=diagnosis_of(simulated))
    wall = wall_dict(simulated)
    run = run_of(job.name, explained, job.id, simulated=simulated, wall=wall, told=_told(job))
    verdict = explained.diagnosis.verdict.sentence
    text, trace = as_json(run), pickle.dumps(simulated.trace)
    noticed = tuple(f"{notice.message}." for notice in simulated.grave)
    cpu_s = time.process_time() - began
    made = Made(
        job.id,
        text,
        wall,
        verdict,
        None,
        sources,
        trace=trace,
        cpu_s=cpu_s,
        bound=simulated.bound.kind,
        diagnosis=pickle.dumps(explained.diagnosis),
        noticed=noticed,
    )
    if job.early:
        _send(job.early, made)
    later = as_json(_later(job, simulated, explained, seen))
    return replace(made, panels=later) if not job.early else Made(job.id, sources=sources, panels=later)


def _later(job: Job, simulated: Simulated, explained: Explanation, seen: Reads) -> dict[str, object]:
    """What takes longer than the timeline: findings and what each is worth, the panels, the knobs."""
    checked = check(simulated.prepared.program)
    prices = prices_of(simulated, [one.finding for one in checked.findings])
    panels = dict(panels_of(simulated, explained, checked, prices))
    panels["knobs"] = knobs_payload(job, seen)
    return {"panels": panels, "diagnosis": diagnosis_of(simulated, prices).as_dict()}


def simulated_of(job: Job) -> Simulated | Trouble:
    """The run of a program, or why it has none."""
    chip = chip_to_time(job.device)
    with refusals(job.file, job.argv):
        recordings = run_script(job.file, job.argv, "shapes", settings=dict(job.settings)).recordings
    program = Program(recordings[the_one(recordings, job.program, job.file)], chip)
    errors = unfit(program)
    if errors:
        first, *rest = errors
        more = tuple((one.message, one.file, one.line) for one in rest)
        return Trouble(first.message, first.file, first.line, first.fix, more)
    return simulate(program)


def _trouble(error: NpuscopeError) -> Trouble:
    return Trouble(error.what, str(Path(error.path).resolve()) if error.path else "", error.line or 0, error.remedy)


def _with_its_file(trouble: Trouble, sources: dict[str, str]) -> dict[str, str]:
    """A module that is no Python is not among the program's, but its mending is waited for."""
    path = Path(trouble.file)
    return sources | _texts([path] if path.suffix == ".py" and is_users(trouble.file) else [])


def _sources(file: Path) -> dict[str, str]:
    main = file.resolve()
    return {str(main): ""} | _texts([main, *(own.path for own in own_files(file))])  # watched also if it is not there


def _texts(paths: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[str(path)] = text_of(path)
    return found


def _around(job: Job, around: Sequence[Surroundings]) -> dict[str, str]:
    """Modules that only the run has told of."""
    folder = Path(job.file).resolve().parent
    return _texts({(folder / name).resolve() for one in around for name in one.modules})


def _told(job: Job) -> str:
    return ", ".join(f"{name} = {value}" for name, value in job.settings)


def knobs_payload(job: Job, seen: Reads) -> dict[str, object]:
    """What can be turned, and what is turned in this version."""
    file = Path(job.file)
    knobs = knobs_in(places_of(file), seen, file)
    return {"knobs": [knob.as_dict() for knob in knobs], "settings": dict(job.settings)}


def _send(place: str, made: Made) -> None:
    """What is known so far; a server that has lost interest is no reason to fail."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as there:
        there.connect(place)
        there.sendall(pickle.dumps(made))


def compared(pair: Pair) -> bytes:
    """The payload of the compare panel, with the lines of the source that differ."""
    a, b = map(_explained, pair.both)
    found = comparison(pair.names, compare_explained(a, b))
    sources = source_changes(*(one.sources for one in pair.both))
    return orjson.dumps(orjson.loads(as_json(found)) | {"source": sources, "first": []})


def _explained(made: Made) -> Explanation:
    diagnosis = pickle.loads(made.diagnosis) if made.diagnosis else None
    return explain(pickle.loads(made.trace), diagnosis=diagnosis)


def written(order: Perfetto) -> str:
    """Writes it; its path."""
    pickle.loads(order.trace).write(order.file)
    return order.file
