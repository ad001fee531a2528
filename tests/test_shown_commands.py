"""Commands that pages show without what they print do run: those of a page in order, in one folder.

Pages speak of files that readers bring. Stand-ins of the same kind lie in that folder, small and made here.
"""

from __future__ import annotations

import glob
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import RESET, point, write_bundle
from command import npuscope
from noisy_runs import write_runs
from sessions import ROOT, blocks, prepare

pytestmark = pytest.mark.full

PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "generated"} & set(p.parts))
NAMES = ["README.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in PAGES)]
SPAN = re.compile(r"(?<!`)`((?:npuscope|python|pip|make|git) [^`\n]+)`(?!`)")
LINE = re.compile(r"^ *(?:- run: )?((?:npuscope|python|pip|make|git) .*?)(?:\s+#.*)?$", re.MULTILINE)
HOOK = re.compile(r"^ *entry: (npuscope .*)$", re.MULTILINE)  # pre-commit adds the files

# Names in capitals stand for what the reader has.
STANDS_FOR = {
    "FILE": "models/basics/gemm.py",
    "FILE.py": "models/basics/gemm.py",
    "KERNEL": "gemm",
    "NAME": "ascend910b1",
    "PATH": "demo_out/run",
    "RUN": "demo_out/run",
    "CAPTURE": "demo_out/run",
}
# Commands that are not run here, by how they begin.
NOT_HERE = {
    "npuscope lab": "serves until it is ended: tests/lab",
    "npuscope mcp": "serves until it is ended: tests/agents/test_server.py",
    "npuscope --install-completion": "writes to the start of the reader's shell",
    "pip install": "installs: tests/test_wheel.py",
    "make": "sets an environment up: .github/workflows/ci.yml runs each target",
    "git": "the reader's own repository",
    "python benchmarks/": "needs peers, captures or repositories that a test does not have",
    "npuscope history runs/ --simulate": "needs a repository with a past: tests/cli/test_history.py makes one",
    "npuscope improve": "minutes: tests/answer/test_improve.py runs it with fewer trials",
    "npuscope memory build_output/": "the reader's build folder: tests/cli/test_build_folder.py makes one",
    "npuscope check build_output/": "the same",
    "npuscope simulate decode_layer.py --build build_output/": "the same",
    "npuscope check --replay": "the reader's program: tests/check/races/test_replay.py",
    "npuscope run test_kernel.py": "the reader's tests: tests/tile/test_pytest_files.py",
    "npuscope run layer.py --against HEAD": "the reader's repository: tests/tile/golden/test_traced.py makes one",
    "npuscope tune model:basics/gemm": "half a minute: tests/cli/test_tune.py runs it with fewer trials",
    "npuscope run model:qwen3_14b/decode_layer -- --max-seq 4096": "gigabytes: tests/models runs it at test size",
    "npuscope run models/qwen3_14b/decode_layer.py -- --max-seq 4096": "the same",
    "npuscope tpot qwen3-14b": "minutes: tests/cli/test_tpot.py runs it at test size",
    "python models/qwen3_14b/quality.py": "minutes: tests/models/test_qwen3_a8w8.py runs it at test size",
}
# Commands that find something, which is exit code 1.
FIND = {
    "npuscope check model:qwen3_32b_tilelet -- --as-found",
    "npuscope check FILE --fix",  # nothing to offer
}


def programs(here: Path, *names: str) -> None:
    for name in names:
        (here / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "models/basics/gemm.py", here / name)


def measured(here: Path) -> None:
    programs(here, "old.py", "new.py", "other.py", "a.py", "b.py")
    for folder in ("run", "run1", "run2"):
        (here / folder).mkdir()
        simulated = npuscope("simulate", "old.py", "--no-report", "-o", f"{folder}/run.npu", folder=here)
        assert simulated.returncode == 0, simulated.stderr


def captures(here: Path) -> None:
    (here / "prof").mkdir()
    shutil.copy(here / "demo_out/kernel_details.csv", here / "prof")
    (here / "run.json").write_text('[{"ph": "X", "name": "matmul", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]')
    write_bundle(here / "run/tracr", {1: point(0, 0, 10) + point(0, RESET, 20)}, markerLabels=["work"], num_channels=1)


def many_runs(here: Path) -> None:
    write_runs(here / "before", seed=1, count=3)
    write_runs(here / "after", seed=2, count=3)
    for side in ("before", "after"):
        for n in (1, 2, 3):
            shutil.copytree(here / side / f"run{n}", here / f"{side}{n}")
        shutil.copy(here / "demo_out/kernel_details.csv", here / f"{side}.csv")


def passes(here: Path) -> None:
    shutil.copy(here / "demo_out/kernel_details.csv", here)
    for rank in (0, 1):
        (here / f"prof/rank{rank}").mkdir(parents=True)
        shutil.copy(here / "kernel_details.csv", here / f"prof/rank{rank}")


def a_history(here: Path) -> None:
    for n in range(4):
        write_runs(here / "runs" / f"{n:03}-rev{n}", seed=n, count=3)


STAND_INS: dict[str, Callable[[Path], None]] = {
    "docs/howto/anchor.md": measured,
    "docs/howto/captures.md": captures,
    "docs/howto/choose.md": lambda here: programs(here, "mine.py", "yours.py"),
    "docs/howto/ci.md": lambda here: programs(here, "kernels/layer.py", "layer_before.py"),
    "docs/howto/compare.md": many_runs,
    "docs/howto/editor.md": lambda here: programs(here, "layer.py"),
    "docs/howto/forward.md": passes,
    "docs/howto/history.md": a_history,
    "docs/howto/run.md": lambda here: programs(here, "layer.py", "old_layer.py"),
    "docs/howto/judge.md": lambda here: programs(here, "candidates/a.py", "candidates/b.py", "new.py", "old.py"),
}


def shown(text: str) -> list[str]:
    """Commands of a page outside its sessions, which test_readme.py and test_stories.py hold against the output."""
    parts = [*blocks(text, ""), *blocks(text, "yaml")]
    hooks = [f"{entry} kernels/layer.py" for part in parts for entry in HOOK.findall(part)]
    prose = re.sub(r"^```.*?^```|^#.*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    # a command's bare name is a word of the sentence, and one with an ellipsis is not whole
    spans = [span for span in SPAN.findall(prose) if "…" not in span and (len(span.split()) > 2 or "--" in span)]
    return [*(line for part in parts for line in LINE.findall(part)), *hooks, *spans]


def is_run(command: str) -> bool:
    return not any(command.startswith(begins) for begins in NOT_HERE)


def words_of(command: str, here: Path) -> list[str]:
    """As a shell would have them, with stand-ins."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    words = [
        found
        for word in words
        for found in (glob.glob(word, root_dir=here) if "*" in word and " " not in word else [word])
    ]
    return words if words[0] == "npuscope" else [sys.executable, *words[1:]]


def test_commands_are_found() -> None:
    page = "Use `npuscope guide` or `npuscope ops add`.\n```\nnpuscope rank a.py   # why\n```\n"
    assert shown(page + "```yaml\n- run: pip install x\n  entry: npuscope judge\n```\n") == [
        "npuscope rank a.py",
        "pip install x",
        "npuscope judge kernels/layer.py",
        "npuscope ops add",
    ]


def test_what_is_left_out_is_still_shown() -> None:
    every = [command for name in NAMES for command in shown((ROOT / name).read_text())]
    for begins in (*NOT_HERE, *FIND):
        assert any(command.startswith(begins) for command in every), f"no page shows {begins}: take it out"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("shown"))


@pytest.mark.parametrize("name", [name for name in NAMES if any(map(is_run, shown((ROOT / name).read_text())))])
def test_the_commands_of_a_page_run(name: str, prepared: Path, tmp_path: Path) -> None:
    here = shutil.copytree(prepared, tmp_path / "here", symlinks=True)
    STAND_INS.get(name, lambda here: None)(here)
    for command in filter(is_run, shown((ROOT / name).read_text())):
        first, *words = words_of(command, here)
        if first == "npuscope":  # tests/test_wheel.py starts the README's as users do
            run = npuscope(*words, folder=here)
        else:
            run = subprocess.run([first, *words], cwd=here, capture_output=True, text=True, timeout=600)
        assert run.returncode == (1 if command in FIND else 0), f"{command}\n{run.stdout[-2000:]}{run.stderr}"
