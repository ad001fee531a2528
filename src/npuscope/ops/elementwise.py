"""Ops that work element by element, with another tile or with a number."""

from __future__ import annotations

import numpy as np

from npuscope.ops.numeric import elementwise as numeric
from npuscope.ops.spec import VECTOR, OpSpec, Role

# fmt: off

_WHOLE = "whole numbers"

# --- two operands

ADD = OpSpec(
    "add", VECTOR, "binary", "x + y.", cost="op.vadd", with_number="op.vadds", numeric=np.add,
    spellings=("add", "adds", "part_add"), roles=(Role.SUM, Role.TERM),
)
SUB = OpSpec(
    "sub", VECTOR, "binary", "x - y.", cost="op.vadd", with_number="op.vadds", numeric=np.subtract,
    spellings=("sub", "subs"), roles=(Role.TERM,),
)
MUL = OpSpec(
    "mul", VECTOR, "binary", "x · y.", cost="op.vmul", with_number="op.vmuls", numeric=np.multiply,
    spellings=("mul", "muls", "part_mul"), roles=(Role.PRODUCT,),
)
DIV = OpSpec(
    "div", VECTOR, "binary", "x / y; between whole numbers cut towards zero.", cost="op.vdiv", with_number="op.vdivs",
    numeric=numeric.div, spellings=("div", "divs"), roles=(Role.QUOTIENT,),
)
MAXIMUM = OpSpec(
    "maximum", VECTOR, "binary", "The larger of x and y.", cost="op.vmax", with_number="op.vmaxs",
    numeric=numeric.maximum, spellings=("maximum", "maximums", "part_max"),
)
MINIMUM = OpSpec(
    "minimum", VECTOR, "binary", "The smaller of x and y.", cost="op.vmax", with_number="op.vmins",
    numeric=numeric.minimum, spellings=("minimum", "minimums", "part_min"),
)
FMOD = OpSpec(
    "fmod", VECTOR, "binary", "x - trunc(x / y) · y, with the sign of x.", cost="op.vdiv", like="it divides, and more",
    numeric=numeric.fmod, spellings=("fmod", "fmods"), storage="apart",
)
REM = OpSpec(
    "rem", VECTOR, "binary", "x - floor(x / y) · y, with the sign of y.", cost="op.vdiv", like="it divides, and more",
    numeric=numeric.rem, spellings=("rem", "rems"),
)
AND = OpSpec(
    "and", VECTOR, "binary", "Bits set in both.", cost="op.vand", numeric=numeric.bit_and, bits=True, types=_WHOLE,
    spellings=("and_", "ands"),
)
OR = OpSpec(
    "or", VECTOR, "binary", "Bits set in either.", cost="op.vand", numeric=numeric.bit_or, bits=True, types=_WHOLE,
    spellings=("or_", "ors"),
)
XOR = OpSpec(
    "xor", VECTOR, "binary", "Bits set in one of them.", cost="op.vand", like="no cost of it is public",
    numeric=numeric.bit_xor, bits=True, types=_WHOLE, spellings=("xor", "xors"),
)
SHL = OpSpec(
    "shl", VECTOR, "binary", "Bits moved up by y places.", cost="op.vshl", numeric=numeric.shift_left, bits=True,
    types=_WHOLE, spellings=("shl", "shls"),
)
SHR = OpSpec(
    "shr", VECTOR, "binary", "Bits moved down by y places.", cost="op.vshl", numeric=numeric.shift_right, bits=True,
    types=_WHOLE, spellings=("shr", "shrs"),
)

# --- one operand

NEG = OpSpec("neg", VECTOR, "unary", "-x.", cost="op.vadds", like="a pass with a number", numeric=np.negative)
EXP = OpSpec("exp", VECTOR, "unary", "e to the x.", cost="op.vexp", numeric=np.exp)
LOG = OpSpec("log", VECTOR, "unary", "The natural logarithm.", cost="op.vln", numeric=np.log)
SQRT = OpSpec("sqrt", VECTOR, "unary", "The square root.", cost="op.vsqrt", numeric=np.sqrt)
RSQRT = OpSpec("rsqrt", VECTOR, "unary", "1 / √x.", cost="op.vrsqrt", numeric=numeric.rsqrt, storage="apart")
RECIP = OpSpec(
    "recip", VECTOR, "unary", "1 / x.", cost="op.vdiv", like="no cost of it is public", numeric=numeric.recip,
    storage="apart",
)
RELU = OpSpec("relu", VECTOR, "unary", "x where it is positive, else 0.", cost="op.vmaxs", numeric=numeric.relu)
ABS = OpSpec("abs", VECTOR, "unary", "x without its sign.", cost="op.vabs", numeric=np.abs)
SIN = OpSpec("sin", VECTOR, "unary", "The sine.", cost="op.vexp", like="no cost of it is public", numeric=np.sin)
COS = OpSpec("cos", VECTOR, "unary", "The cosine.", cost="op.vexp", like="no cost of it is public", numeric=np.cos)
NOT = OpSpec(
    "not", VECTOR, "unary", "Every bit turned over.", cost="op.vand", numeric=numeric.invert, bits=True, types=_WHOLE,
    spellings=("not_",),
)

# --- of their own

CAST = OpSpec(
    "cast", ("vector", "move"), "own", "Another type; an accumulator may change its type on its way out.",
    cost="op.vconv", widening="op.vconv_widen", storage="apart_if_wider",
    roles=(Role.CAST, Role.KEEPS_VALUES, Role.KEEPS_ZEROS),
)
CMP = OpSpec(
    "cmp", VECTOR, "own", "0 or 1 of x's type: 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=.", cost="op.vcmp",
    spellings=("cmp", "cmps"),
)
SEL = OpSpec(
    "sel", VECTOR, "own", "x where the mask is not zero, else y.", cost="op.vsel", spellings=("sel", "sels"), held=(0,),
)
LRELU = OpSpec(
    "lrelu", VECTOR, "own", "x where it is positive, slope times x elsewhere.", cost="op.vlrelu",
    spellings=("lrelu", "prelu"),
)
EXPANDS = OpSpec("expands", VECTOR, "own", "A tile of the target's shape, filled with a number.", cost="op.vcopy")

ALL = (
    ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, FMOD, REM, AND, OR, XOR, SHL, SHR, NEG, EXP, LOG, SQRT, RSQRT, RECIP, RELU,
    ABS, SIN, COS, NOT, CAST, CMP, SEL, LRELU, EXPANDS,
)
