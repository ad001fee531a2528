"""What the README and the docs show is what happens."""

from __future__ import annotations

import re
import shlex
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
    shown = next(block for block in blocks(README, "") if "where core time went" in block)
    printed = subprocess.run([PROGRAM, "demo"], capture_output=True, text=True, timeout=60).stdout
    for line in shown.splitlines():
        assert line.strip() in ("...", "") or line in printed.splitlines()


def test_the_five_things_to_try_work(demo: Path) -> None:
    commands = next(block for block in blocks(README, "") if "npuscope check" in block)
    for line in commands.splitlines():
        words = shlex.split(line.partition("#")[0])
        cwd = ROOT if words[2].startswith("models/") else demo
        # the simulator may have to compile first; check finds faults, which is exit code 1
        run = subprocess.run([PROGRAM, *words[1:]], cwd=cwd, capture_output=True, text=True, timeout=300)
        assert run.returncode == (1 if words[1] == "check" else 0), run.stderr


def test_the_python_of_the_readme_runs(demo: Path) -> None:
    (code,) = blocks(README, "python")
    run = subprocess.run([sys.executable, "-c", code], cwd=demo, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("154400") == 3  # in each of three steps four layers' attentions of 38.6 µs
    assert "dependency" in run.stdout
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


PAGES = sorted((ROOT / "docs").glob("*.md"))
SESSIONS = [(page.name, block) for page in PAGES for block in blocks(page.read_text(), "console")]


@pytest.mark.parametrize(("page", "session"), SESSIONS, ids=[f"{page}-{n}" for n, (page, _) in enumerate(SESSIONS)])
def test_sessions_in_the_docs_are_true(page: str, session: str, demo: Path, request: pytest.FixtureRequest) -> None:
    """Each `$ npuscope …` prints the lines below it, in any company; `...` stands for lines left out."""
    (demo / "budget.toml").write_text(blocks((ROOT / "docs/gate.md").read_text(), "toml")[0])
    for program in blocks((ROOT / "docs" / page).read_text(), "python"):
        if name := re.match(r"# (\w+\.py)\n", program):  # a page's own program
            (demo / name[1]).write_text(program)
    for part in session.split("$ npuscope ")[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command)
        ours = "demo_out" in command or (demo / words[1]).exists()
        cwd = ROOT if words[1].startswith("models/") else demo if ours else request.getfixturevalue("shared") / "pypto"
        run = subprocess.run([PROGRAM, *words], cwd=cwd, capture_output=True, text=True, timeout=60)
        for line in shown.splitlines():
            assert line.strip() in ("...", "") or line in (run.stdout + run.stderr).splitlines(), line


def test_the_rules_shown_for_areas_are_rules(tmp_path: Path) -> None:
    from npuscope.analysis.areas import area_of, area_rules

    (tmp_path / "areas.toml").write_text(blocks((ROOT / "docs/metrics.md").read_text(), "toml")[0])
    assert area_of("DynamicQuant", area_rules(tmp_path / "areas.toml")) == "quant"
