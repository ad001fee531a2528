"""Precision as people debug it: planted faults, each found at its op and line, and versions held against each other."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec
from npuscope.tile.golden.runner import run
from npuscope.tile.golden.traced import beside_golden, beside_version
from npuscope.tile.run.execute import collecting, record, watched

CORE = pl.Level.CORE_GROUP
ONES = np.ones((16, 32), np.float32)


def traced(body: Any, x: np.ndarray = ONES) -> Any:
    """The events of a program of one task whose output is what `body` makes of its input."""

    @pl.jit
    def program(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        with pl.at(level=CORE, name_hint="kernel"):
            y[:] = body(pl.load(x, [0, 0], [16, 32]))
        return y

    with watched(), collecting() as runs:
        program(x.copy(), np.zeros((16, 32), np.float32))
    return beside_golden(runs[0], None).events


def holed(x: Any) -> Any:
    tile = pl.create_tile([16, 32], pl.FP32)
    return pl.add(pl.tile.assemble(tile, pl.slice(x, [16, 16], [0, 0]), [0, 0]), x)  # its right half is nobody's


def padded(x: Any) -> Any:
    return pl.row_expand_sub(x, pl.row_max(pl.fillpad(pl.set_validshape(x, 16, 20), pl.PadValue.min)))


def half(x: Any, factor: float) -> Any:
    return pl.cast(pl.mul(x, factor), pl.FP16)


PLANTED = {
    "NaN of a logarithm": (lambda x: pl.exp(pl.log(pl.sub(x, 2.0))), ("NaN", "log", 512)),
    "infinity of a quotient": (lambda x: pl.add(pl.div(x, pl.sub(x, 1.0)), 3.0), ("infinity", "div", 512)),
    "too large for FP16": (lambda x: pl.cast(half(x, 7e4), pl.FP32), ("overflow", "cast", 512)),
    "too large for INT8": (lambda x: pl.cast(pl.cast(half(x, 300.0), pl.INT8), pl.FP16), ("overflow", "cast", 512)),
    "a sum too large for FP16": (lambda x: pl.add(half(x, 6e4), half(x, 6e4)), ("overflow", "add", 512)),
    "a tile that is written in part": (holed, ("never written", "add", 256)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_op_that_made_it_is_named(name: str) -> None:
    body, wanted = PLANTED[name]
    first, *_ = traced(lambda x: pl.cast(body(x), pl.FP32) if "FP16" in name or "INT8" in name else body(x))
    assert (first.kind, first.op, first.elements) == wanted
    assert first.kernel == "kernel"
    assert first.site.file == __file__


def test_sound_programs_have_no_events() -> None:
    assert not traced(padded)
    assert not traced(lambda x: pl.cast(pl.cast(x, pl.BF16), pl.FP32))


def test_differences_are_counted_where_both_numbers_are_finite() -> None:
    def grown(by: float) -> Any:
        @pl.jit
        def program(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
            with pl.at(level=CORE):
                y[:] = pl.exp(pl.mul(pl.load(x, [0, 0], [16, 32]), by))
            return y

        return program

    x, y = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    x[0, :2] = 50.0, 1.0
    mine, other = (record(grown(by), x, y.copy()) for by in (1.0, 2.0))
    apart = beside_version(mine, other, "twice").first.apart
    assert (apart.differing, apart.largest) == (2, pytest.approx(np.e**2 - np.e, rel=1e-6))
    assert apart.relative == pytest.approx((np.e**2 - np.e) / np.hypot(np.e**2, np.sqrt(510)), rel=1e-5)
    x[0, 1] = 0.0
    mine, other = (record(grown(by), x, y.copy()) for by in (1.0, 2.0))
    first = beside_version(mine, other, "twice").first
    assert (first.apart.largest, first.apart.relative) == (None, None)
    assert "all of them NaN or infinite on one side" in first.text()


def test_nan_in_the_input_is_said_once_and_where_it_is_loaded() -> None:
    x = ONES.copy()
    x[3, 4] = np.nan
    (event,) = traced(lambda x: pl.mul(pl.add(x, 1.0), 2.0), x)
    assert (event.kind, event.op, event.elements, event.index) == ("NaN", "load", 1, (3, 4))


def test_memory_that_nobody_wrote_comes_before_the_nan_that_follows_from_it() -> None:
    @pl.jit
    def program(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        half = pl.create_tensor([16, 32], dtype=pl.FP32)
        whole = pl.create_tensor([16, 32], dtype=pl.FP32)
        with pl.at(level=CORE, name_hint="first"):
            half[0:8, :] = x[0:8, :]
        with pl.at(level=CORE, name_hint="second"):
            whole[:] = pl.mul(half, 2.0)
        with pl.at(level=CORE, name_hint="third"):
            y[:] = pl.add(whole, 1.0)
        return y

    with watched(), collecting() as runs:
        program(ONES.copy(), np.zeros((16, 32), np.float32))
    events = beside_golden(runs[0], None).events
    assert [(event.kind, event.kernel) for event in events] == [("never written", ""), ("NaN", "third")]


def steps(wrong: bool) -> Any:
    @pl.jit
    def program(x: pl.Tensor[[64, 32], pl.FP32], y: pl.Out[pl.Tensor[[64, 32], pl.FP32]]):
        first = pl.create_tensor([64, 32], dtype=pl.FP32, name="first")
        second = pl.create_tensor([64, 32], dtype=pl.FP32, name="second")
        for i in pl.range(4):
            with pl.at(level=CORE, name_hint="double"):
                first[i * 16 : i * 16 + 16, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 2.0)
        for i in pl.range(4):
            with pl.at(level=CORE, name_hint="shift"):
                by = 1.5 if wrong and i == 2 else 1.0
                second[i * 16 : i * 16 + 16, :] = pl.add(first[i * 16 : i * 16 + 16, :], by)
        with pl.at(level=CORE, name_hint="sum"):
            y[:] = pl.add(second, first)
        return y

    return program


def test_the_first_tensor_that_differs_comes_before_what_is_made_of_it() -> None:
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    good, bad = (record(steps(wrong), x.copy(), np.zeros_like(x)) for wrong in (False, True))
    trace = beside_version(bad, good, "the good one")
    assert [one.name for one in trace.tensors] == ["x", "first", "second", "y"]
    assert [one.apart is not None for one in trace.tensors] == [False, False, True, True]
    assert trace.first is not None
    apart = trace.first.apart
    assert apart is not None
    assert (apart.differing, apart.index) == (16 * 32, (32, 0))
    assert apart.largest == pytest.approx(0.5, rel=1e-5)
    assert "shift (task 6)" in apart.writer
    assert [value > 0 for value in apart.along[0]] == [32 <= row < 48 for row in range(64)]


@pl.jit
def copied(x: pl.Tensor[[2, 8], pl.FP32], y: pl.Out[pl.Tensor[[2, 8], pl.FP32]]):
    with pl.at(level=CORE):
        y[:] = pl.reshape(x, [2, 8])
    return y


@given(st.lists(st.sampled_from([0.0, -0.0, 1.5, np.nan, np.inf]), min_size=16, max_size=16), st.data())
@examples(20)
def test_bits_decide_and_as_many_elements_differ_as_were_changed(values: list[float], data: st.DataObject) -> None:
    changed = sorted(data.draw(st.sets(st.integers(0, 15))))
    one = np.array(values, np.float32).reshape(2, 8)
    other = one.copy()
    other.view(np.uint32).reshape(-1)[changed] ^= 0x80000000  # only the sign, of NaN and 0 too
    mine, theirs = (record(copied, x, np.zeros_like(x)) for x in (one, other))
    _, y = beside_version(mine, theirs, "the other").tensors
    assert (y.apart is None) == (not changed)
    if y.apart is not None:
        assert (y.apart.differing, y.apart.index) == (len(changed), divmod(changed[0], 8))


def test_outputs_are_held_to_the_golden_within_its_tolerance() -> None:
    def golden(values: dict[str, Any]) -> None:
        values["y"][:] = values["x"] * 4 + 1
        values["y"][5, 7] += 1

    specs = [
        TensorSpec("x", [64, 32], np.float32, init_value=1.0),
        TensorSpec("y", [64, 32], np.float32, is_output=True),
    ]
    with watched():
        result = run(steps(False), specs, golden, rtol=1e-3, atol=1e-3)
    assert not result.passed
    trace = beside_golden(result.run, result)  # type: ignore[arg-type]
    assert trace.first is not None
    assert trace.first.apart is not None
    assert (trace.first.name, trace.first.apart.differing, trace.first.apart.index) == ("y", 1, (5, 7))


SCRIPT = """
import numpy as np
import pypto.language as pl
from factors import FACTOR

