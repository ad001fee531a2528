"""The loop of the lab: save a program, see what changed; nothing that a program does takes the lab down."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_server import Lab, Listener, lab

from npuscope.base.errors import CannotWrite
from npuscope.lab.payload.source import source_changes
from npuscope.lab.versions import replaced

PROGRAM = """import numpy as np
import npuscope.tile as pl
from sizes import ROWS

COLS, TILE = 256, 64


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(COLS // TILE, name_hint="copy"):
        tile = pl.slice(x, [ROWS, TILE], [0, block * TILE])
        y = pl.assemble(y, pl.add(tile, tile), [0, block * TILE])
    return y


program(np.zeros((ROWS, COLS), np.float32), np.zeros((ROWS, COLS), np.float32))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "sizes.py").write_text("ROWS = 64\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


@pytest.fixture
def running(program: Path) -> Iterator[tuple[Lab, Listener]]:
    with lab(program) as found, found.listening() as listener:
        listener.until("version", id="1")
        listener.until("panels", id="1")
        yield found, listener


def edit(file: Path, old: str, new: str) -> None:
    """As editors save: a new file in the place of the old one."""
    text = file.read_text()
    assert old in text
    other = file.with_suffix(".new")
    other.write_text(text.replace(old, new))
    other.replace(file)


def test_a_save_of_the_file_or_of_a_module_is_a_new_version(running: tuple[Lab, Listener], program: Path) -> None:
    found, listener = running
    first = found.get("run/1.json").json()
    assert (first["name"], first["measured"]) == ("save 1", False)
    # WHEN the file is saved
    edit(program, "TILE = 256, 64", "TILE = 256, 128")
    second = listener.until("version", name="save 2")["version"]
    assert second["has_run"]
    assert second["wall"]["value"] != first["wall"]["value"]
    # AND a module that it imports
    (program.parent / "sizes.py").write_text("ROWS = 32\n")
    assert listener.until("version", name="save 3")["version"]["wall"]["value"] != second["wall"]["value"]
    # THEN any two can be compared, with the lines that changed
    changed = found.get("compare/1/3.json").json()
    assert changed["totals"]["wall_ns"][0] == first["diagnosis"]["wall_ns"]
    lines = {file["name"]: [tuple(line[2:]) for line in file["lines"] if line[2] != " "] for file in changed["source"]}
    assert lines == {
        "program.py": [("-", "COLS, TILE = 256, 64"), ("+", "COLS, TILE = 256, 128")],
        "sizes.py": [("-", "ROWS = 64"), ("+", "ROWS = 32")],
    }
    # AND each version keeps its source, to be written back only when asked for
    assert found.get("sources/1.json").json()[str(program)] == PROGRAM
    assert found.post("version/1", {"write": True, "over": "3"}).json()["written"] == [
        str(program),
        str(program.parent / "sizes.py"),
    ]
    assert program.read_text() == PROGRAM
    again = listener.until("version", name="save 4")["version"]
    assert again["wall"] == first["wall"]


def test_a_folder_in_the_place_of_the_program_is_not_written_over_and_told_in_one_sentence(
    running: tuple[Lab, Listener], program: Path
) -> None:
    found, _ = running
    program.unlink()
    program.mkdir()
    answer = found.post("version/1", {"write": True, "over": "1"})
    assert (answer.status_code, answer.json()["told"].endswith("program.py: is a folder.")) == (409, True)


def test_writing_back_keeps_the_mode_and_the_ends_of_lines_and_never_what_nobody_has_seen(
    program: Path,
) -> None:
    program.write_bytes(PROGRAM.replace("\n", "\r\n").encode())
    program.chmod(0o750)
    with lab(program) as found, found.listening() as listener:
        listener.until("version", id="1")
        edit_bytes(program, b"64", b"32")
        listener.until("version", name="save 2")
        # WHEN somebody saves again, THEN a page that has not seen that writes nothing
        edit_bytes(program, b"32", b"16")
        listener.until("version", name="save 3")
        late = found.post("version/1", {"write": True, "over": "2"})
        assert (late.status_code, "save 3 is newer than what you saw" in late.json()["told"]) == (409, True)
        assert b"16" in program.read_bytes()
        assert found.post("version/1", {"write": True}).status_code == 400
        # AND when it has, the file is as it was, to the byte
        assert found.post("version/1", {"write": True, "over": "3"}).json()["written"] == [str(program)]
        assert program.read_bytes() == PROGRAM.replace("\n", "\r\n").encode()
        assert program.stat().st_mode & 0o777 == 0o750
        assert not list(program.parent.glob(".program*"))


def edit_bytes(file: Path, old: bytes, new: bytes) -> None:
    """In place: the file keeps its mode, as with editors that mind it."""
    file.write_bytes(file.read_bytes().replace(old, new))


def test_a_text_that_no_version_has_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("unseen")
    with pytest.raises(CannotWrite, match=r"has changed since it was last read"):
        replaced({tmp_path / "new.py": "1", file: "old"}, lambda _, text: text == "seen")
    assert file.read_text() == "unseen"
    assert not (tmp_path / "new.py").exists()  # all or none


@pytest.mark.parametrize("how", ["deleted", "renamed", "folder"])
def test_a_program_that_goes_is_told_at_once_and_work_goes_on_when_it_is_back(
    running: tuple[Lab, Listener], program: Path, how: str
) -> None:
    found, listener = running
    aside = program.with_suffix(".aside")
    if how == "deleted":
        program.unlink()
    else:
        program.rename(aside)
    if how == "folder":
        program.mkdir()
    told = "program.py is a folder now" if how == "folder" else "program.py is gone"
    while listener.until("files")["gone"] != [told]:
        pass
    assert found.get("run/1.json").status_code == 200
    # WHEN it comes back as it was, THEN that is all
    if how == "folder":
        program.rmdir()
    if how == "deleted":
        program.write_text(PROGRAM)
    else:
        aside.rename(program)
    while listener.until("files")["gone"]:
        pass
    # AND the next save is a version
    edit(program, "TILE = 256, 64", "TILE = 256, 128")
    assert listener.until("working")["version"]["name"] == "save 2"
    assert listener.until("version")["version"]["has_run"]


def test_a_folder_that_goes_and_comes_back_is_watched_again(running: tuple[Lab, Listener], program: Path) -> None:
    _, listener = running
    away = program.parent.with_name("away")
    program.parent.rename(away)
    while len(listener.until("files")["gone"]) < 2:
        pass
    away.rename(program.parent)
    while listener.until("files")["gone"]:
        pass
    edit(program, "TILE = 256, 64", "TILE = 256, 128")
    assert listener.until("version", name="save 2")["version"]["has_run"]


def test_a_module_that_is_no_python_is_told_at_its_line_and_its_mending_is_seen(
    running: tuple[Lab, Listener], program: Path
) -> None:
    found, listener = running
    module = program.parent / "sizes.py"
    module.write_text("\nROWS = = 64\n")
    broken = listener.until("error", name="save 2")["version"]
    assert (Path(broken["trouble"]["file"]), broken["trouble"]["line"]) == (module, 2)
    assert found.get(f"sources/{broken['id']}.json").json()[str(module)] == "\nROWS = = 64\n"
    module.write_text("ROWS = 32\n")
    assert listener.until("version", name="save 3")["version"]["has_run"]


def test_a_save_that_changes_nothing_is_no_version(running: tuple[Lab, Listener], program: Path) -> None:
    _, listener = running
    program.write_text(PROGRAM)
    (program.parent / "other.py").write_text("1")
    edit(program, "64", "32")
    assert listener.until("working")["version"]["name"] == "save 2"
    assert [event["type"] for event in listener.heard].count("working") == 1


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("1 +", "program.py", "SyntaxError"),
        ("raise ValueError('oh no')", "program.py", "ValueError: oh no"),
        ("import sizes; sizes.missing", "program.py", "has no attribute 'missing'"),
        ("pl.add(1)", "program.py", "add"),
        ("raise SystemExit('not today')", "program.py", "not today"),
        ("import os; os._exit(3)", "", "ended the process"),
        ("import ctypes; ctypes.string_at(0)", "", "crashed"),
    ],
)
def test_errors_appear_at_their_line_and_the_last_good_run_stays(
    running: tuple[Lab, Listener], program: Path, line: str, place: str, words: str
) -> None:
    found, listener = running
    edit(program, "COLS, TILE", f"{line}\nCOLS, TILE")
    trouble = listener.until("error", name="save 2")["version"]["trouble"]
    assert words in trouble["told"]
    assert Path(trouble["file"]).name == place
    if place and "SystemExit" not in line:
        assert trouble["line"] == 5
    assert found.get("run/1.json").status_code == 200
    edit(program, f"{line}\n", "")
    assert listener.until("version", name="save 3")["version"]["has_run"]


