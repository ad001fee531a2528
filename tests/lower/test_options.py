"""Options of lowering belong to the program: whoever takes a program takes no second ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import npuscope
import npuscope.tile as pl
from npuscope.check.run import check
from npuscope.lower.lowering import LoweringOptions
from npuscope.time.run import simulate
from tests.lower.kernels import program

ROOT = Path(npuscope.__file__).parent
MODULES = [
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for folder in ("lower", "check", "simulate")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "__init__.py"
]


@pl.jit
def handed(x: pl.Tensor[[16, 64], pl.BF16], w: pl.Tensor[[64, 512], pl.BF16], y: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="handed"):
        for n in pl.pipeline(0, 512, 64, stage=2):
            product = pl.matmul(x[:, :], w[:, n : n + 64], out_dtype=pl.FP32)
            y = pl.assemble(y, pl.exp(pl.add(product, 1.0)), [0, n])
    return y


def test_checks_and_the_simulator_lower_as_the_program_says() -> None:
    # GIVEN a product that goes through the ring to the vector cores
    two = program(handed)
    eight = replace(two, lowering=LoweringOptions(ring_slots=8))
    # WHEN the ring has eight slots THEN the simulated block turns through eight, and the plan keeps room for them
    assert [max(simulate(p).prepared.classes.streams[0].copies) for p in (two, eight)] == [2, 8]
    used = [next(line.used for line in check(p).memory if line.kernel == "handed_aiv") for p in (two, eight)]
    assert used[1] - used[0] == 6 * 16 * 64 * 4


def functions(module: ModuleType) -> Iterator[Callable[..., object]]:
    for value in vars(module).values():
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            yield value


@pytest.mark.parametrize("name", MODULES)
def test_who_takes_a_program_takes_no_options_beside_it(name: str) -> None:
    for function in functions(import_module(name)):
        types = {str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()}
        assert not {"Program", "LoweringOptions"} <= types, function.__qualname__
