"""The values of a run tensor by tensor in program order, alone, beside its golden, or beside another version's.

Two versions are compared bit by bit, a golden within its tolerance. Inputs come first, then a tensor by the last task
that wrote it; one that differs by the task that wrote its first differing element. So a wrong tensor comes before those
computed from it. NaNs are equal when their bits are; 0 and -0 differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import prod

import numpy as np

from npuscope.table.formats import many
from npuscope.tile.golden.runner import RunResult, make
from npuscope.tile.golden.spec import Array, ScalarSpec, TensorSpec, array_of, chosen, copy_of, python_number
from npuscope.tile.record.model import Recording, unique_names
from npuscope.tile.record.walk import earliest, ops_of
from npuscope.tile.run.execute import Finished, record
from npuscope.tile.run.value_watch import NOTICES, ValueEvent

DECADES = range(-12, 7)  # of differences that are counted
PLACES = 120  # along each axis of a picture
OF_RANKS = "a rank's program"  # which writes what its host function gives back


@dataclass(frozen=True)
class ValueDifference:
    """How far two tensors are apart. `differing` elements count: bit by bit, or outside the golden's tolerance."""

    differing: int
    index: tuple[int, ...]
    mine: float
    other: float
    largest: float | None  # no difference is finite
    median: float  # of |difference| over the differing ones
    relative: float | None  # |a - b| over |b|, as vectors, where both are finite; None where b is 0
    writer: str  # who wrote the first of them last
    by_decade: tuple[tuple[int, int], ...] = ()  # floor(log10 |difference|), how many
    along: tuple[tuple[float, ...], ...] = ()  # largest |difference| along rows, then along columns


