"""What is kept between runs and runs when it is loaded lies where only we can write, or nowhere."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npuscope
from npuscope.base.files import first_private, own, user_caches

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_a_new_folder_is_made_for_us_alone(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        assert own(tmp_path / "caches" / "npuscope")
    finally:
        os.umask(umask)
    assert (tmp_path / "caches" / "npuscope").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "caches").stat().st_mode & 0o022
    assert own(tmp_path / "caches" / "npuscope")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o720, 0o702])
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert not own(tmp_path / "open")
    assert first_private([tmp_path / "open", tmp_path / "mine"]) == tmp_path / "mine"
    assert first_private([tmp_path / "open"]) is None


def test_nor_one_in_a_place_where_others_could_put_theirs(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert not own(tmp_path / "open" / "deep" / "cache")
    assert not any((tmp_path / "open").iterdir())
    (tmp_path / "open").chmod(0o1777)  # as /tmp is: only owners can move what lies there
    assert own(tmp_path / "open" / "deep" / "cache")


@as_root
def test_nor_one_of_another_user(tmp_path: Path) -> None:
    for name in ("theirs", "their_home"):
        (tmp_path / name / "cache").mkdir(parents=True, mode=0o700)
    os.chown(tmp_path / "theirs" / "cache", NOBODY, NOBODY)
    os.chown(tmp_path / "their_home", NOBODY, NOBODY)
    assert not own(tmp_path / "theirs" / "cache")
    assert not own(tmp_path / "their_home" / "cache")
    (tmp_path / "link").symlink_to(tmp_path / "theirs" / "cache")
    assert not own(tmp_path / "link")


def test_a_place_that_is_no_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "loop", Path("/dev/null/cache")):
        assert not own(place)


def test_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_caches() == Path("/home/me/.cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert user_caches() == Path("/caches")
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_caches().name == f"npuscope-{os.geteuid()}"


# ---- the simulator's machine code, through a small function of our own

USE = """
import sys
sys.path.insert(0, sys.argv[1])
from npuscope.time import compiled
import numbers_of_ours
with compiled.announced(numbers_of_ours.twice):
    assert numbers_of_ours.twice(21) == 42
with compiled.announced(numbers_of_ours.twice):
    assert numbers_of_ours.twice(4) == 8
print(compiled.folder())
"""
FUNCTION = """
from npuscope.time.compiled import compiled
@compiled
def twice(x):
    return 2 * x
"""


class Elsewhere:
    """npuscope in a place of its own that cannot keep machine code, for a user without a home."""

    def __init__(self, place: Path) -> None:
        self.place, self.temporary = place, place / "tmp"
        package = Path(npuscope.__file__).parent
        shutil.copytree(package, place / "npuscope", ignore=shutil.ignore_patterns("__pycache__"))
        (place / "npuscope" / "time" / "__pycache__").write_text("as good as read-only, also for root")
        (place / "numbers_of_ours.py").write_text(FUNCTION)
        self.temporary.mkdir()
        self.temporary.chmod(0o1777)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
        return {**kept, "TMPDIR": str(self.temporary), "PYTHONPATH": str(self.place)}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            env={**self.environment, **environment},
            cwd=self.place,
            timeout=600,
        )


@pytest.fixture
def elsewhere(tmp_path: Path) -> Elsewhere:
    return Elsewhere(tmp_path)


class _Trap:
    """What someone else would leave for us: loading it makes a file."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.made,)


def test_machine_code_that_another_user_can_write_is_never_loaded(elsewhere: Elsewhere) -> None:
    # GIVEN a cache of our own in the temporary folder, for want of a home
    first = elsewhere.run("-c", USE, str(elsewhere.place))
    assert first.returncode == 0, first.stderr
    folder = Path(first.stdout.strip())
    assert folder.is_relative_to(elsewhere.temporary / f"npuscope-{os.geteuid()}")
    indexes = list(folder.rglob("*.nbi"))
    assert indexes
    # WHEN its indexes are traps, they go off where the folder is ours: the trap is a good one
    made = elsewhere.place / "made"
    for index in indexes:
        version = pickle.dumps(__import__("numba").__version__)
        index.write_bytes(version + pickle.dumps(_Trap(made)))
    elsewhere.run("-c", USE, str(elsewhere.place))
    assert made.exists()
    made.unlink()
    # THEN they do not where anybody could have put them there, and the user is told once
    folder.chmod(0o777)
    again = elsewhere.run("-c", USE, str(elsewhere.place))
    assert again.returncode == 0, again.stderr
    assert not made.exists()
    assert again.stdout.strip() == "None"
    assert again.stderr.count("compiled every time") == 1
    assert "XDG_CACHE_HOME" in again.stderr


def test_a_full_disk_keeps_nothing_and_stops_nobody(elsewhere: Elsewhere) -> None:
    full = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    told = elsewhere.run("-B", "-c", full + USE, str(elsewhere.place))
    assert told.returncode == 0, told.stderr
    assert told.stderr.count("cannot be kept (File too large)") == 1


PROGRAM = """
import numpy as np
import npuscope.tile as pl

ROWS = 16

@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 64, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            y = pl.assemble(y, pl.add(pl.slice(x, [ROWS, 256], [i, 0]), 1.0), [i, 0])
    return y

program(np.zeros((64, 256), np.float32), np.zeros((64, 256), np.float32))
"""


@pytest.mark.full
def test_simulate_works_where_nothing_can_be_kept(elsewhere: Elsewhere) -> None:
    (elsewhere.place / "add.py").write_text(PROGRAM)
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/caches"}
    told = elsewhere.run("-m", "npuscope", "simulate", "add.py", **nowhere)
    assert told.returncode == 0, told.stderr
    assert "µs" in told.stdout
    assert told.stderr.count("\n") == 1
    assert "compiled every time" in told.stderr
