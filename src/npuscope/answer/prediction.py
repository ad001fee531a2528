"""What npuscope predicts of one program: recorded, planned, checked, simulated, priced, diagnosed, each step when it is
first asked for and once. Every surface asks this object; nobody else puts the steps together.

prediction = Prediction(Request("layer.py"))
prediction.simulated.wall_ns, prediction.diagnosis.verdict, prediction.findings
"""

from __future__ import annotations

import contextlib
import io
import statistics  # noqa: F401 (loaded here and not by every job)
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.answer.answer import Answer, Fullest, KernelShare, Trouble, Verdict
from npuscope.answer.request import CaptureBase, Request
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.interval import Against, Interval
from npuscope.base.unsaved import standing, unsaved
from npuscope.check.memory_use import usages
from npuscope.check.rule import Finding, Rule, with_trials
from npuscope.check.rules import all_rules
from npuscope.check.rules.safety import RACE, race_finding
from npuscope.check.rules.waits import false_serialisation, sequential_independent, serialised_parallel
from npuscope.check.run import Checked, Fit, check, fit, rules_of, unfit
from npuscope.chip.devices import Device
from npuscope.chip.runtimes import with_runtime
from npuscope.explain.changes import Gains
from npuscope.explain.diagnosis import Diagnosis
from npuscope.explain.explanation import Explanation
from npuscope.explain.ranks import Ranks, explain_ranks
from npuscope.lower.build_folder import read_build, with_build
from npuscope.lower.chip import DEFAULT, chip_to_lower_for
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import Program
from npuscope.table.columns import Table
from npuscope.table.formats import duration
from npuscope.tile.graph.outputs import choose_program
from npuscope.tile.record.model import Recording, short_name
from npuscope.tile.run.execute import Finished
from npuscope.tile.script.places import UnknownSetting
from npuscope.tile.script.run import ScriptRun, run_script
from npuscope.time.change_job import with_jitter
from npuscope.time.chip.prepare import prepare
from npuscope.time.compiled import switch
from npuscope.time.diagnosis import explained, with_findings
from npuscope.time.measured.base import MeasuredBase, anchor, anchored
from npuscope.time.measured.observed import observed_in, observed_of, walls
from npuscope.time.priced import Priced, priced
from npuscope.time.ranks.result import late_peers
from npuscope.time.ring_sizes import SIZES, SLOWER, ring_sizes
from npuscope.time.run import Simulated, lacking_times, refused_without_times, simulate, simulate_ranks, told_of
from npuscope.time.uncertainty import against, known_misses, time_after, time_estimate
from npuscope.time.warm_up import smallest_run
from npuscope.time.whatif import whatif_each
from npuscope.trace.core import SIMULATED, Trace

ABOUT_WAITS = {false_serialisation.id, serialised_parallel.id, sequential_independent.id}
CROSS_CORE = (1, 2, 4, 8)  # slots of the ring between cube and vector cores that are tried


class Refused(BadInput):
    """A script that leaves before it runs a program, as where it does not take its arguments."""


