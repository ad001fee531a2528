"""The notebook of the tour runs from top to bottom, and what its cells end with shows itself as HTML."""

from __future__ import annotations

import ast
import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from made import dozen

import npuscope
from npuscope import explain as analysis

TOUR = Path(__file__).resolve().parents[1] / "docs" / "tour.ipynb"


def test_the_tour_runs_and_its_results_show_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell["source"] for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    shown = []
    for source in cells:
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "tour", "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "tour", "eval"), names))
    pages = [one._repr_html_() for one in shown if hasattr(one, "_repr_html_")]
    assert len(pages) >= 7
    assert any("<iframe" in page and "srcdoc" in page for page in pages)  # the app
    assert os.path.exists("demo_out/run")


def test_names_from_a_trace_stay_text_in_a_notebook() -> None:
    trace = dozen()
    nasty = trace.slices.with_columns(pl.lit("<script>alert(1)</script>").alias("kernel"))
    shown = analysis.explain(replace(trace, slices=nasty)).busy._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_share_has_a_bar(small: dict[str, Path]) -> None:
    assert "linear-gradient" in analysis.explain(npuscope.read(next(iter(small.values())))).busy._repr_html_()
