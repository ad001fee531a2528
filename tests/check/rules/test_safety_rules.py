"""Rules about what a program may do to memory and to the runtime: each planted, each with a twin that is clean."""

from __future__ import annotations

from typing import Any

import msgspec
from linted import found, line_of, only, program

import npuscope.tile as pl
from npuscope.chip.devices import Constant, Device, load
from npuscope.lower.program import Program
from npuscope.tile.record.recorder import asked_for

CORE = pl.Level.CORE_GROUP
T: Any = pl.Tensor[[32, 64], pl.FP32]


# --- reads of memory that nobody wrote


@pl.jit
def unwritten(x: T, y: pl.Out[T]):
    mid = pl.create_tensor([32, 64], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="half"):
        mid[0:16, :] = x[0:16, :]
    with pl.at(level=CORE, name_hint="use"):
        y[0:16, :] = mid[0:16, :]
        y[16:32, :] = mid[16:32, :]  # nothing of it
        y[8:24, :] = mid[8:24, :]  # some of it
    return y


def test_a_read_of_what_nobody_wrote_is_a_warning_and_of_some_of_it_a_hint() -> None:
    findings = found("uninitialised-read", unwritten)
    nothing, some = line_of(__file__, "# nothing of it"), line_of(__file__, "# some of it")
    assert {line: f.severity for line, f in findings.items()} == {nothing: "warning", some: "hint"}
    assert "use reads mid[16:32, 0:64], and nothing has written it before" in findings[nothing].message
    assert findings[nothing].remedy == "Write mid first, or give its create_tensor an init_value."


@pl.jit
def output_read(x: T, y: pl.Out[T]):
    with pl.at(level=CORE, name_hint="use"):
        y[:, :] = pl.add(x[:, :], y[:, :])
    return y


@pl.jit
def output_read_by_another(x: T, y: pl.Out[T], z: pl.Out[T]):
    with pl.at(level=CORE, name_hint="early"):
        z[:, :] = y[:, :]  # an output, read
    with pl.at(level=CORE, name_hint="late"):
        y[:, :] = x[:, :]
    return y


def test_an_output_of_the_entry_starts_with_nothing() -> None:
    finding = only("uninitialised-read", output_read_by_another, "# an output, read")
    assert "Declare y pl.InOut" in finding.remedy
    assert not found("uninitialised-read", output_read)  # who writes it may have done so before


@pl.jit
def never_written(x: T, y: pl.Out[T]):
    mid = pl.create_tensor([32, 64], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="use"):
        y[:, :] = pl.add(x[:, :], mid[:, :])  # of nothing at all
    return y


@pl.jit
def filled(x: T, y: pl.Out[T]):
    mid = pl.create_tensor([32, 64], dtype=pl.FP32, init_value=0.0)
    with pl.at(level=CORE, name_hint="use"):
        y[:, :] = pl.add(x[:, :], mid[:, :])
    return y


@pl.jit
def written_part(x: T, y: pl.Out[T]):
    whole = pl.create_tensor([32, 64], dtype=pl.FP32)
    part = pl.create_tensor([32, 64], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="make"):
        part[:, :] = x[:, :]
    whole = pl.assemble(whole, part, [0, 0])
    with pl.at(level=CORE, name_hint="use"):
        y[:, :] = whole[:, :]
    return y


def test_a_tensor_that_is_filled_or_assembled_is_written() -> None:
    assert list(found("uninitialised-read", never_written)) == [line_of(__file__, "# of nothing at all")]
    assert not found("uninitialised-read", filled)
    assert not found("uninitialised-read", written_part)


# --- two cores on one line


def counting(step: int, alone: bool = False) -> Any:
    @pl.jit
    def counts(x: T, table: pl.Out[pl.Tensor[[1, 1024], pl.INT32]]):
        with pl.spmd(4, name_hint="count"):
            block = pl.get_block_idx()
            if not alone or block == 0:
                pl.write(table, [0, block * step], block)  # four blocks
        return table

    return counts


def test_blocks_that_write_neighbours_one_by_one_share_a_line() -> None:
    # 910B: a line of a core's cache has 64 bytes, 16 numbers of 4 bytes
    finding = only("shared-line", counting(1), "# four blocks")
    assert "blocks 0 and 1 of count write elements of one 64-byte line of table" in finding.message
    assert finding.remedy.startswith("Keep them 16 elements apart")
    assert found("shared-line", counting(15))
    assert not found("shared-line", counting(16))
    assert not found("shared-line", counting(1, alone=True))


