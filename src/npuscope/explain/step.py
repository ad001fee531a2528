"""Where the time of a step goes, from the server's schedule over the host's calls to the device's phases and back,
adding up with a named rest.

Every level is cut out of the span around it: what sticks out is cut off, what overlaps counts for the one that began
first, and what is left is a row, so parts of one level add up to the one above whatever a log says. The device has
another clock than the host: only lengths are compared. Its phases overlap over threads, so they are placed by their
starts and cut where the next one begins. Steps may be under way at once: then the time per step is the distance of
their ends, and how much of a step's own time passed while others were under way is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import mean

import numpy as np
import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.explain.diagnosis.cause import Cause
from npuscope.explain.diagnosis.on_host import host_causes
from npuscope.explain.step_parts import (
    CAPTURING,
    REST,
    WORKING,
    StepPart,
    StepPiece,
    cut,
    parts_of,
    ran_parts,
    relative,
)
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, RATIO, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.intervals import Ints, one_group, union
from npuscope.trace.readers.dispatches import OUTPUTS, DeviceTime, DispatchKey, is_run_over_ranks, steps_of_root
from npuscope.trace.readers.host_log import CHIP, DEVICE_WALL, MARK, HostCall, HostLog, read_logs
from npuscope.trace.readers.run_files import phase_files, read_phases
from npuscope.trace.readers.serving import ServingProfile, profile_files, read_profile
from npuscope.trace.source import head, read_all

GRAIN_NS = 1000
TAIL = 0.9  # of the steps take at most the tail
PARTS = Columns(
    "step.parts",
    "A part of a step; parts of one level below another add up to it.",
    Column("part", TEXT, "what it is"),
    Column("level", COUNT, "how deep it lies", wide=True),
    Column("slowest_ns", TIME, "of the slowest rank", title="slowest rank"),
    Column("share", SHARE, "of that rank's whole step"),
    Column("mean_ns", TIME, "over ranks", title="mean"),
    Column("least_ns", TIME, "over ranks", title="least"),
    Column("most_ns", TIME, "over ranks", title="most"),
    Column("step_mean_ns", TIME, "over all steps, of the slowest rank of each", title="mean step"),
    Column("step_tail_ns", TIME, "nine of ten steps take at most this", title="tail step"),
)
RUNS = Columns(
    "step.runs",
    "A run of the program over its ranks, as far as the logs have it whole.",
    Column("run", COUNT, "its number"),
    Column("ranks", COUNT, "calls of it in the logs"),
    Column("wall_ns", TIME, "of the slowest rank", title="wall"),
    Column("slowest", TEXT, "rank or process with the longest call"),
    Column("period_ns", TIME, "from the end of the run before, where that is there", title="per run"),
    Column("overlap_ns", TIME, "of its time, while the run before was under way", title="overlapped"),
    Column("skew_ns", TIME, "between the first and the last launch", title="launch skew"),
    Column("last", TEXT, "rank or process that was launched last"),
)
STEPS = Columns(
    "step.steps",
    "A step of the server: from its schedule to its output.",
    Column("step", COUNT, "its number, in the order of outputs"),
    Column("wall_ns", TIME, "from its schedule to the end of its output", title="wall"),
    Column("period_ns", TIME, "from the end of the step before: what a step costs", title="per step"),
    Column("overlap_ns", TIME, "of its wall, while the step before was under way", title="overlapped"),
    Column("requests", COUNT, "that got tokens"),
    Column("tokens", COUNT, "accepted, where recorded; else one a request"),
    Column("token_ns", TIME, "per step, over the tokens a request got in it", title="per token"),
)


# --- a call of one chip


@dataclass(frozen=True)
class RankStep:
    """One rank's call of a run."""

    name: str  # rank 0, or process 4711
    run: int
    launched_ns: int | None
    parts: tuple[StepPart, ...]
    begin_ns: int = 0
    end_ns: int = 0
    hidden_ns: int = 0  # of its bind and copies, while another call of the process was on the device

    @property
    def wall_ns(self) -> int:
        return self.parts[0].dur_ns

    @cached_property
    def by_path(self) -> dict[tuple[str, ...], int]:
        """Length of each part by the names that lead to it."""
        found: dict[tuple[str, ...], int] = {}
        path: list[str] = []
        for part in self.parts:
            path[part.level :] = [part.name]
            found[tuple(path)] = found.get(tuple(path), 0) + part.dur_ns
        return found

    @cached_property
    def split(self) -> set[tuple[str, ...]]:
        """The parts that have parts; nothing above the whole is one."""
        return {path[:-1] for path in self.by_path}


