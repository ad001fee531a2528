"""Zeros that nobody needs: by programs, and by random tasks against a twin that follows every piece by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from linted import found, model, only
from random_programs import module
from tiers import examples

import npuscope.tile as pl
from npuscope.check.rule import Waste

STEPS, K, N = 4, 64, 128
TILE = 16 * N * 4


A: Any = pl.Tensor[[16, STEPS * K], pl.BF16]
B: Any = pl.Tensor[[STEPS * K, N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def overwritten(a: A, b: B, c: C):
    for n in pl.range(0, N, 64):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
            nothing = pl.full([16, 64], dtype=pl.FP32, value=0.0)  # overwritten
            c[:, n : n + 64] = nothing
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.matmul(a[:, 0:K], b[0:K, :])
    return c


@pl.jit
def half_overwritten(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, 0:64] = pl.matmul(a[:, 0:K], b[0:K, 0:64])
    return c


@pl.jit
def ones_overwritten(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="one"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=1.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.add(c[:, :], pl.matmul(a[:, 0:K], b[0:K, :]))
    return c


@pl.jit
def summed_in_gm(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # summed in GM
    for k in pl.range(0, STEPS * K, K):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            c[:, :] = pl.add(c[:, :], pl.matmul(a[:, k : k + K], b[k : k + K, :]))
    return c


@pl.jit
def split_k(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    for block in pl.spmd(STEPS, name_hint="split"):
        part = pl.matmul(a[:, block * K : (block + 1) * K], b[block * K : (block + 1) * K, :])
        c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def split_k_in_one_block(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="steps"):
        for k in pl.range(0, STEPS * K, K):  # the same box every turn: stored once, added four times
            part = pl.matmul(a[:, k : k + K], b[k : k + K, :])
            c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def one_add_each(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # one add each
    for block in pl.spmd(2, name_hint="columns"):
        part = pl.matmul(a[:, 0:K], b[0:K, block * 64 : (block + 1) * 64])
        c = pl.assemble(c, part, [0, block * 64], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def zeros_wanted(a: A, b: B, c: C):
    padded = pl.create_tensor([16, K], dtype=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        padded[0:8, :] = a[0:8, 0:K]
        padded[8:16, :] = pl.cast(pl.full([8, K], dtype=pl.FP32, value=0.0), target_type=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.matmul(padded, b[0:K, :])
    return c


@pl.jit
def seed_on_chip(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        acc = pl.full([16, N], dtype=pl.FP32, value=0.0)  # seed on chip
        for k in pl.pipeline(0, STEPS * K, K, stage=2):
            acc = pl.matmul_acc(acc, a[:, k : k + K], b[k : k + K, :])
        c[:, :] = acc
    return c


@pytest.mark.parametrize(
    ("entry", "mark", "cost", "said"),
    [
        # two tasks do nothing but write the 8 KB
        (overwritten, "# overwritten", Waste(bytes=TILE, tasks=2), "2 tasks do nothing else"),
        # written, and read back once
        (summed_in_gm, "# summed in GM", Waste(bytes=2 * TILE, tasks=1), "add the first product"),
        (one_add_each, "# one add each", Waste(bytes=TILE, tasks=1), "one atomic add"),
        (seed_on_chip, "# seed on chip", Waste(bytes=TILE), "from zeros"),
    ],
)
def test_zeros_that_a_first_product_would_replace(entry: Any, mark: str, cost: Waste, said: str) -> None:
    finding = only("zero-fill", entry, mark)
    assert finding.waste == cost
    assert said in finding.message


@pytest.mark.parametrize(
    "entry", [half_overwritten, ones_overwritten, split_k, split_k_in_one_block, zeros_wanted], ids=lambda e: e.name
)
def test_zeros_that_somebody_needs(entry: Any) -> None:
    assert not found("zero-fill", entry)


def test_the_seeds_of_split_k_projections_are_needed() -> None:
    assert not found("zero-fill", model("qwen3_14b/decode_layer", "--small"))


@pl.jit
def met_late(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # met late
    for _ in pl.range(600):  # all of them on one half, far longer than one looks at first
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="half"):
            c[:, 0:64] = pl.matmul(a[:, 0:K], b[0:K, 0:64])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="other"):
        c[:, 64:128] = pl.matmul(a[:, 0:K], b[0:K, 64:128])
    return c


def test_zeros_are_followed_until_the_last_of_them_is_met() -> None:
    only("zero-fill", met_late, "# met late")


PIECES_DOWN, PIECES_ACROSS = 2, 2  # pieces of 8 x 32 elements: few, so that random_tasks meet often
HEAD = """
import npuscope.tile as pl

