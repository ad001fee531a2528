"""The work of the lab's processes: versions of a program, and what a page asks of them.

A version's timeline is sent as soon as it is known (`VersionJob.early`), what takes longer is the job's answer. A
version's run is not kept but made again from the same files. Nothing here runs in the server: a program may loop, crash
or exit.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import orjson

from npuscope.answer.answer import Trouble
from npuscope.answer.knobs import knobs_in
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.futures import send_early
from npuscope.base.unsaved import unsaved
from npuscope.explain import explain, explain_ranks
from npuscope.explain.changes import Change, WhatIf, whatif, whatif_each
from npuscope.explain.choosing import split_ranks
from npuscope.explain.comparison import compare_explained
from npuscope.explain.explanation import Explanation
from npuscope.lab.document import Payload, Run, as_json
from npuscope.lab.edits import edits
from npuscope.lab.messages import Pair, PerfettoFile, Question, SaveBefore, VersionJob, VersionResult, WrittenIn
from npuscope.lab.payload.all_ranks import all_ranks
from npuscope.lab.payload.files import source_changes
from npuscope.lab.payload.inside import inside, planned_body
from npuscope.lab.payload.overview import comparison, parts
from npuscope.lab.program_runs import panels_of, part_of_ranks, wall_of
from npuscope.lab.runs import run_of
from npuscope.lab.versions import text_of
from npuscope.report.simulate import reasons as reasons_report
from npuscope.report.whatif import asked, gains
from npuscope.table.parts import Part, Say
from npuscope.tile.record.sites import is_users
from npuscope.tile.script.observed import Reads, reads
from npuscope.tile.script.places import own_files, places_of
from npuscope.tile.script.run import imported
from npuscope.tile.script.settings import with_settings
from npuscope.time.per_line import TimedKind, kinds_of
from npuscope.time.reasons import reasons
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import against
from npuscope.time.whatif import replay_against
from npuscope.trace.core import Trace

NO_EFFECT = 0.0005  # of the wall: three digits show no change


def perform(job: VersionJob) -> VersionResult:
    """Runs the program. The answer has what was not sent before."""
    with unsaved(job.request.texts):
        return _performed(job)


def _performed(job: VersionJob) -> VersionResult:
    began = time.process_time()
    one = Prediction(job.request)
    sources = _sources(Path(job.request.file))
    with imported() as modules, reads() as seen:
        trouble = one.trouble
    sources |= _texts(Path(file) for file in sorted(modules))
    if trouble is not None:
        sources = _with_its_file(trouble, sources)
        return VersionResult(job.id, trouble=trouble, sources=sources, versus=_versus(job.before, sources))
    wall = wall_of(one)
    turned = ", ".join(f"{name} = {value}" for name, value in job.request.settings)
    run = run_of(job.name, one.timeline, job.id, simulated=one.simulated, wall=wall, text=turned)
    if one.simulated.ranks:
        ranks = sorted({program.rank for program in one.simulated.ranks})
        run = {**run, "part": part_of_ranks(one), "ranks": ranks, "rank": one.simulated.programs[0].rank}
    made = VersionResult(
        job.id,
        as_json(run),
        wall,
        one.limits.verdict.sentence,
        sources=sources,
        trace=pickle.dumps(one.simulated.trace_of_ranks if one.simulated.ranks else one.simulated.trace),
        cpu_s=time.process_time() - began,
        bound=one.simulated.bound.regime,
        program=_program(one),
        diagnosis=pickle.dumps(one.limits),
        noticed=tuple(f"{words}." for words in one.simulated.warned),
        versus=_versus(job.before, sources, one),
    )
    if job.early:
        send_early(job.early, made)
    panels = {**dict(panels_of(one, sources)), "knobs": knobs_payload(job.request, seen)}
    later = as_json({"panels": panels, "diagnosis": one.diagnosis.as_dict()})
    whole = pickle.dumps(one.diagnosis)
    if job.early:
        return VersionResult(job.id, sources=sources, panels=later, diagnosis=whole)
    return replace(made, panels=later, diagnosis=whole)


def _program(one: Prediction) -> str:
    """The program of each rank, without the rank's number; "" on one card, and where a rank runs several."""
    return one.recording.program.partition("@")[0] if len(one.simulated.programs) == 1 else ""


