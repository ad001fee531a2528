"""A robust fit of constants: least absolute errors of logarithms, by steps on the model as it is near a point.

At a point every prediction is taken as linear in the logarithms of the constants (one trial per constant gives the
slopes). SciPy's bounded, robust least squares gives a step of at most `REACH`; it is taken as far as the true loss
falls. The same slopes tell the constants that a fit without some of the evidence would have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

import numpy as np
import numpy.typing as npt
from published_changes.rows import Measured, NoScope, Row, Side, quantity
from scipy.optimize import least_squares
from validation import blocks
from validation.measured import Kernel
from validation.public import Value

Floats = npt.NDArray[np.float64]
Point = dict[str, float]  # constant -> value
Trial = Callable[[Point], "list[tuple[Evidence, float]]"]
STEP = log(1.15)  # by which a constant is moved to see what it does
REACH = 0.35  # the most that a logarithm may move in a step
LARGEST = 0.7  # a miss above counts as this one: nobody learns from what the model does not have
CLOSE = 0.02  # a miss below counts by its square
PRIOR = 0.02  # what it costs to move a constant, so that those that matter nowhere stay


@dataclass(frozen=True)
class Near:
    """The model near a point: predictions and their slopes."""

    point: Point
    evidence: tuple[Evidence, ...]
    predicted: Floats
    slopes: Floats  # [evidence, constant]


def loss_of(trial: Sequence[tuple[Evidence, float]]) -> float:
    """The mean miss, by weight."""
    misses = [(one.weight, min(abs(predicted - one.measured), LARGEST)) for one, predicted in trial]
    return sum(weight * miss for weight, miss in misses) / sum(weight for weight, _ in misses)


def look(trial: Trial, point: Point) -> Near:
    base = trial(point)
    evidence = tuple(one for one, _ in base)
    predicted = np.array([value for _, value in base])
    columns = []
    for name in point:
        moved = dict(trial({**point, name: point[name] * exp(STEP)}))
        columns.append([(moved.get(one, value) - value) / STEP for one, value in base])
    return Near(point, evidence, predicted, np.array(columns).T)


def step(near: Near, bounds: dict[str, tuple[float, float]], without: str = "") -> Floats:
    """How far each logarithm should move; `without`: the group that is left out."""
    measured = np.array([one.measured for one in near.evidence])
    weight = np.array([one.weight * (one.group != without) for one in near.evidence])
    weight[np.abs(near.predicted - measured) > LARGEST + REACH] = 0.0
    ends = [(log(bounds[name][0] / value), log(bounds[name][1] / value)) for name, value in near.point.items()]
    prior = np.sqrt(PRIOR * np.sum(weight)) * np.eye(len(near.point))
    slopes = np.concatenate([weight[:, None] * near.slopes, prior])
    off = np.concatenate([weight * (near.predicted - measured), np.zeros(len(near.point))])
    least = CLOSE * np.mean(weight)

    def sizes(squares: Floats) -> Floats:
        """Of the evidence the size of a miss counts, of the constants the square; with two derivatives."""
        found = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        misses = squares[: len(weight)]
        size = np.sqrt(np.maximum(misses, least**2))
        found[:, : len(weight)] = misses / size + size - least, 1 / size, np.where(size > least, -0.5 / size**3, 0.0)
        return found

    moved: Floats = least_squares(
        lambda x: off + slopes @ x,
        np.zeros(len(near.point)),
        lambda x: slopes,
        np.clip(ends, -REACH, REACH).T,
        loss=sizes,
    ).x
    return moved


def moved_point(near: Near, moved: Floats, share: float = 1.0) -> Point:
    return {
        name: float(f"{value * exp(share * by):.3g}")
        for (name, value), by in zip(near.point.items(), moved, strict=True)
    }


WALLS = ("wall", "corespan")  # a whole run, of which much is not what a constant of a core decides
BLOCKS = {"qwen3_14b": 1.4, "qwen3_32b": 0.8}  # weights; of the second neither seed nor lengths are published


@dataclass(frozen=True)
class Evidence:
    """One number. `group` is what is left out together; `measured` is its natural logarithm."""

    name: str
    kind: str  # change, side, block or public
    group: str
    weight: float
    measured: float


Told = tuple[Evidence, float]  # and the logarithm of what is predicted


def of_changes(rows: Sequence[Row], runs: Mapping[Side, Measured]) -> Iterator[Told]:
    """Every row's ratio and, of less weight, its two times."""
    rows_of = Counter(row.commit for row in rows)
    for row in rows:
        if any(side not in runs for side in row.sides.values()):
            continue
        try:
            before, after = (
                quantity(row, "before", runs[row.sides["before"]]),
                quantity(row, "after", runs[row.sides["after"]]),
            )
        except NoScope:
            continue
        weight = rows_of[row.commit] ** -0.5
        yield Evidence(row.id, "change", row.commit, 2 * weight, row.change), log(after / before)
        if row.nanoseconds is not None:
            weight *= 0.25 if row.quantity in WALLS else 0.5
            yield _side(row, "before", weight, row.before * row.nanoseconds), log(before)
            yield _side(row, "after", weight, row.after * row.nanoseconds), log(after)


def _side(row: Row, which: str, weight: float, measured: float) -> Evidence:
    return Evidence(f"{row.id} {which}", "side", row.commit, weight, log(measured))