def two_tasks(ordered: bool) -> Any:
    @pl.jit
    def tasks(x: T, table: pl.Out[pl.Tensor[[1, 1024], pl.INT32]]):
        with pl.manual_scope():
            with pl.at(level=CORE, name_hint="one") as one_tid:
                pl.write(table, [0, 0], 1)
            with pl.at(level=CORE, name_hint="two", deps=[one_tid] if ordered else []):
                pl.write(table, [0, 1], 2)
        return table

    return tasks


def test_tasks_share_a_line_unless_one_waits_for_the_other() -> None:
    finding = only("shared-line", two_tasks(False))
    assert "one and two, which nothing orders, write elements of one 64-byte line" in finding.message
    assert not found("shared-line", two_tasks(True))


# --- rings


def small_runtime(**limits: float) -> Device:
    """The chip with tighter limits of the runtime."""
    device = load("ascend910b1")
    made = {name: Constant(value, "", "test", "guessed") for name, value in limits.items()}
    return msgspec.structs.replace(device, runtime={**device.runtime, **made})


def tasks_in_a_loop(per_turn: int, turns: int) -> Any:
    @pl.jit
    def loops(x: T, y: pl.Out[T]):
        for turn in pl.parallel(turns):
            for _ in pl.unroll(per_turn):
                with pl.at(level=CORE, name_hint="work"):  # a slot
                    y[turn : turn + 1, :] = x[turn : turn + 1, :]
        return y

    return loops


def ring_findings(entry: Any, **limits: float) -> dict[int, Any]:
    return found("ring-deadlock", Program(program(entry).recording, small_runtime(**limits)))


def test_a_scope_must_submit_fewer_tasks_than_its_ring_has_slots() -> None:
    # a turn of the loop is a scope of 8 tasks, however many turns there are
    assert not ring_findings(tasks_in_a_loop(8, 4), task_window=9)
    (finding,) = ring_findings(tasks_in_a_loop(8, 4), task_window=8).values()
    assert finding.severity == "error"
    assert finding.line == line_of(__file__, "# a slot")
    assert "8 tasks are submitted in one scope, 8 is one too many" in finding.message
    # unrolled, all of them are in the function's own scope
    assert not ring_findings(tasks_in_a_loop(8, 1), task_window=9)
    assert ring_findings(tasks_in_a_loop(32, 1), task_window=16)


def test_a_manual_scope_holds_what_loops_inside_it_submit() -> None:
    @pl.jit
    def manual(x: T, y: pl.Out[T]):
        with pl.manual_scope():
            for turn in pl.parallel(8):
                with pl.at(level=CORE, name_hint="work"):
                    y[turn : turn + 1, :] = x[turn : turn + 1, :]
        return y

    assert ring_findings(manual, task_window=8)
    assert not ring_findings(manual, task_window=9)


def test_scopes_placed_by_hand_are_the_only_ones_without_auto_scope() -> None:
    def by_hand(nested: bool) -> Any:
        @pl.jit(auto_scope=False)
        def entry(x: T, y: pl.Out[T]):
            for turn in pl.parallel(8):
                if nested:
                    with pl.scope(), pl.at(level=CORE, name_hint="work"):
                        y[turn : turn + 1, :] = x[turn : turn + 1, :]
                else:
                    with pl.at(level=CORE, name_hint="work"):
                        y[turn : turn + 1, :] = x[turn : turn + 1, :]
            return y

        return entry

    assert ring_findings(by_hand(False), task_window=8)
    assert not ring_findings(by_hand(True), task_window=8)
    # what is in none of them is in the runtime's own scope, which has ring 0
    with asked_for({"ring_task_window": [8, 0, 0, 0]}):
        assert ring_findings(by_hand(False))
    with asked_for({"ring_task_window": [0, 8, 0, 0]}):
        assert not ring_findings(by_hand(False))


