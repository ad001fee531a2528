"""Every name that the public model library uses is there, takes PyPTO's arguments and computes as the chip does."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP

# The names that the public programs use, in the order of how often (the reference table of the language).
USED = """
jit jit.inline jit.host jit.incore jit.extern program function inline
FunctionType.Opaque FunctionType.InCore FunctionType.Orchestration FunctionType.Inline FunctionType.AIC
FunctionType.AIV FunctionType.Group FunctionType.Spmd
Tensor FP32 BF16 INT32 INT8 INT64 INDEX Level.CORE_GROUP Scalar InOut Out dynamic tensor.dim MemorySpace.Vec Mem.Vec
TASK_ID FP16 PadValue.min PadValue.zero PadValue.max UINT8 UINT32 const tile.MaskPattern.P1010 AtomicType.Add
AtomicType.None_ SplitMode.NONE tile.MaskPattern.P0101 Array MemorySpace.Mat SplitMode.UP_DOWN SplitMode.LEFT_RIGHT
MemorySpace.Right MemorySpace.Left MemorySpace.Acc MemorySpace.Bias MemorySpace.DDR MemorySpace.LeftScale
MemorySpace.RightScale tile tensor array
spmd at tile.get_block_idx scope system.task_dummy array.create system.syncall split_aiv manual_scope split
get_block_idx auto_chunk aiv_shard aic_gather cross_core_slot no_dep spmd_submit ScopeMode.AUTO ScopeMode.MANUAL
range pipeline parallel unroll yield_ while_ cond
slice create_tensor reshape read full assemble write set_validshape load store arange fillpad tensor.read create_tile
concat transpose prefetch.async_prefetch gather_row tensor.write move create_l1 prefetch.make_context
matmul matmul_acc matmul_bias matmul_dual matmul_dual_acc
cast mul add sub min exp maximum recip div neg sqrt minimum max rsqrt cmp abs log fmods
col_expand_mul row_expand_mul row_sum row_max row_expand_div row_expand_sub col_expand col_expand_add col_sum col_max
row_expand col_expand_expdif row_min row_argmax row_expand_add
gather mrgsort sort32 tensor.set_validshape tensor.mrgsort tensor.scatter tensor.sort32 tensor.gather tensor.arange
tile.set_validshape tile.reshape tile.load tile.full tile.store tile.cast tile.add tile.mul tile.col_expand_mul
tile.write tile.matmul tile.row_expand_mul tile.matmul_acc tile.assemble tile.row_sum tile.slice tile.arange tile.sub
tile.gather tile.exp tile.recip tile.transpose tile.sqrt tile.rsqrt tile.row_expand_div tile.create
tile.transpose_view tile.row_max tile.row_expand_sub tile.neg tile.maximum tile.fillpad
submit cluster static_print static_assert func_attr dump_tag Tile batch_matmul gemv sin cos sel sels and_ or_ xor not_
shl shr part_add part_mul part_max part_min row_prod col_prod col_min col_expand_sub col_expand_div col_expand_max
col_expand_min row_expand_max row_expand_min row_expand_expdif expands reinterpret_view tri relu lrelu prelu
system.sync_set system.sync_wait system.cacheinvalid system.fence system.available_cluster_count
system.available_aiv_count incore auto_incore tensor.view
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", USED)
def test_the_language_has_the_name(name: str) -> None:
    functools.reduce(getattr, name.split("."), pl)


def unary(op, dtype=pl.FP32):
    """A program y = op(x)."""

    @pl.jit
    def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            y[:] = op(x)
        return y

    return program


def run(op, x, like=None):
    y = np.zeros_like(x if like is None else like)
    unary(op)(x, y)
    return y


X = np.linspace(-3, 3, 8 * 32, dtype=np.float32).reshape(8, 32)
P = np.abs(X) + np.float32(0.5)