# --- steps of a server


@dataclass(frozen=True)
class ServedStep:
    """One step of the server, from its schedule to its output, with the call that it waited for longest."""

    number: int
    parts: tuple[StepPart, ...]
    begin_ns: int
    end_ns: int
    period_ns: int | None  # None for the first
    overlap_ns: int
    requests: int | None
    accepted: int | None  # tokens of all requests

    @property
    def wall_ns(self) -> int:
        return self.end_ns - self.begin_ns

    def per_token_ns(self, accepted: float | None = None) -> int | None:
        """Per step, over the tokens that a request got in it."""
        if self.period_ns is None:
            return None
        each = accepted
        if each is None and self.accepted and self.requests:
            each = self.accepted / self.requests
        return round(self.period_ns / (each or 1))


SCHEDULE, QUEUE = "scheduler.schedule", "scheduler.queue_worker_step"
OUTPUT, EXECUTE = "scheduler.process_step_output", "WorkerProcess.execute_step"
DISPATCH, RECLAIM = "WorkerProcess.dispatch_decode", "WorkerProcess.reclaim_decode"
ACCEPTED = ("accepted_tokens", "num_accepted_tokens", "output_tokens", "tokens")


def served_steps(profile: ServingProfile, calls: Sequence[RankStep] = ()) -> tuple[list[ServedStep], int]:
    """The steps that a profile has whole, and how many outputs have no beginning in it.

    Steps are answered in the order in which they were queued, so the nth output belongs to the nth queueing.
    """
    schedules, queues, outputs = (profile.named(name) for name in (SCHEDULE, QUEUE, OUTPUT))
    outputs.sort(key=lambda one: one.end_ns)
    works = _worked(profile)
    found: list[ServedStep] = []
    orphans = 0
    before: ServedStep | None = None
    waiting = list(queues)
    last_end: int | None = None
    for output in outputs:
        queue = waiting.pop(0) if waiting and waiting[0].end_ns <= output.end_ns else None
        if queue is None:
            orphans += 1
            last_end = output.end_ns
            continue
        schedule = next((one for one in reversed(schedules) if one.start_ns <= queue.start_ns), queue)
        begin, end = min(schedule.start_ns, queue.start_ns), output.end_ns
        pieces = [StepPiece("queue: command to the worker", queue.start_ns, queue.end_ns)]
        if schedule is not queue:
            pieces.insert(0, StepPiece("schedule", schedule.start_ns, schedule.end_ns))
        worked = next((one for one in works if one[0] >= queue.start_ns and one[1] <= end), None)
        if worked is not None:
            works.remove(worked)
            pieces.append(StepPiece("until the worker takes it", queue.end_ns, worked[0]))
            inside = _worker_parts(profile, worked, calls)
            pieces.append(StepPiece("worker", worked[0], worked[1], tuple(inside)))
            pieces.append(StepPiece("until the engine has it", worked[1], output.start_ns))
        pieces.append(StepPiece("output", output.start_ns, output.end_ns))
        rest = REST if worked is not None else "worker, which the profile lacks, and between these"
        parts = [StepPart("step", 0, end - begin), *cut(pieces, begin, end, 1, rest)]
        overlap = max(0, (before.end_ns if before is not None else begin) - begin)
        tokens = next((number for name in ACCEPTED if (number := output.number(name)) is not None), None)
        before = ServedStep(
            len(found), tuple(parts), begin, end, None if last_end is None else end - last_end,
            min(overlap, end - begin), output.number("new_tokens"), tokens,
        )  # fmt: skip
        last_end = end
        found.append(before)
    return found, orphans


