"""Time per output token over a growing context, by simulation of decode steps of a tile program.

Step n of N has rows of context + n tokens. Steps are simulated where it matters (the first, the last, and both sides
of every page of the KV cache that is begun) and every measure is interpolated linearly between them. A program that can
be asked takes `--batch N` (rows), `--context N` (tokens of every row, the new one included) and, where its layers are
to be counted, `--layers N`; what the user adds comes before these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.answer.prediction import Prediction, Refused, refusals
from npuscope.answer.request import Request
from npuscope.base import progress
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.interval import Interval
from npuscope.chip.devices import Device
from npuscope.explain.diagnosis import Diagnosis
from npuscope.explain.work import Rules, area_of
from npuscope.forward.llm.config import BLOCK, MOST
from npuscope.models import FOLDER, file_of
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, NUMBER, SHARE, TEXT, TIME, significant
from npuscope.tile.record.model import Recording
from npuscope.time.chip.job import MIX
from npuscope.time.ranks.result import waiting_time
from npuscope.time.ranks.together import RankRun
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import INTERVAL, time_estimate
from npuscope.trace.intervals import one_group, union
from npuscope.trace.readers.dispatches import DeviceTime

MOST_STEPS = 8  # simulated of one run
COUNTS = ("tasks", "blocks", "records")
MEANS = ("mean_run_us", "mean_dispatch_to_finish_us", "overhead", "orchestrator_busy", "schedulers_busy")
RECORDS = "records per step (a mixed block has three)"
STEP_TITLES = ("run µs", "dispatch→finish µs", "overhead", "orchestrator busy", "schedulers busy")
MEASURES = (
    Column("mean_run_us", NUMBER, "of a record_step", title="mean run µs"),
    Column("mean_dispatch_to_finish_us", NUMBER, "of a record_step", title="mean dispatch→finish µs"),
    Column("overhead", SHARE, "1 − run / dispatch→finish", title="overhead (1 − run / dispatch→finish)"),
    Column("orchestrator_busy", SHARE, "of the step", title="AICPU: orchestrator busy"),
    Column("schedulers_busy", SHARE, "of the step, mean of the threads", title="AICPU: scheduler threads busy, mean"),
)
STEPS = Columns(
    "tpot.simulated",
    "A step that was simulated.",
    Column("length", COUNT, "tokens of a row, the new one included", title="tokens of a row"),
    Column("ms", NUMBER, "the step's time"),
    Column("regime", TEXT, "the limit that holds longest, by which its interval is learnt", wide=True),
    Column("tasks", COUNT, "that do work"),
    Column("blocks", COUNT, "of them", wide=True),
    Column("records", COUNT, "blocks on cores: a mixed block has three"),
    *(replace(c, title=t, wide=c.form is SHARE) for c, t in zip(MEASURES, STEP_TITLES, strict=True)),
)
BASIS = Columns(
    "tpot",
    "The measurement basis: means over all steps.",
    Column("ms_per_token", NUMBER, "the mean", title="ms per token, mean"),
    Column("ms_per_token_interval", INTERVAL, "where 80% of measured means lie", title="ms per token, 80%"),
    Column("bound", TEXT, "the kind of the first cause of the last step", title="limited by"),
    Column("verdict", TEXT, "its sentence", only="told above the table"),
    Column("first_ms", NUMBER, "of the first step", title="ms of the first token"),
    Column("last_ms", NUMBER, "of the last step", title="ms of the last token"),
    Column("tasks_per_step", COUNT, "tasks that do work"),
    Column("blocks_per_step", COUNT, "their blocks"),
    Column("records_per_step", COUNT, "blocks on cores", title=f"AICore task {RECORDS}"),
    *MEASURES,
)
GROUPS = Columns(
    "tpot.group_table",
    "A part of the model, the one with most core time first.",
    Column("area", TEXT, "by the kernels' names (docs/understand/numbers.md)"),
    Column("groups", COUNT, "tasks per layer, or per step where the program takes no --layers", title="tasks"),
    Column("share", SHARE, "of all of them", wide=True),
    Column("core_ns", TIME, "core time in the last step, added up over all cores", title="core time"),
    Column("core_share", SHARE, "of all core time"),
    Column("path_ns", TIME, "of the last step, on the chain that decides when it ends", title="critical path"),
    Column("path_share", SHARE, "of the step; the rest are waits", title="of the step"),
)


@dataclass(frozen=True)
class Decoding:
    """What to decode: `context` tokens are in the cache of each of `batch` rows before the first of `tokens` steps."""

    batch: int = 16
    context: int = 4096
    tokens: int = 48

    def __post_init__(self) -> None:
        for name, value, least in (("batch", self.batch, 1), ("context", self.context, 0), ("tokens", self.tokens, 1)):
            if not least <= value <= MOST:
                raise NpuscopeError(f"--{name} is {value}, not a number from {least} to {MOST:,}")

    @property
    def lengths(self) -> range:
        """Tokens of a row in each step, the new one included."""
        return range(self.context + 1, self.context + self.tokens + 1)


@dataclass(frozen=True, repr=False)
class Tpot(Tabular):
    """Measures are means over all steps. `groups`: tasks per layer and area; per step where layers are not known."""

    model: str
    arguments: tuple[str, ...]
    device: str
    decoding: Decoding
    simulated: tuple[DecodeStep, ...]
    layers: int | None
    groups: dict[str, int]
    diagnosis: Diagnosis  # of the last step
    times: dict[str, tuple[int, int]]  # of the last step, by area: core time and what of the critical path, in ns
    notes: tuple[str, ...] = ()

    def over_tokens(self, measure: str) -> list[float]:
        """A measure of `DecodeStep` at every step."""
        known = [getattr(step, measure) for step in self.simulated]
        found: list[float] = np.interp(self.decoding.lengths, [step.length for step in self.simulated], known).tolist()
        return found

    def mean(self, measure: str) -> float:
        return float(np.mean(self.over_tokens(measure)))

    @property
    def device_time(self) -> DeviceTime:
        """What the device runs in a step, the mean over steps."""
        return DeviceTime(*(round(self.mean(f"{part}_ms") * 1e6) for part in ("waiting", "collective", "computing")))

    def verdict(self) -> str:
        """The first cause of the last of these steps, in a sentence."""
        return f"At {self.simulated[-1].length:,} tokens per row: {self.diagnosis.verdict}"

    def estimate(self) -> Interval:
        """Milliseconds per token. All steps are missed alike, so that their mean is no surer than one of them."""
        regime = Counter(step.regime for step in self.simulated).most_common(1)[0][0]
        return time_estimate(self.mean("ms"), "wall", regime)

    def tables(self) -> dict[str, Table]:
        total = sum(self.groups.values()) or 1
        core = sum(core for core, _ in self.times.values()) or 1
        wall = self.diagnosis.wall_ns or 1
        areas = []
        for area in sorted({*self.groups, *self.times}, key=lambda one: (-self.times.get(one, (0, 0))[0], one)):
            count, (core_ns, path_ns) = self.groups.get(area, 0), self.times.get(area, (0, 0))
            areas.append((area, count, count / total, core_ns, core_ns / core, path_ns, path_ns / wall))
        return {
            "simulated": Table(STEPS, pl.DataFrame([asdict(step) for step in self.simulated])),
            "group_table": GROUPS.table(areas),
        }

    def basis(self) -> Table:
        """The measurement basis, in one row."""
        token_ms = self.over_tokens("ms")
        sure = {"ms_per_token_interval": self.estimate().as_dict(), "bound": self.diagnosis.bound}
        sure["verdict"] = self.diagnosis.verdict.sentence
        ends = {"ms_per_token": self.mean("ms"), **sure, "first_ms": token_ms[0], "last_ms": token_ms[-1]}
        counts = {f"{name}_per_step": _whole(self.mean(name)) for name in COUNTS}
        return Table(BASIS, pl.DataFrame([{**ends, **counts, **{name: self.mean(name) for name in MEANS}}]))

    def title(self) -> str:
        d, layers = self.decoding, "" if self.layers is None else f", layers {self.layers}"
        return (
            f"{self.model}: {significant(self.mean('ms'))} ms/token simulated on {self.device}; batch {d.batch}, "
            f"context {d.context:,} to {d.context + d.tokens:,}{layers}"
        )

    def as_dict(self) -> dict[str, object]:
        """The JSON contract of `npuscope tpot`."""
        return {
            "model": self.model,
            "arguments": list(self.arguments),
            "device": self.device,
            **asdict(self.decoding),
            "layers": self.layers,
            **self.basis().rows()[0],
            "groups": self.groups,
            "notes": list(self.notes),
            "groups_per": "step" if self.layers is None else "layer",
            **all_rows(self.tables()),
            "token_ms": self.over_tokens("ms"),
        }


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def tpot(file: str, arguments: Sequence[str], decoding: Decoding, device: Device, rules: Rules) -> Tpot:
    """Simulates the decode steps of a program."""
    steps = []
    wanted = lengths_to_simulate(decoding)
    for done, length in enumerate(wanted):
        progress.report("simulating steps", done, len(wanted))
        one = predicted(file, arguments, {"batch": decoding.batch, "context": length}, device)
        steps.append(decode_step(one.simulated, length))
    whole = groups_by_area(one, rules)
    layers, groups = _per_layer(file, arguments, decoding, whole, rules)
    notes = ignored_sizes(file, arguments, decoding, {} if layers is None else {"layers": 1})
    asked = (file, tuple(arguments), device.name, decoding)
    times: dict[str, tuple[int, int]] = {}
    for kernel, core, path in one.timeline.tables()["kernels"].frame.select("kernel", "core_ns", "path_ns").iter_rows():
        before = times.get(area := area_of(kernel, rules), (0, 0))
        times[area] = before[0] + core, before[1] + path
    return Tpot(*asked, tuple(steps), layers, dict(groups.most_common()), one.limits, times, notes)


def ignored_sizes(file: str, arguments: Sequence[str], decoding: Decoding, alike: dict[str, int]) -> tuple[str, ...]:
    """Sentences about sizes that make no difference: what the program records is compared with that of another size."""
    last = decoding.lengths[-1]
    asked = {"batch": decoding.batch, "context": last, **alike}
    others = {"batch": (1 if decoding.batch > 1 else 16,), "context": (2 * last + BLOCK, last - BLOCK)}
    known = predicted(file, arguments, asked).recordings
    found = []
    for name, sizes in others.items():
        for size in (size for size in sizes if size > 0):
            try:
                other = predicted(file, arguments, {**asked, name: size}).recordings
            except NpuscopeError:  # a size that it does not take
                continue
            if _work(other) == _work(known):
                same = f"the program's tasks are the same for {size:,} as for {asked[name]:,}"
                found.append(f"--{name} makes no difference: {same}.")
            break
    return tuple(found)


def _work(recordings: Sequence[Recording]) -> list[tuple[object, ...]]:
    """What their tasks do, wherever their data lies."""
    return [
        ([(t.kernel, t.deps, [(g.body, len(g.blocks)) for g in t.groups]) for t in recording.tasks], recording.bodies)
        for recording in recordings
    ]


def lengths_to_simulate(decoding: Decoding, most: int = MOST_STEPS) -> list[int]:
    """The first step, the last, the last of every full page and the first of the next; of too many, some evenly."""
    lengths = decoding.lengths
    wanted = {lengths[0], lengths[-1]}
    for full in range(-(-lengths[0] // BLOCK) * BLOCK, lengths[-1], BLOCK):
        wanted |= {full, full + 1}
    found = sorted(wanted)
    if len(found) <= most:
        return found
    return [found[round(n * (len(found) - 1) / (most - 1))] for n in range(most)]


def _per_layer(
    file: str, arguments: Sequence[str], decoding: Decoding, whole: Counter[str], rules: Rules
) -> tuple[int | None, Counter[str]]:
    """How many layers the step has, and what one more layer adds: the program asked for one layer and for two."""
    asked = {"batch": decoding.batch, "context": decoding.lengths[-1]}
    try:
        one, two = (groups_by_area(predicted(file, arguments, {**asked, "layers": n}), rules) for n in (1, 2))
    except Refused:  # it takes no --layers
        return None, whole
    layer = two - one
    if not layer:
        return None, whole
    return 1 + round((whole.total() - one.total()) / layer.total()), layer


@dataclass(frozen=True)
class DecodeStep:
    """A simulated step at one length of its rows. A record is a block on a core: a mixed block has three."""

    length: int  # tokens of every row, the new one included
    ms: float
    tasks: float
    blocks: float
    records: float
    mean_run_us: float  # over records
    mean_dispatch_to_finish_us: float
    overhead: float  # 1 - run / (dispatch to finish)
    orchestrator_busy: float  # share of the step
    schedulers_busy: float  # share of the step, mean of the threads
    regime: str  # the limit that holds longest
    # of the rank that takes longest, where there are several
    rank_ms: float = 0.0
    computing_ms: float = 0.0  # in which any block ran, but no collective
    waiting_ms: float = 0.0  # in collectives, for ranks that come later
    collective_ms: float = 0.0  # the rest of them


def predicted(file: str, arguments: Sequence[str], asked: dict[str, int], device: Device | None = None) -> Prediction:
    """The one program that a script runs when it is asked for these sizes."""
    argv = (*arguments, *(word for name, value in asked.items() for word in (f"--{name}", str(value))))
    one = Prediction(Request(file, argv), chip=device)
    with refusals(file, argv, "It must make one decode step and take --batch and --context (docs/howto/tpot.md)."):
        _ = one.recording
    return one


def decode_step(run: Simulated, length: int) -> DecodeStep:
    """What of a simulated run counts; of several programs of a rank all, and the host's time between them."""
    wall = run.wall
    own = run.programs or (RankRun(0, 0, run.prepared, 0.0, run.times, wall),)
    records, ran, held = np.sum([_records(one) for one in own], axis=0).tolist()
    if not records:
        raise NpuscopeError(f"no task of {run.prepared.program.recording.program} does any work")
    of_rank: dict[int, list[RankRun]] = {}
    for one in run.ranks or own:
        of_rank.setdefault(one.rank, []).append(one)
    slowest = max(of_rank.values(), key=lambda runs: sum(one.wall for one in runs))
    parts = np.sum([_device_parts(one) for one in slowest], axis=0) / 1e6
    return DecodeStep(
        length=length,
        ms=wall / 1e6,
        tasks=sum(int(np.count_nonzero(one.prepared.job.blocks)) for one in own),
        blocks=run.blocks,
        records=int(records),
        mean_run_us=ran / records / 1e3,
        mean_dispatch_to_finish_us=held / records / 1e3,
        overhead=1 - ran / held,
        orchestrator_busy=run.bound.orchestrator_busy,
        schedulers_busy=run.bound.scheduler_busy,
        regime=run.bound.regime,
        rank_ms=sum(one.wall for one in slowest) / 1e6,
        computing_ms=float(parts[0]),
        waiting_ms=float(parts[1]),
        collective_ms=float(parts[2]),
    )