def test_tensors_of_a_scope_must_fit_its_heap() -> None:
    def heap(inside: bool) -> Any:
        @pl.jit
        def entry(x: T, y: pl.Out[T]):
            made = [] if inside else [pl.create_tensor([32, 64], dtype=pl.FP32) for _ in range(4)]
            for turn in pl.range(4):
                mid = pl.create_tensor([32, 64], dtype=pl.FP32) if inside else made[turn]
                with pl.at(level=CORE, name_hint="work"):
                    mid[:, :] = x[:, :]
                    y[:, :] = mid[:, :]
            return y

        return entry

    # four tensors of 8,192 bytes in the function's scope, or one in each turn's
    (finding,) = ring_findings(heap(False), heap=32767).values()
    assert "32,768 bytes of tensors are made in one scope, its ring has 32,767" in finding.message
    assert "ring_heap" in finding.remedy
    assert not ring_findings(heap(False), heap=32768)
    assert not ring_findings(heap(True), heap=8192)


def test_dependencies_and_entries_are_counted_per_scope() -> None:
    @pl.jit
    def chain(x: T, y: pl.Out[T]):
        for _ in pl.unroll(8):
            with pl.at(level=CORE, name_hint="work"):
                y[:, :] = pl.add(x[:, :], y[:, :])
        return y

    # each of eight waits for the one before, and y is remembered once per task
    assert ring_findings(chain, dep_pool=6)
    assert not ring_findings(chain, dep_pool=7)
    assert ring_findings(chain, tensormap=7)
    assert not ring_findings(chain, tensormap=8)


def test_scopes_may_not_nest_without_end() -> None:
    @pl.jit
    def nested(x: T, y: pl.Out[T]):
        for a in pl.parallel(2):
            for b in pl.parallel(2):
                with pl.at(level=CORE, name_hint="work"):
                    y[2 * a + b : 2 * a + b + 1, :] = x[0:1, :]
        return y

    (finding,) = ring_findings(nested, scope_depth=2).values()  # the function and two loops
    assert "3 scopes are open at once, the runtime allows 2" in finding.message
    assert not ring_findings(nested, scope_depth=3)


def test_deep_scopes_share_the_last_ring() -> None:
    @pl.jit
    def deep(x: T, y: pl.Out[T]):
        for _ in pl.parallel(1):
            with pl.at(level=CORE, name_hint="outer"):
                y[0:1, :] = x[0:1, :]
            for b in pl.parallel(4):
                with pl.at(level=CORE, name_hint="inner"):
                    y[b + 1 : b + 2, :] = x[0:1, :]
        return y

    # ring 0 is the runtime's own, the function has ring 1, a turn of the outer loop ring 2: where that is the last,
    # the inner turns are on it too, and the turn around them holds them back
    assert not ring_findings(deep, task_window=3, rings=4)
    assert ring_findings(deep, task_window=5, rings=3)
    assert not ring_findings(deep, task_window=6, rings=3)


# --- waiting for nothing


def halves(sliced: bool) -> Any:
    @pl.jit
    def entry(x: T, y: pl.Out[T]):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        for i in pl.parallel(4):
            part = pl.slice(mid, [8, 64], [i * 8, 0])
            with pl.at(level=CORE, name_hint="make"):
                if sliced:
                    part[:, :] = x[i * 8 : i * 8 + 8, :]
                else:
                    mid[i * 8 : i * 8 + 8, :] = x[i * 8 : i * 8 + 8, :]
        for i in pl.parallel(4):
            part = pl.slice(mid, [8, 64], [i * 8, 0])
            with pl.at(level=CORE, name_hint="use"):  # waits
                y[i * 8 : i * 8 + 8, :] = part[:, :] if sliced else mid[i * 8 : i * 8 + 8, :]
        return y

    return entry


def test_tasks_given_a_whole_tensor_wait_for_all_who_wrote_some_of_it() -> None:
    finding = only("false-serialisation", halves(False), "# waits")
    # 4 x 4 edges, of which each task of `use` needs one
    assert "12 of 16 edges from make to 4 tasks of use join tasks that touch different elements" in finding.message
    assert finding.waste.waits == 4
    assert "Slice mid in the orchestration" in finding.remedy
    assert not found("false-serialisation", halves(True))


def test_an_edge_that_another_way_needs_too_costs_nothing() -> None:
    @pl.jit
    def chain(x: T, y: pl.Out[T]):
        mid = pl.create_tensor([32, 64], dtype=pl.FP32)
        with pl.at(level=CORE, name_hint="first"):
            mid[0:16, :] = x[0:16, :]
        with pl.at(level=CORE, name_hint="second"):
            mid[16:32, :] = mid[0:16, :]
        with pl.at(level=CORE, name_hint="third"):
            y[0:16, :] = mid[16:32, :]  # given mid whole, but it waits for `second` anyway
        return y

    assert not found("false-serialisation", chain)
