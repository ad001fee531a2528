# mypy: disable-error-code="arg-type,list-item"
"""Calls that cannot mean what the user wants: one sentence with the user's file and line, before anything runs."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.tile.golden import (
    ScalarSpec,
    TensorSpec,
    mapped_pool_ratio_allclose,
    ratio_allclose,
    ratio_reldiff,
    run_jit,
    validate_golden,
)

N = 16


@pl.jit
def scaled(
    x: pl.Tensor[[N, N], pl.FP32], y: pl.Out[pl.Tensor[[N, N], pl.FP32]], factor: pl.Scalar[pl.FP32]
) -> pl.Tensor:
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
        y[:, :] = pl.mul(x[:, :], factor)
    return y


X = TensorSpec("x", [N, N], np.float32, init_value=2.0)
Y = TensorSpec("y", [N, N], np.float32, is_output=True)
FACTOR = ScalarSpec("factor", np.float32, 3.0)
SPECS = [X, Y, FACTOR]


def golden(values) -> None:
    values["y"][:] = values["x"] * values["factor"]


def said(call, *arguments, **options) -> str:
    """The sentence, which must name a line of this file; nothing was run before it."""
    with pytest.raises(NpuscopeError) as error:
        call(*arguments, **options)
    sentence = str(error.value)
    assert sentence.startswith((f"{__file__}, line ", f"{os.path.relpath(__file__)}, line "))
    assert "\n" not in sentence
    return sentence.removeprefix(f"{__file__}, line ").partition(": ")[2]


def test_a_right_call_passes() -> None:
    assert run_jit(scaled, SPECS, golden).passed
    assert run_jit(scaled, (spec for spec in SPECS), golden).passed
    other = TensorSpec("anything", [N, N], np.float32, init_value=2.0)
    assert run_jit(scaled, [other, Y, FACTOR], lambda v: v["y"].fill(6)).passed


def test_the_line_is_the_users() -> None:
    with pytest.raises(NpuscopeError) as error:
        run_jit(scaled, SPECS, golden, rtol=-1)
    assert error.value.line == sys._getframe().f_lineno - 1


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        ([Y, X, FACTOR], "the parameters are x, y, factor, the specs y, x, factor"),
        ([X, FACTOR, Y], "the spec 'factor' stands at the place of the parameter y"),
        ([X], "scaled() takes 3 arguments and gets 1 specs: the parameters are x, y, factor, the specs x"),
        ([*SPECS, TensorSpec("z", [1], np.float32)], "scaled() takes 3 arguments and gets 4 specs"),
        ([], "gets 0 specs"),
        ([X, Y, X], "two specs have the name 'x'"),
        ([X, Y, TensorSpec("f", [2], np.float32)], "factor of scaled() is a scalar, its spec a TensorSpec"),
        ([ScalarSpec("s", np.float32, 1.0), Y, FACTOR], "x of scaled() is a tensor, its spec a ScalarSpec"),
        ([X, Y, 3.0], "specs holds the float '3.0' at place 2"),
        (None, "specs must be a list of TensorSpec and ScalarSpec, not None"),
        ("xyz", "not the str 'xyz'"),
        (3, "not the int '3'"),
        ({"x": X}, "not the dict"),
        (X, "not the TensorSpec"),
    ],
)
def test_specs_that_are_not_the_programs(specs, sentence) -> None:
    assert sentence in said(run_jit, scaled, specs, golden)


def test_of_many_specs_those_from_the_first_that_differs_are_named() -> None:
    names = [f"p{i}" for i in range(40)]
    space: dict = {"pl": pl}
    exec(f"def many({', '.join(names)}): ...", space)
    specs = [TensorSpec(name, [1], np.float32) for name in [*names[:30], names[31], names[30], *names[32:]]]
    sentence = said(run_jit, pl.jit(space["many"]), specs)
    shown = ", ".join(names[32:])
    assert f"the parameters are …, p30, p31, {shown}, the specs …, p31, p30, {shown}" in sentence


@pytest.mark.parametrize("program", [None, "scaled", 3, int])
def test_what_is_no_program(program) -> None:
    assert "needs a @pl.jit function or a @pl.program class, not " in said(run_jit, program, SPECS, golden)


def test_a_function_without_pl_jit() -> None:
    def plain(x, y, factor) -> None:
        y[:] = x * factor

    assert said(run_jit, plain, SPECS, golden) == "plain ran no tile program. Is @pl.jit missing?"


def one_value(values, more) -> None: ...
def deletes(values) -> None:
    del values["y"]


def replaces(values) -> None:
    values["y"] = None


def misspells(values) -> None:
    values["Y"][:] = 1


def spoils(values) -> None:
    values["x"] *= 2


@pytest.mark.parametrize(
    ("golden_fn", "sentence"),
    [
        ("golden", "golden_fn must be a function, not the str 'golden'"),
        (3, "golden_fn must be a function, not the int '3'"),
        (one_value, "one_value() cannot be called with one argument, the values by name"),
        (deletes, "the golden deletes 'y', an output"),
        (replaces, "the golden leaves None for the output 'y', no numbers"),
        (spoils, "the golden writes to an input, which is read-only. The spec of an output says is_output=True."),
        (misspells, "the golden asks for 'Y'. There are x, y, factor."),
    ],
)
def test_goldens_that_leave_no_output(golden_fn, sentence) -> None:
    assert sentence in said(run_jit, scaled, SPECS, golden_fn)


def test_a_golden_may_ask_whether_there_is_a_tensor() -> None:
    def asks(values) -> None:
        try:
            values["bias"]
        except KeyError:
            golden(values)

    assert run_jit(scaled, SPECS, asks).passed


def none(actual, expected, **context) -> None: ...
def many(actual, expected, **context):
    return actual == expected, ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rtol": "a"}, "rtol must be a number, not the str 'a'"),
        ({"atol": None}, "atol must be a number, not None"),
        ({"rtol": -1e-5}, "rtol must be 0 or more, not -1e-05"),
        ({"atol": float("nan")}, "atol must be 0 or more, not nan"),
        ({"compare_fn": {"z": ratio_allclose()}}, "compare_fn has 'z', which is no output. Outputs: y."),
        ({"compare_fn": ratio_allclose()}, "compare_fn must be a dict of comparators by output"),
        ({"compare_fn": {"y": 3}}, "compare_fn of 'y' must be a comparator, not the int '3'"),
        ({"compare_fn": {"y": lambda a, b: (True, "")}}, "cannot be called with (actual, expected, *, actual_outputs"),
        ({"compare_fn": {"y": none}}, "the comparator none of 'y' returned None, not (ok, message)"),
        ({"compare_fn": {"y": many}}, "the comparator many of 'y' returned the tuple"),
        ({"seed": "a"}, "seed must be a whole number from 0, not the str 'a'"),
        ({"seed": -1}, "seed must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number from 0"),
        ({"golden_data": 3}, "golden_data must be a folder, not the int '3'"),
        ({"save_data": ""}, "save_data must be a folder, not the str ''"),
        ({"compile_cfg": "fast"}, "compile_cfg must be a dict, not the str 'fast'"),
    ],
)
def test_options_that_mean_nothing(options, sentence) -> None:
    assert sentence in said(run_jit, scaled, SPECS, golden, **options)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TensorSpec(3, [1], np.float32), "the name of a TensorSpec must be a str, not the int '3'"),
        (lambda: TensorSpec("x", 3, np.float32), "'x': shape must be a list of whole numbers from 0, not the int '3'"),
        (lambda: TensorSpec("x", [1, -1], np.float32), "shape must be a list of whole numbers from 0"),
        (lambda: TensorSpec("x", [1.5], np.float32), "shape must be a list of whole numbers from 0"),
        (lambda: TensorSpec("x", [1], "bf17"), "TensorSpec 'x': the str 'bf17' is no dtype of tensors"),
        (lambda: TensorSpec("x", [1], np.float32, resident=True), "TensorSpec 'x': resident=True"),
        (lambda: ScalarSpec("s", np.int8, 300), "ScalarSpec 's': the int '300' is out of range"),
        (lambda: ScalarSpec("s", np.float32, 10**400), "is out of range"),
        (lambda: ScalarSpec("s", np.float32, np.complex64(1j)), "requires int or float value, got complex64"),
        (lambda: ratio_allclose(atol=-1), "atol must be 0 or more, not -1"),
        (lambda: ratio_allclose(max_error_ratio=2), "max_error_ratio must be in [0, 1], not 2"),
        (lambda: ratio_allclose(valid_rows="all"), "valid_rows must be a whole number, not the str 'all'"),
        (lambda: ratio_reldiff("a"), "diff_thd must be a number, not the str 'a'"),
        (lambda: ratio_reldiff(0), "diff_thd must be more than 0"),
        (lambda: mapped_pool_ratio_allclose("m", mapping_shape=4, block_size=2), "must be whole numbers, got 4 and 2"),
        (lambda: validate_golden({"y": np.ones(1)}, {"y": np.ones(1)}, atol=-1), "atol must be 0 or more"),
    ],
)
def test_parts_that_cannot_be(make, sentence) -> None:
    assert sentence in said(make)


@pytest.mark.parametrize(
    ("dtype", "init", "sentence"),
    [
        (np.float32, 1 + 2j, "init_value is the complex '(1+2j)', no number, tensor or callable"),
        (np.float32, np.array([1j]), "no real numbers"),
        (np.float32, lambda: np.array([1j]), "no real numbers"),
        (np.float32, lambda: None, "init_value gives None, no real numbers"),
        (np.float32, lambda: [[1, 2], [3]], "no real numbers"),
        (np.float32, "randn", "init_value is the str 'randn'"),
        pytest.param(np.float32, 10**400, "out of range", id="huge"),
        (np.int8, 300, "init_value is the int '300', out of range for"),
        (np.int32, float("nan"), "init_value is the float 'nan', out of range for"),
        (np.float32, np.ones(2), "init_value has shape (2,), the spec (1,)"),
    ],
)
def test_values_that_no_tensor_is_made_from_are_said_at_the_specs_line(dtype, init, sentence) -> None:
    spec = TensorSpec("x", [1], dtype, init_value=init)
    made = sys._getframe().f_lineno - 1
    with pytest.raises(NpuscopeError) as error:
        spec.create_tensor()
    assert sentence in str(error.value)
    assert (error.value.path, error.value.line) == (__file__, made)


def test_several_ranks_and_nobody_says_how_many() -> None:
    @pl.jit.host
    def ring(x: pl.Tensor[[N, N], pl.FP32]) -> None: ...

    assert "ring() runs on several ranks and nobody says how many" in said(run_jit, ring, [X])


def test_a_comparator_of_an_input_is_noted(capsys) -> None:
    assert run_jit(scaled, SPECS, golden, compare_fn={"x": ratio_allclose()}).passed
    assert "note: compare_fn has 'x', which is no output: nothing is compared" in capsys.readouterr().out
