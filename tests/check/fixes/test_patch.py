"""A patch as an editor and `git apply` take it, and how it is written: whole, in its file, never over another text."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mended import HEAD, keeps_everything, patches

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


@pytest.mark.parametrize("how", ["read-only", "link", "hard"])
def test_what_else_a_file_may_be(how: str, tmp_path: Path) -> None:
    one = patch(tmp_path / "real.py")
    if how == "read-only":
        (tmp_path / "real.py").chmod(0o444)
        with pytest.raises(CannotWrite, match="read-only"):
            one.write()
        assert (tmp_path / "real.py").read_text() == BEFORE
    if how == "link":  # a link stays one, and its target has the new text
        (tmp_path / "link.py").symlink_to(tmp_path / "real.py")
        replace(one, file=str(tmp_path / "link.py")).write()
        assert (tmp_path / "link.py").is_symlink()
        assert (tmp_path / "real.py").read_text() == AFTER
    if how == "hard":  # only the file that is named changes
        (tmp_path / "other.py").hardlink_to(tmp_path / "real.py")
        one.write()
        assert [(tmp_path / name).read_text() for name in ("real.py", "other.py")] == [AFTER, BEFORE]


def test_killed_while_it_writes_a_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    file, before, after = tmp_path / "program.py", "a = 1\n" * 200_000, "b = 2\n" * 200_000
    file.write_text(before)
    code = f"""
from npuscope.check.fixes.patch import Patch
before, after = {before[:6]!r} * 200_000, {after[:6]!r} * 200_000
print("ready", flush=True)
while True:
    Patch("t", "", {str(file)!r}, before, after).write()
    Patch("t", "", {str(file)!r}, after, before).write()
"""
    for number in range(5):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.01 + 0.007 * number)
            process.kill()
        assert file.read_text() in (before, after)
        file.write_text(before)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("a = 1\n")
    code = f"""
import resource
from npuscope.base.errors import CannotWrite
from npuscope.check.fixes.patch import Patch
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    Patch("t", "", {str(file)!r}, "a = 1\\n", "b = 2\\n" * 200_000).write()
except CannotWrite as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert str(file) in done.stdout
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("program.py", "a = 1\n")]


PROGRAM = (
    HEAD
    + """N = 64


@pl.jit
def product(a: pl.Tensor[[16, N], pl.BF16], b: pl.Tensor[[N, N], pl.BF16], c: pl.Out[pl.Tensor[[16, N], pl.FP32]]):
    # caf\xe9: one\x0c two\u2028 three
    with pl.at(level=pl.Level.CORE_GROUP):
        x = pl.full([16, N], dtype=pl.FP32, value=0.0)
        for i in pl.range(0, N, 32):
            x = pl.add(x, pl.matmul(a[:, i : i + 32], b[i : i + 32, :]))  # sum
        c = pl.assemble(c, x, [0, 0])
    return c


product(np.ones((16, N), bfloat16), np.ones((N, N), bfloat16), np.zeros((16, N), np.float32))
"""
)
WINDOWS = PROGRAM.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("data", "patched"),
    [
        (PROGRAM.encode(), True),
        (WINDOWS.encode(), True),
        (PROGRAM.replace("    ", "\t").encode(), True),
        (b"\xef\xbb\xbf" + PROGRAM.encode(), True),
        (PROGRAM.encode().rstrip(b"\n"), True),
        (PROGRAM.replace("\n", "\r").encode(), False),
        (b"# coding: latin-1\n" + PROGRAM.replace("\u2028", "").encode("latin-1"), False),
    ],
    ids=["plain", "windows", "tabs", "mark", "no last end", "mac", "latin-1"],
)
def test_ends_of_lines_tabs_and_encodings(data: bytes, patched: bool, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_bytes(data)
    found = patches(str(file), "matmul-acc")
    assert bool(found) == patched
    for one in found:
        assert one.before.encode() == data
        assert ("\r\n" in one.after) == (b"\r\n" in data)
        assert one.after.count("\n") == one.after.count("\r\n") or b"\r\n" not in data
        assert one.after.count("\t") >= one.before.count("\t")
        assert "caf\xe9: one\x0c two\u2028 three" in one.after
        keeps_everything(one)
        subprocess.run(["git", "apply", "-"], input=one.diff("program.py").encode(), cwd=tmp_path, check=True)
        assert file.read_bytes() == one.after.encode()
        file.write_bytes(data)