@pytest.mark.parametrize(
    ("op", "want"),
    [
        (lambda x: pl.add(lhs=x, rhs=2.0), X + 2),
        (lambda x: pl.sub(5.0, x), 5 - X),
        (lambda x: pl.mul(x, x), X * X),
        (lambda x: pl.div(x, 4.0, high_precision=True), X / 4),
        (lambda x: pl.maximum(x, 0.0), np.maximum(X, 0)),
        (lambda x: pl.minimum(x, 0.0), np.minimum(X, 0)),
        (lambda x: pl.neg(input=x), -X),
        (lambda x: pl.abs(x), np.abs(X)),
        (lambda x: pl.fmods(x, 0.75), np.fmod(X, np.float32(0.75))),
        (lambda x: pl.cmp(x, 0.0, cmp_type=4), (X > 0).astype(np.float32)),
        (lambda x: pl.row_expand_sub(x, pl.row_max(x)), X - X.max(1, keepdims=True)),
        (lambda x: pl.row_expand(x, pl.row_min(input=x, tmp_tile=None)), np.repeat(X.min(1, keepdims=True), 32, 1)),
        (lambda x: pl.col_expand_mul(x, pl.col_max(x)), X * X.max(0)),
        (lambda x: pl.col_expand(x, pl.col_sum(x)), np.repeat(X.sum(0, keepdims=True), 8, 0)),
        (lambda x: pl.concat(x[:, 16:32], x[:, 0:16]), np.roll(X, 16, 1)),
        (lambda x: pl.transpose(pl.transpose(x, axis1=0, axis2=1), 0, 1), X),
        (lambda x: pl.reshape(pl.reshape(x, [16, 16]), [8, 32]), X),
        (lambda x: pl.gather(pl.concat(x, x), mask_pattern=pl.tile.MaskPattern.P0101), np.hstack([X, X])[:, ::2]),
        (lambda x: 2.0 - x / 2.0 + x * x, 2 - X / 2 + X * X),
    ],
)
def test_an_op_computes_what_its_name_says(op, want) -> None:
    np.testing.assert_allclose(run(op, X), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "want"), [(pl.exp, np.exp), (pl.sqrt, np.sqrt), (pl.log, np.log), (pl.recip, lambda x: 1 / x),
                     (lambda x: pl.rsqrt(x, high_precision=True), lambda x: 1 / np.sqrt(x))]
)  # fmt: skip
def test_functions_of_one_tile(op, want) -> None:
    np.testing.assert_allclose(run(op, P), want(P), rtol=1e-6)


def test_what_is_not_a_number_goes_through_every_op() -> None:
    bad = np.array([[np.nan, np.inf, -np.inf, 1.0] * 8], np.float32)
    np.testing.assert_array_equal(run(lambda x: pl.add(x, 1.0), bad), bad + 1)
    assert np.isnan(run(lambda x: pl.row_expand(x, pl.row_sum(x)), bad)).all()
    assert np.isnan(run(lambda x: pl.sub(x, x), bad)[0, :3]).all()


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("round", [-3, -2, -1, 1, 2, 3]),  # ties away from zero, and the default
        (None, [-3, -2, -1, 1, 2, 3]),
        ("rint", [-2, -2, 0, 0, 2, 2]),  # ties to even
        ("floor", [-3, -2, -1, 0, 1, 2]),
        ("ceil", [-2, -1, 0, 1, 2, 3]),
        ("trunc", [-2, -1, 0, 0, 1, 2]),
        (5, [-2, -1, 0, 0, 1, 2]),  # modes have numbers too
    ],
)
def test_a_cast_to_whole_numbers_rounds_as_asked(mode, want) -> None:
    ties = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]], np.float32)
    options = {} if mode is None else {"mode": mode}
    got = run(lambda x: pl.cast(x, target_type=pl.INT32, **options), ties, np.zeros((1, 6), np.int32))
    np.testing.assert_array_equal(got, [want])


def test_a_cast_to_bf16_breaks_ties_away_from_zero() -> None:
    # 1 + 2^-8 lies half way between the bf16 numbers 1 and 1 + 2^-7; torch would go to the even one, 1.
    tie = np.full((1, 16), 1 + 2**-8, np.float32)
    got = run(lambda x: pl.cast(x, pl.BF16), tie, np.zeros((1, 16), ml_dtypes.bfloat16))
    assert (got.astype(np.float32) == 1 + 2**-7).all()


def test_a_cast_to_fp16_saturates() -> None:
    large = np.array([[1e6, -1e6, 65504.0, 1.0] * 4], np.float32)
    got = run(lambda x: pl.cast(x, pl.FP16), large, np.zeros((1, 16), np.float16))
    np.testing.assert_array_equal(got[0, :4], np.array([65504, -65504, 65504, 1], np.float16))


def test_each_op_rounds_to_the_type_of_its_result() -> None:
    x = np.full((1, 16), 1 + 2**-7, ml_dtypes.bfloat16)
    got = run(lambda x: pl.mul(x, x), x)
    assert (got.astype(np.float32) == 1 + 2**-6).all()  # 1 + 2^-6 + 2^-14 in bf16