def _versus(before: SaveBefore | None, sources: Mapping[str, str], one: Prediction | None = None) -> Payload | None:
    """The save before: what was edited since, and the ratio of the times with its interval and its probability."""
    if before is None:
        return None
    found: dict[str, object] = {"id": before.id, "name": before.name, "edits": edits(before.sources, sources)}
    if one is not None and before.program in ("", _program(one)):
        found |= against(before.wall_ns, one.estimate.value, before.bound, one.simulated.bound.regime).as_dict()
    return found


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


def knobs_payload(request: Request, seen: Reads) -> dict[str, object]:
    """What can be turned, and what is turned in this version."""
    file = Path(request.file)
    knobs = knobs_in(places_of(file), seen, file)
    return {"knobs": [asdict(knob) for knob in knobs], "settings": dict(request.settings)}


def compared(pair: Pair) -> bytes:
    """The payload of the compare panel, with the lines of the source that differ."""
    (a, first), (b, second) = map(_explained, pair.both, pair.names)
    found = comparison((first, second), compare_explained(a, b))
    sources = source_changes(*(one.sources for one in pair.both))
    old, new = pair.both
    versus = None  # what was measured once has no interval
    if old.bound and new.bound:
        versus = against(old.wall_ns, new.wall_ns, old.bound, new.bound).as_dict()
    more = {"source": sources, "first": [], "versus": versus}
    return orjson.dumps(orjson.loads(as_json(found)) | more)


def _explained(made: VersionResult, name: str) -> tuple[Explanation, str]:
    """Of several ranks the one that stands for all, and a name that says so."""
    trace = pickle.loads(made.trace)
    if made.diagnosis:
        return explain(split_ranks(trace)[-1].trace, diagnosis=pickle.loads(made.diagnosis)), name
    found = explain_ranks(trace)
    return found.explained[found.shown], found.named(name)


def reprice(question: Question) -> VersionResult:
    """Source and causes of a version once fixes were tried: worth what each gave."""
    with unsaved(_program_of(question).texts):
        one = _once_more(question)
        source = dict(panels_of(one, question.sources))["source"]
        later = as_json({"panels": {"source": source}, "diagnosis": one.diagnosis.as_dict()})
        return VersionResult("", panels=later, diagnosis=pickle.dumps(one.diagnosis))


def written(order: PerfettoFile) -> str:
    """Writes it; its path."""
    pickle.loads(order.trace).write(order.file)
    return order.file


def written_in(order: WrittenIn) -> dict[str, tuple[str, str]]:
    """Texts of files before and with the values of settings, by their paths; nothing is written here."""
    return {str(path): texts for path, texts in with_settings(Path(order.file), order.settings).items()}


def answered(question: Question) -> bytes:
    """What a page asks of a run, as the panel that shows it reads it."""
    with unsaved(question.request.texts if question.request else ()):
        match question.what:
            case "inside":
                simulated, kind = _kind(question)
                return as_json(inside(simulated, kind.body))
            case "why":  # as `npuscope simulate --explain` has it of its kernel
                simulated, kind = _kind(question)
                found: Iterable[Part] = reasons_report(
                    Path(_program_of(question).file).name, reasons(simulated, planned_body(simulated, kind).kernel)
                )
            case "rank":
                return as_json(_of_ranks(pickle.loads(question.trace), question.asked.get("rank")))
            case "whatif" if question.asked:
                found = _replayed(question)
            case "whatif" if question.request is None:  # every change alone, as `npuscope whatif` has it
                trace, told = _one_of(pickle.loads(question.trace))
                found = [*told, *gains(whatif_each(trace)[1], explain(trace).diagnosis)]
            case "whatif":
                one = _once_more(question)
                found = gains(one.gains, one.diagnosis)
            case _:
                from npuscope.lab.later_panels import panel

                found = panel(question)
        return as_json(parts(found))


