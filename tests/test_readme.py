"""What the README and the docs show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sessions import ROOT, blocks, left_out, own_programs, prepare, printed, sessions


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("readme"))


def test_the_python_of_the_docs_runs(here: Path) -> None:
    (code, *_) = blocks((ROOT / "docs/howto/python.md").read_text(), "python")
    run = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert "up_proj" in run.stdout
    assert (here / "demo_out/projections.pftrace").stat().st_size > 0


PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated", "stories"} & set(p.parts))
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *NAMES])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        if "generated/" not in target:  # made when the site is built
            assert ((ROOT / page).parent / target).exists(), target


CONSOLES = [
    (name, block) for page, name in zip(PAGES, NAMES, strict=True) for block in blocks(page.read_text(), "console")
]


@pytest.mark.parametrize(("page", "console"), CONSOLES, ids=[f"{page}-{n}" for n, (page, _) in enumerate(CONSOLES)])
def test_sessions_in_the_docs_are_true(page: str, console: str, here: Path) -> None:
    """Each `$ npuscope …` prints the lines below it, in any company."""
    own_programs((ROOT / page).read_text(), here)
    for command, shown in sessions(console):
        lines = printed(command, here)
        for line in shown:
            assert left_out(line) or line in lines, line


# a sentence of the README with a number, and where the page of evidence has that number
TRUSTED = {
    r"was examined on (\d+) published changes": r"on (\d+) published changes that nobody",
    r"Of the (\d+) that it runs": r"of which it runs (\d+)",
    r"faster or slower is right for \*\*(\d+) %": r"faster or slower rightly for (\d+) %",
    r"off by less than \*\*(\d+) %": r"predicted ratios are off by less than (\d+) %",
    r"by (\d+) % where the change is larger": r"larger than 15 %, half are off by more than (\d+) %",
    r"intervals hold (\d+) % of 144 measured times": r"intervals hold (\d+) % of 144 unseen",
    r"kernel's time is off by (\d+) %": r"own time is off by (\d+) %",
}


@pytest.mark.parametrize("sentence", TRUSTED)
def test_the_readme_says_of_trust_what_the_evidence_says(sentence: str) -> None:
    told = re.search(sentence, (ROOT / "README.md").read_text())
    found = re.search(TRUSTED[sentence], (ROOT / "docs/understand/trust.md").read_text())
    assert told is not None
    assert found is not None
    assert int(told[1]) == round(float(found[1]))


def test_the_rules_shown_for_areas_are_rules(tmp_path: Path) -> None:
    from npuscope.explain.work import area_of, area_rules

    (tmp_path / "areas.toml").write_text(blocks((ROOT / "docs/understand/numbers.md").read_text(), "toml")[0])
    assert area_of("DynamicQuant", area_rules(tmp_path / "areas.toml")) == "quant"
