"""The app's modules: joined into one script, typed, and nothing fetched."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from made import dozen

from npuscope import explain as analysis
from npuscope import lab
from npuscope.lab.document import modules, page, script
from npuscope.lab.runs import report_document

PAGE = Path(lab.__file__).parent / "page"
ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_reached_from_the_first() -> None:
    there = {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.js")}
    assert set(modules()) == there


def test_the_joined_script_is_javascript(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (tmp_path / "app.js").write_text(script())
    checked = subprocess.run(["node", "--check", tmp_path / "app.js"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_what_needs_no_browser() -> None:
    """tests/lab/page/: the timeline's model, tables, charts and links, run by node."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    ran = subprocess.run(
        ["node", "--test", *sorted(map(str, (ROOT / "tests" / "lab" / "page").glob("*.test.js")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout


def test_types_hold() -> None:
    """`npm install` at the root of the repository brings the checker; where it was not called, nothing is checked."""
    checker = ROOT / "node_modules" / ".bin" / "tsc"
    if not checker.exists():
        pytest.skip("TypeScript's checker is not installed: npm install")
    checked = subprocess.run([checker, "-p", ROOT], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    text = page(report_document("drawn", analysis.explain(dozen())))
    assert "default-src 'none'" in text
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "").replace(
            "url(#", ""
        )
