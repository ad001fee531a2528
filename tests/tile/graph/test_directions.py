"""Directions at the call: the table of DeriveCallDirections, row by row (pypto docs, pass 37)."""

from __future__ import annotations

import pytest
from recordings import box, buffer, recording, task, turns, whole

from npuscope.tile.graph.task_graph import derive_directions
from npuscope.tile.record.model import Recording, Task

X = buffer(0, 64, origin="parameter", direction="In")
LOCAL = buffer(1, 64)
CACHE = buffer(2, 64, origin="parameter", direction="InOut")
ROWS = buffer(3, 4, 16)
RESULT = buffer(4, 64, origin="parameter", direction="Out")


def of(*tasks: Task) -> Recording:
    return recording([X, LOCAL, CACHE, ROWS, RESULT], list(tasks))


def derived(*tasks: Task) -> list[tuple[str, ...]]:
    return list(derive_directions(of(*tasks)))


def test_reading_is_input_and_reading_and_writing_is_inout() -> None:
    assert derived(task(0, whole(X), whole(LOCAL, "rw"))) == [("Input", "InOut")]


def test_a_region_that_reads_back_what_it_wrote_is_inout_too() -> None:
    assert derived(task(0, whole(LOCAL, "wr"))) == [("InOut",)]


def test_the_only_writer_is_output_existing() -> None:
    assert derived(task(0, whole(X), whole(LOCAL, "w"))) == [("Input", "OutputExisting")]


def test_the_documented_example_two_calls_of_one_kernel() -> None:
    # kernel(x, local) twice: [Input, OutputExisting] then [Input, InOut] by R-prior
    pair = [task(n, whole(X), whole(LOCAL, "w", declared="Out"), form="call") for n in range(2)]
    assert derived(*pair) == [("Input", "OutputExisting"), ("Input", "InOut")]


@pytest.mark.parametrize("kind", ["range", "while"])
def test_any_sequential_loop_around_makes_inout(kind: str) -> None:
    inside = turns((0, kind, 0), (1, "parallel", 0))
    assert derived(task(0, whole(LOCAL, "w"), turns=inside)) == [("InOut",)]


def test_turns_of_a_parallel_loop_are_no_prior_writers_of_one_another() -> None:
    writers = [task(n, whole(LOCAL, "w"), turns=turns((0, "parallel", n))) for n in range(3)]
    assert derived(*writers) == [("OutputExisting",)] * 3


def test_turns_of_an_unrolled_loop_are_statements_one_after_the_other() -> None:
    writers = [task(n, whole(LOCAL, "w"), turns=turns((0, "unroll", n))) for n in range(3)]
    assert derived(*writers) == [("OutputExisting",), ("InOut",), ("InOut",)]


def test_a_writer_before_a_parallel_loop_is_prior_in_every_turn() -> None:
    first = task(0, whole(LOCAL, "w"))
    inside = [task(1 + n, whole(LOCAL, "w"), turns=turns((0, "parallel", n))) for n in range(2)]
    assert derived(first, *inside) == [("OutputExisting",), ("InOut",), ("InOut",)]


def test_a_second_statement_in_a_parallel_turn_sees_the_first_of_its_turn() -> None:
    tasks = [task(n, whole(LOCAL, "w"), turns=turns((0, "parallel", n // 2))) for n in range(4)]
    assert derived(*tasks) == [("OutputExisting",), ("InOut",)] * 2


def test_a_loop_is_one_writer_for_what_comes_after_it() -> None:
    inside = [task(n, whole(LOCAL, "w"), turns=turns((0, "parallel", n))) for n in range(2)]
    other_loop = task(2, whole(LOCAL, "w"), turns=turns((1, "parallel", 0)))
    assert derived(*inside, other_loop)[-1] == ("InOut",)
    assert derived(*inside, task(2, whole(LOCAL, "w")))[-1] == ("InOut",)


def test_an_inner_loop_of_another_outer_turn_is_no_prior_writer() -> None:
    nested = [turns((0, "parallel", n), (1 + n, "parallel", 0)) for n in range(2)]
    assert derived(*(task(n, whole(LOCAL, "w"), turns=t) for n, t in enumerate(nested))) == [("OutputExisting",)] * 2


def test_a_parameter_declared_inout_makes_inout() -> None:
    assert derived(task(0, whole(CACHE, "w"))) == [("InOut",)]
    assert derived(task(0, whole(RESULT, "w"))) == [("OutputExisting",)]


def test_slices_are_roots_of_their_own() -> None:
    # a slice of the InOut parameter is not the parameter, two slices are two roots, the same slice again is prior
    assert derived(task(0, box(CACHE, [0], [32], "w"))) == [("OutputExisting",)]
    rows = [task(0, box(ROWS, [0, 0], [1, 16], "w")), task(1, box(ROWS, [1, 0], [1, 16], "w"))]
    assert derived(*rows, task(2, box(ROWS, [0, 0], [1, 16], "w"))) == [("OutputExisting",)] * 2 + [("InOut",)]


def test_no_dep_overrides_any_direction() -> None:
    assert derived(task(0, whole(LOCAL, "rw", no_dep=True), whole(X, no_dep=True))) == [("NoDep", "NoDep")]


def test_a_declared_out_stays_though_the_body_reads() -> None:
    # "declaring InOut as Out drops the RAW edge": the declaration is believed
    assert derived(task(0, whole(LOCAL, "rw", declared="Out"))) == [("OutputExisting",)]
    assert derived(task(0, whole(LOCAL, "w", declared="In"))) == [("OutputExisting",)]
