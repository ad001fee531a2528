"""Findings are grouped as a reviewer would: by headings in the source, else by kernel or function."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.check.rule import Section
from npuscope.check.source_text import section_of

LAYER = '''"""A layer."""


def factory(size):
    TILE = 64

    @pl.jit
    def layer(x, out):
        """Doc."""
        made = 1

        # Scope 1: norm, then Q. More of it.
        # It goes on here.
        for i in range(4):
            # not a heading: it is inside the loop
            a = i

        b = 2  # nor is this: code stands before it
        # Scope 2: attention
        c = 3
        return out

    return layer
'''


@pytest.fixture
def layer(tmp_path: Path) -> str:
    (tmp_path / "layer.py").write_text(LAYER)
    return str(tmp_path / "layer.py")


def test_numbered_comments_at_the_top_level_of_a_body_are_headings(layer: str) -> None:
    first, second = Section(layer, "Scope 1: norm, then Q", 12, 18), Section(layer, "Scope 2: attention", 19, 21)
    assert [section_of(layer, line) for line in (12, 16, 18)] == [first] * 3
    assert [section_of(layer, line) for line in (19, 21)] == [second] * 2


def test_before_the_first_heading_is_the_function_and_outside_of_all_is_the_file(layer: str) -> None:
    assert section_of(layer, 10) == Section(layer, "layer", 8, 11)
    assert section_of(layer, 5) == Section(layer, "factory", 4, 23)
    assert section_of(layer, 1) == Section(layer, "Module level", 1, 23)


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("# ── Attention ──", "Attention"),
        ("# ---- Attention", "Attention"),
        ("# === Attention. ===", "Attention"),
        ("# Stage 3 - softmax", "Stage 3 - softmax"),
    ],
)
def test_a_heading_may_be_drawn(tmp_path: Path, heading: str, title: str) -> None:
    file = tmp_path / "drawn.py"
    file.write_text(f"def f():\n    a = 1\n    {heading}\n    b = 2\n")
    assert section_of(str(file), 4).title == title
    assert section_of(str(file), 2).title == "f"


def test_a_heading_may_come_first_and_comments_between_parameters_are_none(tmp_path: Path) -> None:
    file = tmp_path / "first.py"
    file.write_text("def f(\n    a,\n    # Scope 0: no\n    b,\n):\n    # Scope 1: yes\n    c = 1\n")
    assert [section_of(str(file), line).title for line in (4, 7)] == ["f", "Scope 1: yes"]


def test_plain_comments_are_headings_only_where_there_are_several(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("def f():\n    a = 1\n\n    # Because of this.\n    b = 2\n")
    assert section_of(str(file), 5).title == "f"
    file.write_text("def f():\n    a = 1\n\n    # Norm.\n    b = 2\n\n    # Attention.\n    c = 3\n")
    assert [section_of(str(file), line).title for line in (5, 8)] == ["Norm", "Attention"]


def test_without_headings_kernels_are_the_scopes(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "def f():\n    for b in pl.spmd(4):\n        a = 1\n    for i in range(3):\n        c = 1\n    d = 2\n"
    )
    assert section_of(str(file), 3, "norm") == Section(str(file), "norm", 2, 3)
    assert section_of(str(file), 6) == Section(str(file), "f", 1, 6)


def test_without_a_source_the_kernel_is_all_there_is() -> None:
    assert section_of("<stdin>", 3, "norm", "f") == Section("<stdin>", "norm")
    assert section_of("/nowhere/layer.py", 3) == Section("/nowhere/layer.py", "layer.py")