@dataclass(frozen=True)
class TracedTensor:
    """One named tensor at the end of a run."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    task: int  # the last that wrote it, -1 for none
    kernel: str
    nan: int
    infinite: int
    least: float | None  # none is finite
    most: float | None
    compared: bool
    apart: ValueDifference | None = None
    reason: str = ""  # why it was not compared although both have it

    def text(self) -> str:
        """How far it is from the other, where it is."""
        apart, size = self.apart, prod(self.shape)
        if apart is None:
            return f"{self.name}: the same"
        much = f"{apart.differing:,} of {size:,} elements ({apart.differing / max(1, size):.1%})"
        if apart.largest is None:
            far = "all of them NaN or infinite on one side"
        elif not apart.largest:
            far = "by the sign of zeros"
        else:
            far = f"by at most {apart.largest:.3g}, half of them by less than {apart.median:.3g}"
        where = f"first at {list(apart.index)}: {apart.mine:.7g} here, {apart.other:.7g} there"
        return f"{self.name}: {much}, {far}; {where}; {apart.writer or 'never written'}"


@dataclass(frozen=True)
class ValueTrace:
    """One program of a script. `against` says what its tensors were compared with, "" for nothing."""

    program: str
    against: str
    tensors: tuple[TracedTensor, ...]
    events: tuple[ValueEvent, ...] = field(default=())
    only_here: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()

    @property
    def first(self) -> TracedTensor | None:
        return next((one for one in self.tensors if one.apart is not None), None)

    @property
    def verdict(self) -> str:
        compared = sum(one.compared for one in self.tensors)
        if not self.against:
            return f"{many(len(self.tensors), 'tensor')}, nothing to compare them with"
        if self.first is None:
            return f"{many(compared, 'tensor')} as in {self.against}"
        differing = sum(one.apart is not None for one in self.tensors)
        return f"{self.first.name} differs first from {self.against}; {differing} of {compared} tensors differ"

    def text(self) -> str:
        return self.verdict if self.first is None else f"{self.verdict}\n{self.first.text()}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def diff_runs(fn_a: object, fn_b: object, *arguments: object) -> ValueTrace:
    """The second of two variants beside the first, on copies of the same arguments: arrays, tensors, numbers, specs."""
    given = [make(one, chosen()) if isinstance(one, TensorSpec | ScalarSpec) else one for one in arguments]
    given = [python_number(one) if getattr(one, "shape", None) == () else one for one in given]
    first, second = (record(fn, *map(copy_of, given)) for fn in (fn_a, fn_b))
    return beside_version(second, first, getattr(fn_a, "__name__", "the first"))


def beside_version(run: Finished, other: Finished, against: str) -> ValueTrace:
    """Every tensor of two runs that have it by the same name, bit by bit."""
    theirs = other.named
    found = {name: (array, theirs[name]) if name in theirs else None for name, array in run.named.items()}
    traced = _traced(run, {name: pair for name, pair in found.items() if pair is not None}, None)
    mine = run.named
    return ValueTrace(
        run.recording.program,
        against,
        traced,
        events_of(run),
        tuple(name for name in mine if name not in theirs),
        tuple(name for name in theirs if name not in mine),
    )


def beside_golden(run: Finished, result: RunResult | None) -> ValueTrace:
    """Every tensor of a run; its outputs beside what the golden expects of them."""
    pairs: dict[str, tuple[Array, Array]] = {}
    for actual, expected in result.pairs.values() if result is not None else ():
        mine, wanted = array_of(actual), array_of(expected)
        for name, array in run.named.items():
            if array.size == mine.size and array.size and np.shares_memory(array, mine):
                pairs[name] = (mine, wanted.reshape(mine.shape).astype(mine.dtype))
    tolerance = None if result is None else result.tolerance
    against = "the golden" if pairs else ""
    return ValueTrace(run.recording.program, against, _traced(run, pairs, tolerance or (0.0, 0.0)), events_of(run))


def events_of(run: Finished) -> tuple[ValueEvent, ...]:
    """What the watch saw, and what the run noticed of memory, in the order of tasks: causes before what they cause."""
    noticed = [one for one in run.recording.notices if one.kind in NOTICES]
    places = {(site.file, site.line) for site in (run.recording.sites[one.site] for one in noticed)}
    # who loads what nobody wrote is told once, by the notice
    events = [one for one in run.events if one.kind != "NaN" or (one.site.file, one.site.line) not in places]
    for one in noticed:
        site = run.recording.sites[one.site]
        event = ValueEvent(NOTICES[one.kind], "", "", -1, site, one.message, 0, (), one.count)
        first = _first_task(run.recording, one.site)
        after = (n for n, other in enumerate(events) if other.task > first >= 0)
        events.insert(next(after, len(events)), event)
    return tuple(events)


def _first_task(recording: Recording, site: int) -> int:
    """The first task with an op of a line; -1 for none."""
    bodies = {n for n, body in enumerate(recording.bodies) if any(op.site == site for op, _ in ops_of(body))}
    return next((task.id for task in recording.tasks if any(group.body in bodies for group in task.groups)), -1)


def _traced(
    run: Finished, pairs: dict[str, tuple[Array, Array]], tolerance: tuple[float, float] | None
) -> tuple[TracedTensor, ...]:
    kernels = {task.id: task.kernel for task in run.recording.tasks}
    numbers = unique_names(run.recording.buffers)
    writers = {a.buffer: task.id for task in run.recording.tasks for a in task.arguments if a.writes}
    last = {name: writers.get(numbers[name], -1) for name in run.named}
    found = []
    for name, array in run.named.items():
        pair = pairs.get(name)
        apart, reason, task = None, "", last[name]
        by_ranks = not run.recording.tasks and run.recording.buffers[numbers[name]].direction in ("Out", "InOut")
        if pair is not None and (pair[0].shape != pair[1].shape or pair[0].dtype != pair[1].dtype):
            reason = f"{list(pair[0].shape)} {pair[0].dtype} here, {list(pair[1].shape)} {pair[1].dtype} there"
        elif pair is not None:
            apart, at = _difference(run, name, numbers[name], pair, tolerance)
            task = at if apart is not None else task
        values = array.astype(np.float32, copy=False) if array.dtype.kind not in "iub" else array
        floats = values.dtype.kind == "f"
        finite = values[np.isfinite(values)] if floats else values
        found.append(
            TracedTensor(
                name, tuple(array.shape), array.dtype.name, task, OF_RANKS if by_ranks else kernels.get(last[name], ""),
                int(np.isnan(values).sum()) if floats else 0, int(np.isinf(values).sum()) if floats else 0,
                float(finite.min()) if finite.size else None, float(finite.max()) if finite.size else None,
                pair is not None and not reason, apart, reason,
            )
        )  # fmt: skip
    return tuple(sorted(found, key=lambda one: one.task))


def _difference(
    run: Finished, name: str, number: int, pair: tuple[Array, Array], tolerance: tuple[float, float] | None
) -> tuple[ValueDifference | None, int]:
    """How far a tensor is from the other, and the task that wrote the first element that differs."""
    mine, other = (np.ascontiguousarray(one).reshape(-1) for one in pair)
    wide = [one.astype(np.float64) for one in (mine, other)]
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.abs(wide[0] - wide[1])
        if tolerance is None:
            where = np.flatnonzero(mine.view(f"u{mine.itemsize}") != other.view(f"u{other.itemsize}"))
        else:
            close = np.isclose(wide[0], wide[1], rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
            where = np.flatnonzero(~close)
    if not where.size:
        return None, -1
    at = earliest(run.recording, number, where)
    writer = run.last_writer(name, at)
    finite = off[where][np.isfinite(off[where])]
    both = np.isfinite(off)
    norm = float(np.linalg.norm(wide[1][both]))
    decades = np.floor(np.log10(finite[finite > 0])).astype(int).clip(DECADES[0], DECADES[-1])
    counted = tuple((int(d), int((decades == d).sum())) for d in np.unique(decades))
    picture = off.reshape(-1, pair[0].shape[-1]) if pair[0].ndim else off.reshape(1, 1)
    return ValueDifference(
        int(where.size),
        tuple(int(n) for n in np.unravel_index(at, pair[0].shape)),
        float(wide[0][at]),
        float(wide[1][at]),
        float(finite.max()) if finite.size else None,
        float(np.median(finite)) if finite.size else 0.0,
        float(np.linalg.norm(off[both])) / norm if finite.size and norm else None,
        str(writer or ("" if run.recording.tasks else f"written by {OF_RANKS}")),
        counted,
        tuple(_along(picture, axis) for axis in (1, 0)),
    ), getattr(writer, "task", -1)


def _along(picture: Array, axis: int) -> tuple[float, ...]:
    """The largest difference along an axis, in at most PLACES pieces."""
    line = np.nan_to_num(picture, nan=0.0, posinf=0.0).max(axis=axis)
    pieces = np.array_split(line, min(PLACES, line.size))
    return tuple(float(piece.max()) for piece in pieces)


def traces(
    runs: Sequence[Finished], results: Sequence[RunResult], others: Sequence[Finished] | None, against: str
) -> tuple[ValueTrace, ...]:
    """Each program of a script beside its like in another version, or beside its golden."""
    if others is not None:
        return tuple(beside_version(run, other, against) for run, other in zip(runs, others, strict=False))
    by_run = {id(result.run): result for result in results}
    return tuple(beside_golden(run, by_run.get(id(run))) for run in runs)
