"""Rules that read the source: how casts round, spellings of before June 2026, and a normalisation without its root."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts import findings, line_of

from npuscope.check.rules.source import faulty_lines

CASTS = """
@pl.jit
def narrow(x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="narrow"):
        tile = {cast}
        for i in pl.range(3):
            out[0:1, :] = pl.cast(tile, target_type=pl.FP32)[0:1, :]
    return out

narrow(np.zeros((16, 64), np.float32), np.zeros((16, 64), np.float32))
"""


@pytest.mark.parametrize(
    ("cast", "told"),
    [
        ("pl.cast(x[:, :], target_type=pl.BF16)", "FP32 to BF16"),
        ("pl.cast(x[:, :], pl.INT32)", "FP32 to INT32"),
        ('pl.cast(pl.cast(x[:, :], pl.INT32, mode="rint"), pl.FP16)', "INT32 to FP16"),
        ('pl.cast(x[:, :], target_type=pl.BF16, mode="rint")', ""),
        ('pl.cast(x[:, :], target_type=pl.BF16, mode="round")', ""),  # said, so meant
        ("pl.cast(pl.full([16, 64], dtype=pl.FP32, value=0.0), target_type=pl.BF16)", ""),
        ("pl.cast(pl.add(pl.cast(pl.arange(0, [1, 64], dtype=pl.INT32), pl.FP32), 1.0), pl.INT32)", ""),  # a counter
    ],
)
def test_only_casts_that_lose_bits_in_the_default_mode(tmp_path: Path, cast: str, told: str) -> None:
    text = CASTS.replace("{cast}", cast)
    found = findings(tmp_path, text, "rounding-mode")
    assert [f.line for f in found] == ([line_of(text, "tile = ")] if told else [])
    assert all(told in f.message for f in found)


def test_the_mode_to_give_is_shown(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, CASTS.replace("{cast}", "pl.cast(x[:, :], pl.BF16)"), "rounding-mode")
    assert found.change == 'tile = pl.cast(x[:, :], pl.BF16, mode="rint")'


def test_all_casts_of_a_file_are_one_finding(tmp_path: Path) -> None:
    text = CASTS.replace("{cast}", "pl.cast(x[:, :], pl.BF16)")
    text = text.replace("        for i", "        tile = pl.cast(pl.cast(tile, pl.FP32), pl.FP16)\n        for i")
    (found,) = findings(tmp_path, text, "rounding-mode")
    assert "casts on 2 lines (FP32 to BF16, FP32 to FP16)" in found.message
    assert [line for _, line in found.also] == [found.line + 1]


OLD = """
@pl.jit
def old(x: pl.Tensor[[64, 64], pl.FP32], out: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    # Scope 1: by hand
    with pl.incore():  # first
        out = pl.assemble(out, pl.slice(x, [16, 64], [0, 0]), [0, 0])
    with pl.incore():
        out = pl.assemble(out, pl.slice(x, [16, 64], [16, 0]), [16, 0])
    # Scope 2: by the compiler
    with pl.auto_incore():  # whole
        for i in pl.parallel(2, 3, 1, chunk=1):
            out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
        for i in pl.parallel(3, 4, 1, chunk=2):
            out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])
    return out


def never_run(x):
    with pl.incore():
        pass

