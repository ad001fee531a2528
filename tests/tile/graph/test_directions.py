"""Directions at the call: the table of DeriveCallDirections, row by row (pypto docs, pass 37)."""

from __future__ import annotations

import pytest
from recordings import box, buffer, recording, task, turns, whole

from npuscope.tile.graph.task_graph import derive_directions
from npuscope.tile.record.model import Task

X = buffer(0, 64, origin="parameter", direction="In")
LOCAL = buffer(1, 64)
CACHE = buffer(2, 64, origin="parameter", direction="InOut")
ROWS = buffer(3, 4, 16)
RESULT = buffer(4, 64, origin="parameter", direction="Out")


def written(*loops: tuple[tuple[int, str, int], ...]) -> list[Task]:
    """A task for each nest of loops that writes LOCAL whole."""
    return [task(n, whole(LOCAL, "w"), turns=turns(*nest)) for n, nest in enumerate(loops)]


P0, P1, P2 = ((0, "parallel", 0),), ((0, "parallel", 1),), ((0, "parallel", 2),)
NEW, SAME = ("OutputExisting",), ("InOut",)
CASES: dict[str, tuple[list[Task], list[tuple[str, ...]]]] = {
    "reading is Input, reading and writing InOut": ([task(0, whole(X), whole(LOCAL, "rw"))], [("Input", "InOut")]),
    "a region that reads back what it wrote": ([task(0, whole(LOCAL, "wr"))], [SAME]),
    "the only writer": ([task(0, whole(X), whole(LOCAL, "w"))], [("Input", "OutputExisting")]),
    # kernel(x, local) twice, the documented example: the second by R-prior
    "two calls of one kernel": (
        [task(n, whole(X), whole(LOCAL, "w", declared="Out"), form="call") for n in range(2)],
        [("Input", "OutputExisting"), ("Input", "InOut")],
    ),
    "a range around": (written(((0, "range", 0), (1, "parallel", 0))), [SAME]),
    "a while loop around": (written(((0, "while", 0), (1, "parallel", 0))), [SAME]),
    "parallel turns are no prior writers of one another": (written(P0, P1, P2), [NEW] * 3),
    "unrolled turns are statements": (written(*(((0, "unroll", n),) for n in range(3))), [NEW, SAME, SAME]),
    "a writer before a parallel loop is prior in every turn": (written((), P0, P1), [NEW, SAME, SAME]),
    "a second statement sees the first of its turn": (written(P0, P0, P1, P1), [NEW, SAME] * 2),
    "a loop is one writer for another loop": (written(P0, P1, ((1, "parallel", 0),)), [NEW, NEW, SAME]),
    "a loop is one writer for what comes after it": (written(P0, P1, ()), [NEW, NEW, SAME]),
    "an inner loop of another outer turn is no prior writer": (
        written((*P0, (1, "parallel", 0)), (*P1, (2, "parallel", 0))),
        [NEW] * 2,
    ),
    "a parameter declared InOut": ([task(0, whole(CACHE, "w"))], [SAME]),
    "a parameter declared Out": ([task(0, whole(RESULT, "w"))], [NEW]),
    "a slice of an InOut parameter is not the parameter": ([task(0, box(CACHE, [0], [32], "w"))], [NEW]),
    "two slices are two roots, the same slice again is prior": (
        [task(n, box(ROWS, [row, 0], [1, 16], "w")) for n, row in enumerate((0, 1, 0))],
        [NEW, NEW, SAME],
    ),
    "no_dep overrides": (
        [task(0, whole(LOCAL, "rw", no_dep=True), whole(X, no_dep=True))],
        [("NoDep", "NoDep")],
    ),
    # "declaring InOut as Out drops the RAW edge": the declaration is believed
    "a declared Out stays though the body reads": ([task(0, whole(LOCAL, "rw", declared="Out"))], [NEW]),
    "a declared In is lifted where the body writes": ([task(0, whole(LOCAL, "w", declared="In"))], [NEW]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_argument_has_the_direction_that_the_compiler_derives(case: str) -> None:
    tasks, expected = CASES[case]
    assert list(derive_directions(recording([X, LOCAL, CACHE, ROWS, RESULT], tasks))) == expected
