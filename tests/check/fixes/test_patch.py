"""A patch as an editor and `git apply` take it, and how it is written: whole, in its file, never over another text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from npuscope.base.errors import CannotWrite
from npuscope.check.fixes.patch import Patch

BEFORE = "a = 1\nb = 2\nc = 3\nd = 4"
AFTER = "a = 1\nb = 20\nb2 = 21\nc = 3\n"


def patch(file: Path) -> Patch:
    file.write_text(BEFORE)
    return Patch("test", "twenty", str(file), BEFORE, AFTER)


def test_its_edits_make_the_new_text_and_its_diff_does_too(tmp_path: Path) -> None:
    one = patch(tmp_path / "program.py")
    lines = BEFORE.splitlines(keepends=True)
    for edit in reversed(one.edits):
        lines[edit.first : edit.last] = [edit.text]
    assert "".join(lines) == AFTER
    assert one.line == 2
    subprocess.run(["git", "apply", "-"], input=one.diff("program.py"), text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "program.py").read_text() == AFTER


def test_it_is_written_only_over_the_text_that_it_was_made_of(tmp_path: Path) -> None:
    one = patch(tmp_path / "program.py")
    (tmp_path / "program.py").write_text("somebody saved this\n")
    with pytest.raises(CannotWrite, match="changed since"):
        one.write()
    assert (tmp_path / "program.py").read_text() == "somebody saved this\n"
    (tmp_path / "program.py").write_text(BEFORE)
    (tmp_path / "program.py").chmod(0o640)
    one.write()
    assert (tmp_path / "program.py").read_text() == AFTER
    assert (tmp_path / "program.py").stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["program.py"]
    (tmp_path / "program.py").unlink()
    with pytest.raises(CannotWrite):
        one.write()
    assert not list(tmp_path.iterdir())
