"""The recipes of docs/howto/extend.md for a command and a panel, followed to the letter on a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from npuscope.trace.example import write_decode_steps

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "howto" / "extend.md").read_text()


def block(section: str, language: str) -> str:
    """The code of a section of the page."""
    text = PAGE[PAGE.index(f"## {section}\n") :]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            ROOT / "src" / "npuscope", tmp_path / "src" / "npuscope", ignore=shutil.ignore_patterns("__pycache__")
        )
    )


def test_a_command_is_a_file_and_a_name_in_a_group(package: Path, tmp_path: Path) -> None:
    write_decode_steps(tmp_path / "kernel_details.csv")
    # WHEN the recipe is followed
    (package / "cli" / "longest.py").write_text(block("A command", "python"))
    listed = package / "cli" / "__init__.py"
    listed.write_text(listed.read_text().replace('"Explain a trace": (', '"Explain a trace": ("longest", ', 1))
    # THEN the command is listed and runs
    env = {**os.environ, "PYTHONPATH": str(package.parent)}

    def npuscope(*words: str) -> str:
        command = [sys.executable, "-m", "npuscope", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert re.search(r"longest +The longest kernel of a capture", npuscope("--help"))
    assert npuscope("longest", "kernel_details.csv").strip() == "MatMulV2"


def test_a_panel_is_a_module_and_a_line_in_the_list(package: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    page = package / "lab" / "page"
    (page.parents[2] / "package.json").write_text('{"type": "module"}')
    # WHEN the recipe is followed
    (page / "panels" / "window.js").write_text(block("A panel of the lab", "js"))
    listed = page / "panels" / "all.js"
    text = listed.read_text().replace("PANELS = [", "PANELS = [\n  window,", 1)
    listed.write_text(f'import {{ panel as window }} from "./window.js";\n{text}')
    # THEN it is the first tab of every run
    code = f"import('{listed}').then(m => console.log(m.PANELS[0].id, m.PANELS[0].has({{}})))"
    ran = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["window", "true"]
