"""The constant that an overflow names: at the value it says everything fits, at the next multiple of 16 it does not."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from npuscope.check.run import Fit, fit
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.run.execute import record
from tests.lower.kernels import tensor

PROJECTION = """
import npuscope.tile as pl

M, K, N = 16, 2048, 4096
TK = {TK}
TN = {TN}


@pl.jit
def main(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="projection"):
        acc = pl.matmul(x[:, 0:TK], w[0:TK, 0:TN], out_dtype=pl.FP32)
        for k in pl.pipeline(TK, 3 * TK, TK, stage=2):
            acc = pl.matmul_acc(acc, x[:, k : k + TK], w[k : k + TK, 0:TN])
        out = pl.assemble(out, acc, [0, 0])
    return out
"""

NORM = """
import npuscope.tile as pl

ROWS, WIDTH = 8, 16384
CHUNK = {CHUNK}


@pl.jit
def main(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm"):
        for i in pl.pipeline(2, stage=2):
            rows = pl.slice(x, [ROWS, CHUNK], [0, i * CHUNK])
            squares = pl.mul(rows, rows)
            out = pl.assemble(out, pl.add(rows, squares), [0, i * CHUNK])
    return out
"""

PRODUCT = """
import npuscope.tile as pl

TILE_M, TILE_N, TILE_K = {TILE_M}, {TILE_N}, {TILE_K}


@pl.jit
def main(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        total = pl.matmul(x[0:TILE_M, 0:TILE_K], w[0:TILE_K, 0:TILE_N], out_dtype=pl.FP32)
        for k in pl.range(TILE_K, 3 * TILE_K, TILE_K):
            total = pl.matmul_acc(total, x[0:TILE_M, k : k + TILE_K], w[k : k + TILE_K, 0:TILE_N])
        out = pl.assemble(out, total, [0, 0])
    return out
"""


def planned(text: str, folder: Path, **constants: int) -> Fit:
    """A program whose constants have these values, in a file as a user has it."""
    name = "_".join(["extents", *(f"{key}{value}" for key, value in constants.items())])
    path = folder / f"{name}.py"
    path.write_text(text.format(**constants))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    arguments: tuple[Any, ...]
    if "w:" in text:
        rows = constants.get("TILE_M", 16)
        arguments = tensor((rows, 2048), "BF16"), tensor((2048, 4096), "BF16"), tensor((rows, 4096), "FP32")
    else:
        arguments = tensor((8, 16384), "FP32"), tensor((8, 16384), "FP32")
    return fit(Program(record(module.main, *arguments, mode="shapes").recording, load("910b1")))


def named(found: Fit) -> tuple[str, int, int]:
    """The constant that the error names, its value, and the largest that fits."""
    told = {re.findall(r"(\w+) = (\d+) is too large: up to (\d+) fits", error.remedy)[0] for error in found.errors}
    ((name, value, largest),) = told  # the same of every space
    return name, int(value), int(largest)


@pytest.mark.parametrize(
    ("text", "constants", "constant"),
    [
        # 2·512·512·2 + 2·16·512·2 = 1,081,344 of Mat: the innermost axis of the weight is named first
        (PROJECTION, {"TK": 512, "TN": 512}, "TN"),
        # a sum of [16, 4096] FP32 is 256 KiB, Acc has 128; a weight of [16, 4096] is 128 KiB, Right has 64
        (PROJECTION, {"TK": 16, "TN": 4096}, "TN"),
        # two loads of [8, 4096] FP32 side by side, and what is made of them: 3 · 128 KiB
        (NORM, {"CHUNK": 4096}, "CHUNK"),
    ],
)
def test_the_constant_fits_at_what_is_said_and_not_one_step_above(
    text: str, constants: dict[str, int], constant: str, tmp_path: Path
) -> None:
    found = planned(text, tmp_path, **constants)
    name, value, largest = named(found)
    assert (name, value) == (constant, constants[constant])
    assert planned(text, tmp_path, **{**constants, name: largest}).errors == ()
    assert planned(text, tmp_path, **{**constants, name: largest + 16}).errors != ()


def test_the_largest_divisor_is_named_where_it_is_another(tmp_path: Path) -> None:
    (error,) = planned(PROJECTION, tmp_path, TK=512, TN=512).errors
    assert re.search(r"up to (\d+) fits \(128 is the largest that divides 512\)", error.remedy)


def test_nothing_is_named_where_the_source_does_not_tell(tmp_path: Path) -> None:
    literal = PROJECTION.replace("0:TN", "0 : 500 + 12")
    (error,) = planned(literal, tmp_path, TK=512, TN=512).errors
    assert "TN" not in error.remedy


def test_an_operand_of_the_same_shape_as_its_product_has_constants_of_its_own(tmp_path: Path) -> None:
    """x and the sum are both [128, 512] on one line. A sum of 256 KiB cannot be cut, so x lies whole in Left: 128 KiB.

    Left fits with TILE_K = 256, then 64 KiB; with no TILE_K does the sum fit. Only a 950's Acc holds 256 KiB.
    """
    constants = {"TILE_M": 128, "TILE_N": 512, "TILE_K": 512}
    fixes = {error.message.split()[1]: error.remedy for error in planned(PRODUCT, tmp_path, **constants).errors}
    assert fixes == {
        "Mat": "TILE_N = 512 is too large: up to 256 fits.",
        "Left": "TILE_K = 512 is too large for Left: up to 256 fits there.",
        "Right": "TILE_N = 512 is too large: up to 256 fits.",
        "Acc": "TILE_N = 512 is too large: up to 256 fits."
        " Was it written for ascend950? Its Acc has 262144 (--device ascend950).",
    }
    assert planned(PRODUCT, tmp_path, **{**constants, "TILE_N": 256}).errors == ()
    left = [one for one in planned(PRODUCT, tmp_path, **{**constants, "TILE_K": 272}).errors if " Left " in one.message]
    assert left
