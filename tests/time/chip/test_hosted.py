"""One program under both runtimes: who builds the graph, who schedules, what the host pays."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import msgspec
import numpy as np
import pytest

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.check.rules.safety import ring_deadlock
from npuscope.chip.devices import Constant, load
from npuscope.chip.runtimes import runtime_named, with_runtime
from npuscope.lower.program import Program
from npuscope.time.change_job import pairs_of
from npuscope.time.chip.engine import run_chip
from npuscope.time.chip.host_graph import host_cost, mode_of, with_graphs
from npuscope.time.chip.job import BEGIN, COMPLETED, LEAVES, NONE, PLAIN, POLLED, PREPARED, RELEASED, RETIRED
from npuscope.time.chip.prepare import prepare
from tests.time.jobs import chain, fork_and_join, graph, hosted, machine

LAYERS = """
    import numpy as np
    import pypto.language as pl
    from pypto.pypto_core import passes

    @pl.jit.incore
    def scale(x: pl.Tensor[[64, 128], pl.FP32], y: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
        y = pl.store(pl.mul(pl.load(x, [0, 0], [64, 128]), 2.0), [0, 0], y)
        return y

    @pl.jit.graph
    def layer(x: pl.Tensor[[64, 128], pl.FP32], y: pl.InOut[pl.Tensor[[64, 128], pl.FP32]]):
        a = pl.create_tensor([64, 128], dtype=pl.FP32)
        a = scale(x, a)
        y = scale(a, y)
        return y

    @pl.jit
    def layers(x: pl.Tensor[[64, 128], pl.FP32], y: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
        a = pl.create_tensor([64, 128], dtype=pl.FP32)
        b = pl.create_tensor([64, 128], dtype=pl.FP32)
        a = layer(x, a)
        b = layer(a, b)
        y = scale(b, y)
        return y

    with passes.PassContext([], runtime=passes.RuntimeKind.{kind}):
        layers(np.ones((64, 128), np.float32), np.zeros((64, 128), np.float32))
"""


def predicted(tmp_path: Path, source: str = LAYERS, kind: str = "HOST_BUILD_GRAPH", **asked: str) -> Prediction:
    file = tmp_path / "layers.py"
    file.write_text(dedent(source).replace("{kind}", kind))
    return Prediction(Request(str(file), **asked))  # type: ignore[arg-type]


def limited(tmp_path: Path, name: str, value: int) -> Program:
    """The program on a chip with another limit of the runtime."""
    program = predicted(tmp_path).program
    runtime = {**program.device.runtime, name: Constant(value, "n", "a test", "guessed")}
    return Program(program.recording, msgspec.structs.replace(program.device, runtime=runtime))


def test_a_script_gets_the_runtime_that_it_asks_for_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    asked, told = predicted(tmp_path), predicted(tmp_path, runtime="tmr")
    assert (asked.program.device.scheduled_by, told.program.device.scheduled_by) == ("hbg", "tmr")
    assert asked.simulated.prepared.machine.resolver == 1
    other = predicted(tmp_path, kind="TENSORMAP_AND_RINGBUFFER")
    assert other.program.device.scheduled_by == "tmr"
    assert np.all(other.simulated.prepared.job.submit > 0)


def test_a_simulated_run_has_the_lanes_and_phases_of_such_a_capture(tmp_path: Path) -> None:
    trace = predicted(tmp_path).simulated.trace
    assert trace.meta.notes["runtime"] == "host_build_graph"
    roles = trace.lanes["role"].drop_nulls().to_list()
    assert roles == ["scheduler 0", "scheduler 1", "scheduler 2", "resolver"]
    marked = trace.slices.filter(trace.slices["kind"] == "schedule")
    of = {role: set(marked.filter(marked["lane"] == n)["marker"]) - {"Scheduling"} for n, role in enumerate(roles)}
    assert of.pop("resolver") == {"resolve_standalone", "dummy"}  # the ends of recorded graphs do nothing
    assert set.union(*of.values()) == {"complete", "dispatch", "graph_prepare"}
    assert set(marked["phase"]) == {"schedule", "complete", "dispatch", "prepare_graph", "resolve", "dummy"}
    assert trace.edges.height == 4  # as the program has them: what stands for recorded graphs is not in it


def test_a_recorded_graph_waits_as_a_whole_and_is_waited_for_as_a_whole() -> None:
    """0 -> 1, 0 -> 2 -> 3, 1 -> 4 with 1 to 3 recorded: 5 lets 1 and 2 go, 6 stands for all three."""
    made = with_graphs(graph([1000.0] * 5, [(0, 1), (0, 2), (2, 3), (1, 4)]), [[1, 2, 3]])
    assert pairs_of(made) == [(0, 5), (1, 6), (2, 3), (2, 6), (3, 6), (5, 1), (5, 2), (6, 4)]
    assert made.graph.tolist() == [PLAIN, 0, 0, 0, PLAIN, PLAIN, LEAVES]
    assert made.shape.tolist()[5:] == [NONE, NONE]
    times, end = run_chip(made, hosted(machine()))
    assert end > 0
    assert times.start[4] > np.max(times.end[1:4])


def test_nobody_begins_before_all_tasks_are_looked_at() -> None:
    chip, made = hosted(machine()), chain(8, 5000.0)
    times, _ = run_chip(made._replace(submit=made.submit * 0), chip)
    begin = chip.attach + 2 * chip.scan  # eight tasks, four threads
    assert times.ready[0] == begin
    assert times.dispatch[0] > begin


def test_what_the_resolver_does_is_paid_between_a_task_and_its_waiters() -> None:
    """Four threads look at eight tasks, two each: 2, 4, 6, then 1, 3, 5 come to 0, and leave last first."""
    chip, made = hosted(machine(clusters=8)), fork_and_join(6, 5000.0)
    times, _ = run_chip(made._replace(submit=made.submit * 0), chip)
    steps = np.diff(np.sort(times.ready[1:7]))
    assert steps.tolist() == pytest.approx([chip.resolve] * 5)
    assert np.argsort(times.ready[1:7]).tolist() == [4, 2, 0, 5, 3, 1]  # tasks 5, 3, 1, 6, 4, 2
    slower = run_chip(made, chip._replace(settle=chip.settle + 1000))[1]
    assert slower > run_chip(made, chip)[1] + 1000


def test_the_host_cannot_read_what_a_task_writes(tmp_path: Path) -> None:
    source = """
    import numpy as np
    import npuscope.tile as pl

    @pl.jit
    def branches(
        x: pl.Tensor[[16, 64], pl.FP32],
        n: pl.Out[pl.Tensor[[1, 8], pl.INT32]],
        y: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="count"):
            n[0:1, 0:8] = pl.cast(pl.mul(x[0:1, 0:8], 2.0), target_type=pl.INT32)
        rows = pl.read(n, [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="use"):
            y[0:16, :] = pl.mul(x[0:16, :], 2.0)
        return y

    branches(np.ones((16, 64), np.float32), np.zeros((1, 8), np.int32), np.zeros((16, 64), np.float32))
    """
    assert predicted(tmp_path, source).simulated.wall > 0
    with pytest.raises(BadInput, match="the orchestration reads n, which the task count writes") as refused:
        _ = predicted(tmp_path, source, runtime="hbg").simulated
    assert refused.value.line == 13


def test_vector_cores_schedule_on_a5_unless_a_task_is_not_for_them(tmp_path: Path) -> None:
    assert predicted(tmp_path).simulated.prepared.machine.resolver == 1  # a 910B has no such cores
    replayed = predicted(tmp_path, device="ascend950").simulated.prepared
    assert mode_of(replayed.program, replayed.job) == "LEGACY_GRAPH"
    plain = LAYERS.replace("@pl.jit.graph", "@pl.jit.inline")
    alone = predicted(tmp_path, plain, device="ascend950").simulated.prepared
    assert mode_of(alone.program, alone.job) == "vector cores"
    assert (alone.machine.hosted, alone.machine.resolver) == (1, 0)
    wide = alone.job._replace(blocks=alone.job.blocks + 1)
    assert mode_of(alone.program, wide) == "LEGACY_UNSUPPORTED_SHAPE"


def test_what_the_host_pays_for_a_graph(tmp_path: Path) -> None:
    """Three submissions: two calls of a graph of two tasks, of which the first is recorded, and a task."""
    cost = {name: one.value * 1e9 for name, one in runtime_named("host_build_graph").host.items()}
    submitting = cost["submit"] + 4 * cost["replay_tensor"]  # x and a, then a and b
    recording = 2 * (cost["record_node"] + cost["define_node"])
    size = 3 * 4970
    upload = 2 * cost["copy"] + size / 7.3 + cost["graph_upload"] + cost["definition_upload"]
    found = host_cost(predicted(tmp_path).program)
    assert (found.submits, found.recorded, found.replays, found.upload_bytes) == (3, 2, 1, size)
    assert (found.build_ns, found.upload_ns) == pytest.approx((max(submitting, recording) / 0.74, upload))


def test_graphs_beyond_those_that_are_recorded_are_submitted_task_by_task(tmp_path: Path) -> None:
    program = limited(tmp_path, "graph_definitions", 0)
    assert host_cost(program).submits == 5
    assert not list(ring_deadlock.check(program))
    assert not len(prepare(program).job.graph)


def test_the_map_of_written_tensors_must_hold_those_of_the_whole_run(tmp_path: Path) -> None:
    """Of tasks that are submitted one by one: here the last."""
    assert not list(ring_deadlock.check(limited(tmp_path, "tensormap", 1)))
    (error,) = ring_deadlock.check(limited(tmp_path, "tensormap", 0))
    assert error.message.startswith("1 written tensors to remember: host_build_graph keeps the whole graph")


def test_a_recorded_graph_begins_when_all_of_it_is_expanded() -> None:
    """Forty nodes that wait for nobody, four a visit: none is ready before the last is expanded."""
    made = with_graphs(graph([1000.0] * 40, []), [list(range(40))])
    chip = hosted(machine())
    times, _ = run_chip(made, chip)
    visits = times.loops[times.loops[:, PREPARED] > 0]
    assert visits[:, PREPARED].tolist() == pytest.approx([4 * chip.expand] * 10)
    last = np.sum(visits[-1, [BEGIN, RELEASED, POLLED, COMPLETED, RETIRED, PREPARED]])
    assert np.min(times.ready[:40]) >= last


def test_a_runtime_is_laid_over_a_device_once_and_an_unknown_one_is_named() -> None:
    chip = load("ascend910b1")
    under = with_runtime(chip, "HOST_BUILD_GRAPH")
    assert with_runtime(under, "hbg") is under
    assert with_runtime(chip, "") is chip
    assert under.timing["dispatch_block"] == chip.timing["dispatch_block"]
    with pytest.raises(NpuscopeError, match="no runtime 'fast'"):
        with_runtime(chip, "fast")