@contextlib.contextmanager
def refusals(file: str, argv: Sequence[str], remedy: str = "") -> Iterator[None]:
    """Makes a script's leaving inside the block an error with the last of its own words."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
    except SystemExit as left:
        said = [line.strip() for line in printed.getvalue().splitlines() if line.strip()]
        did = f"refuses {' '.join(argv)}" if argv else "leaves before it runs a program"
        last = said[-1] if said else f"exit code {left.code}"
        raise Refused(f"{did} ({last})", path=file, remedy=remedy) from None


class Prediction:
    """Of one program of a script. `ran` and `number` are given where the script has run, `chip` where it is loaded,
    `among` where it runs beside the programs of other ranks, which are simulated with it."""

    def __init__(
        self,
        request: Request,
        ran: ScriptRun | None = None,
        number: int | None = None,
        chip: Device | None = None,
        among: Prediction | None = None,
    ) -> None:
        self.request = request
        if request.texts != standing():
            raise ValueError("ask inside unsaved(request.texts): files would be read as they are")
        if chip is not None:
            self.chip = chip
        self.number = request.program if number is None else number
        self._one = number is not None  # of several ranks this one, alone
        self._whole = self if among is None else among
        if ran is not None:
            self.ran = ran

    def on(self, base: CaptureBase) -> Prediction:
        """The same on top of a capture; what was computed of the program itself is not computed again."""
        other = Prediction(replace(self.request, base=base), self.ran, self.number)
        other.__dict__ |= {
            name: vars(self)[name] for name in ("program", "unfit", "checked", "plain") if name in vars(self)
        }
        return other

    @cached_property
    def chip(self) -> Device:
        """The one that was asked for, else that of the platform that the program itself asks for."""
        named = self.request.device
        return chip_to_lower_for(named, "" if named else self._platform)

    @cached_property
    def _platform(self) -> str:
        return next((one.platform for one in self.ran.recordings if one.platform), "")

    def _about_chip(self) -> Iterator[str]:
        """Who chose the chip, where the program asks for another than the usual one."""
        if chip_to_lower_for("", self._platform).name != DEFAULT:
            who = "--device chose" if self.request.device else "the chip is"
            yield f"the program asks for the platform {self._platform}; {who} {self.chip.name}"

    @cached_property
    def ran(self) -> ScriptRun:
        """The script's run. One that refuses its arguments says so itself and leaves (`refusals`)."""
        one = self.request
        return run_script(one.file, one.argv, one.mode, settings=dict(one.settings), golden=False)

    @cached_property
    def _run(self) -> Finished:
        return self.ran.runs[choose_program(self.ran.recordings, self.number, self.request.file)]

    @property
    def recording(self) -> Recording:
        return self.program.recording

    @cached_property
    def rank_programs(self) -> tuple[tuple[Program, ...], ...]:
        """The programs of each rank in order, where a host function ran several and not one of them is asked for."""
        if self._one:
            return ()
        ranks = self._runs_of_ranks
        return tuple(tuple(self._program_of(self.ran.runs[n]) for n in ranks[rank]) for rank in sorted(ranks))

    @cached_property
    def _runs_of_ranks(self) -> dict[int, list[int]]:
        """The numbers of the runs of each rank; none where they are not all of ranks."""
        runs = [n for n, run in enumerate(self.ran.runs) if run.recording.tasks]
        if self.number is not None:  # all ranks of the call that it belongs to
            asked = self._run.recording.place
            runs = [n for n in runs if asked is not None and _call(self.ran.runs[n]) == asked.call]
        ranks: dict[int, list[int]] = {}
        for n in runs:
            if (place := self.ran.runs[n].recording.place) is not None:
                ranks.setdefault(place.rank, []).append(n)
        whole = len(ranks) > 1 and sum(map(len, ranks.values())) == len(runs)
        return ranks if whole else {}

    @cached_property
    def program(self) -> Program:
        """Of several ranks that of the one that is launched last."""
        if not self.rank_programs:
            return self._program_of(self._run)
        return self.rank_programs[0][0] if self.unfit else self.plain.prepared.program

    @property
    def recordings(self) -> tuple[Recording, ...]:
        """What is recorded of it; of several ranks all programs of the one that is launched last."""
        own = self.rank_programs[-1] if self.rank_programs else (self.program,)
        return tuple(program.recording for program in own)

    def _program_of(self, run: Finished) -> Program:
        goldens: dict[int, Callable[..., object] | None] = {id(one.run): one.golden_fn for one in self.ran.results}
        lowering = LoweringOptions(ring_slots=self.request.ring_slots)
        chip = with_runtime(self.chip, self.request.runtime or run.recording.runtime)
        recording = replace(run.recording, notes=(*run.recording.notes, *self._about_chip()))
        program = Program(recording, chip, lowering, goldens.get(id(run)))
        return with_build(program, read_build(self.request.build)) if self.request.build else program

    @cached_property
    def fit(self) -> Fit:
        """The memory that it takes."""
        return fit(self.program)

    @cached_property
    def unfit(self) -> tuple[Finding, ...]:
        """What keeps it from running on the chip."""
        if self.rank_programs:
            return tuple(dict.fromkeys(one for rank in self.rank_programs for each in rank for one in unfit(each)))
        return unfit(self.program)

    @cached_property
    def checked(self) -> Checked:
        """What rules say of it, races left out: those take longest and have no price."""
        return check(self.program, [rule for rule in rules_of() if rule.id != RACE.id])

    @cached_property
    def races(self) -> Checked:
        """What orders nothing."""
        return check(self.program, [RACE])

    @cached_property
    def broken(self) -> Trouble | None:
        """Why it does not run or fit; None where it does. Nothing is simulated."""
        try:
            with refusals(self.request.file, self.request.argv):
                _ = self.ran
            if not self.unfit:
                return None
        except NpuscopeError as error:
            return _trouble_of(error)
        first, *rest = _alike(self.unfit)
        more = tuple((error.message, error.file, error.line) for error in rest)
        return Trouble(first.message, first.file, first.line, first.remedy, more)

    @cached_property
    def trouble(self) -> Trouble | None:
        """Why it has no simulated run; None where it has one."""
        try:
            if self.broken is None:
                _ = self.simulated
            return self.broken
        except NpuscopeError as error:
            return _trouble_of(error)

    @property
    def fitting(self) -> Program:
        """The program, refused with the first reason where it does not fit."""
        self._refuse_unfit()
        return self.program

    def _refuse_unfit(self) -> None:
        if self.unfit:
            first, more = self.unfit[0], len(self.unfit) - 1
            what = f"{first.message} (and {more} more)" if more else first.message
            raise BadInput(what, path=first.file, line=first.line, remedy=first.remedy)

    @cached_property
    def plain(self) -> Simulated:
        """The run by the chip's model alone."""
        refused_without_times(self.chip)
        if self._whole is not self:
            ranks, number = self._whole._runs_of_ranks, self.number or 0
            rank = next(rank for rank, runs in ranks.items() if number in runs)
            return told_of(self._whole.plain, sorted(ranks).index(rank), ranks[rank].index(number))
        if not self.rank_programs:
            return simulate(self.fitting)
        self._refuse_unfit()
        return simulate_ranks(self.rank_programs, self.request.skew)

    @cached_property
    def on_base(self) -> Simulated:
        """The run on top of a capture, where one is given."""
        base = self.request.base
        return self.plain if base is None else anchored(self.plain.prepared, base.factors)

    @cached_property
    def simulated(self) -> Simulated:
        """The run as asked for, with noise where that is."""
        return self.on_base if self.request.jitter is None else with_jitter(self.on_base, self.request.jitter)

    @cached_property
    def change(self) -> Against | None:
        """The run against the one that the capture is of."""
        base = self.request.base
        if base is None:
            return None
        run = self.on_base
        wall = walls(observed_of(run), base.measured)[0] or run.wall
        return against(base.wall_ns, wall, base.bound, run.bound.regime)

    @cached_property
    def estimate(self) -> Interval:
        """The wall in nanoseconds: on top of a capture as sure as the change from it, else as any wall."""
        wall_ns = self.simulated.wall_ns
        if self.change is not None:
            return time_after(wall_ns, self.change)
        return time_estimate(wall_ns, "wall", self.simulated.bound.regime)

    @property
    def told(self) -> str:
        """Which of a rank's programs findings are of; empty where it runs one."""
        run = self.simulated
        if len(run.programs) < 2:
            return ""
        name, count = run.prepared.program.recording.program, len(run.programs)
        return f"{name}, the longest of {count} programs of a rank: {duration(run.program_wall)}"

    @cached_property
    def priced(self) -> Priced:
        """Its findings with what the run takes without each, the one that saves most first."""
        found = priced(self.simulated, self.checked.findings)
        kept = with_trials(found.findings, self.request.tried)
        together = found.together_ns if len(kept) == len(found.findings) else None
        return replace(found, findings=kept, together_ns=together)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.priced.findings

    @property
    def limits(self) -> Diagnosis:
        """Why the run takes so long and what mending each cause is worth, before anything is known of findings."""
        return self._among_ranks(self.timeline.diagnosis)

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The same with the findings that mend them."""
        return self._among_ranks(self._own_diagnosis)

    @cached_property
    def _own_diagnosis(self) -> Diagnosis:
        return with_findings(self.simulated, self._whole.timeline.diagnosis, self.priced)

    def _among_ranks(self, own: Diagnosis) -> Diagnosis:
        """With those that its rank waits for, where it does."""
        if not any(late_peers(one) for one in self._whole.simulated.programs):
            return own
        return self._whole._all_ranks.among(own, named=False)

    @cached_property
    def _all_ranks(self) -> Ranks:
        return explain_ranks(self.simulated.trace_of_ranks)

    @cached_property
    def timeline(self) -> Explanation:
        """The run's trace explained, as far as that needs no findings."""
        return explained(self.simulated)

    @cached_property
    def explanation(self) -> Explanation:
        whole = copy(self.timeline)  # with all that is known of it by now
        vars(whole)["diagnosis"] = self.diagnosis
        return whole

    @property
    def trace(self) -> Trace:
        """The run as a capture, with what its slices do not show: whoever reads it finds the same diagnosis."""
        run = self.simulated
        trace = run.trace_of_ranks if run.ranks else run.trace
        wall = {"value": self.estimate.value, **self.estimate.as_dict()}
        known: dict[str, object] = {"wall": wall, "regime": run.bound.regime}
        own = self._own_diagnosis
        if run.ranks:
            known["rank"] = rank = run.programs[0].rank
            first_lane = trace.lanes.filter(pl.col("rank") == rank)["lane"][0]
            own = own.moved(round(run.programs[0].begin), first_lane)
        known["diagnosis"] = own.as_dict()
        return replace(trace, meta=replace(trace.meta, notes={**trace.meta.notes, SIMULATED: known}))

    @cached_property
    def audit(self) -> Priced:
        """Its dependencies: findings about edges, among them those that are only made on request, and chains of tasks
        that could be one, each with what the run takes without it."""
        own = [rule for rule in all_rules() if rule.on_request]
        found = [one for one in self.checked.findings if one.without == "one task" or one.id in ABOUT_WAITS]
        result = priced(self.simulated, [*check(self.program, own).findings, *found])
        return replace(result, findings=(*result.findings, *result.costly))  # an audit shows what it does not pay, too

    @cached_property
    def ring_sizes(self) -> Table:
        """The smallest rings of the runtime, and the smallest ring between cube and vector cores."""
        found = ring_sizes(self.simulated)
        rows = [tuple(row.values()) for row in found.rows()]
        if any(task.core == "MIX" for task in self.recording.tasks):
            walls: dict[int, float] = {}
            for slots in CROSS_CORE:
                request = replace(self.request, ring_slots=slots)
                other = Prediction(request, self.ran, self.number, self.chip)
                if not other.unfit:
                    walls[slots] = other.plain.wall
            if walls:
                best = min(walls.values())
                smooth = min(slots for slots, wall in walls.items() if wall <= best * SLOWER)
                has = self.request.ring_slots or int(self.program.device.core["ring_slots"].value)
                rows.append(("cross-core", "slots", min(walls), smooth, has))
        return SIZES.table(rows)

    @cached_property
    def gains(self) -> Gains:
        """What every change of the program would buy."""
        return whatif_each(self.simulated, self.priced)

    @property
    def notices(self) -> str:
        """What a reader of its time should know."""
        told = [f"findings are of {self.told}"] if self.told else []
        return "; ".join([*self.simulated.warned, *told])

    def report(self, rules: Sequence[Rule], price: bool = True) -> Checked:
        """What `check` says: by these rules, with prices where the program can be simulated."""
        wanted = {rule.id for rule in rules}
        racing = self.races if RACE.id in wanted else None
        whole = self.checked if price else check(self.program, [rule for rule in rules if rule.id != RACE.id])
        asked = check(self.program, [rule for rule in rules if rule.on_request]).findings if price else ()
        unpriced = self._unpriced() if price else "not priced: left out by --no-price"
        findings = (*whole.findings, *asked)
        if not unpriced:
            named = priced(self.simulated, asked) if asked else None
            findings = (*self.findings, *((*named.findings, *named.costly) if named else ()))
        return replace(
            whole,
            findings=tuple(one for one in findings if one.id in wanted),
            errors=tuple(one for one in whole.errors if one.id in wanted),
            races=racing.races if racing else (),
            ignored=whole.ignored + (racing.ignored if racing else 0),
            diagnosis=None if unpriced else self.diagnosis,
            unpriced=unpriced,
            costly=0 if unpriced else sum(one.id in wanted for one in self.priced.costly),
            ranks=0 if self._whole is self else len(self._whole.rank_programs),
        )

    def _unpriced(self) -> str:
        """Why findings have no price; empty where they have."""
        if self.checked.errors:
            return "not priced: what will not work cannot be simulated"
        if lacking := lacking_times(self.chip):
            return f"not priced: the file of {self.chip.name} has no {lacking}"
        try:
            _ = self.simulated
        except NpuscopeError as error:
            return f"not priced: {error}"
        return ""

    def brief(self) -> Answer:
        """How long it takes and what limits it: for one of many."""
        one = self._answer()
        if self.unfit:
            first = self.unfit[0]
            return replace(one, verdict="unfit", message=first.message, line=first.line, errors=_near(self.unfit))
        run = self.simulated
        fullest = max(usages(self.program.in_memory.values()), key=lambda usage: usage.share, default=None)
        return replace(
            one,
            message=self.notices,
            time=self.estimate,
            bound=self.limits.bound,
            bound_message=self.limits.verdict.sentence,
            worth=self.limits.verdict.gain,
            regime=run.bound.regime,
            tasks=run.tasks,
            blocks=run.blocks,
            memory=None if fullest is None else Fullest(fullest.function, fullest.space.space, fullest.share),
        )

    def examined(self) -> Answer:
        """What may keep it from being used, and how long it takes; without the findings that cost time only."""
        rules = [rule for rule in all_rules() if rule.severity == "error" and rule is not RACE]
        return self._with_errors(check(self.program, rules).errors)

    def answer(self) -> Answer:
        """Everything that needs no numbers: `good` as long as nothing speaks against it."""
        found = self._with_errors(self.checked.errors)
        if self.unfit:
            return found
        together = self.priced.together_ns
        saved = None if together is None else self.simulated.wall_ns - together
        return replace(found, findings=_near(self.findings), together_ns=saved)

    def _with_errors(self, found: Sequence[Finding]) -> Answer:
        errors, races = _near(found), _near(map(race_finding, self.races.races))
        one = replace(self.brief(), errors=errors, races=races)
        if self.unfit:
            return one
        one = replace(one, kernels=tuple(_kernels(self.simulated)))
        for bad in (*races, *errors)[:1]:
            one = replace(one, verdict="race" if races else "unfit", message=bad.message, line=bad.line)
        return one

    def _answer(self) -> Answer:
        one = self.request
        return Answer(one.name or one.file, "good", device=one.device or self.chip.name)