old(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
"""


def test_each_scope_is_told_once_and_functions_that_did_not_run_never(tmp_path: Path) -> None:
    found = findings(tmp_path, OLD, "retired-spelling")
    assert [(f.line, f.count) for f in found] == [
        (line_of(OLD, "# first"), 2),
        (line_of(OLD, "# whole"), 1),
        (line_of(OLD, "chunk=1"), 1),
        (line_of(OLD, "chunk=2"), 1),
    ]
    assert found[0].change == "with pl.at(level=pl.Level.CORE_GROUP):  # first"
    assert [line for _, line in found[0].also] == [line_of(OLD, "# first") + 2]


def test_todays_spelling_is_fine(tmp_path: Path) -> None:
    new = OLD.replace("pl.incore()", "pl.at(level=pl.Level.CORE_GROUP)")
    new = (
        new.replace("    with pl.auto_incore():  # whole\n", "    if True:\n")
        .replace(", chunk=2", "")
        .replace(", chunk=1", "")
    )
    inner = "            out = pl.assemble(out, pl.slice(x, [16, 64], [i"
    new = new.replace(inner, f"            with pl.at(level=pl.Level.CORE_GROUP):\n {inner}")
    assert findings(tmp_path, new, "retired-spelling") == []


ID = "variance-not-rsqrt"
NORM = """
from npuscope.tile.golden import TensorSpec, run_jit

N, EPS = 256, 1e-6

@pl.jit
def norm(x: pl.Tensor[[16, N], pl.FP32], gamma: pl.Tensor[[1, N], pl.FP32], out: pl.Out[pl.Tensor[[16, N], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm"):
        squares = pl.full([1, 16], dtype=pl.FP32, value=0.0)
        for c in pl.range(0, N, 64):
            part = pl.slice(x, [16, 64], [0, c])
            squares = pl.add(squares, pl.reshape(pl.row_sum(pl.mul(part, part)), [1, 16]))
        mean = pl.add(pl.mul(squares, 1.0 / N), EPS)
        scale = pl.reshape({scale}, [16, 1])
        for c in pl.range(0, N, 64):
            part = pl.slice(x, [16, 64], [0, c])
            out = pl.assemble(out, pl.col_expand_mul({apply}, gamma[:, c : c + 64]), [0, c])
    return out

def golden(tensors):
    x = tensors["x"]
    mean = (x * x).mean(axis=1, keepdims=True) + EPS
    tensors["out"][:] = {golden}

run_jit(norm, [TensorSpec("x", [16, N], pl.FP32), TensorSpec("gamma", [1, N], pl.FP32),
               TensorSpec("out", [16, N], pl.FP32, is_output=True)], golden_fn=golden)
"""
RIGHT = "x / np.sqrt(mean) * tensors['gamma']"
SHARED = "x * mean * tensors['gamma']"


def norm(scale: str, apply: str = "pl.row_expand_mul(part, scale)", golden: str = RIGHT) -> str:
    return NORM.replace("{scale}", scale).replace("{apply}", apply).replace("{golden}", golden)


def test_a_norm_that_scales_by_the_mean_of_squares_is_found_where_it_multiplies(tmp_path: Path) -> None:
    text = norm("mean")
    (found,) = findings(tmp_path, text, ID)
    assert (found.severity, found.line, found.kernel) == ("warning", line_of(text, "col_expand_mul"), "norm")
    assert "pl.row_expand_mul(part, pl.rsqrt(scale))" in found.change


@pytest.mark.parametrize("scale", ["pl.rsqrt(mean)", "pl.recip(pl.sqrt(mean))"])
def test_with_a_root_nothing_is_found(tmp_path: Path, scale: str) -> None:
    assert findings(tmp_path, norm(scale, golden=SHARED), ID) == []


def test_dividing_needs_the_root_too(tmp_path: Path) -> None:
    assert len(findings(tmp_path, norm("mean", "pl.row_expand_div(part, scale)"), ID)) == 1
    assert findings(tmp_path, norm("pl.sqrt(mean)", "pl.row_expand_div(part, scale)"), ID) == []


def test_a_golden_that_shares_the_fault_is_named_too(tmp_path: Path) -> None:
    text = norm("mean", golden=SHARED)
    _, golden = findings(tmp_path, text, ID)
    assert golden.line == line_of(text, 'tensors["out"][:] =')
    assert "the golden" in golden.message


def test_other_data_may_be_scaled_by_a_mean_of_squares(tmp_path: Path) -> None:
    assert findings(tmp_path, norm("mean", "pl.row_expand_mul(pl.exp(part), scale)"), ID) == []


@pytest.mark.parametrize(
    ("body", "faulty"),
    [
        ("v = x.pow(2).mean(-1, keepdim=True) + eps; return x * v", True),
        ("x32 = x.float(); v = torch.mean(x32 ** 2, dim=-1); return (x32 * v).to(x.dtype)", True),
        ("v = np.square(x).sum(1) / n; y = x; y *= v", True),
        ("v = (x * x).mean() + eps; return x * (v if bad else 1 / np.sqrt(v))", True),
        ("v = (x * x).mean() + eps; return x / v", True),
        ("v = (x * x).mean() + eps; return x * torch.rsqrt(v)", False),
        ("v = (x * x).mean() + eps; v = v ** -0.5; return x * v", False),
        ("v = torch.rsqrt(x.pow(2).mean(-1) + eps); return x * v", False),
        ("v = np.sqrt((x * x).mean() + eps); return x / v", False),
        ("v = (x * x).mean(); return y * v", False),  # of something else
        ("v = x.mean(); return x * v", False),
        ("v = 0.9 * old + 0.1 * (x * x).mean(); return v * 2", False),
    ],
)
def test_goldens_are_read_not_run(body: str, faulty: bool) -> None:
    (function,) = ast.parse("def golden(x):\n" + "".join(f"    {line}\n" for line in body.split("; "))).body
    assert isinstance(function, ast.FunctionDef)
    assert bool(faulty_lines(function)) is faulty


def test_without_a_golden_function_those_named_like_one_are_read(tmp_path: Path) -> None:
    text = norm("mean", golden=SHARED).replace("golden_fn=golden", "golden_fn=None")
    assert len(findings(tmp_path, text, ID)) == 2