def _worked(profile: ServingProfile) -> list[tuple[int, int]]:
    """When the worker was at each step: whole, or from handing it out to taking it back, by its number."""
    whole = [(one.start_ns, one.end_ns) for one in profile.named(EXECUTE)]
    taken = {one.number("step_id"): one for one in profile.named(RECLAIM)}
    pairs = [(one, taken.get(one.number("step_id"))) for one in profile.named(DISPATCH)]
    split = [(one.start_ns, back.end_ns) for one, back in pairs if back is not None and back.end_ns >= one.start_ns]
    return sorted(split or whole)


def _worker_parts(profile: ServingProfile, worked: tuple[int, int], calls: Sequence[RankStep]) -> list[StepPart]:
    """Inside the worker's time, levels from 0: handing out, the program's call with the chips' parts, taking back."""
    begin, end = worked
    runs = [one for one in profile.spans if one.name.endswith((".worker_run", ".worker_submit", ".worker_wait"))
            and begin <= one.start_ns and one.end_ns <= end]  # fmt: skip
    if not runs:
        return _chip_parts(calls, begin, end, 0)
    first, last = min(one.start_ns for one in runs), max(one.end_ns for one in runs)
    names = {one.name.rpartition(".")[0] for one in runs}
    around = [one for one in profile.spans if one.name in names and begin <= one.start_ns and one.end_ns <= end]
    called = min((one.start_ns for one in around), default=first), max((one.end_ns for one in around), default=last)
    inside = tuple(_chip_parts(calls, first, last, 0))
    run = StepPiece("the program's run", first, last, inside)
    resolved = [StepPiece("arguments", called[0], first)] if called[0] < first else []
    outer = cut([*resolved, run], called[0], max(called[1], last), 0)
    pieces = [
        StepPiece("prepare the batch", begin, called[0]),
        StepPiece("call of the program", called[0], called[1], tuple(outer)),
        StepPiece("take the tokens back", called[1], end),
    ]
    return cut(pieces, begin, end, 0)


def _chip_parts(calls: Sequence[RankStep], begin: int, end: int, level: int) -> list[StepPart]:
    """The chips' calls within a stretch: the longest on its own way stands for all, the host's time around is named."""
    here = [one for one in calls if begin <= one.begin_ns and one.end_ns <= end]
    if not here:
        return []
    slowest = max(here, key=lambda one: (one.end_ns, one.wall_ns))
    pieces = [
        StepPiece("host: graph, submit, dispatch", begin, slowest.begin_ns),
        StepPiece(f"call on {slowest.name}, the last to end", slowest.begin_ns, slowest.end_ns,
               relative(slowest.parts[1:], 1)),
        StepPiece("host: complete", slowest.end_ns, end),
    ]  # fmt: skip
    return cut(pieces, begin, end, level)


# --- all of it


