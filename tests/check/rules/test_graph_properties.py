"""Random small programs against what their elements say: loops that may be parallel, and tasks that may be one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from linted import found, program
from tiers import examples

import npuscope.tile as pl
from npuscope.check.gm_traffic import traffic_of
from npuscope.tile.record.summary import summarise

TILES, WIDE = 5, 128
places = st.integers(0, TILES - 1)


def in_turns(steps: list[tuple[int | None, int]]) -> Any:
    """A sequential loop; each turn reads a tile of x, or the named one of y, and writes one of y."""

    @pl.jit
    def made(
        x: pl.Tensor[[16, TILES * WIDE], pl.FP32],
        y: pl.Out[pl.Tensor[[16, TILES * WIDE], pl.FP32]],
    ):
        for t in pl.range(len(steps)):
            read, written = steps[t]
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
                if read is None:
                    y[:, written * WIDE : written * WIDE + WIDE] = pl.exp(x[:, 0:WIDE])
                else:
                    y[:, written * WIDE : written * WIDE + WIDE] = pl.exp(y[:, read * WIDE : read * WIDE + WIDE])
        return y

    return made


@examples(60, deadline=None)
@given(st.lists(st.tuples(st.none() | places, places), min_size=2, max_size=4))
def test_a_loop_is_found_exactly_if_no_two_turns_share_a_written_tile(steps: list[tuple[int | None, int]]) -> None:
    shared = any(
        written in (other, other_read) or other == read
        for n, (read, written) in enumerate(steps)
        for other_read, other in steps[n + 1 :]
    )
    sequential = "sequential-independent"
    # turns that write one tensor in a pl.range loop always wait for one another
    assert bool(found(sequential, in_turns(steps))) is not shared


def in_pairs(steps: list[tuple[int, int]]) -> Any:
    """Turns of two tasks: one writes a tile of a tensor, the other reads a tile of it."""

    @pl.jit
    def made(
        x: pl.Tensor[[16, TILES * WIDE], pl.FP32],
        y: pl.Out[pl.Tensor[[16, TILES * WIDE], pl.FP32]],
    ):
        between = pl.create_tensor([16, TILES * WIDE], dtype=pl.FP32)
        for t in pl.parallel(len(steps)):
            written, read = steps[t]
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="make"):
                between[:, written * WIDE : written * WIDE + WIDE] = pl.exp(x[:, 0:WIDE])
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="use"):
                y[:, t * WIDE : t * WIDE + WIDE] = pl.exp(between[:, read * WIDE : read * WIDE + WIDE])
        return y

    return made


@examples(60, deadline=None)
@given(st.lists(st.tuples(places, places) | places.map(lambda p: (p, p)), min_size=1, max_size=4))
def test_two_tasks_are_found_exactly_if_each_reads_what_its_own_turn_wrote(steps: list[tuple[int, int]]) -> None:
    own = all(written == read for written, read in steps)
    together = "gm-round-trip"
    findings = [f for f in found(together, in_pairs(steps)).values() if f.waste.tasks]
    assert bool(findings) is own


@examples(20, deadline=None)
@given(st.lists(st.tuples(st.none() | places, places), min_size=1, max_size=4))
def test_traffic_moves_what_the_run_moved(steps: list[tuple[int | None, int]]) -> None:
    made = program(in_turns(steps))
    work = summarise([made.recording])
    uses = [use for task in range(len(made.recording.tasks)) for use in traffic_of(made).uses(task)]
    assert sum(use.read for use in uses) == work.total("gm_read")
    assert sum(use.written for use in uses) == work.total("gm_written")
    assert sorted(task for tasks in traffic_of(made).by_turn for task in tasks) == list(range(work.total("tasks")))
