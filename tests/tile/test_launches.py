"""What is known when a kernel is launched, recorded graphs, and golden.run with one configuration."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile import golden
from npuscope.tile.fault import TileError
from npuscope.tile.golden import TensorSpec
from npuscope.tile.run.execute import record
from npuscope.tile.script.pytest_files import RunSettings
from npuscope.tile.script.run import run_script
from npuscope.time.run import simulate
from tests.tile.one_task import CORE, RNG, floats, run_on

# --- values that the compiler knows, launches, the way out of the cube


def test_a_kernel_is_called_with_constants_of_any_kind() -> None:
    @pl.jit.incore
    def copy(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.constexpr, kind: pl.constexpr = pl.FP32):
        pl.store(pl.cast(pl.load(a, [0, 0], [n, n]), kind), [0, 0], out)
        return out

    @pl.jit
    def program(
        x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 8], pl.BF16]],
        z: pl.Out[pl.Tensor[[16, 16], pl.FP32]], small: pl.constexpr = 8,
    ):  # fmt: skip
        y = copy(x, y, small, kind=pl.BF16)
        z = copy(x, z, 16, attrs={"arg_directions": [pl.adir.input, pl.adir.output]})
        return y, z

    x = RNG.integers(-9, 9, (16, 16)).astype(np.float32)
    y, z = np.zeros((8, 8), ml_dtypes.bfloat16), np.zeros((16, 16), np.float32)
    program(x, y, z)
    np.testing.assert_array_equal(y.astype(np.float32), x[:8, :8])
    np.testing.assert_array_equal(z, x)
    assert program.param_names == ["x", "y", "z", "small"]
    assert program.output_param_names == ["y", "z"]


def test_a_kernel_says_how_deep_its_ring_is() -> None:
    @pl.jit.incore(level=pl.Level.CHIP_DIE)
    def kernel(x: pl.Tensor[[32, 32], pl.FP32], out: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
        pl.func_attr({"slot_num": 4, "stationary": x})
        tile = pl.load(x, [0, 0], [32, 32])
        return pl.store(pl.exp(pl.matmul(tile, tile)), [0, 0], out)

    @pl.jit
    def program(x: pl.Tensor[[32, 32], pl.FP32], out: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
        return kernel(x, out)

    x = floats(32, 32)
    assert [task.ring_slots for task in record(program, x, np.zeros_like(x)).recording.tasks] == [4]


def test_the_runtime_leaves_out_a_task_of_any_form_whose_element_is_not_so() -> None:
    @pl.jit.incore
    def add(z: pl.InOut[pl.Tensor[[16, 16], pl.FP32]], number: pl.constexpr):
        pl.store(pl.add(pl.load(z, [0, 0], [16, 16]), number), [0, 0], z)
        return z

    @pl.jit
    def program(gate: pl.Tensor[[2], pl.INT32], z: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]):
        for turn in pl.range(2):
            with pl.at(level=CORE, predicate=(gate[turn] > 0)) as tid:
                z[:, :] = pl.add(z[:, :], 1.0)
            z, _tid = pl.submit(add, z, 10.0, deps=[tid], predicate=(gate[turn] > 0), timing_slot=1)
        return z

    z = np.zeros((16, 16), np.float32)
    finished = record(program, np.array([0, 3], np.int32), z)
    np.testing.assert_array_equal(z, np.full((16, 16), 11.0, np.float32))
    assert [bool(task.groups) for task in finished.recording.tasks] == [False, False, True, True]


def test_an_accumulator_is_scaled_on_its_way_into_mat() -> None:
    """Cut off at 0, then times the factor, then held within the type."""
    k, q = (RNG.integers(-20, 20, (32, 64)).astype(np.int8) for _ in range(2))
    w = RNG.integers(-3, 4, (32, 16)).astype(np.float16)

    def body(k: Any, q: Any, w: Any) -> Any:
        acc = pl.matmul(pl.load(k, [0, 0], [32, 64]), pl.transpose_view(pl.load(q, [0, 0], [32, 64])))
        mat = pl.create_tile([32, 32], pl.FP16, target_memory=pl.Mem.Mat)
        mat = pl.tile.assemble(mat, acc, [0, 0], pre_quant=-1.0 / 64, pre_relu=True)
        return pl.matmul(mat, pl.load(w, [0, 0], [32, 16]))

    out, _recording = run_on(body, [k, q, w], (32, 16))
    wanted = np.maximum(k.astype(np.float32) @ q.astype(np.float32).T, 0) / -64
    np.testing.assert_allclose(out, wanted.astype(np.float16).astype(np.float32) @ w.astype(np.float32), rtol=1e-5)


@pytest.mark.parametrize("how", ["load", "scope"])
def test_what_is_read_past_l2_comes_from_hbm_each_time(how: str) -> None:
    def program(bypass: bool) -> Any:
        @pl.jit
        def kernel(x: pl.Tensor[[256, 1024], pl.FP32], out: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
            for block in pl.spmd(16):
                if bypass and how == "scope":
                    pl.set_cache_policy(x, pl.CachePolicy.BYPASS)
                policy = pl.CachePolicy.BYPASS if bypass and how == "load" else None
                total = pl.load(x, [0, 0], [16, 1024], cache=policy)
                for turn in pl.range(1, 16):
                    total = pl.add(total, pl.load(x, [16 * turn, 0], [16, 1024], cache=policy))
                pl.store(total, [16 * block, 0], out)
            return out

        x = RNG.standard_normal((256, 1024)).astype(np.float32)
        out = np.zeros_like(x)
        return record(kernel, x, out).recording

    device = load("910b2")
    cached, past = (simulate(Program(program(bypass), device)).wall_ns for bypass in (False, True))
    assert past > cached


# --- graphs


@pl.jit
def changing(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    for n in pl.unroll(2):
        with pl.graph("part"):
            with pl.at(level=CORE, name_hint="first"):
                x[:] = pl.add(x, 1.0)
            if n == 1:
                with pl.at(level=CORE, name_hint="second"):
                    x[:] = pl.add(x, 1.0)
    return x


@pl.jit
def nested(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.graph("outer"), pl.graph("inner"), pl.at(level=CORE):
        x[:] = pl.add(x, 1.0)
    return x


@pl.jit
def empty(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.graph("part"):
        pass
    return x


def into_new(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    y = pl.create_tensor([16, 32], dtype=pl.FP32)
    with pl.at(level=CORE):
        y[:] = pl.add(x, 1.0)
    return y


def into_out(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.at(level=CORE):
        y[:] = pl.add(x, 1.0)
    return y


def calling(part: Any) -> Any:
    part = pl.jit.graph(part)

    @pl.jit
    def whole(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
        part(x, x) if part.name == "into_out" else part(x)
        return x

    return whole


W = 32


def called_twice(part: Any) -> Any:
    """A graph over rows of a tensor, called for each half of it."""
    part = pl.jit.graph(part)

    @pl.jit
    def whole(w: pl.Tensor[[8 * W, W], pl.FP32], x: pl.InOut[pl.Tensor[[W, W], pl.FP32]]):
        for layer in pl.range(2):
            part(w, x, layer)
        return x

    return whole


def offsets_of_a_loop(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    for i in pl.range(4):
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, pl.load(w, [(layer * 4 + i) * W, 0], [W, W]))
    return x


def views_of_a_loop(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    for i in pl.range(4):
        rows = w[i * W : (i + 1) * W, :]
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, rows)
    return x


def views_of_a_number(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    rows = w[layer * W : (layer + 1) * W, :]
    for _ in pl.range(4):
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, rows)
    return x


def views_of_both_unrolled(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    for i in pl.unroll(4):
        rows = w[(layer * 4 + i) * W : (layer * 4 + i + 1) * W, :]
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, rows)
    return x


@pytest.mark.parametrize(
    ("part", "taken"),
    [
        (offsets_of_a_loop, range(8)),
        (views_of_a_loop, [0, 1, 2, 3] * 2),
        (views_of_a_number, [0] * 4 + [1] * 4),
        (views_of_both_unrolled, range(8)),
    ],
)
def test_a_loop_of_a_graph_and_its_numbers_say_where_a_replay_reads(part: Any, taken: Any) -> None:
    w, x = floats(8 * W, W), np.zeros((W, W), np.float32)
    called_twice(part)(w, x)
    assert np.allclose(x, sum(w[n * W : (n + 1) * W] for n in taken), atol=1e-5)


def views_of_both(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    for i in pl.range(4):
        rows = w[(layer * 4 + i) * W : (layer * 4 + i + 1) * W, :]
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, rows)
    return x


def other_turns(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    for i in pl.range(layer * 2, layer * 2 + 2):
        with pl.at(level=CORE, name_hint="add"):
            x[:] = pl.add(x, pl.load(w, [i * W, 0], [W, W]))
    return x


def other_sizes(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    made = pl.create_tensor([W * (layer + 1), W], dtype=pl.FP32)
    with pl.at(level=CORE, name_hint="add"):
        made[0:W, :] = pl.add(x, 1.0)
    return x


def reads_between(w: pl.Tensor, x: pl.InOut[pl.Tensor], layer: pl.Scalar[pl.INDEX]):
    first = pl.read(w, [0, 0])
    with pl.at(level=CORE, name_hint="add"):
        x[:] = pl.add(x, first)
    return x


@pytest.mark.parametrize(
    ("program", "about"),
    [
        (called_twice(views_of_both), "a view that is another in each turn of its loop and in each call"),
        (
            called_twice(other_turns),
            r"a loop over pl.range\(2, 4\) where its first call had a loop over pl.range\(0, 2\)",
        ),
        (called_twice(other_sizes), r"a tensor \[64, 32\] where its first call had a tensor \[32, 32\]"),
        (called_twice(reads_between), "reads an element between its tasks"),
        *((changing, "launches 2 tasks here and 1"), (nested, "inside the graph"), (empty, "launches 0 tasks")),
        *((calling(into_new), "returns what it made"), (calling(into_out), "y is declared pl.Out")),
    ],
)
def test_what_a_replay_could_not_repeat_is_refused(program: Any, about: str) -> None:
    with pytest.raises(TileError, match=about) as refused:
        program(*(parameter.new_array() for parameter in program.parameters))
    assert Path(refused.value.path or "") == Path(__file__)


# --- golden.run of September


@pl.jit
def doubled(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=CORE):
        y[:] = pl.mul(x, 2.0)
    return y


@pytest.mark.parametrize(("factor", "settings"), [(2, dict), (3, dict), (3, RunSettings)])
def test_outputs_are_the_parameters_declared_so(factor: int, settings: Any) -> None:
    specs = [TensorSpec("x", [16, 16], np.float32, init_value=1.0), TensorSpec("y", [16, 16], np.float32)]

    def expected(values: dict[str, Any]) -> None:
        values["y"][:] = values["x"] * factor

    run: Any = golden.run
    config = settings(platform="a5", device_id=0, ring_heap=1 << 20)
    result = run(fn=doubled, specs=specs, golden_fn=expected, config=config)
    assert (result.passed, result.compared) == (factor == 2, True)
    assert [spec.direction for spec in specs] == ["In", "Out"]


def test_a_script_that_compiles_its_program_runs(tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(
        """
import numpy as np
import pypto.language as pl
from pypto import ir
from pypto.pypto_core import passes

@pl.program
class Twice:
    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.mul(x, 2.0)
        return y

with passes.PassContext([], runtime=passes.RuntimeKind.HOST_BUILD_GRAPH):
    compiled = ir.compile(Twice, platform="a2a3sim")
    x, y = np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)
    compiled(x, y)
assert (y == 2).all()
"""
    )
    ran = run_script(script, mode="values")
    assert (ran.exit_code, len(ran.recordings)) == (0, 1)