def _of_ranks(trace: Trace, asked: object) -> Run:
    """One rank of a run, or all of them below each other."""
    if asked == "all" and (together := all_ranks(explain_ranks(trace), asked)) is not None:
        return together
    for part in split_ranks(trace):
        if asked == str(part.rank):
            return run_of(part.name, explain(part.trace))
    raise NpuscopeError("the run has no such rank")


def _kind(question: Question) -> tuple[Simulated, TimedKind]:
    """The kind of block that is asked for, of the run."""
    simulated, body = _once_more(question).simulated, question.asked.get("body")
    kind = next((kind for kind in kinds_of(simulated) if kind.body == body), None)
    if kind is None:
        raise NpuscopeError("the run has no such kind of block")
    return simulated, kind


def _replayed(question: Question) -> Iterator[Part]:
    """What a change would buy, as `npuscope whatif CAPTURE` has it."""
    trace, told = _one_of(pickle.loads(question.trace))
    found = whatif(trace, change_of(question.asked))
    yield from told
    yield from _without_effect(trace, question.asked, found)
    yield from asked(found, replay_against(found, question.bound) if question.bound else None)


def _one_of(trace: Trace) -> tuple[Trace, list[Part]]:
    """Of several ranks the one that stands for all, with a sentence that says so."""
    found = explain_ranks(trace)
    if len(found.parts) == 1:
        return trace, []
    return found.parts[found.shown].trace, [Say(f"This is of {found.told}.")]


def _without_effect(trace: Trace, change: Mapping[str, object], found: WhatIf) -> Iterator[Part]:
    """Why a change of kernels changes nothing, where it does not."""
    kernels = _words(change.get("kernels", []))
    if not kernels or abs(found.change) >= NO_EFFECT:
        return
    path = explain(trace).path
    on_path = set(path.by_kernel()["kernel"].to_list()) if path.kind == "chain" else set(kernels)
    off = [name for name in kernels if name not in on_path]
    if off:
        yield Say(
            f"No effect: {' and '.join(off)} {'is' if len(off) == 1 else 'are'} off the critical path.", strong=True
        )
    else:
        yield Say("No effect: something else takes as long beside it.", strong=True)


def change_of(asked: Mapping[str, object]) -> Change:
    """A change as pages send it: kernels by their names, not by patterns."""
    kernels = [re.escape(one) for one in _words(asked.get("kernels", []))]
    factor = asked.get("factor", 1)
    if not isinstance(factor, int | float) or isinstance(factor, bool):
        raise NpuscopeError("a factor is a number")
    match asked.get("what"), kernels:
        case "scale", [kernel]:
            return Change(scale={kernel: float(factor)})
        case "remove", [kernel]:
            return Change(remove=[kernel])
        case "halve", [kernel]:
            return Change(halve=[kernel])
        case "merge", [first, second]:
            return Change(merge=[(first, second)])
        case "scheduler", []:
            return Change(dispatch_cost=float(factor))
        case "cores", [] if factor == int(factor):
            return Change(cores={str(asked.get("unit", "")): int(factor)})
    raise NpuscopeError("this is no change that can be tried")


def _words(asked: object) -> list[str]:
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise NpuscopeError("kernels are a list of names")
    return asked


def _once_more(question: Question) -> Prediction:
    differ = [Path(file).name for file, text in question.sources.items() if not _holds(file, text)]
    if differ:
        raise NpuscopeError(
            f"{', '.join(differ)} has changed since this version, whose run is not kept",
            remedy="Ask this of the newest version, or write the version's source back.",
        )
    one = Prediction(_program_of(question))
    if one.trouble is not None:
        raise NpuscopeError(one.trouble.message)
    return one


def _program_of(question: Question) -> Request:
    if question.request is None:
        raise NpuscopeError("only a simulated run has an inside")
    return question.request


def _holds(file: str, text: str) -> bool:
    try:
        return text_of(file) == text
    except OSError:
        return False
