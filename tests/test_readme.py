"""What the README and the docs show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PROGRAM = Path(sys.executable).with_name("npuscope")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    subprocess.run([PROGRAM, "demo", "--keep", "demo_out"], cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def test_the_demo_prints_what_the_readme_shows(demo: Path) -> None:
    shown = next(block for block in blocks(README, "") if "168 records" in block)
    printed = subprocess.run([PROGRAM, "demo"], capture_output=True, text=True, timeout=60).stdout
    for line in shown.splitlines():
        assert line.strip() in ("...", "") or line in printed.splitlines()


def test_the_five_things_to_try_work(demo: Path) -> None:
    commands = next(block for block in blocks(README, "") if "npuscope doctor" in block)
    for line in commands.splitlines():
        words = line.partition("#")[0].split()
        run = subprocess.run([PROGRAM, *words[1:]], cwd=demo, capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr


def test_the_python_of_the_readme_runs(demo: Path) -> None:
    (code,) = blocks(README, "python")
    run = subprocess.run([sys.executable, "-c", code], cwd=demo, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("154.4") == 3  # in each of three steps four layers' attentions of 38.6 µs
    assert (demo / "demo_out/first_2ms.csv").stat().st_size > 0


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_shown_numbers_of_longcat_are_true(shared: Path) -> None:
    for page, command in (("docs/captures.md", "info"), ("docs/doctor.md", "doctor")):
        shown = next(b for b in blocks((ROOT / page).read_text(), "") if f"npuscope {command} longcat" in b)
        path = "longcat_910c/kernel_details.csv"
        words = [PROGRAM, command, path]
        run = subprocess.run(words, cwd=shared / "ascend", capture_output=True, text=True, timeout=60)
        for line in shown.splitlines()[1:]:
            assert line.strip() in ("...", "") or line in run.stdout.splitlines()
