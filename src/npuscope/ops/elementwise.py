"""Ops that work element by element, with another tile, with a number, or with a column or a row spread over the tile.

The functions compute in the compute type of their operands (float32, or an integer type) and broadcast as NumPy does;
rounding to the result's type is the caller's (`rounding.round_to`). exp, log, rsqrt and the like are the exact
functions rounded to fp32, where the chip approximates. NaN goes through everything, maximum and minimum too. To be run
under one `np.errstate(all="ignore")`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import Array, Value
from npuscope.ops.spec import VECTOR, Axis, Numeric, OpRole, OpSpec

Binary = Callable[[Value, Value], Array]

_F32, _I32 = np.float32, np.int32
_ONE = _F32(1)
_INFINITY = _F32(np.inf)
_CLIP_FROM = 8192  # elements from which clipping beats maximum with one number (256x256: 8 us and 25 us)


def _is_float(x: Value) -> bool:
    return x.dtype.kind == "f" if isinstance(x, np.ndarray | np.generic) else isinstance(x, float)


def maximum(x: Value, y: Value) -> Array:
    if isinstance(x, np.ndarray) and not isinstance(y, np.ndarray) and x.size >= _CLIP_FROM and x.dtype == _F32:
        return x.clip(_F32(y), _INFINITY)
    return np.maximum(x, y)


def minimum(x: Value, y: Value) -> Array:
    if isinstance(x, np.ndarray) and not isinstance(y, np.ndarray) and x.size >= _CLIP_FROM and x.dtype == _F32:
        return x.clip(-_INFINITY, _F32(y))
    return np.minimum(x, y)


def div(x: Value, y: Value) -> Array:
    """x / y; between integers cut towards zero as in C, and -1 (all bits set) for a division by zero."""
    if _is_float(x) or _is_float(y):
        return np.divide(x, y)
    rest = np.fmod(x, y)
    return np.where(np.equal(y, 0), -1, np.floor_divide(np.subtract(x, rest), y)).astype(rest.dtype)


def fmod(x: Value, y: Value) -> Array:
    """x - trunc(x / y) * y, with the sign of x."""
    if not _is_float(x) and not _is_float(y):
        return np.fmod(x, y)
    quotient = np.divide(x, y)
    return np.subtract(x, np.trunc(quotient) * y)


def rem(x: Value, y: Value) -> Array:
    """x - floor(x / y) * y, with the sign of y."""
    if not _is_float(x) and not _is_float(y):
        return np.remainder(x, y)
    quotient = np.divide(x, y)
    return np.subtract(x, np.floor(quotient) * y)


def power(x: Value, y: Value) -> Array:
    """x to the y; of whole numbers below 0 powers are fractions, which are cut off."""
    if _is_float(x) or _is_float(y):
        return np.power(x, y)
    base, exponent = np.asarray(x), np.asarray(y)
    fraction = np.where(np.abs(base) == 1, np.power(base, exponent & 1), 0)
    return np.where(exponent < 0, fraction, np.power(base, np.maximum(exponent, 0))).astype(base.dtype)


def add_relu(x: Value, y: Value) -> Array:
    return np.maximum(np.add(x, y), 0)


def expdif(x: Value, y: Value) -> Array:
    return np.exp(np.subtract(x, y))


def _bits(operation: Callable[..., Array]) -> Binary:
    """A bitwise op; 8-bit tiles are float32, so their bits are taken and given back by way of int32."""

    def run(x: Value, y: Value) -> Array:
        if _is_float(x) or _is_float(y):
            return operation(np.asarray(x).astype(_I32), np.asarray(y).astype(_I32)).astype(_F32)
        return operation(x, y)

    return run


def rsqrt(x: Array) -> Array:
    return np.divide(_ONE, np.sqrt(x))


def invert(x: Array) -> Array:
    return np.invert(x.astype(_I32)).astype(_F32) if x.dtype.kind == "f" else np.invert(x)


def recip(x: Array) -> Array:
    return np.divide(_ONE, x)


def relu(x: Array) -> Array:
    positive: Array = maximum(x, x.dtype.type(0))
    return positive


bit_and, bit_or, bit_xor = _bits(np.bitwise_and), _bits(np.bitwise_or), _bits(np.bitwise_xor)
shift_left, shift_right = _bits(np.left_shift), _bits(np.right_shift)

_COMPARISONS: tuple[Callable[[Value, Value], npt.NDArray[np.bool_]], ...] = (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
)


def cmp(x: Value, y: Value, code: int) -> npt.NDArray[np.bool_]:
    """Mask of x (0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=) y."""
    mask: npt.NDArray[np.bool_] = _COMPARISONS[code](x, y)
    return mask


# fmt: off

_WHOLE = "whole numbers"

# --- two operands

ADD = OpSpec(
    "add", VECTOR, "binary", "x + y.", cost="op.vadd", with_number="op.vadds", numeric=np.add,
    spellings=("add", "adds", "part_add"), roles=(OpRole.SUM, OpRole.TERM),
)
SUB = OpSpec(
    "sub", VECTOR, "binary", "x - y.", cost="op.vadd", with_number="op.vadds", numeric=np.subtract,
    spellings=("sub", "subs"), roles=(OpRole.TERM,),
)
NUMBER = "number"  # the attribute that says the constant operand of what may follow a product on its way out
MUL = OpSpec(
    "mul", VECTOR, "binary", "x · y.", cost="op.vmul", with_number="op.vmuls", numeric=np.multiply,
    spellings=("mul", "muls", "part_mul"), roles=(OpRole.PRODUCT,),
)
DIV = OpSpec(
    "div", VECTOR, "binary", "x / y; between whole numbers cut towards zero.", cost="op.vdiv", with_number="op.vdivs",
    numeric=div, options={"high_precision": False}, spellings=("div", "divs"), roles=(OpRole.QUOTIENT,),
)
MAXIMUM = OpSpec(
    "maximum", VECTOR, "binary", "The larger of x and y.", cost="op.vmax", with_number="op.vmaxs",
    numeric=maximum, spellings=("maximum", "maximums", "part_max"),
)
MINIMUM = OpSpec(
    "minimum", VECTOR, "binary", "The smaller of x and y.", cost="op.vmax", with_number="op.vmins",
    numeric=minimum, spellings=("minimum", "minimums", "part_min"),
)
FMOD = OpSpec(
    "fmod", VECTOR, "binary", "x - trunc(x / y) · y, with the sign of x.", cost="op.vdiv", like="it divides, and more",
    numeric=fmod, options={"high_precision": False}, spellings=("fmod", "fmods"), storage="separate",
)
REM = OpSpec(
    "rem", VECTOR, "binary", "x - floor(x / y) · y, with the sign of y.", cost="op.vdiv", like="it divides, and more",
    numeric=rem, options={"tmp": None, "high_precision": False}, spellings=("rem", "rems"),
)
AND = OpSpec(
    "and", VECTOR, "binary", "Bits set in both.", cost="op.vand", numeric=bit_and, bits=True, types=_WHOLE,
    spellings=("and_", "ands"),
)
OR = OpSpec(
    "or", VECTOR, "binary", "Bits set in either.", cost="op.vand", numeric=bit_or, bits=True, types=_WHOLE,
    spellings=("or_", "ors"),
)
XOR = OpSpec(
    "xor", VECTOR, "binary", "Bits set in one of them.", cost="op.vand", like="no cost of it is public",
    numeric=bit_xor, options={"tmp": None}, bits=True, types=_WHOLE, spellings=("xor", "xors"),
)
SHL = OpSpec(
    "shl", VECTOR, "binary", "Bits moved up by y places.", cost="op.vshl", numeric=shift_left, bits=True,
    types=_WHOLE, spellings=("shl", "shls"),
)
SHR = OpSpec(
    "shr", VECTOR, "binary", "Bits moved down by y places.", cost="op.vshl", numeric=shift_right, bits=True,
    types=_WHOLE, spellings=("shr", "shrs"),
)

POW = OpSpec(
    "pow", VECTOR, "binary", "x to the y.", cost="op.vexp", like="no cost of it is public", numeric=power,
    options={"tmp": None, "high_precision": False}, spellings=("pow", "pows"), storage="separate",
)
ADD_RELU = OpSpec(
    "add_relu", VECTOR, "binary", "x + y where it is positive, else 0.", cost="op.vadd", like="a sum cut off at 0",
    numeric=add_relu,
)

# --- one operand

NEG = OpSpec("neg", VECTOR, "unary", "-x.", cost="op.vadds", like="a pass with a number", numeric=np.negative)
EXP = OpSpec("exp", VECTOR, "unary", "e to the x.", cost="op.vexp", numeric=np.exp)
LOG = OpSpec(
    "log", VECTOR, "unary", "The natural logarithm.", cost="op.vln", numeric=np.log,
    options={"high_precision": False},
)
SQRT = OpSpec("sqrt", VECTOR, "unary", "The square root.", cost="op.vsqrt", numeric=np.sqrt)
RSQRT = OpSpec(
    "rsqrt", VECTOR, "unary", "1 / √x, exact here; the chip's is near only, unless tmp or high_precision is given.",
    cost="op.vrsqrt", numeric=rsqrt, storage="separate",
    options={"tmp": None, "high_precision": False},
)
RECIP = OpSpec(
    "recip", VECTOR, "unary", "1 / x.", cost="op.vdiv", like="no cost of it is public", numeric=recip,
    options={"high_precision": False}, storage="separate",
)
RELU = OpSpec("relu", VECTOR, "unary", "x where it is positive, else 0.", cost="op.vmaxs", numeric=relu)
ABS = OpSpec("abs", VECTOR, "unary", "x without its sign.", cost="op.vabs", numeric=np.abs)
SIN = OpSpec("sin", VECTOR, "unary", "The sine.", cost="op.vexp", like="no cost of it is public", numeric=np.sin)
COS = OpSpec("cos", VECTOR, "unary", "The cosine.", cost="op.vexp", like="no cost of it is public", numeric=np.cos)
NOT = OpSpec(
    "not", VECTOR, "unary", "Every bit turned over.", cost="op.vand", numeric=invert, bits=True, types=_WHOLE,
    spellings=("not_",),
)

# --- functions written by hand

ADDC = OpSpec("addc", (), "custom", "x + y + z, as two sums; y may be a number.", spellings=("addc", "addsc"))
SUBC = OpSpec("subc", (), "custom", "x - y + z, the carry z added; y may be a number.", spellings=("subc", "subsc"))
AXPY = OpSpec(
    "axpy", VECTOR, "custom", "z + x · y, y a number; the result is of z's type.", cost="op.vmuls",
    like="a pass with a number",
)
CAST = OpSpec(
    "cast", ("vector", "move"), "custom", "Another type; an accumulator may change its type on its way out.",
    cost="op.vconv", widening="op.vconv_widen", storage="separate_if_wider",
    roles=(OpRole.CAST, OpRole.KEEPS_VALUES, OpRole.KEEPS_ZEROS),
)
CMP = OpSpec(
    "cmp", VECTOR, "custom", "0 or 1 of x's type: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=.", cost="op.vcmp",
    spellings=("cmp", "cmps"),
)
SEL = OpSpec(
    "sel", VECTOR, "custom", "x where the mask is not zero, else y.", cost="op.vsel",
    spellings=("sel", "sels", "tile.select"), held=(0,),
)
LRELU = OpSpec(
    "lrelu", VECTOR, "custom", "x where it is positive, slope times x elsewhere.", cost="op.vlrelu",
    spellings=("lrelu", "prelu"),
)
EXPANDS = OpSpec("expands", VECTOR, "custom", "A tile of the target's shape, filled with a number.", cost="op.vcopy")

ALL = (
    ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, FMOD, REM, AND, OR, XOR, SHL, SHR, POW, ADD_RELU, NEG, EXP, LOG, SQRT,
    RSQRT, RECIP, RELU, ABS, SIN, COS, NOT, ADDC, SUBC, AXPY, CAST, CMP, SEL, LRELU, EXPANDS,
)


# fmt: off

# --- a column [M, 1] or a row [1, N] over a tile

# what is done -> kernel, cost, sentence, roles
_WITH: dict[str, tuple[Numeric, str, str, tuple[OpRole, ...]]] = {
    "add": (np.add, "op.vadd", "x + v", (OpRole.TERM,)),
    "sub": (np.subtract, "op.vadd", "x - v", (OpRole.TERM,)),
    "mul": (np.multiply, "op.vmul", "x · v", (OpRole.PRODUCT,)),
    "div": (div, "op.vdiv", "x / v", (OpRole.QUOTIENT,)),
    "max": (maximum, "op.vmax", "The larger of x and v", ()),
    "min": (minimum, "op.vmax", "The smaller of x and v", ()),
    "expdif": (expdif, "op.vexp", "e to the x - v", ()),
}


def _spread(prefix: str, axis: Axis, what: str) -> OpSpec:
    kernel, cost, sentence, roles = _WITH[what]
    vector = "a column [M, 1]" if axis == "rows" else "a row [1, N]"
    return OpSpec(
        f"{prefix}_expand_{what}", VECTOR, "spread", f"{sentence}, v {vector}.", cost=cost,
        like="as with a whole tile; what spreading v takes is not known", numeric=kernel, axis=axis, held=(1,),
        roles=roles, options={"tmp": None} if (axis, what) == ("rows", "add") else {},
    )


ROW_EXPAND = OpSpec(
    "row_expand", VECTOR, "spread", "A column [M, 1] over the columns of a tile of the target's shape.",
    cost="reduce.row_expand", axis="rows", held=(1,), roles=(OpRole.KEEPS_VALUES,),
)
COL_EXPAND = OpSpec(
    "col_expand", VECTOR, "spread", "A row [1, N] over the rows of a tile of the target's shape.", cost="op.vcopy",
    like="a copy of each row", axis="columns", held=(1,), roles=(OpRole.KEEPS_VALUES,),
)

SPREADS = (
    ROW_EXPAND, COL_EXPAND, *(_spread("row", "rows", what) for what in _WITH),
    *(_spread("col", "columns", what) for what in _WITH),
)
