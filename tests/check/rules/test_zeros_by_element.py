"""Random tasks on one tensor, against a twin that follows every piece of it by itself."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from linted import found, program
from random_programs import module
from tiers import examples

ROWS, COLUMNS = 2, 2  # pieces of 8 x 32 elements: few, so that tasks meet often
HEAD = """
import npuscope.tile as pl

@pl.jit
def main(x: pl.Tensor[[16, 64], pl.FP32], c: pl.InOut[pl.Tensor], y: pl.Out[pl.Tensor]):
"""
KINDS = {
    "zero": "c{box} = pl.full({shape}, dtype=pl.FP32, value=0.0)",
    "write": "c{box} = pl.mul(x{box}, 2.0)",
    "read": "y{box} = pl.mul(c{box}, 2.0)",
    "sum": "c{box} = pl.add(c{box}, x{box})",
    "add": "c = pl.assemble(c, pl.mul(x{box}, 2.0), {at}, atomic=pl.AtomicType.Add)",
}
Task = tuple[str, int, int, int, int]  # kind, first row, rows, first column, columns


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    row, column = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, COLUMNS - 1))
    rows, columns = draw(st.integers(1, ROWS - row)), draw(st.integers(1, COLUMNS - column))
    return draw(st.sampled_from(["add", *sorted(KINDS)])), row, rows, column, columns


def source(made: list[Task]) -> tuple[str, dict[int, int]]:
    """A program with a region per task, and the line of each."""
    lines, places = HEAD.splitlines(), {}
    for number, (kind, row, rows, column, columns) in enumerate(made):
        r, n, c, m = 8 * row, 8 * rows, 32 * column, 32 * columns
        box = f"[{r}:{r + n}, {c}:{c + m}]"
        lines.append(f"    with pl.at(level=pl.Level.CORE_GROUP, name_hint='t{number}'):")
        lines.append("        " + KINDS[kind].format(box=box, shape=[n, m], at=[r, c]))
        places[len(lines)] = number
    return "\n".join([*lines, "    return c"]) + "\n", places


def idle(made: list[Task]) -> set[int]:
    """The tasks whose zeros nobody needs, piece by piece."""
    needed: set[int] = set()
    met: set[int] = set()
    for r in range(ROWS):
        for c in range(COLUMNS):
            owner, adds = -1, 0
            for number, (kind, row, rows, column, columns) in enumerate([*made, ("read", 0, ROWS, 0, COLUMNS)]):
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


@given(made=st.lists(tasks(), min_size=2, max_size=9))
@examples(80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_zeros_are_told_exactly_where_no_piece_of_them_is_needed(made: list[Task], tmp_path: Path) -> None:
    text, places = source(made)
    entry = module(text, tmp_path / f"program_{abs(hash(text))}.py").main
    checked = program(entry, ("FP32", 16, 64), ("FP32", 16, 64), ("FP32", 16, 64))
    assert {places[line] for line in found("zero-fill", checked)} == idle(made)