def _call(run: Finished) -> int | None:
    return None if run.recording.place is None else run.recording.place.call


def answer_of(request: Request, how: Callable[[Prediction], Answer] = Prediction.answer) -> Answer:
    """What a process of its own is asked for. A setting that the program does not have is an error of the whole."""
    try:
        with unsaved(request.texts):
            prediction = Prediction(request)
            with refusals(request.file, request.argv):
                _ = prediction.ran
            refused_without_times(prediction.chip)
            return how(prediction)
    except UnknownSetting:
        raise
    except NpuscopeError as error:
        verdict: Verdict = "exited" if isinstance(error, Refused) else "fails"
        return Answer(
            request.name or request.file, verdict, str(error), device=request.device or DEFAULT, line=error.line
        )


def brief_answer_of(request: Request) -> Answer:
    """The same without findings."""
    return answer_of(request, Prediction.brief)


def examined_answer_of(request: Request) -> Answer:
    """The same with what may keep it from being used."""
    return answer_of(request, Prediction.examined)


def predictions(request: Request) -> tuple[Prediction, ...]:
    """Of each program that a script ran, or of the one that is asked for."""
    ran = Prediction(request).ran
    recordings = ran.recordings
    wanted = (
        range(len(recordings))
        if request.program is None
        else (choose_program(recordings, request.program, request.file),)
    )
    return tuple(Prediction(request, ran, number) for number in wanted if recordings[number].tasks)


