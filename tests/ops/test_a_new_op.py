"""A vector op is one OpSpec, as docs/howto/extend.md shows: it runs, is lowered, planned, timed and documented; a
keyword of it is an entry of its options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sessions import FENCE, ROOT

import npuscope.tile as pl
from docs.reference_pages import ops_page
from npuscope.chip.devices import load
from npuscope.lower.model import instructions
from npuscope.lower.program import Program
from npuscope.ops import elementwise, table
from npuscope.ops.spec import VECTOR, OpRole, OpSpec
from npuscope.report.reference import op_text, signatures
from npuscope.tile.calls.functions import FUNCTIONS
from npuscope.tile.fault import TileError
from npuscope.time.certainty import certainty_of
from npuscope.time.run import simulate

CHIP = load("ascend910b1")
PAGE = (ROOT / "docs/howto/extend.md").read_text()
RECIPES = [text for language, text in FENCE.findall(PAGE) if language == "python" and "OpSpec(" in text]
SHOWN: dict[str, Any] = {name: vars(elementwise)[name] for name in ("OpSpec", "VECTOR", "np")}
for recipe in RECIPES:
    exec(recipe, SHOWN)  # with the names that the file has where the page says to write it
SOFTCLIP: OpSpec = SHOWN["SOFTCLIP"]
SOFTSIGN: OpSpec = replace(SHOWN["SOFTSIGN"], spellings=("softsign", "ssign"))
ROW_RANGE = OpSpec(
    "row_range", VECTOR, "reduction", "Largest less smallest element of every row.", cost="reduce.row_max",
    like="two of them", numeric=lambda x: np.ptp(x, axis=-1, keepdims=True), axis="rows", scratch=True,
    storage="separate", roles=(OpRole.REDUCTION,),
)  # fmt: skip


ADDED = (SOFTSIGN, SOFTCLIP, ROW_RANGE)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """GIVEN ops that nothing but their specs knows of."""
    for spec in ADDED:
        table.add(spec)
    yield
    for spec in ADDED:
        del table.BY_NAME[spec.name]
        for spelling in spec.names:
            del table.BY_SPELLING[spelling]
            FUNCTIONS.pop(spelling, None)
    del table.FAMILIES[table.ADDED]


@pl.jit
def program(
    x: pl.Tensor[[128, 128], pl.FP32],
    y: pl.Out[pl.Tensor[[128, 128], pl.FP32]],
    r: pl.Out[pl.Tensor[[128, 1], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [128, 128])
        y = pl.store(pl.softsign(tile), [0, 0], y)
        r = pl.store(pl.tile.row_range(tile), [0, 0], r)
    return y


def test_a_program_computes_with_it_and_is_recorded() -> None:
    x = np.random.default_rng(0).standard_normal((128, 128), np.float32)
    y, r = np.zeros_like(x), np.zeros((128, 1), np.float32)
    program(x, y, r)
    np.testing.assert_allclose(y, x / (1 + np.abs(x)), rtol=1e-6)
    np.testing.assert_allclose(r[:, 0], x.max(axis=1) - x.min(axis=1), rtol=1e-6)


@pl.jit
def clipped(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [16, 32])
        y = pl.store(pl.add(pl.softclip(tile), pl.softclip(tile, limit=0.5, tmp=tile)), [0, 0], y)
    return y


def test_a_keyword_is_its_op_s_alone() -> None:
    x = np.linspace(-3, 3, 16 * 32, dtype=np.float32).reshape(16, 32)
    finished = clipped.record(x, np.zeros_like(x))
    np.testing.assert_allclose(finished.result, np.clip(x, -1, 1) + np.clip(x, -0.5, 0.5))
    ops = [op for op in finished.recording.bodies[0].items if op.name == "softclip"]
    assert [op.attributes for op in ops] == [(), (("limit", 0.5),)]
    assert signatures(SOFTCLIP) == ["pl.softclip(input, limit=1.0, tmp=None)"]
    assert signatures(SOFTSIGN) == ["pl.softsign · pl.ssign(input)"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: pl.softsign(x, limit=2.0), "pl.softsign() got an unexpected keyword argument 'limit'"),
        (lambda x: pl.softclip(x, 1.0, None, 3), "pl.softclip() too many positional arguments"),
        (lambda x: pl.softclip(x, limit=x), "pl.softclip: limit= cannot be [16, 32] FP32"),
        (lambda x: pl.exp(x, high_precision=True), "pl.exp() got an unexpected keyword argument"),
    ],
)
def test_an_option_that_an_op_has_not_is_refused_at_its_line(call: Callable[[object], object], said: str) -> None:
    @pl.jit
    def wrong(x: pl.Tensor[[16, 32], pl.FP32]):
        with pl.at(level=pl.Level.CORE_GROUP):
            call(pl.load(x, [0, 0], [16, 32]))

    with pytest.raises(TileError, match=re.escape(said)) as caught:
        wrong(np.zeros((16, 32), np.float32))
    assert caught.value.path == __file__


def test_it_is_lowered_planned_and_timed() -> None:
    tile, column = np.zeros((128, 128), np.float32), np.zeros((128, 1), np.float32)
    subject = Program(program.record(tile, tile, column, mode="shapes").recording, CHIP)
    (kernel,) = subject.planned.values()
    steps = {one.name: one for one in instructions(kernel.lowered.items)}
    assert steps["softsign"].pipe == "V"
    assert steps["row_range"].scratch  # room for a tile beside its operand
    run = simulate(subject)
    spent = {(one.op, one.place): one for one in certainty_of(run).parts}
    assert spent["softsign", "op.vdiv"].confidence == "guessed"
    assert spent["row_range", "reduce.row_max"].share > 0
    assert run.wall_ns > 0


def test_it_is_in_the_reference() -> None:
    row = "| `pl.softsign(input)`, also `pl.ssign` | x / (1 + \\|x\\|). | vector "
    assert row in ops_page()
    assert "1,054 cycles" in op_text(table.find("ssign"), CHIP)
