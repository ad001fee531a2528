"""The stories in docs/stories/ are true: their commands, run in order in one folder, print the lines shown below."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sessions import FENCE, ROOT, file_name, left_out, own_programs, prepare, printed, sessions

pytestmark = pytest.mark.full

PAGES = sorted((ROOT / "docs/stories").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_story_tells_what_happens(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    here = prepare(tmp_path)
    own_programs(text, here)
    assert "```console\n$ npuscope " in text, "a story has commands"
    for language, block in FENCE.findall(text):
        if language == "python" and file_name(block) is None:
            run = subprocess.run([sys.executable, "-c", block], cwd=here, capture_output=True, text=True, timeout=600)
            assert run.returncode == 0, run.stderr
        for command, shown in sessions(block) if language == "console" else ():
            lines = printed(command, here)
            for line in shown:
                assert left_out(line) or line in lines, line


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_links_of_a_story_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target
