"""What `pip install .` gives: a wheel, installed without extras into a bare environment, shows the README's tour
from a folder that is no clone. And the source archive makes the same wheel."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from sessions import ROOT, blocks

pytestmark = pytest.mark.full

README = (ROOT / "README.md").read_text()
UNREACHED = re.compile(r"No matching distribution|Could not find a version|Connection|Temporary failure|timed out")


def pip(python: str | Path, *words: str | Path) -> None:
    """Skips where no package index is reached: a bare environment needs one."""
    done = subprocess.run([str(python), "-m", "pip", *map(str, words)], capture_output=True, text=True, timeout=900)
    if done.returncode and UNREACHED.search(done.stderr):
        pytest.skip("no package index is reached from this machine")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source archive of this clone."""
    folder = tmp_path_factory.mktemp("dist")
    builder = folder / "builder"
    venv.create(builder, with_pip=True)
    pip(builder / "bin" / "python", "install", "-q", "hatchling")
    subprocess.run(
        [builder / "bin" / "python", "-m", "hatchling", "build", "-t", "sdist", "-d", folder],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (archive,) = folder.glob("*.tar.gz")
    pip(builder / "bin" / "python", "wheel", "-q", "--no-deps", "-w", folder, archive)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True)
    pip(folder / "bin" / "python", "install", "-q", built)
    return folder / "bin"


def test_the_wheel_has_the_models_the_devices_and_the_licence(built: Path) -> None:
    names = zipfile.ZipFile(built).namelist()
    assert "npuscope/models/qwen3_14b/decode_layer.py" in names
    assert "npuscope/chip/devices/ascend910b1.toml" in names
    assert "npuscope/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "benchmarks"))]


def test_the_readmes_tour_runs_from_another_folder(installed: Path, built: Path, tmp_path: Path) -> None:
    pip(installed / "python", "install", "-q", f"{built}[fix]")  # as `make demo` does, for `improve`
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = {**kept, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    tour = next(block for block in blocks(README, "") if "npuscope demo --keep" in block)
    for line in tour.splitlines():
        words = shlex.split(line.partition("#")[0])
        if not words or words[1] == "lab":  # serves until it is ended; its own tests have it
            continue
        command = [str(installed / words[0]), *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
        # check ends with 1 where it has found something
        assert done.returncode in ((0, 1) if words[1] == "check" else (0,)), f"{line}\n{done.stderr}"


def test_a_clone_beside_us_does_not_hide_the_installed_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "npuscope").symlink_to(ROOT)
    code = "import npuscope; print(npuscope.__version__)"
    done = subprocess.run([installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_clones_own_environment_imports_it_from_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "npuscope").symlink_to(ROOT)
    code = "import npuscope; print(npuscope.__version__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