def anchor_of(request: Request, capture: str) -> MeasuredBase:
    """A capture held against the simulation of the program that it is of."""
    from npuscope.trace import read

    found = observed_in(read(capture), capture)
    return anchor(prepare(Prediction(request).fitting), found, capture)


def base_of(found: MeasuredBase) -> CaptureBase:
    """What predictions stand on then."""
    return CaptureBase(found.factors, found.measured, found.anchored_ns, found.old.bound.regime)


def near(file: str) -> str:
    """A path as people write it from here."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _trouble_of(error: NpuscopeError) -> Trouble:
    file = str(Path(error.path).resolve()) if error.path else ""
    return Trouble(error.what, file, error.line or 0, error.remedy)


def _alike(errors: Iterable[Finding]) -> list[Finding]:
    """Those of one function that one remedy mends are one, in the words of the first."""
    together: dict[tuple[str, str, str, str], list[Finding]] = {}
    for error in errors:
        together.setdefault((error.id, error.file, error.function, error.remedy), []).append(error)
    found = []
    for first, *rest in together.values():
        others = dict.fromkeys(one.kernel for one in rest if one.kernel not in ("", first.kernel))
        same = f" (the same in {', '.join(others)})" if others else ""
        found.append(replace(first, message=first.message + same))
    return found


def _near(findings: Iterator[Finding] | Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings as people name files and kernels."""
    return tuple(replace(one, file=near(one.file), kernel=short_name(one.kernel)) for one in findings)