@dataclass(frozen=True, repr=False)
class StepWaterfall(Tabular):
    """The runs that some logs have whole, the steps that a server's profile has, and one of them in parts."""

    calls: tuple[RankStep, ...]
    served: tuple[ServedStep, ...]
    chosen: int  # a run, or where there is a profile a step
    cut_off: int  # calls that the logs have no end of, and outputs without a beginning
    drops: int  # times the log says that it lost records
    cut_parts: int = 0  # spans that stick out of the span around them, and were cut
    accepted: float | None = None  # tokens that a request gets per step

    in_json = ("chosen", "cut_off", "drops", "cut_parts", "overview", "per_token_ns", "capturing_ns")

    @cached_property
    def ranks(self) -> list[RankStep]:
        """The calls of the chosen run, the slowest first."""
        return sorted((one for one in self.calls if one.run == self.chosen), key=lambda one: -one.wall_ns)

    @property
    def _shown(self) -> list[RankStep]:
        """What the table is of: the ranks of the chosen run, or the chosen step."""
        return [_as_call(self.served[self.chosen])] if self.served else self.ranks

    @cached_property
    def _every(self) -> list[RankStep]:
        """Every step, by its slowest rank."""
        if self.served:
            return [_as_call(one) for one in self.served]
        runs: dict[int, RankStep] = {}
        for one in self.calls:
            if one.run not in runs or one.wall_ns > runs[one.run].wall_ns:
                runs[one.run] = one
        return list(runs.values())

    @property
    def parts(self) -> pl.DataFrame:
        slowest, *_ = self._shown
        rows = []
        for path, ns in slowest.by_path.items():
            # a step that is not split here, because its records are not there, says nothing of the parts
            ranks = [one.by_path.get(path, 0) for one in self._shown if path[:-1] in one.split]
            steps = sorted(one.by_path.get(path, 0) for one in self._every if path[:-1] in one.split)
            rows.append(
                {
                    "part": "  " * (len(path) - 1) + path[-1], "level": len(path) - 1, "slowest_ns": ns,
                    "share": ns / slowest.wall_ns if slowest.wall_ns else 0.0,
                    "mean_ns": round(mean(ranks)), "least_ns": min(ranks), "most_ns": max(ranks),
                    "step_mean_ns": round(mean(steps)), "step_tail_ns": steps[_tail(len(steps))],
                }
            )  # fmt: skip
        return pl.DataFrame(rows)

    @property
    def runs(self) -> pl.DataFrame:
        rows = []
        by_run: dict[int, list[RankStep]] = {}
        for one in self.calls:
            by_run.setdefault(one.run, []).append(one)
        for run, calls in sorted(by_run.items()):
            before = max((one.end_ns for one in by_run.get(run - 1, ())), default=None)
            begin, end = min(one.begin_ns for one in calls), max(one.end_ns for one in calls)
            slowest = max(calls, key=lambda one: one.wall_ns)
            launched = sorted((one.launched_ns, one.name) for one in calls if one.launched_ns is not None)
            skew = launched[-1][0] - launched[0][0] if len(launched) > 1 else None
            rows.append(
                {
                    "run": run, "ranks": len(calls), "wall_ns": slowest.wall_ns, "slowest": slowest.name,
                    "period_ns": None if before is None else end - before,
                    "overlap_ns": None if before is None else min(max(before - begin, 0), end - begin),
                    "skew_ns": skew, "last": launched[-1][1] if skew else None,
                }
            )  # fmt: skip
        return RUNS.table(rows).frame

    @property
    def steps(self) -> pl.DataFrame:
        rows = [
            (one.number, one.wall_ns, one.period_ns, one.overlap_ns, one.requests, one.accepted or one.requests,
             one.per_token_ns(self.accepted))
            for one in self.served
        ]  # fmt: skip
        return STEPS.table(rows).frame

    def tables(self) -> dict[str, Table]:
        return {
            "parts": Table(PARTS, self.parts), "runs": Table(RUNS, self.runs), "steps": Table(STEPS, self.steps),
        }  # fmt: skip

    @property
    def per_token_ns(self) -> dict[str, int] | None:
        """Mean and tail of a token's time over the server's steps."""
        each = sorted(ns for one in self.served if (ns := one.per_token_ns(self.accepted)) is not None)
        return {"mean": round(mean(each)), "tail": each[_tail(len(each))]} if each else None

    @property
    def capturing_ns(self) -> int:
        """What capturing itself cost in the chosen step."""
        return sum(part.dur_ns for part in self._shown[0].parts if part.name == CAPTURING)

    @cached_property
    def causes(self) -> list[Cause]:
        """What of the host's side could be mended, the one worth most first."""
        slowest = self._shown[0]
        return host_causes([(name[-1], ns) for name, ns in slowest.by_path.items()], slowest.wall_ns, slowest.hidden_ns)

    @property
    def overview(self) -> str:
        """The first sentence: how long, and what takes most of it."""
        slowest = self._shown[0]
        leaves = [part for part, after in zip(slowest.parts, [*slowest.parts[1:], None], strict=True)
                  if (after is None or after.level <= part.level) and part.name != CAPTURING]  # fmt: skip
        most = max(leaves, key=lambda part: part.dur_ns)
        whole = slowest.wall_ns - self.capturing_ns
        share = percent(most.dur_ns / whole if whole else 0.0)
        less = f" without the {duration(self.capturing_ns)} of capturing" if self.capturing_ns else ""
        if self.served:
            one = self.served[self.chosen]
            per = "" if one.period_ns is None else f", one every {duration(one.period_ns)}"
            return f"Step {self.chosen} takes {duration(whole)}{less}{per}; {share} of it is {most.name}."
        run = self.runs.filter(pl.col("run") == self.chosen).row(0, named=True)
        of = f" over {many(run['ranks'], 'rank')}" if run["ranks"] > 1 else ""
        skew = f" {run['last']} was launched {duration(run['skew_ns'])} after the first." if run["skew_ns"] else ""
        takes = f"Run {self.chosen}{of} takes {duration(whole)} on {slowest.name}{less}"
        return f"{takes}; {share} of it is {most.name}.{skew}"

    def title(self) -> str:
        return self.overview


