"""A changed program on top of a capture of the one before: how long it takes, and what of it rests on what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, MEAN_TIME, RATIO, TEXT
from npuscope.time.anchor.anchor import NEW, Anchor, Held, states
from npuscope.time.anchor.factors import anchored
from npuscope.time.anchor.names import paired
from npuscope.time.anchor.observed import COSTS, Observed, observed_of
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import Against, Estimate, against, time_after, time_estimate

GONE = "gone"
KERNELS = Columns(
    "simulate.anchor.kernels",
    "A kernel, of the capture, of the simulated program before the change and of the program itself; the one with most "
    "measured core time first. Times are means of a block; a mixed block takes as long as the longer of its parts.",
    (
        Column("kernel", TEXT, "its name"),
        Column("state", TEXT, "whether the change leaves its blocks as they were: unchanged, changed, new or gone"),
        Column("measured_blocks", COUNT, "blocks in a run of the capture", title="blocks"),
        Column("simulated_blocks", COUNT, "blocks before the change", title="simulated blocks", wide=True),
        Column("measured_ns", MEAN_TIME, "in the capture", title="measured"),
        Column("simulated_ns", MEAN_TIME, "simulated, before the change", title="simulated"),
        Column("ratio", RATIO, "measured over simulated", title="off by"),
        Column("factor", RATIO, "on its blocks' time, so that the simulation takes as long", wide=True),
        Column("anchored_ns", MEAN_TIME, "simulated again with the factors", title="anchored"),
        Column("new_blocks", COUNT, "blocks after the change"),
        Column("new_simulated_ns", MEAN_TIME, "after it, without the capture", title="new simulated", wide=True),
        Column("new_ns", MEAN_TIME, "after the change, on top of the capture", title="new"),
    ),
)  # fmt: skip
COST_TABLE = Columns(
    "simulate.anchor.costs",
    "A wait or a cost of the scheduler that a run tells.",
    (
        Column("cost", TEXT, "which"),
        Column("what", TEXT, "how it is told from a run"),
        Column("measured_ns", MEAN_TIME, "in the capture; none where it does not record that", title="measured"),
        Column("simulated_ns", MEAN_TIME, "simulated, before the change", title="simulated"),
        Column("factor", RATIO, "on the scheduler's constants behind it"),
        Column("anchored_ns", MEAN_TIME, "simulated again with the factors", title="anchored"),
    ),
)
WALLS = Columns(
    "simulate.anchor.walls",
    "The run before the change and the run after it: from the first hand-out to the last block seen done, or from the "
    "first start to the last end where the capture has no more.",
    (
        Column("run", TEXT, "before or after"),
        Column("measured_ns", MEAN_TIME, "the capture", title="measured"),
        Column("simulated_ns", MEAN_TIME, "without the capture", title="simulated"),
        Column("anchored_ns", MEAN_TIME, "with its factors", title="anchored"),
        Column("off", RATIO, "anchored over measured", title="anchored/measured"),
    ),
)


def kernel_table(anchor: Anchor) -> Table:
    """The capture against the simulation of its own program."""
    rows = [_row(one) for one in _ordered(anchor)]
    return Table(KERNELS, pl.DataFrame(rows, infer_schema_length=None))


def cost_table(anchor: Anchor) -> Table:
    rows = [
        {
            "cost": one.cost,
            "what": COSTS[one.cost],
            "measured_ns": one.measured,
            "simulated_ns": one.simulated,
            "factor": one.factor,
            "anchored_ns": one.anchored,
        }
        for one in anchor.costs
    ]
    schema = {"cost": pl.String, "what": pl.String, **dict.fromkeys(COST_TABLE.keys[2:], pl.Float64)}
    return Table(COST_TABLE, pl.DataFrame(rows, schema=schema))


def wall_table(anchor: Anchor, after: tuple[float, float] | None = None) -> Table:
    """`after`: the wall of the changed program, simulated and anchored."""
    measured = anchor.measured_ns
    off = None if measured is None else anchor.anchored_ns / measured
    rows: list[tuple[str, float | None, float, float, float | None]] = [
        ("before", measured, anchor.simulated_ns, anchor.anchored_ns, off)
    ]
    if after is not None:
        rows.append(("after", None, *after, None))
    schema = {"run": pl.String, **dict.fromkeys(WALLS.keys[1:], pl.Float64)}
    return Table(WALLS, pl.DataFrame(rows, schema=schema, orient="row"))


def _ordered(anchor: Anchor) -> list[Held]:
    return sorted(anchor.kernels, key=lambda one: -_core_time(one))


def _core_time(one: Held) -> float:
    found = one.measured or one.simulated
    return found.core_ns if found else 0.0


def _row(one: Held) -> dict[str, object]:
    return {
        "kernel": one.kernel,
        "measured_blocks": one.measured and one.measured.blocks,
        "simulated_blocks": one.simulated and one.simulated.blocks,
        "measured_ns": one.measured and one.measured.ns,
        "simulated_ns": one.simulated and one.simulated.ns,
        "ratio": one.ratio,
        "factor": one.factor,
        "anchored_ns": one.anchored and one.anchored.ns,
    }


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Tabular):
    """A program simulated by itself (`plain`) and with the factors of a capture (`run`)."""

    anchor: Anchor
    plain: Simulated
    run: Simulated

    @cached_property
    def change(self) -> Against:
        """The run against the one before the change, both anchored."""
        old, new = self.anchor.old, self.run
        return against(self.anchor.anchored_ns, self.anchor.wall_of(new), old.bound.kind, new.bound.kind)

    @property
    def wall(self) -> Estimate:
        """The wall of the program, as sure as a change is."""
        return time_after(self.run.wall_ns, self.change)

    @property
    def expected(self) -> Estimate | None:
        """What the measured wall becomes."""
        measured = self.anchor.measured_ns
        return None if measured is None else time_after(measured * self.change.ratio.value, self.change)

    @cached_property
    def states(self) -> dict[str, str]:
        return states(self.anchor.prepared, self.plain.prepared)

    @property
    def unmeasured(self) -> list[str]:
        """Kernels of the program that the capture says nothing of."""
        known = self.anchor.factors.of(self._after[1].kernels)
        return [kernel for kernel, factor in known.items() if factor is None]

    @cached_property
    def _after(self) -> tuple[Observed, Observed]:
        return observed_of(self.plain), observed_of(self.run)

    def spread(self) -> dict[str, tuple[float, float]]:
        """Of each kernel where 80% of measured means lie, as multiples of the mean that is said here.

        A measured kernel is as sure as its change is small; one that nobody measured as sure as any prediction.
        """
        found: dict[str, tuple[float, float]] = {}
        bounds = self.anchor.old.bound.kind, self.run.bound.kind
        known = {one.kernel: one.measured for one in self.anchor.kernels if one.measured is not None}
        for pair in paired(self._after[1].kernels, known):
            now = self._after[1].kernel(pair.simulated)
            there = known[pair.measured[0]] if pair.measured else None
            if now is None:
                continue
            if there is None or not (there.ns > 0 and now.ns > 0):
                likely = time_estimate(1.0, "kernel", bounds[1])
            else:
                likely = time_after(1.0, against(there.ns, now.ns, *bounds, quantity="kernel"))
            found |= dict.fromkeys(pair.simulated, (likely.low, likely.high))
        return found

    def tables(self) -> dict[str, Table]:
        after = self.anchor.wall_of(self.plain), self.anchor.wall_of(self.run)
        return {
            "kernels": Table(KERNELS, pl.DataFrame(self._rows(), infer_schema_length=None)),
            "costs": cost_table(self.anchor),
            "walls": wall_table(self.anchor, after),
        }

    def _rows(self) -> list[dict[str, object]]:
        plain, run = self._after
        held = {one.kernel: one for one in _ordered(self.anchor)}
        rows = []
        for pair in paired(run.kernels, held):
            now, alone = run.kernel(pair.simulated), plain.kernel(pair.simulated)
            known = {self.states[name] for name in pair.simulated}
            state = GONE if now is None else next(iter(known)) if len(known) == 1 else "changed"
            after = {
                "state": state,
                "new_blocks": now and now.blocks,
                "new_simulated_ns": alone and alone.ns,
                "new_ns": now and now.ns,
            }
            before = [held[name] for name in pair.measured]
            rows += [{**_row(one), **after} for one in before]
            if not before:
                unknown = Held(pair.name, None, None, factor=self.anchor.factors.typical)
                rows.append({**_row(unknown), **after, "state": NEW})
        order = {name: n for n, name in enumerate(held)}
        return sorted(rows, key=lambda row: order.get(str(row["kernel"]), len(order)))


def predict(anchor: Anchor, plain: Simulated) -> Prediction:
    """A changed program on top of the capture of the one before."""
    return Prediction(anchor, plain, anchored(plain.prepared, anchor.factors))