@pl.jit
def scaled(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
        y[:] = pl.mul(x, FACTOR)
    return y

for _ in range(2):
    y = np.zeros((16, 32), np.float32)
    scaled(np.ones((16, 32), np.float32), y)
    assert y[0, 0] == 2.0
"""


def test_both_sides_of_a_git_change(tmp_path: Path) -> None:
    file = tmp_path / "scaled.py"
    file.write_text(SCRIPT)
    tmp_path.joinpath("factors.py").write_text("FACTOR = 2.0\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    same = npuscope("run", file, "--against", "HEAD", "--json")
    assert same.returncode == 0, same.stderr
    tmp_path.joinpath("factors.py").write_text("FACTOR = 3.0\n")  # the program itself stays as it is
    page = tmp_path / "difference.html"
    other = npuscope("run", file, "--against", "HEAD", "--json", "--html", page)
    assert other.returncode == 1, other.stderr
    assert "1 program ran here, 2 in HEAD: only what both ran is compared" in other.stderr  # the check ended it
    (values,) = json.loads(other.stdout)["values"]
    apart = {one["name"]: one["apart"] for one in values["tensors"]}
    assert apart["x"] is None
    assert (apart["y"]["differing"], apart["y"]["mine"], apart["y"]["other"]) == (512, 3.0, 2.0)
    assert "Where y differs, along its rows" in page.read_text()
    unknown = npuscope("run", file, "--against", "nowhere")
    assert (unknown.returncode, "neither a file nor a revision" in unknown.stderr) == (2, True)