BESIDE = Columns(
    "tpot.beside",
    "A part of a measured step beside the same part as predicted; what only hosts take is not predicted.",
    Column("part", TEXT, "what it is, as in step.parts"),
    Column("level", COUNT, "how deep it lies", wide=True),
    Column("predicted_ns", TIME, "simulated", title="predicted"),
    Column("measured_ns", TIME, "the mean over steps, of the slowest rank of each", title="measured"),
    Column("tail_ns", TIME, "nine of ten measured steps take at most this", title="measured tail"),
    Column("ratio", RATIO, "predicted over measured"),
)


def beside_measured(found: StepWaterfall, wall_ns: int, device: DeviceTime) -> Table:
    """A predicted step in the parts of measured ones: what is simulated begins with the first submission, so it is the
    time of orchestration and scheduling, or the device's where the runtime reports no phases."""
    parts = found.parts
    names = {name.strip() for name in parts["part"]}
    whole = WORKING if WORKING in names else "device"
    predicted = {whole: wall_ns, **{part.name: part.dur_ns for part in ran_parts(device, wall_ns)}}
    rows = []
    for part, level, measured, tail in parts.select("part", "level", "step_mean_ns", "step_tail_ns").iter_rows():
        ns = predicted.get(part.strip())
        ratio = ns / measured if ns is not None and measured else None
        rows.append((part, level, ns, measured, tail, ratio))
    return BESIDE.table(rows)


def _tail(count: int) -> int:
    return min(int(TAIL * count), count - 1)


def _as_call(step: ServedStep) -> RankStep:
    return RankStep(f"step {step.number}", step.number, None, step.parts, step.begin_ns, step.end_ns)


def steps_at(
    path: Path, run: int | None = None, profile: Path | None = None, accepted: float | None = None
) -> StepWaterfall:
    """What lies at a path: ranks with the host's logs, a log, a server's profile, or a folder with any of them."""
    if not path.exists():
        raise BadInput("no such file or folder", path=path)
    if path.suffix == ".py":
        what = "a Python program, and this wants the host's logs of a run"
        raise BadInput(what, path=path, remedy="`npuscope tpot` predicts a decode step of a tile program.")
    log, ranks, device = HostLog(), dict[int, int](), dict[DispatchKey, DeviceTime]()
    served = [] if profile is None else profile_files(profile) or [profile]
    if path.is_dir():
        served = served or profile_files(path) or profile_files(path / OUTPUTS)
        if is_run_over_ranks(path):
            log, ranks, device = steps_of_root(path)
        else:
            log = read_logs([one for one in sorted(path.glob("*.log")) if MARK.encode() in read_all(one)])
            log.spans += read_phases(phase_files(path), log.ledger)
        if not log.spans and not served:
            why = "neither a host.*.log with spans nor a server's profile in this folder"
            raise BadInput(why, path=path, remedy="Keep the host's logs beside the ranks.")
    elif path.suffix in (".json", ".jsonl") or head(path, 64).lstrip().startswith((b'{"', b"[{")):
        served = [*served, *profile_files(path)]
    else:
        log = HostLog().read(path)
    return explain_steps(log, run, ranks, device, read_profile(served) if served else None, accepted)


def explain_steps(
    log: HostLog,
    run: int | None = None,
    ranks: Mapping[int, int] | None = None,
    device: Mapping[DispatchKey, DeviceTime] | None = None,
    profile: ServingProfile | None = None,
    accepted: float | None = None,
) -> StepWaterfall:
    """The calls of a log by run, and the steps of a profile around them. `ranks`: pid -> rank; `device`: what ran on a
    device, by rank and run; `accepted`: tokens that a request gets per step."""
    calls = _calls(log, ranks or {}, device or {})
    served, orphans = served_steps(profile, calls) if profile is not None else ([], 0)
    if not calls and not served:
        raise NpuscopeError(
            "the log has no call from its beginning to its end", remedy="Let it run until `chip.run` is written."
        )
    known = [one.number for one in served] if served else sorted({one.run for one in calls})
    if run is not None and run not in known:
        what = "step" if served else "run"
        raise NpuscopeError(f"no {what} {run}", remedy=f"There are {', '.join(map(str, known[:20]))}.")
    cut = sum(call.whole is None for call in log.calls) + orphans
    drops = int(log.ledger.notes.get("host_log_drops", 0))
    chosen = known[-1] if run is None else run
    return StepWaterfall(tuple(calls), tuple(served), chosen, cut, drops, sticking_out(log), accepted)