def _records(one: RankRun) -> tuple[float, float, float]:
    """Blocks on cores, for how long they ran, and from dispatch to finish."""
    job, times = one.prepared.job, one.times
    cores = np.where(job.shape[job.task_of] == MIX, 3, 1)
    ran, held = times.end - times.start, times.finish - times.dispatch
    return float(np.sum(cores)), float(np.sum(cores * ran)), float(np.sum(cores * held))


def _device_parts(one: RankRun) -> tuple[float, float, float]:
    """Computing, waiting for ranks that come later, and the rest of collectives, in ns: a moment counts once, and for
    a collective where a task that is communication is under way."""
    times = one.times
    blocks = [np.round(moment).astype(np.int64) for moment in (times.start, times.end)]
    meets = one.prepared.communicates[one.prepared.job.task_of]
    together = union(one_group(*(moment[meets] for moment in blocks))).length
    waiting = min(waiting_time(one), together)
    return union(one_group(*blocks)).length - together, waiting, together - waiting


def groups_by_area(one: Prediction, rules: Rules) -> Counter[str]:
    """Tasks that do work, per area."""
    tasks = (task for recording in one.recordings for task in recording.tasks)
    return Counter(area_of(task.kernel, rules) for task in tasks if task.core != "none")


OURS = {"qwen3-14b": "qwen3_14b/decode.py", "qwen3-14b-a8w8": "qwen3_14b/decode_a8w8.py"}


def program_file(model: str) -> str:
    """The file of a short name, or the file itself."""
    if model in OURS:
        return str(FOLDER / OURS[model])
    file = file_of(model)
    if not Path(file).is_file():
        raise BadInput("no such file", path=model, remedy=f"Name a tile program, or one of {', '.join(OURS)}.")
    return file
