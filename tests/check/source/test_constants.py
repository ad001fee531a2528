"""Constants are worked out from the text, and nothing is ever run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.check.source.constants import NotTold, module_constants, value_of
from npuscope.lower.source import read


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


NUMBERS = st.integers(1, 4096).map(str) | st.sampled_from(["A", "B"])
SUMS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), inner).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=8,
)


@given(SUMS)
def test_values_are_those_of_python(text: str) -> None:
    known = {"A": 128, "B": 5120}
    try:
        wanted = eval(text, {}, dict(known))
    except ZeroDivisionError:
        wanted = None
    try:
        found = value_of(expression(text), known)
    except NotTold:
        assert wanted is None or "*" in text  # a division by zero, or too large to be a size
        return
    assert found == wanted


@pytest.mark.parametrize(
    "text",
    ["open('x')", "__import__('os')", "A.__class__", "[x for x in (1,)]", "(lambda: 1)()", "'a' * 9", "min(key=A)",
     "f'{A}'", "A ** B", "1 << 99", "10 ** 10 ** 10", "10000000000 * 10000000000"],
    ids=range(12),
)  # fmt: skip
def test_what_is_no_arithmetic_of_constants_is_unknown(text: str) -> None:
    with pytest.raises(NotTold):
        value_of(expression(text), {"A": 3})


def test_of_a_module_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("from two import Y\nX = max(Y, 3)\nX2: int = X * 2\n")
    (tmp_path / "two.py").write_text("from one import X\nY = 7\n")  # they import each other
    source = read(str(tmp_path / "one.py"))
    assert source
    assert module_constants(source) == {"Y": 7, "X": 7, "X2": 14}


def test_a_file_that_is_no_python_has_no_source(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n")
    (tmp_path / "null.py").write_bytes(b"x = '\0'")
    (tmp_path / "deep.py").write_text(f"x = {'-' * 20000}1\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xff'")
    assert [read(str(tmp_path / name)) for name in ("bad.py", "null.py", "deep.py", "latin.py", "none.py")] == [
        None
    ] * 5
