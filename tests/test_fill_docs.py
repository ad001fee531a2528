"""benchmarks/fill_docs.py keeps a page's choice of lines and brings their numbers up to date."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from sessions import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fill_docs", ROOT / "benchmarks/fill_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOW = [
    "what if: 12.5 µs",
    "  up_proj    1,010.0",
    "  gate_proj    900.0",
    "  silu           1.0",
    "",
    "Not a sum.",
]


def test_lines_left_out_stay_left_out_and_rows_come_in_their_new_order(script: ModuleType) -> None:
    shown = ["what if: 9 µs", "  gate_proj  10.0", "  up_proj  9.0", "...", "Not a sum."]
    assert script.refilled(shown, NOW) == ([*NOW[:3], "...", "Not a sum."], [])


def test_what_is_printed_no_more_is_told(script: ModuleType) -> None:
    assert script.refilled(["...", "  gone  1.0"], NOW) == (["..."], ["  gone  1.0"])


def test_without_dots_everything_is_shown(script: ModuleType) -> None:
    assert script.refilled(["what if: 9 µs"], NOW) == (NOW, [])


def test_sentences_with_numbers_that_stood_in_a_block_are_told(script: ModuleType) -> None:
    assert {"1,492", "1,492.0"} <= script._numbers(["wall 1,491.975 µs"])
    assert script._long("in 9 tasks, 1,492 µs and 62 %") == {"1,492"}
