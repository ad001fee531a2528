"""What docs/reference/golden.md shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "golden.md").read_text()


def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    sections = re.findall(r"^```python\n(.*?)^```.*?^```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(sections) == 1
    for code, shown in sections:
        (tmp_path / "rope.py").write_text(code)
        run = subprocess.run([sys.executable, "rope.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert run.returncode == 0, run.stderr
        printed = untimed(run.stdout).splitlines()
        for line in untimed(shown).splitlines():
            assert line == "..." or line in printed, line


def untimed(text: str) -> str:
    return re.sub(r"\(\d+\.\d+s\)", "(time)", text)
