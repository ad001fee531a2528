"""Ops, layouts and entries that programs of September to November 2026 have: powers, histograms, images as rows of a
product, indices beside values, tensors that lie column by column, cases of the new harness.
"""

# mypy: disable-error-code="valid-type"
# No `from __future__ import annotations`: signatures below name types that are local to a function.

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.chip.runtimes import with_runtime
from npuscope.lower.program import Program
from npuscope.tile import golden
from npuscope.tile.fault import TileError
from npuscope.tile.run.execute import record
from npuscope.tile.script.run import run_script
from npuscope.tile.script.served import under
from npuscope.time.change_job import fewest_tasks
from npuscope.time.run import simulate

CORE = pl.Level.CORE_GROUP
RNG = np.random.default_rng(11)
FLOATS, WHOLES = pl.Tensor[[16, 16], pl.FP32], pl.Tensor[[16, 16], pl.INT32]


def floats(*shape: int) -> Any:
    return RNG.uniform(0.5, 2, shape).astype(np.float32)


def test_fused_arithmetic_and_powers() -> None:
    @pl.jit
    def program(x: FLOATS, y: FLOATS, k: WHOLES, sum: pl.Out[FLOATS], cut: pl.Out[FLOATS], power: pl.Out[FLOATS],
                root: pl.Out[FLOATS], whole: pl.Out[WHOLES]):  # fmt: skip
        with pl.at(level=CORE):
            a, b, n = (pl.load(one, [0, 0], [16, 16]) for one in (x, y, k))
            tmp = pl.create_tile([16, 16], pl.FP32)
            pl.store(pl.tile.axpy(a, 2.5, b), [0, 0], sum)
            pl.store(pl.tile.add_relu(a, pl.neg(b)), [0, 0], cut)
            pl.store(pl.tile.pow(a, b, tmp, high_precision=True), [0, 0], power)
            pl.store(pl.tile.pows(a, 0.5, tmp), [0, 0], root)
            pl.store(pl.tile.pow(n, n), [0, 0], whole)

    x, y, k = floats(16, 16), floats(16, 16), RNG.integers(-3, 6, (16, 16), dtype=np.int32)
    out = [np.zeros((16, 16), np.float32) for _ in range(4)]
    whole = np.zeros((16, 16), np.int32)
    finished = record(program, x, y, k, *out, whole)
    exact = [y + np.float32(2.5) * x, np.maximum(x - y, 0), x**y, np.sqrt(x)]
    for got, wanted in zip(out, exact, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    powers = [[np.trunc(float(n) ** int(n)) if n else 1 for n in row] for row in k]
    np.testing.assert_array_equal(whole, np.array(powers, np.int32))
    assert simulate(Program(finished.recording, load("ascend910b1"))).wall_ns > 0


def test_a_fraction_beside_whole_numbers_is_cut_off_and_said_so() -> None:
    @pl.jit
    def program(x: WHOLES, y: pl.Out[WHOLES]):
        with pl.at(level=CORE):
            pl.store(pl.add(pl.load(x, [0, 0], [16, 16]), 1.5), [0, 0], y)

    x, y = np.arange(256, dtype=np.int32).reshape(16, 16), np.zeros((16, 16), np.int32)
    finished = record(program, x, y)
    np.testing.assert_array_equal(y, x + 1)
    assert [notice.kind for notice in finished.recording.notices] == ["fraction"]


def test_indices_stored_as_floats_keep_their_bits() -> None:
    column = pl.Tensor[[16, 1], pl.FP32]

    @pl.jit
    def program(x: FLOATS, y: pl.Out[column], bits: pl.Out[WHOLES]):
        with pl.at(level=CORE):
            tile = pl.load(x, [0, 0], [16, 16])
            pl.store(pl.row_argmax(tile, tile), [0, 0], y)
            pl.store(pl.tile.bitcast(tile, dtype=pl.INT32), [0, 0], bits)

    x, y, bits = floats(16, 16), np.zeros((16, 1), np.float32), np.zeros((16, 16), np.int32)
    finished = record(program, x, y, bits)
    np.testing.assert_array_equal(y.view(np.int32), x.argmax(axis=1)[:, None])
    np.testing.assert_array_equal(bits, x.view(np.int32))
    assert [notice.kind for notice in finished.recording.notices] == ["bits"]


@pytest.mark.parametrize("name", ["part_argmax", "part_argmin"])
def test_the_better_of_two_values_brings_its_index(name: str) -> None:
    @pl.jit
    def program(a: FLOATS, b: FLOATS, i: WHOLES, j: WHOLES, value: pl.Out[FLOATS], place: pl.Out[WHOLES]):
        with pl.at(level=CORE):
            first, at = (pl.load(one, [0, 0], [16, 16], valid_shape=[11, 13]) for one in (a, i))
            second, there = (pl.load(one, [0, 0], [16, 16]) for one in (b, j))
            best, index = getattr(pl.tile, name)(first, second, at, there)
            pl.store(best, [0, 0], value)
            pl.store(index, [0, 0], place)

    a, b = floats(16, 16), floats(16, 16)
    b[:, ::5] = a[:, ::5]  # equal ones: the first wins
    i = np.arange(256, dtype=np.int32).reshape(16, 16)
    value, place = np.zeros_like(a), np.zeros_like(i)
    program(a, b, i, i + 1000, value, place)
    first = (a >= b) if name == "part_argmax" else (a <= b)
    first[11:], first[:, 13:] = False, False
    np.testing.assert_array_equal(value, np.where(first, a, b))
    np.testing.assert_array_equal(place, np.where(first, i, i + 1000))


@pytest.mark.parametrize("byte", [0, 1])
def test_a_histogram_counts_bytes_under_those_above(byte: int) -> None:
    @pl.jit
    def program(x: pl.Tensor[[32, 32], pl.UINT16], above: pl.Tensor[[1, 32], pl.UINT8], out: pl.Out[COUNTS]):
        with pl.at(level=CORE):
            chosen = pl.reshape(pl.load(above, [0, 0], [1, 32]), [32, 1])
            pl.store(pl.tile.histogram(pl.load(x, [0, 0], [32, 32]), chosen, byte=byte), [0, 0], out)

    x = RNG.integers(0, 4 * 256, (32, 32)).astype(np.uint16)
    above, out = RNG.integers(0, 4, (1, 32)).astype(np.uint8), np.zeros((32, 256), np.uint32)
    program(x, above, out)
    for row, (values, upper) in enumerate(zip(x, above[0], strict=True)):
        counted = values & 255 if byte == 0 else values >> 8
        kept = counted[values >> 8 == upper] if byte == 0 else counted
        np.testing.assert_array_equal(out[row], np.cumsum(np.bincount(kept, minlength=256)))


COUNTS = pl.Tensor[[32, 256], pl.UINT32]


def test_rows_of_two_tiles_side_by_side_as_long_as_their_indices_say() -> None:
    part, length, whole = pl.Tensor[[8, 32], pl.FP32], pl.Tensor[[8, 8], pl.INT16], pl.Tensor[[8, 48], pl.FP32]

    @pl.jit
    def program(a: part, b: part, i: length, j: length, out: pl.InOut[whole]):
        with pl.at(level=CORE):
            tiles = [pl.load(one, [0, 0], [8, 32]) for one in (a, b)]
            lengths = [pl.load(one, [0, 0], [8, 8], valid_shape=[8, 1]) for one in (i, j)]
            pl.store(pl.tile.concat_idx(*tiles, *lengths, pl.load(out, [0, 0], [8, 48])), [0, 0], out)

    a, b, counts = floats(8, 32), floats(8, 32), RNG.integers(0, 33, (2, 8))
    i, j = (np.repeat(row[:, None] * 2, 8, axis=1).astype(np.int16) for row in counts)  # in bytes of INT16
    out = np.full((8, 48), 3, np.float32)
    wanted = out.copy()
    for row, (one, other) in enumerate(counts.T):
        line = np.concatenate((a[row, :one], b[row, :other]))[:48]
        wanted[row, : len(line)] = line
    program(a, b, i, j, out)
    np.testing.assert_array_equal(out, wanted)


@examples(20)
@given(
    size=st.tuples(st.integers(3, 8), st.integers(3, 8)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(*[st.integers(0, 2)] * 4),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_an_image_as_rows_of_a_product_convolves(
    size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> None:
    (high, wide), (top, bottom, left, right) = size, padding
    grown = (high + top + bottom, wide + left + right)
    rows, columns = (
        (n - gap * (taps - 1) - 1) // by + 1 for n, taps, by, gap in zip(grown, kernel, stride, dilation, strict=True)
    )
    if rows < 1 or columns < 1:
        return
    depth, places = 32 * kernel[0] * kernel[1], -(-rows * columns // 16) * 16
    image_type, weight_type = pl.Tensor[[high * wide, 32], pl.FP16], pl.Tensor[[depth, 16], pl.FP16]

    @pl.jit
    def program(image: image_type, weight: weight_type, out: pl.Out[pl.Tensor[[places, 16], pl.FP32]]):
        with pl.at(level=CORE):
            seen = pl.load(image, [0, 0], [high * wide, 32], target_memory=pl.Mem.Mat)
            for m in pl.range(0, places, 16):
                acc = pl.create_tile([16, 16], pl.FP32, target_memory=pl.Mem.Acc)
                for k in pl.range(0, depth, 16):
                    lhs = pl.img2col(seen, m, k, [16, 16], image_shape=size, kernel_size=kernel, stride=stride,
                                     padding=padding, dilation=dilation)  # fmt: skip
                    acc = pl.matmul_acc(acc, lhs, pl.load(weight, [k, 0], [16, 16]), init_cond=(k == 0))
                pl.store(acc, [m, 0], out)

    image = RNG.integers(-2, 3, (high, wide, 32)).astype(np.float16)
    weight = RNG.integers(-2, 3, (*kernel, 32, 16)).astype(np.float16)
    packed = (
        weight.reshape(*kernel, 2, 16, 16).transpose(2, 0, 1, 3, 4).reshape(depth, 16)
    )  # blocks of 16 channels first
    out = np.zeros((places, 16), np.float32)
    program(image.reshape(-1, 32), packed, out)
    padded = np.pad(image.astype(np.float32), ((top, bottom), (left, right), (0, 0)))
    wanted = np.zeros((rows, columns, 16), np.float32)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            part = padded[y * dilation[0] :: stride[0], x * dilation[1] :: stride[1]][:rows, :columns]
            wanted += part @ weight[y, x].astype(np.float32)
    np.testing.assert_array_equal(out[: rows * columns].reshape(wanted.shape), wanted)


def test_an_image_that_is_only_sliced_goes_to_the_cube_and_is_timed() -> None:
    @pl.jit
    def program(image: pl.Tensor[[64, 32], pl.FP16], weight: pl.Tensor[[32, 32], pl.FP16],
                out: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):  # fmt: skip
        with pl.at(level=CORE):
            rows = pl.img2col(image[:, :], 0, 0, [16, 32], image_shape=(8, 8), kernel_size=(1, 1))
            pl.assemble(out, pl.matmul(rows, weight), [0, 0])

    image, weight = floats(64, 32).astype(np.float16), floats(32, 32).astype(np.float16)
    out = np.zeros((16, 32), np.float32)
    finished = record(program, image, weight, out)
    np.testing.assert_allclose(out, image[:16].astype(np.float32) @ weight.astype(np.float32), rtol=1e-6)
    assert {task.core for task in finished.recording.tasks} == {"AIC"}
    assert simulate(Program(finished.recording, load("ascend910b1"))).wall_ns > 0


def test_a_tensor_that_lies_column_by_column() -> None:
    view = pl.TensorView(stride=[1, 16], layout=pl.DN)

    @pl.jit
    def program(x: pl.Tensor[[16, 32], pl.FP32, view], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        with pl.at(level=CORE):
            pl.store(pl.load(x, [0, 0], [16, 32]), [0, 0], y)

    x, y = floats(32, 16), np.zeros((16, 32), np.float32)
    program(x.reshape(16, 32), y)
    np.testing.assert_array_equal(y, x.T)


def test_a_copy_of_a_box_leaves_what_is_around_it() -> None:
    kind = pl.Tensor[[4, 64], pl.FP32]

    @pl.jit
    def program(x: kind, y: pl.InOut[kind]):
        with pl.at(level=CORE):
            pl.copy(y, x, [1, 8], [0, 16], [2, 40], source_memory=pl.Mem.SRAM)

    x, y = floats(4, 64), np.full((4, 64), -1, np.float32)
    wanted = y.copy()
    wanted[1:3, 8:48] = x[:2, 16:56]
    program(x, y)
    np.testing.assert_array_equal(y, wanted)


def test_an_index_without_an_axis_counts_over_the_whole_tile() -> None:
    @pl.jit
    def program(x: FLOATS, i: WHOLES, y: pl.Out[FLOATS]):
        with pl.at(level=CORE):
            y[:, :] = pl.gather(x, index=i)

    x, i, y = floats(16, 16), RNG.integers(0, 256, (16, 16), dtype=np.int32), np.zeros((16, 16), np.float32)
    program(x, i, y)
    np.testing.assert_array_equal(y, x.reshape(-1)[i])


@pytest.mark.parametrize("along", [False, True])
def test_indices_outside_the_valid_region_are_not_asked_for(along: bool) -> None:
    @pl.jit
    def program(x: FLOATS, i: WHOLES, y: pl.InOut[FLOATS]):
        with pl.at(level=CORE):
            places = pl.set_validshape(i, 3, 5)
            y[:, :] = pl.gather(x, dim=1, index=places) if along else pl.gather(x, index=places)

    x, i, y = floats(16, 16), np.full((16, 16), -100_000, np.int32), np.full((16, 16), -1, np.float32)
    i[:3, :5] = RNG.integers(0, 16, (3, 5))
    wanted = y.copy()
    wanted[:3, :5] = np.take_along_axis(x[:3], i[:3, :5], 1) if along else x.reshape(-1)[i[:3, :5]]
    program(x, i, y)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("anew", [False, True])
def test_a_smaller_product_leaves_the_rest_of_an_accumulator(anew: bool) -> None:
    half, wide = pl.Tensor[[16, 16], pl.FP16], pl.Tensor[[16, 32], pl.FP16]

    @pl.jit
    def program(x: half, seed: wide, part: wide, y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        with pl.at(level=CORE):
            left = pl.load(x, [0, 0], [16, 16], target_memory=pl.Mem.Mat)
            every = pl.load(seed, [0, 0], [16, 32], target_memory=pl.Mem.Mat)
            some = pl.load(part, [0, 0], [16, 32], valid_shape=[16, 16], target_memory=pl.Mem.Mat)
            total = pl.matmul_acc(pl.matmul(left, every), left, some, init_cond=anew)
            pl.store(total, [0, 0], y)

    x, seed, part = (RNG.integers(-3, 4, shape).astype(np.float16) for shape in ((16, 16), (16, 32), (16, 32)))
    y = np.zeros((16, 32), np.float32)
    program(x, seed, part, y)
    first, second = (x.astype(np.float32) @ one.astype(np.float32) for one in (seed, part))
    first[:, :16] = second[:, :16] if anew else (first + second)[:, :16]
    np.testing.assert_array_equal(y, first)


def test_an_accumulator_made_beforehand_is_stored_whole() -> None:
    """Its valid region is its own, as PyPTO deduces it, however few rows the product has."""
    half = pl.Tensor[[16, 16], pl.FP16]

    @pl.jit
    def program(x: half, y: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=CORE):
            total = pl.create_tensor([16, 16], dtype=pl.FP32)
            total = pl.matmul_acc(total, pl.slice(x, [16, 16], [0, 0], valid_shape=[3, 16]), x, init_cond=True)
            y = pl.assemble(y, total, [0, 0])
        return y

    x, y = RNG.integers(-3, 4, (16, 16)).astype(np.float16), np.zeros((16, 16), np.float32)
    program(x, y)
    np.testing.assert_array_equal(y[:3], x[:3].astype(np.float32) @ x.astype(np.float32))
    assert np.isnan(y[3:]).all()  # written, with what nobody defined


@pytest.mark.parametrize("rows", [1, 8])
def test_a_row_beside_a_tile_of_one_row_that_counts_spreads_over_none(rows: int) -> None:
    @pl.jit
    def program(x: FLOATS, y: pl.InOut[FLOATS]):
        with pl.at(level=CORE):
            some = pl.slice(x, [8, 16], [0, 0], valid_shape=[rows, 16])
            product = pl.mul(some, pl.slice(x, [1, 16], [8, 0]))
            y = pl.assemble(y, product, [0, 0])
        return y

    x, y = floats(16, 16), np.zeros((16, 16), np.float32)
    finished = record(program, x, y, mode="values")
    np.testing.assert_array_equal(y[:rows], x[:rows] * x[8])
    assert [notice.kind for notice in finished.recording.notices] == ([] if rows == 1 else ["spread"])


def test_a_launch_of_fewer_than_no_blocks_does_nothing() -> None:
    @pl.jit
    def program(n: pl.Tensor[[1], pl.INT32], y: pl.InOut[FLOATS]):
        for _ in pl.spmd(pl.read(n, [0])):
            y[:, :] = pl.tile.full([16, 16], dtype=pl.FP32, value=1.0)

    y = np.zeros((16, 16), np.float32)
    program(np.array([-1], np.int32), y)
    assert not y.any()


def test_a_call_gives_back_the_callers_own_output_and_a_compiled_program_nothing() -> None:
    @pl.jit
    def program(x: FLOATS, y: pl.Out[FLOATS]):
        with pl.at(level=CORE):
            y[:, :] = pl.mul(x, 2.0)
        return y

    x, y = floats(16, 16), np.zeros((16, 16), np.float32)
    assert program(x, y) is y
    assert program.compile(x, y)(x, y) is None
    np.testing.assert_array_equal(program.compile(x, y)(x), 2 * x)
    np.testing.assert_array_equal(y, 2 * x)


def test_a_program_that_is_only_lowered_says_whose_numbers_it_reads() -> None:
    @pl.jit
    def program(n: pl.Tensor[[1], pl.INT32], x: FLOATS, y: pl.Out[FLOATS]):
        row = pl.read(n, [0])
        with pl.at(level=CORE):
            y = pl.assemble(y, pl.slice(x, [1, 16], [row, 0]), [0, 0])
        return y

    lowered = program.lower(np.array([1234], np.int32), floats(16, 16), floats(16, 16))
    with pytest.raises(TileError, match=r"1234 to 1235 of axis 0 .* only lowered here: numbers .* torch.empty's"):
        _ = lowered.recording


def test_experts_of_a_recorded_graph_are_left_out_by_predicate_and_the_run_is_explained() -> None:
    kind, weights = pl.Tensor[[64, 64], pl.FP32], pl.Tensor[[256, 64], pl.FP32]

    @pl.jit.incore
    def expert(x: kind, w: weights, out: pl.InOut[weights], base: pl.Scalar[pl.INDEX]):
        gate = pl.matmul(pl.load(x, [0, 0], [64, 64]), pl.load(w, [base, 0], [64, 64]))
        scaled = pl.move(pl.mul(gate, 2.0), target_memory=pl.MemorySpace.Mat)
        return pl.store(pl.matmul(scaled, pl.load(w, [base, 0], [64, 64])), [base, 0], out)

    @pl.jit.graph
    def block(x: kind, w: weights, counts: pl.Tensor[[4, 1], pl.INT32], out: pl.InOut[weights]):
        for e in pl.unroll(4):
            with pl.spmd(1, predicate=(counts[e, 0] > 0)):
                out = expert(x, w, out, e * 64)
        return out

    @pl.jit
    def layers(x: kind, w: weights, counts: pl.Tensor[[4, 1], pl.INT32], out: pl.InOut[weights]):
        for _ in pl.range(2):
            out = block(x, w, counts, out)
        return out

    x, w, out = floats(64, 64), floats(256, 64), np.zeros((256, 64), np.float32)
    with under("HOST_BUILD_GRAPH"):
        finished = record(layers, x, w, np.array([[1], [0], [2], [0]], np.int32), out)
    for e in range(4):
        part = w[64 * e : 64 * e + 64]
        wanted = (x @ part * 2) @ part if e in (0, 2) else np.zeros((64, 64))
        np.testing.assert_allclose(out[64 * e : 64 * e + 64], wanted, rtol=1e-5)
    run = simulate(Program(finished.recording, with_runtime(load("ascend910b1"), finished.recording.runtime)))
    assert run.wall_ns > 0
    assert fewest_tasks(run.prepared).launches > 0


CASES = """
import numpy as np
import pytest
import pypto.language as pl
from harness import st
from pypto import ir, passes


@pl.jit.incore
def scaled(x: pl.Tensor, out: pl.Out[pl.Tensor], FACTOR: pl.constexpr):
    return pl.store(pl.mul(pl.load(x, [0, 0], [16, 16]), FACTOR), [0, 0], out)


@pl.jit
def entry(x: pl.Tensor, out: pl.Out[pl.Tensor], FACTOR: pl.constexpr):
    return scaled(x, out, FACTOR)


X, OUT = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)


@st.cases(
    *[
        st.case(entry, X, OUT, 2.0, name=f"twice_{planner.name.lower()}", golden=lambda t: t["x"] * 2,
                memory_planner=planner, enable_buffer_ir=True)
        for planner in (passes.MemoryPlanner.PYPTO, passes.MemoryPlanner.PTOAS)
    ],
    st.case(scaled, X, OUT, 3.0, name="kernel", golden=lambda t: {"out": t["x"] * 3}, compare=st.rel_err_under(1e-6)),
)
def test_scaled(case_run, request):
    case_run.assert_passed()
    assert request.config.getoption("--precompile-workers") is None
    assert case_run.work_dir is None and case_run.case.name


@pl.jit
def two(x: pl.Tensor, up: pl.Out[pl.Tensor], down: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP):
        up[:, :] = pl.add(x, 1.0)
        down[:, :] = pl.sub(x, 1.0)
    return up, down


def two_apart(actual, expected):
    assert (actual["up"] - actual["down"] == 2).all() and (actual["up"] == expected["up"]).all()


BOTH = st.case(two, X, OUT, OUT, golden=lambda t: {"up": t["x"] + 1, "down": t["x"] - 1}, compare=two_apart)
BOTH.config.aicpu_thread_num = 3


@st.cases(BOTH)
def test_two_outputs_are_compared_together(case_run):
    case_run.assert_passed()
    assert case_run.case.get_memory_planner() is None


class Renamed(ir.IRMutator):  # of a test that is not run here
    def visit_submit(self, op):
        return op


@st.cases(st.case(entry, X, OUT, 2.0, golden=lambda t: t["x"]))
def test_wrong(case_run):
    assert not case_run.passed
    assert "elements are off" in case_run.error
"""


@pytest.mark.parametrize("alone", [False, True])
def test_cases_of_the_new_harness(tmp_path: Path, alone: bool) -> None:
    if not alone:
        tmp_path.joinpath("conftest.py").write_text("from harness.core.test_runner import start_pipeline\n")
    file = tmp_path / "test_cases.py"
    file.write_text(CASES)
    finished = run_script(file)
    assert len(finished.runs) == 5


def test_each_row_has_its_own_budget() -> None:
    expected = np.ones((2, 3, 100), np.float32)
    actual = expected.copy()
    actual[1, 2, :8] = 2
    rule = golden.rowwise_ratio_reldiff("y", row_shape=(2, 3), pct_thd=0.1, expected_active_rows=6)
    assert rule(actual, expected) == (True, "")
    actual[1, 2, :20] = 2
    assert "row [1, 2] of y" in rule(actual, expected)[1]
    tight = golden.rowwise_ratio_reldiff("y", row_shape=(2, 3), pct_thd=0.3, aggregate_pct_thd=0.01)
    assert not tight(actual, expected)[0]
    mapped = golden.rowwise_ratio_reldiff("y", row_shape=(2, 3), mapping="rows")
    rows = np.array([0, 1, 2, 3, 4, -1])
    assert mapped(actual, expected, inputs={"rows": rows}) == (True, "")


def test_a_number_below_zero_beside_unsigned_elements_stands_for_its_bits() -> None:
    words = pl.Tensor[[2, 16], pl.UINT32]

    @pl.jit
    def program(x: words, mask: words, y: pl.Out[words]):
        with pl.at(level=CORE):
            chosen = pl.load(mask, [0, 0], [2, 16])
            y = pl.store(pl.tile.sels(chosen, pl.load(x, [0, 0], [2, 16]), None, -3.0), [0, 0], y)
        return y

    x, y = np.arange(32, dtype=np.uint32).reshape(2, 16), np.zeros((2, 16), np.uint32)
    mask = np.tile(np.array([0, 1], np.uint32), (2, 8))
    program(x, mask, y)
    assert np.array_equal(y, np.where(mask == 1, x, np.uint32(2**32 - 3)))
