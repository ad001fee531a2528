"""The stories in docs/stories/ are true: their commands, run in order in one folder, print the lines shown below."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import DATA

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"tilelet_findings", "a8w8_fan_out"}  # run by test_story_conclusions.py
PAGES = [page for page in sorted((ROOT / "docs/stories").glob("*.md")) if page.stem not in FROM_ROOT]


def npuscope(command: str, folder: Path) -> list[str]:
    """What a command printed. The limit leaves room for the simulator's first compilation on this machine."""
    words = [sys.executable, "-m", "npuscope", *shlex.split(command)]
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 or (command.startswith("check ") and run.returncode == 1), f"{command}: {run.stderr}"
    return (run.stdout + run.stderr).splitlines()


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_story_tells_what_happens(page: Path, tmp_path: Path) -> None:
    """`...` stands for lines left out; `models/` is the project's and `../shared/data/` that of the real captures."""
    text = page.read_text()
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "models").symlink_to(ROOT / "models")
    if "../shared/data" in text:
        if not DATA.is_dir():
            pytest.skip(f"the real captures are not on this machine ({DATA})")
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared/data").symlink_to(DATA)
    if "demo_out" in text:
        npuscope("demo --keep demo_out", folder)
    blocks = re.findall(r"^```(console|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert any("$ npuscope " in block for _, block in blocks), "a story has commands"
    for language, block in blocks:
        if language == "python":
            run = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, timeout=300)
            assert run.returncode == 0, run.stderr
        for part in block.split("$ npuscope ")[1:]:
            command, _, shown = part.partition("\n")
            printed = npuscope(command, folder)
            for line in shown.splitlines():
                assert line.strip() in ("...", "") or line in printed, line


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_links_of_a_story_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