def _calls(log: HostLog, ranks: Mapping[int, int], device: Mapping[DispatchKey, DeviceTime]) -> list[RankStep]:
    """The whole calls; those of one rank and run, each a dispatch of it, are one."""
    found: dict[tuple[int, int], list[RankStep]] = {}
    launches = _launches(log)
    for call in log.calls:
        rank = ranks.get(call.pid)
        number = call.attribute("run_id") or call.number  # 0 is no number: older calls count themselves
        launch, whole = call.by_name.get(f"{CHIP}.runner_run"), call.whole
        ran = device.get((-1 if rank is None else rank, number, call.attribute("dispatch_id")))
        parts = parts_of(call, ran, log.collected_ns.get(call.pid, ()))
        if parts and whole is not None:
            name = f"process {call.pid}" if rank is None else f"rank {rank}"
            launched = None if launch is None else launch.start_ns
            found.setdefault((call.pid, number), []).append(
                RankStep(name, number, launched, tuple(parts), whole.start_ns, whole.end_ns, _hidden(call, launches))
            )
    return [_one_call(calls) for calls in found.values()]


def _one_call(calls: list[RankStep]) -> RankStep:
    """Several dispatches of a run to one chip as one call, from the first to the last."""
    if len(calls) == 1:
        return calls[0]
    first = min(calls, key=lambda one: one.begin_ns)
    begin, end = first.begin_ns, max(one.end_ns for one in calls)
    pieces = [StepPiece("dispatch", one.begin_ns, one.end_ns, relative(one.parts[1:], 1)) for one in calls]
    parts = (StepPart("call", 0, end - begin), *cut(pieces, begin, end, 1, "between dispatches"))
    return RankStep(first.name, first.run, first.launched_ns, parts, begin, end, sum(one.hidden_ns for one in calls))


def sticking_out(log: HostLog) -> int:
    """Spans that begin before the span around them or end after it, by more than the clock's grain: a wrong process, or
    a clock that ran backwards. They are cut."""
    found = 0
    for call in log.calls:
        for span in call.spans:
            above = call.by_name.get(CHIP if span.name.count(".") == 2 else span.name.rpartition(".")[0])
            if above is None or above is span or span.on_device or above.on_device:
                continue
            found += span.start_ns < above.start_ns - GRAIN_NS or span.end_ns > above.end_ns + GRAIN_NS
        wall, runner = call.by_name.get(DEVICE_WALL), call.by_name.get(f"{CHIP}.runner_run")
        found += wall is not None and runner is not None and wall.dur_ns > runner.dur_ns
    return found


def _launches(log: HostLog) -> dict[int, Ints]:
    """Of each process its calls with a launch: number, begin and end of it on the device, a column each."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for call in log.calls:
        if (ran := call.by_name.get(f"{CHIP}.runner_run")) is not None:
            found.setdefault(call.pid, []).append((call.number, ran.start_ns, ran.end_ns))
    return {pid: np.array(rows) for pid, rows in found.items()}


def _hidden(call: HostCall, launches: Mapping[int, Ints]) -> int:
    """How much of a call's bind and copies passed while another call of its process was on the device."""
    if call.pid not in launches:
        return 0
    number, begin, end = launches[call.pid].T
    hidden = 0
    for name in ("bind", "stage_inputs", "prepare_execution"):
        if (span := call.by_name.get(f"{CHIP}.{name}")) is not None:
            there = (number != call.number) & (begin < span.end_ns) & (end > span.start_ns)
            inside = (np.clip(one[there], span.start_ns, span.end_ns) for one in (begin, end))
            hidden += union(one_group(*inside)).length
    return hidden