def _kernels(simulated: Simulated) -> Iterator[KernelShare]:
    """Every kernel that ran, the one with most time first."""
    memory: dict[str, dict[str, float]] = {}
    for usage in (one for prepared in simulated.every for one in usages(prepared.program.in_memory.values())):
        spaces = memory.setdefault(usage.body.kernel, {})
        spaces[usage.space.space] = max(spaces.get(usage.space.space, 0.0), usage.share)
    tasks, blocks, ran = Counter[str](), Counter[str](), Counter[str]()
    runs = [(one.prepared, one.times) for one in simulated.programs] or [(simulated.prepared, simulated.times)]
    for prepared, times in runs:
        of_block = np.bincount(prepared.job.task_of, times.end - times.start, minlength=len(prepared.job.blocks))
        for task, took in zip(prepared.program.recording.tasks, of_block.tolist(), strict=True):
            tasks[task.kernel] += 1
            blocks[task.kernel] += task.blocks
            ran[task.kernel] += took
    for name in sorted(ran, key=lambda name: -ran[name]):
        yield KernelShare(short_name(name), tasks[name], blocks[name], round(ran[name]), memory.get(name, {}))


def warm_up() -> None:
    """In a warm process: runs the smallest program once, so that machine code and tables are there before a job."""
    with contextlib.redirect_stdout(io.StringIO()):
        program = smallest_run()
        check(program)
        known_misses()
        simulate(program)


def refresh() -> None:
    """Between jobs: machine code that was compiled meanwhile is loaded once and here."""
    if switch():
        with contextlib.redirect_stdout(io.StringIO()):
            simulate(smallest_run())