def of_blocks(tables: Mapping[str, Sequence[Kernel]], runs: Mapping[Side, Measured]) -> Iterator[Told]:
    for program in blocks.PROGRAMS:
        if program.side not in runs:
            continue
        found = blocks.compared(tables[program.key], blocks.simulated(runs[program.side]), program.other)
        for kernel, one in found.pairs:
            name = f"{program.title}: {kernel.name}"
            yield Evidence(name, "block", program.key, BLOCKS[program.key], log(kernel.mean)), log(one.mean)


def of_public(measured: Mapping[str, float], predicted: Mapping[str, Value]) -> Iterator[Told]:
    for key, value in predicted.items():
        one = value[1] / value[0] if isinstance(value, tuple) else value
        yield Evidence(key, "public", "public", 1.0, log(measured[key])), log(one)


NOTHING = 1e-13  # of a time in seconds: none at all, but with a logarithm


@dataclass(frozen=True)
class Mechanism:
    """`free`: constant -> the least and the most its sources leave open. `off`: values that switch it off."""

    name: str
    free: dict[str, tuple[float, float]] = field(default_factory=dict)
    off: dict[str, float] = field(default_factory=dict)


MECHANISMS = (
    Mechanism(
        "latency of a transfer apart from its time on the pipe",
        {"timing.load_latency": (1e-8, 5e-7), "timing.store_latency": (1e-8, 5e-7)},
        {"timing.load_latency": NOTHING, "timing.store_latency": NOTHING},
    ),
    Mechanism(
        "fixed time of a transfer on its pipe",
        {"timing.load_fixed": (2e-8, 1.6e-7), "timing.store_fixed": (2e-8, 2e-7)},
        {"timing.load_fixed": NOTHING, "timing.store_fixed": NOTHING},
    ),
    Mechanism(
        "L2 and HBM apart, cube and vector apart",
        {
            "timing.load_cube_l2": (1.45e11, 2.65e11),
            "timing.load_cube_hbm": (8e10, 1.6e11),
            "timing.load_vector_l2": (6e10, 1.4e11),
            "timing.load_vector_hbm": (4e10, 1.1e11),
            "timing.hbm_rate": (1.1e12, 1.5e12),
        },
        {"timing.load_cube_hbm": 2.2e11, "timing.load_vector_hbm": 1.37e11, "timing.load_vector_l2": 1.37e11},
    ),
    Mechanism("L2 gets slower where HBM is short", {"timing.l2_crowding": (0.2, 4.0)}, {"timing.l2_crowding": NOTHING}),
    Mechanism(
        "short rows",
        {
            "timing.load_cube_row_l2": (5e-10, 5e-9),
            "timing.load_cube_row_hbm": (1e-9, 1e-8),
            "timing.load_vector_row_l2": (1e-10, 8e-9),
            "timing.load_vector_row_hbm": (1e-10, 1e-8),
            "timing.store_row": (1e-10, 8e-9),
        },
        {
            "timing.load_cube_row_l2": NOTHING,
            "timing.load_cube_row_hbm": NOTHING,
            "timing.load_vector_row_l2": NOTHING,
            "timing.load_vector_row_hbm": NOTHING,
            "timing.store_row": NOTHING,
        },
    ),
    Mechanism(
        "rows that clash",
        {"timing.clash_whole": (1.0, 2.0), "timing.load_clash": (1e-10, 1.2e-8)},
        {"timing.clash_whole": 1.0, "timing.load_clash": NOTHING},
    ),
    Mechanism(
        "rows of activations that all cores read at once",
        {"timing.load_shared": (2e-9, 3e-8)},
        {"timing.load_shared": NOTHING},
    ),
    Mechanism("loads of a pipelined loop in groups", {}, {"timing.load_groups": 0.0}),
    Mechanism("order of stores to one tensor", {}, {"timing.store_order": 0.0}),
    Mechanism("gather and scatter by row", {"op.vgather.row": (40.0, 400.0)}, {"op.vgather.row": 0.0}),
    Mechanism("sorting", {"op.vmrgsort4.slope": (10.0, 90.0)}, {"op.vmrgsort4.slope": 78.0}),
    Mechanism(
        "hand-over between cube and vector as latency",
        {"timing.hand_over_to_vector": (3e-7, 4e-6), "timing.hand_over_to_cube": (3e-7, 4e-6)},
        {"timing.hand_over_to_vector": NOTHING, "timing.hand_over_to_cube": NOTHING},
    ),
    Mechanism("entering a block", {"timing.block_start": (2e-7, 1.6e-6)}, {"timing.block_start": 1e-8}),
    Mechanism(
        "the scalar unit",
        {
            "timing.scalar_step": (8.0, 60.0),
            "timing.scalar_turn": (8.0, 120.0),
            "timing.scalar_read": (4e-8, 1e-6),
        },
        {"timing.scalar_step": NOTHING, "timing.scalar_turn": NOTHING, "timing.scalar_read": NOTHING},
    ),
    Mechanism("fills by the orchestrator", {"timing.fill_rate": (5e8, 2e10)}, {"timing.fill_rate": 1e15}),
)


def bounds() -> dict[str, tuple[float, float]]:
    return {name: limits for one in MECHANISMS for name, limits in one.free.items()}
