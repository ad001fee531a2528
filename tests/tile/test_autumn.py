"""What programs of autumn 2026 have and those of summer had not: recorded graphs, ops by index, FP8 with scales per
group, weights that lie in GM as boxes, and golden.run with one configuration.
"""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.ops.dtypes import FP8E4M3FN, FP32
from npuscope.ops.rounding import cast
from npuscope.ops.shaping import philox
from npuscope.tile import golden
from npuscope.tile.fault import TileError
from npuscope.tile.golden import TensorSpec
from npuscope.tile.record.walk import accesses_of
from npuscope.tile.run.execute import record
from npuscope.tile.script.run import run_script

CORE = pl.Level.CORE_GROUP
RNG = np.random.default_rng(7)


def run_on(body: Any, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: Any = np.float32, **layouts: Any) -> Any:
    """A program of one task: what `body` makes of its inputs is stored; its output. `layouts`: of inputs by place."""
    types = [
        pl.Tensor[list(x.shape), _type(x), *([layouts[f"x{n}"]] if f"x{n}" in layouts else [])]
        for n, x in enumerate(inputs)
    ]
    a, b, c, d = (types * 4)[:4] if len(types) < 4 else types[:4]
    out_type = pl.Tensor[list(shape), _type(np.zeros(0, dtype))]

    @pl.jit
    def one(x0: a, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0), [0, 0], out)
        return out

    @pl.jit
    def two(x0: a, x1: b, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1), [0, 0], out)
        return out

    @pl.jit
    def three(x0: a, x1: b, x2: c, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2), [0, 0], out)
        return out

    @pl.jit
    def four(x0: a, x1: b, x2: c, x3: d, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2, x3), [0, 0], out)
        return out

    out = np.zeros(shape, dtype)
    finished = record([one, two, three, four][len(inputs) - 1], *inputs, out)
    return out, finished.recording


def _type(x: np.ndarray) -> Any:
    from npuscope.ops.dtypes import of_storage

    return of_storage(x.dtype)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- gathers and scatters


@pytest.mark.parametrize("outside", ["undefined", "clamp", "wrap", "zero"])
def test_rows_are_gathered_by_an_index(outside: str) -> None:
    table, index = floats(20, 32), np.array([[19, 0, 3, 3, 25, -1, 7, 2]], np.int32)
    if outside == "undefined":
        index = index.clip(0, 19)
    got, _ = run_on(
        lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [1, 8]), gather_oob=outside), [table, index], (8, 32)
    )
    want = table[index[0] % 20 if outside == "wrap" else index[0].clip(0, 19)]
    if outside == "zero":
        want[(index[0] < 0) | (index[0] > 19)] = 0
    np.testing.assert_array_equal(got, want)


def test_what_an_index_names_outside_is_poison() -> None:
    got, _ = run_on(
        lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [1, 8])), [floats(4, 32), np.full((1, 8), 9, np.int32)],
        (8, 32),
    )  # fmt: skip
    assert np.isnan(got).all()


def test_elements_are_gathered_and_scattered_by_an_index() -> None:
    flat, index = floats(4, 16), RNG.permutation(64).astype(np.int32).reshape(4, 16)
    got, _ = run_on(lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [4, 16]), "elem"), [flat, index], (4, 16))
    np.testing.assert_array_equal(got, flat.reshape(-1)[index])

    @pl.jit
    def back(x: pl.Tensor[[4, 16], pl.FP32], idx: pl.Tensor[[4, 16], pl.INT32], y: pl.Out[pl.Tensor[[4, 16], pl.FP32]]):
        with pl.at(level=CORE):
            y = pl.mscatter(pl.load(x, [0, 0], [4, 16]), pl.load(idx, [0, 0], [4, 16]), y)
        return y

    y = np.zeros((4, 16), np.float32)
    back(got, index, y)
    np.testing.assert_array_equal(y, flat)