def test_what_does_not_fit_is_told_at_its_line(running: tuple[Lab, Listener], program: Path) -> None:
    _, listener = running
    edit(program, "COLS, TILE = 256, 64", "COLS, TILE = 8192, 8192")
    trouble = listener.until("error", name="save 2")["version"]["trouble"]
    assert "buffer usage" in trouble["told"]
    assert (Path(trouble["file"]).name, trouble["line"]) == ("program.py", 11)
    assert trouble["remedy"]


def test_an_endless_loop_ends_by_itself_or_with_the_next_save(program: Path) -> None:
    with lab(program, "--seconds", "3") as found, found.listening() as listener:
        listener.until("version", id="1")
        edit(program, "COLS, TILE", "while True: pass\nCOLS, TILE")
        assert "did not end within 3 s" in listener.until("error", name="save 2")["version"]["trouble"]["told"]
        # the same again, and before it ends a better one
        edit(program, "while True: pass", "while 1: pass")
        stuck = listener.until("working", name="save 3")["version"]["id"]
        edit(program, "while 1: pass\n", "")
        assert listener.until("dropped")["id"] == stuck
        assert listener.until("version", name="save 3")["version"]["has_run"]
        assert found.get("").status_code == 200


def test_a_killed_worker_costs_one_version(program: Path) -> None:
    with lab(program) as found, found.listening() as listener:
        listener.until("version", id="1")
        listener.until("panels", id="1")
        edit(program, "COLS, TILE", "import time; time.sleep(30)\nCOLS, TILE")
        listener.until("working", name="save 2")
        (server,) = children(found.process.pid)  # the one that others are forked from
        os.kill(server, signal.SIGKILL)
        assert "was ended" in listener.until("error", name="save 2")["version"]["trouble"]["told"]
        edit(program, "import time; time.sleep(30)\n", "")
        assert listener.until("version", name="save 3")["version"]["has_run"]


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_turning_a_knob_simulates_the_variant_and_leaves_the_file_alone(
    running: tuple[Lab, Listener], program: Path
) -> None:
    found, listener = running
    knobs = {knob["name"]: knob for knob in found.get("panels/1.json").json()["panels"]["knobs"]["knobs"]}
    assert knobs["TILE"]["values"] == [16, 32, 64, 128, 256]
    assert {"source", "inside", "memory", "graph"} <= set(found.get("run/1.json").json()["panels"])
    id = found.post("knob", {"settings": {"TILE": 128}}).json()["id"]
    turned = listener.until("version", id=id)["version"]
    assert (turned["name"], turned["settings"], turned["saved"]) == ("TILE=128", {"TILE": "128"}, False)
    assert program.read_text() == PROGRAM
    # it is what the file with that value gives
    edit(program, "TILE = 256, 64", "TILE = 256, 128")
    assert listener.until("version", name="save 2")["version"]["wall"] == turned["wall"]
    # a name that the program does not have is told as such
    id = found.post("knob", {"settings": {"TILES": 128}}).json()["id"]
    assert "no option, constant, field" in listener.until("error", id=id)["version"]["trouble"]["told"]


def test_changed_lines_have_their_numbers() -> None:
    (file,) = source_changes({"/a/x.py": "1\n2\n3\n", "/a/y.py": "same"}, {"/a/x.py": "1\nnew\n3\n", "/a/y.py": "same"})
    assert file["name"] == "x.py"
    assert file["lines"] == [(1, 1, " ", "1"), (2, 0, "-", "2"), (0, 2, "+", "new"), (3, 3, " ", "3")]
    assert source_changes({}, {"/a/x.py": "1"}) == []  # a capture has no source