@pl.jit
def products(
    a: pl.Tensor[[16, 64], pl.INT8],
    b: pl.Tensor[[32, 64], pl.INT8],
    c: pl.Out[pl.Tensor[[16, 32], pl.INT32]],
    d: pl.Out[pl.Tensor[[16, 32], pl.FP32]],
    e: pl.Out[pl.Tensor[[16, 32], pl.BF16]],
):
    with pl.at(level=CORE):
        c[:] = pl.matmul(a, b, out_dtype=pl.INT32, b_trans=True)
    with pl.at(level=CORE):
        left, right = pl.cast(pl.cast(a, pl.FP16), pl.FP32), pl.cast(pl.cast(b, pl.FP16), pl.FP32)
        acc = pl.matmul(left[:, 0:32], right[:, 0:32], b_trans=True)
        acc = pl.matmul_acc(acc, left[:, 32:64], right[:, 32:64], b_trans=True)
        d[:] = acc
        pl.store(acc, [0, 0], e)  # an accumulator may narrow on its way to memory
    return c


def test_products_accumulate_in_int32_or_fp32() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (16, 64), np.int8), rng.integers(-128, 128, (32, 64), np.int8)
    c, d = np.zeros((16, 32), np.int32), np.zeros((16, 32), np.float32)
    e = np.zeros((16, 32), ml_dtypes.bfloat16)
    products(a, b, c, d, e)
    exact = a.astype(np.int64) @ b.T.astype(np.int64)
    np.testing.assert_array_equal(c, exact)
    np.testing.assert_array_equal(d, exact)  # below 2^24, so exact in fp32 too
    np.testing.assert_array_equal(e, exact.astype(np.float32).astype(ml_dtypes.bfloat16))


@pl.jit
def dual(x: pl.Tensor, a: pl.Tensor, b: pl.Tensor, y: pl.Out[pl.Tensor], z: pl.Out[pl.Tensor]):
    with pl.at(level=CORE):
        first = pl.full([16, 16], dtype=pl.FP32, value=0.0)
        second = pl.full([16, 16], dtype=pl.FP32, value=1.0)
        for k in pl.pipeline(0, 64, 32, stage=2):
            left = x[:, k : k + 32]
            first, second = pl.matmul_dual_acc(first, second, left, a[k : k + 32, :], b[k : k + 32, :])
        y[:] = first
        z[:] = second
    return y


def test_one_left_operand_feeds_two_accumulators() -> None:
    rng = np.random.default_rng(1)
    x, a, b = (rng.normal(size=s).astype(np.float32) for s in ((16, 64), (64, 16), (64, 16)))
    y, z = np.zeros((16, 16), np.float32), np.zeros((16, 16), np.float32)
    dual(x, a, b, y, z)
    np.testing.assert_allclose(y, x @ a, atol=1e-4)
    np.testing.assert_allclose(z, x @ b + 1, atol=1e-4)


def test_a_product_that_fills_no_cube_step_is_a_finding() -> None:
    @pl.jit
    def uneven(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            y[:] = pl.matmul(x, x, b_trans=True)
        return y

    x = np.ones((16, 40), np.float32)
    (finding,) = record(uneven, x, np.zeros((16, 16), np.float32)).recording.notices
    assert finding.kind == "alignment"
    assert "pl.matmul of [16, 40] FP32 and [16, 40] FP32" in finding.message


def test_a_scalar_keeps_its_type() -> None:
    @pl.jit
    def scalars(x: pl.Tensor, n: pl.Scalar[pl.INT32], s: pl.Scalar[pl.FP32], y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            for i in pl.range(n):
                third = pl.read(x, [0, i]) / 3  # fp32 all along
                pl.write(y, [0, i], third * s)
            pl.write(y, [0, pl.max(n, 3)], pl.cast(pl.min(n, 7), pl.FP32) + pl.const(0.5, pl.FP32))
        return y

    x, y = np.arange(1, 9, dtype=np.float32).reshape(1, 8), np.zeros((1, 8), np.float32)
    scalars(x, 3, 0.1, y)
    np.testing.assert_array_equal(y[0, :3], x[0, :3] / np.float32(3) * np.float32(0.1))
    assert y[0, 3] == 3.5


# Names that exist upstream, that no public program uses and that npuscope has not.
MISSING = """
tile.alloc tensor.alloc
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", MISSING)
def test_a_name_npuscope_has_not_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"test_language.py, line \d+: pl.{name} is not supported by npuscope"):
        functools.reduce(getattr, name.split("."), pl)