@pytest.mark.parametrize("across", [False, True])
def test_rows_of_a_paged_cache_are_gathered_through_its_table(across: bool) -> None:
    cache, table = floats(6 * 4, 64), np.array([5, 0, 3], np.int32)  # six pages of four rows
    index = np.array([0, 11, 4, 7], np.int32)
    shape = (32, 8) if across else (8, 32)
    got, _ = run_on(
        lambda src, idx, tab: pl.paged_gather(src, idx, tab, 4, 32, 8, space=pl.Mem.Vec, col_off=16, is_trans=across),
        [cache, index, table], shape,
    )  # fmt: skip
    want = cache[table[index // 4] * 4 + index % 4, 16:48]
    np.testing.assert_array_equal((got.T if across else got)[:4], want)


@pytest.mark.parametrize("on_chip", [False, True])
def test_rows_are_replaced_where_an_index_says(on_chip: bool) -> None:
    old, new = floats(12, 16), floats(6, 16)
    index = np.array([[11, 0, 5], [2, 3, 7]], np.int32)

    @pl.jit
    def update(
        x: pl.Tensor[[12, 16], pl.FP32],
        idx: pl.Tensor[[2, 3], pl.INT32],
        src: pl.Tensor[[6, 16], pl.FP32],
        y: pl.InOut[pl.Tensor[[12, 16], pl.FP32]],
    ):
        with pl.at(level=CORE):
            if on_chip:
                y = pl.store(pl.scatter_update(pl.load(x, [0, 0], [12, 16]), -2, idx, src), [0, 0], y)
            else:
                y = pl.scatter_update(y, index=idx, src=src)
        return y

    y = old.copy()
    update(old, index, new, y)
    want = old.copy()
    want[index.reshape(-1)] = new
    np.testing.assert_array_equal(y, want)


def test_blocks_of_32_bytes_are_gathered_by_byte_offsets() -> None:
    x, offsets = floats(8, 32), (RNG.integers(0, 32, (4, 8)) * 32).astype(np.uint32)
    got, _ = run_on(
        lambda a, o: pl.gatherb(pl.load(a, [0, 0], [8, 32]), pl.load(o, [0, 0], [4, 8])), [x, offsets], (4, 64)
    )
    want = [x.reshape(-1)[at // 4 : at // 4 + 8] for at in offsets.reshape(-1)]
    np.testing.assert_array_equal(got, np.stack(want).reshape(4, 64))


def test_three_terms_and_repeated_rows() -> None:
    x, y = floats(1, 32), floats(8, 32)
    got, _ = run_on(
        lambda a, b: pl.subc(
            pl.expand_clone(pl.load(a, [0, 0], [1, 32]), pl.load(b, [0, 0], [8, 32])), 1.0, pl.load(b, [0, 0], [8, 32])
        ),
        [x, y], (8, 32),
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.repeat(x, 8, axis=0) - np.float32(1) - y)


def test_random_words_are_philoxs() -> None:
    """The known answers of Random123, the generator's own library, for 4x32 in 10 rounds."""
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    ones = (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2
    answers = {
        ((0, 0, 0, 0), (0, 0)): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        ones: [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        digits: [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    }
    for (counter, key), words in answers.items():
        assert philox(key, counter, 4, 10).tolist() == words
    x, _ = run_on(lambda a: pl.tile.random(1, 2, 3, 4, 5, 6, [4, 64], rounds=7), [floats(1, 8)], (4, 64), np.uint32)
    np.testing.assert_array_equal(x.reshape(-1), philox((1, 2), (3, 4, 5, 6), 256, 7))


# --- FP8 and scales per group


@given(st.lists(st.floats(-500, 500, width=32), min_size=8, max_size=8))
@examples(60)
def test_fp8_rounds_as_ml_dtypes_does_and_saturates(values: list[float]) -> None:
    tile = np.array([values], np.float32)
    want = tile.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(cast(tile, FP32, FP8E4M3FN, "rint"), want)
    for mode, low, high in (("floor", -np.inf, 0), ("ceil", 0, np.inf), ("trunc", -np.inf, 0)):
        rounded = cast(tile, FP32, FP8E4M3FN, mode)
        moved = (np.abs(rounded) - np.abs(tile) if mode == "trunc" else rounded - tile)[np.abs(tile) <= 448]
        assert ((moved >= low) & (moved <= high)).all()


def mx_operands() -> tuple[list[np.ndarray], np.ndarray]:
    """Operands as a program gets them, scales packed, and their product from the definition."""
    m, k, n = 32, 128, 64
    a, b = (RNG.integers(-2, 3, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (k, n)))
    sa, sb = (RNG.integers(126, 130, shape).astype(np.uint8) for shape in ((m, k // 32), (k // 32, n)))
    packed_a = sa.reshape(m // 16, 16, k // 64, 2).transpose(0, 2, 1, 3).copy().reshape(sa.shape)
    packed_b = sb.reshape(k // 64, 2, n // 16, 16).transpose(2, 0, 3, 1).copy().reshape(sb.shape)
    group = np.arange(k) // 32
    left = a.astype(np.float64) * 2.0 ** (sa.astype(int) - 127)[:, group]
    right = b.astype(np.float64) * 2.0 ** (sb.astype(int) - 127)[group, :]
    scales = [x.view(ml_dtypes.float8_e8m0fnu) for x in (packed_a, packed_b)]
    return [a, scales[0], b, scales[1]], (left @ right).astype(np.float32)


@pytest.mark.parametrize("form", ["matmul_mx", "matmul_mx_acc", "matmul_mx_bias"])
def test_products_with_scales_are_their_definition(form: str) -> None:
    operands, product = mx_operands()

    def body(a: Any, sa: Any, b: Any, sb: Any) -> Any:
        tiles = [
            pl.load(a, [0, 0], [32, 128], target_memory=pl.Mem.Mat),
            pl.move(pl.load(sa, [0, 0], [32, 4], target_memory=pl.Mem.Mat), target_memory=pl.Mem.LeftScale),
            pl.load(b, [0, 0], [128, 64], target_memory=pl.Mem.Mat),
            pl.move(pl.load(sb, [0, 0], [4, 64], target_memory=pl.Mem.Mat), target_memory=pl.Mem.RightScale),
        ]
        if form == "matmul_mx_bias":
            return pl.matmul_mx_bias(*tiles, pl.full([1, 64], pl.FP32, 3.0))
        first = pl.matmul_mx(*tiles)
        return first if form == "matmul_mx" else pl.matmul_mx_acc(first, *tiles)

    got, _ = run_on(body, operands, (32, 64), x1=pl.MX_A_ZZ, x3=pl.MX_B_NN)
    factor, plus = {"matmul_mx": (1, 0), "matmul_mx_acc": (2, 0), "matmul_mx_bias": (1, 3)}[form]
    np.testing.assert_array_equal(got, product * factor + plus)


def test_the_exponents_of_groups_are_those_that_reach_the_largest_value() -> None:
    x = floats(32, 64) * np.float32(100)

    def body(a: Any) -> Any:
        values, scales = pl.quant_mx(pl.load(a, [0, 0], [32, 64]), group_axis=1)
        assert values.shape == (32, 64)
        assert scales.shape == (32, 2)
        return pl.cast(values, pl.FP32, mode="rint")

    got, _ = run_on(body, [x], (32, 64))
    exponent = np.floor(np.log2(np.abs(x).reshape(32, 2, 32).max(axis=-1))) - 8
    scaled = (x.reshape(32, 2, 32) / np.exp2(exponent)[..., None]).reshape(32, 64).astype(np.float32)
    want = scaled.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(got, want)


# --- weights in boxes


def in_boxes(x: np.ndarray) -> np.ndarray:
    """A matrix in the order of NZ: column blocks of 32 bytes, each row by row."""
    rows, columns = x.shape
    wide = 32 // x.dtype.itemsize
    return x.reshape(rows, columns // wide, wide).transpose(1, 0, 2).copy().reshape(x.shape)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int8])
def test_weights_in_boxes_give_what_weights_in_rows_give(dtype: Any) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(dtype) for shape in ((16, 64), (64, 128)))
    out = np.int32 if dtype is np.int8 else np.float32
    rows, plain = run_on(lambda a, b: pl.matmul(a[:, :], b[:, 64:128]), [x, w], (16, 64), out)
    boxes, nz = run_on(lambda a, b: pl.matmul(a[:, :], b[:, 64:128]), [x, in_boxes(w)], (16, 64), out, x1=pl.NZ)
    np.testing.assert_array_equal(boxes, rows)
    # Half of the columns are one run of memory, where rows of the plain form are 64 elements long.
    shapes = {
        kind: [access.shape for _, access, _ in accesses_of(recording.bodies[0]) if access.shape != (16, 64)]
        for kind, recording in (("plain", plain), ("nz", nz))
    }
    assert shapes == {"plain": [(64, 64)], "nz": [(1, 64 * 64)]}


@pytest.mark.parametrize(
    "body", [
        lambda a, b: pl.matmul(a[:, :], b[:, 8:72]),
        lambda a, b: pl.load(b, [0, 0], [16, 128]),
        lambda a, b: pl.load(pl.reshape(b, [128, 64]), [0, 0], [16, 64]),
    ], ids=["in the middle of a box", "into Vec", "reshaped"],
)  # fmt: skip
def test_what_boxes_cannot_give_is_refused(body: Any) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((16, 64), (64, 128)))
    with pytest.raises(TileError, match="boxes"):
        run_on(body, [x, w], (16, 128), x1=pl.NZ)


# --- graphs


def layers(as_graph: bool) -> Any:
    def step(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]], by: pl.Scalar[pl.FP32]):
        with pl.at(level=CORE, name_hint="grow"):
            x[:] = pl.mul(x, by)
        with pl.at(level=CORE, name_hint="shift"):
            x[:] = pl.add(x, 1.0)
        return x

    part = pl.jit.graph(step) if as_graph else pl.jit.inline(step)

    @pl.jit
    def model(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
        for _ in pl.unroll(3):
            x = part(x, 2.0)
        return x

    return model


def test_a_graph_computes_and_launches_what_the_plain_form_does() -> None:
    one, other = floats(16, 32), np.zeros((16, 32), np.float32)
    other[:] = one
    plain, graph = record(layers(False), one), record(layers(True), other)
    np.testing.assert_array_equal(one, other)
    names = [[(task.kernel, task.layer) for task in run.recording.tasks] for run in (plain, graph)]
    assert names[0] == names[1]


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


@pytest.mark.parametrize(
    ("program", "about"), [(changing, "launches 2 tasks here and 1"), (nested, "inside the graph")]
)
def test_what_a_replay_could_not_repeat_is_refused(program: Any, about: str) -> None:
    with pytest.raises(TileError, match=about):
        program(floats(16, 32))


# --- golden.run of September


@pl.jit
def doubled(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=CORE):
        y[:] = pl.mul(x, 2.0)
    return y


@pytest.mark.parametrize("factor", [2, 3])
def test_outputs_are_the_parameters_declared_so(factor: int) -> None:
    specs = [TensorSpec("x", [16, 16], np.float32, init_value=1.0), TensorSpec("y", [16, 16], np.float32)]

    def expected(values: dict[str, Any]) -> None:
        values["y"][:] = values["x"] * factor

    run: Any = golden.run
    result = run(
        fn=doubled, specs=specs, golden_fn=expected, config={"platform": "a5", "device_id": 0, "ring_heap": 1 << 20}
    )
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