TENSOR = pl.Tensor[[16, 64], pl.FP32]

@pl.jit
def main(x: TENSOR, c: pl.InOut[TENSOR], y: pl.Out[TENSOR]):
"""
KINDS = {
    "zero": "c{box} = pl.full({shape}, dtype=pl.FP32, value=0.0)",
    "write": "c{box} = pl.mul(x{box}, 2.0)",
    "read": "y{box} = pl.mul(c{box}, 2.0)",
    "sum": "c{box} = pl.add(c{box}, x{box})",
    "add": "c = pl.assemble(c, pl.mul(x{box}, 2.0), {at}, atomic=pl.AtomicType.Add)",
}
RandomTask = tuple[str, int, int, int, int]  # kind, first row, rows, first column, columns


@st.composite
def random_tasks(draw: st.DrawFn) -> RandomTask:
    row, column = draw(st.integers(0, PIECES_DOWN - 1)), draw(st.integers(0, PIECES_ACROSS - 1))
    rows, columns = draw(st.integers(1, PIECES_DOWN - row)), draw(st.integers(1, PIECES_ACROSS - column))
    return draw(st.sampled_from(["add", *sorted(KINDS)])), row, rows, column, columns


def source_of(made: list[RandomTask]) -> tuple[str, dict[int, int]]:
    """A program with a region per task, and the line of each."""
    lines, places = HEAD.splitlines(), {}
    for number, (kind, row, rows, column, columns) in enumerate(made):
        r, n, c, m = 8 * row, 8 * rows, 32 * column, 32 * columns
        box = f"[{r}:{r + n}, {c}:{c + m}]"
        lines.append(f"    with pl.at(level=pl.Level.CORE_GROUP, name_hint='t{number}'):")
        lines.append("        " + KINDS[kind].format(box=box, shape=[n, m], at=[r, c]))
        places[len(lines)] = number
    return "\n".join([*lines, "    return c"]) + "\n", places


def idle(made: list[RandomTask]) -> set[int]:
    """The random_tasks whose zeros nobody needs, piece by piece."""
    needed: set[int] = set()
    met: set[int] = set()
    for r in range(PIECES_DOWN):
        for c in range(PIECES_ACROSS):
            owner, adds = -1, 0
            for number, (kind, row, rows, column, columns) in enumerate(
                [*made, ("read", 0, PIECES_DOWN, 0, PIECES_ACROSS)]
            ):
                if not (row <= r < row + rows and column <= c < column + columns):
                    continue
                if kind == "add":
                    adds += 1
                    continue
                if owner >= 0:
                    as_values = kind == "read" and adds == 0
                    (needed if as_values or adds > 1 else met).add(owner)
                if kind != "read":
                    owner, adds = number if kind == "zero" else -1, 0
    return met - needed


@given(made=st.lists(random_tasks(), min_size=2, max_size=9))
@examples(80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_zeros_are_told_exactly_where_no_piece_of_them_is_needed(made: list[RandomTask], tmp_path: Path) -> None:
    text, places = source_of(made)
    entry = module(text, tmp_path / f"program_{abs(hash(text))}.py").main
    assert {places[line] for line in found("zero-fill", entry)} == idle(made)
