"""The parts of the model that a fit may move, what their constants may be, and what the model is without each."""

from __future__ import annotations

from dataclasses import dataclass, field

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
            "timing.store_rate": (9e10, 1.9e11),
            "timing.hbm_rate": (1.1e12, 1.5e12),
        },
        {"timing.load_cube_hbm": 2.2e11, "timing.load_vector_hbm": 1.37e11, "timing.load_vector_l2": 1.37e11},
    ),
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
        {"timing.clash_whole": (1.0, 2.0), "timing.load_clash": (1e-9, 1.2e-8)},
        {"timing.clash_whole": 1.0, "timing.load_clash": NOTHING},
    ),
    Mechanism("loads of a pipelined loop in groups", {}, {"timing.load_groups": 0.0}),
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
