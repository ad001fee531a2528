"""A normalisation without its root, in the kernel and in the golden that shares the fault."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts import findings, line_of

from npuscope.check.rules.source import faulty_lines

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
