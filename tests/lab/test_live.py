"""The loop of the lab: save a program, see what changed; nothing that a program does takes the lab down."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from lab_server import Lab, Listener, lab

from npuscope.answer.request import Request
from npuscope.base.errors import CannotWrite
from npuscope.lab.job import perform
from npuscope.lab.messages import SaveBefore, VersionJob
from npuscope.lab.payload.files import source_changes
from npuscope.lab.versions import replaced
from npuscope.models import FOLDER

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
SIZES = "ROWS = 64\n"


def edit(file: Path, old: str, new: str) -> None:
    """As editors save: a new file in the place of the old one."""
    text = file.read_text()
    assert old in text
    other = file.with_suffix(".new")
    other.write_text(text.replace(old, new))
    other.replace(file)


def write_program(folder: Path) -> Path:
    (folder / "sizes.py").write_text(SIZES)
    (folder / "program.py").write_text(PROGRAM)
    return folder / "program.py"


@dataclass
class Live:
    """A lab of one program, and what it says."""

    lab: Lab
    listener: Listener
    program: Path
    newest: str = "1"

    def saved(self, kind: str = "version") -> Any:
        """The version of the next save, once it has run or failed."""
        while True:
            version = self.listener.until(kind)["version"]
            if version["saved"] and int(version["id"]) > int(self.newest):
                self.newest = version["id"]
                return version

    def edited(self, old: str, new: str, kind: str = "version") -> Any:
        edit(self.program, old, new)
        return self.saved(kind)

    def run(self, id: str) -> Any:
        return self.lab.get(f"run/{id}.json").json()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    program = write_program(tmp_path_factory.mktemp("served"))
    with lab(program) as found, found.listening() as listener:
        listener.until("version", id="1")
        listener.until("panels", id="1")
        yield Live(found, listener, program)


@pytest.fixture
def live(served: Live) -> Live:
    """One lab for all tests of this file, with the program as it was at first."""
    folder = served.program.parent
    if (folder / "sizes.py").read_text() != SIZES:
        (folder / "sizes.py").write_text(SIZES)
        served.saved()
    if served.program.read_bytes() != PROGRAM.encode():
        served.program.write_text(PROGRAM)
        while served.lab.get(f"sources/{served.newest}.json").json().get(str(served.program)) != PROGRAM:
            served.saved()
    served.program.chmod(0o644)
    return served


def test_a_save_of_the_file_or_of_a_module_is_a_new_version(live: Live) -> None:
    first = live.newest
    before = live.run(first)
    assert before["measured"] is False
    # WHEN the file is saved
    second = live.edited("TILE = 256, 64", "TILE = 512, 64")
    assert second["has_run"]
    assert second["wall"]["value"] != before["wall"]["value"]
    # AND a module that it imports
    (live.program.parent / "sizes.py").write_text("ROWS = 512\n")
    third = live.saved()
    assert third["wall"]["value"] != second["wall"]["value"]
    # THEN any two can be compared, with the lines that changed
    changed = live.lab.get(f"compare/{first}/{third['id']}.json").json()
    assert changed["totals"]["wall_ns"][0] == before["diagnosis"]["wall_ns"]
    lines = {file["name"]: [tuple(line[2:]) for line in file["lines"] if line[2] != " "] for file in changed["source"]}
    assert lines == {
        "program.py": [("-", "COLS, TILE = 256, 64"), ("+", "COLS, TILE = 512, 64")],
        "sizes.py": [("-", "ROWS = 64"), ("+", "ROWS = 512")],
    }
    # AND each version keeps its source, to be written back only when asked for
    assert live.lab.get(f"sources/{first}.json").json()[str(live.program)] == PROGRAM
    written = live.lab.post(f"version/{first}", {"write": True, "over": third["id"]}).json()["written"]
    assert written == [str(live.program), str(live.program.parent / "sizes.py")]
    assert live.program.read_text() == PROGRAM
    assert live.saved()["wall"] == before["wall"]


def test_a_folder_in_the_place_of_the_program_is_not_written_over(live: Live) -> None:
    live.program.unlink()
    live.program.mkdir()
    try:
        answer = live.lab.post(f"version/{live.newest}", {"write": True, "over": live.newest})
        assert answer.status_code == 409
        assert "is a folder" in answer.text
    finally:
        live.program.rmdir()
        live.program.write_text(PROGRAM)


def test_writing_back_keeps_the_mode_and_the_ends_of_lines_and_never_what_nobody_has_seen(live: Live) -> None:
    text = PROGRAM.replace("\n", "\r\n").encode()
    live.program.write_bytes(text)
    live.program.chmod(0o750)
    first = live.saved()["id"]
    live.program.write_bytes(text.replace(b"64", b"32"))  # in place: the file keeps its mode
    second = live.saved()["id"]
    # WHEN somebody saves again, THEN a page that has not seen that writes nothing
    live.program.write_bytes(text.replace(b"64", b"16"))
    third = live.saved()["id"]
    assert live.lab.post(f"version/{first}", {"write": True, "over": second}).status_code == 409
    assert b"16" in live.program.read_bytes()
    assert live.lab.post(f"version/{first}", {"write": True}).status_code == 400
    # AND when it has, the file is as it was, to the byte
    assert live.lab.post(f"version/{first}", {"write": True, "over": third}).json()["written"] == [str(live.program)]
    assert live.program.read_bytes() == text
    assert live.program.stat().st_mode & 0o777 == 0o750
    assert not list(live.program.parent.glob(".program*"))
    live.saved()


def test_a_text_that_no_version_has_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("unseen")
    with pytest.raises(CannotWrite, match=r"has changed since it was last read"):
        replaced({tmp_path / "new.py": "1", file: "old"}, lambda _, text: text == "seen")
    assert file.read_text() == "unseen"
    assert not (tmp_path / "new.py").exists()  # all or none


@pytest.mark.parametrize("how", ["deleted", "renamed", "folder"])
def test_a_program_that_goes_is_reported_at_once_and_work_goes_on_when_it_is_back(live: Live, how: str) -> None:
    aside = live.program.with_suffix(".aside")
    if how == "deleted":
        live.program.unlink()
    else:
        live.program.rename(aside)
    if how == "folder":
        live.program.mkdir()
    reason = "program.py is a folder now" if how == "folder" else "program.py is gone"
    while live.listener.until("files")["gone"] != [reason]:
        pass
    assert live.lab.get(f"run/{live.newest}.json").status_code == 200
    # WHEN it comes back as it was, THEN that is all
    if how == "folder":
        live.program.rmdir()
    if how == "deleted":
        live.program.write_text(PROGRAM)
    else:
        aside.rename(live.program)
    while live.listener.until("files")["gone"]:
        pass
    # AND the next save is a version
    assert live.edited("TILE = 256, 64", "TILE = 256, 128")["has_run"]


def test_a_folder_that_goes_and_comes_back_is_watched_again(live: Live) -> None:
    away = live.program.parent.with_name("away")
    live.program.parent.rename(away)
    while len(live.listener.until("files")["gone"]) < 2:
        pass
    away.rename(live.program.parent)
    while live.listener.until("files")["gone"]:
        pass
    assert live.edited("TILE = 256, 64", "TILE = 256, 128")["has_run"]


def test_a_module_that_is_no_python_is_reported_at_its_line_and_its_mending_is_seen(live: Live) -> None:
    module = live.program.parent / "sizes.py"
    module.write_text("\nROWS = = 64\n")
    broken = live.saved("error")
    assert (Path(broken["trouble"]["file"]), broken["trouble"]["line"]) == (module, 2)
    assert live.lab.get(f"sources/{broken['id']}.json").json()[str(module)] == "\nROWS = = 64\n"
    module.write_text("ROWS = 32\n")
    assert live.saved()["has_run"]


def test_a_save_that_changes_nothing_is_no_version(live: Live) -> None:
    begun = len(live.listener.heard)
    live.program.write_text(PROGRAM)
    (live.program.parent / "other.py").write_text("1")
    live.edited("64", "32")
    assert [event["type"] for event in live.listener.heard[begun:]].count("working") == 1


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("1 +", "program.py", "SyntaxError"),
        ("raise ValueError('oh no')", "program.py", "ValueError: oh no"),
        ("pl.add(1)", "program.py", "add"),
        ("raise SystemExit('not today')", "program.py", "not today"),
        ("import os; os._exit(3)", "", "ended the process"),
        ("import ctypes; ctypes.string_at(0)", "", "crashed"),
    ],
)
def test_errors_appear_at_their_line_and_the_last_good_run_stays(live: Live, line: str, place: str, words: str) -> None:
    good = live.newest
    trouble = live.edited("COLS, TILE", f"{line}\nCOLS, TILE", "error")["trouble"]
    assert words in str(trouble)
    assert Path(trouble["file"]).name == place
    if place and "SystemExit" not in line:
        assert trouble["line"] == 5
    assert live.lab.get(f"run/{good}.json").status_code == 200
    assert live.edited(f"{line}\n", "")["has_run"]


def test_what_does_not_fit_is_reported_at_its_line(live: Live) -> None:
    trouble = live.edited("COLS, TILE = 256, 64", "COLS, TILE = 8192, 8192", "error")["trouble"]
    assert "buffer usage" in str(trouble)
    assert (Path(trouble["file"]).name, trouble["line"]) == ("program.py", 11)
    assert trouble["remedy"]


def test_turning_a_knob_simulates_the_variant_and_leaves_the_file_alone(live: Live) -> None:
    while not live.lab.get(f"panels/{live.newest}.json").is_success:
        live.listener.until("panels")
    knobs = {one["name"]: one for one in live.lab.get(f"panels/{live.newest}.json").json()["panels"]["knobs"]["knobs"]}
    assert knobs["TILE"]["values"] == [16, 32, 64, 128, 256]
    assert {"source", "inside", "memory", "graph"} <= set(live.run(live.newest)["panels"])
    id = live.lab.post("knob", {"settings": {"TILE": 128}}).json()["id"]
    turned = live.listener.until("version", id=id)["version"]
    assert (turned["name"], turned["settings"], turned["saved"]) == ("TILE=128", {"TILE": "128"}, False)
    assert live.program.read_text() == PROGRAM
    # it is what the file with that value gives
    assert live.edited("TILE = 256, 64", "TILE = 256, 128")["wall"] == turned["wall"]
    # a name that the program does not have is reported as such
    id = live.lab.post("knob", {"settings": {"TILES": 128}}).json()["id"]
    assert "no option, constant, field" in str(live.listener.until("error", id=id)["version"]["trouble"])


def test_a_page_edits_the_files_of_the_program_and_no_others(live: Live) -> None:
    text = PROGRAM.replace("256, 64", "256, 32")
    order = {"file": str(live.program), "text": text, "before": PROGRAM}
    assert live.lab.post("edit", order).json() == {"written": [str(live.program)]}
    assert live.saved()["versus"]["edits"] == [{"file": "program.py", "line": 5, "text": "TILE 64 → 32"}]
    # WHEN the file holds what the page has not seen, THEN it is left alone
    assert live.lab.post("edit", {**order, "text": ""}).status_code == 409
    assert live.program.read_text() == text
    # AND so is every other file
    other = live.program.parent / "other.py"
    other.write_text("1")
    for file in (other, live.program.parent / ".." / "served" / "program.py", "/etc/hostname"):
        assert live.lab.post("edit", {"file": str(file), "text": "", "before": "1"}).status_code == 409
    assert other.read_text() == "1"
    assert live.lab.post("edit", {"file": str(live.program), "text": 1}).status_code == 400
    # AND a knob's value is written into the module that has it
    written = live.lab.post("knob", {"settings": {"ROWS": 32, "TILE": "128"}, "write": True}).json()["written"]
    assert [Path(file).name for file in written] == ["sizes.py", "program.py"]
    assert (live.program.parent / "sizes.py").read_text() == "ROWS = 32\n"
    assert live.program.read_text() == PROGRAM.replace("256, 64", "256, 128")
    live.saved()


def test_kernels_of_one_function_that_do_not_fit_are_one_message(live: Live) -> None:
    launch = PROGRAM[PROGRAM.index("    for block") : PROGRAM.index("    return y")]
    text = PROGRAM.replace("    return y", f"{launch.replace('copy', 'again')}    return y")
    text = text.replace("256, 64", "8192, 8192")
    live.program.write_text(text)
    trouble = live.saved("error")["trouble"]
    assert "(the same in again)" in trouble["message"]
    assert trouble["more"] == []
    assert trouble["remedy"].startswith("TILE = 8192 is too large")


def test_a_killed_worker_costs_one_version(live: Live) -> None:
    edit(live.program, "COLS, TILE", "import time; time.sleep(30)\nCOLS, TILE")
    live.listener.until("working")
    (server,) = children(live.lab.process.pid)  # the one that others are forked from
    os.kill(server, signal.SIGKILL)
    assert "was ended" in str(live.saved("error")["trouble"])
    assert live.edited("import time; time.sleep(30)\n", "")["has_run"]


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_an_endless_loop_ends_by_itself_or_with_the_next_save(tmp_path: Path) -> None:
    program = write_program(tmp_path)
    with lab(program, "--seconds", "3") as found, found.listening() as listener:
        listener.until("version", id="1")
        edit(program, "COLS, TILE", "while True: pass\nCOLS, TILE")
        assert "did not end within 3 s" in str(listener.until("error", name="save 2")["version"]["trouble"])
        # the same again, and before it ends a better one
        edit(program, "while True: pass", "while 1: pass")
        stuck = listener.until("working", name="save 3")["version"]["id"]
        edit(program, "while 1: pass\n", "")
        assert listener.until("dropped")["id"] == stuck
        assert listener.until("version", name="save 3")["version"]["has_run"]
        assert found.get("").status_code == 200


def test_changed_lines_have_their_numbers() -> None:
    (file,) = source_changes({"/a/x.py": "1\n2\n3\n", "/a/y.py": "same"}, {"/a/x.py": "1\nnew\n3\n", "/a/y.py": "same"})
    assert file["name"] == "x.py"
    assert file["lines"] == [(1, 1, " ", "1"), (2, 0, "-", "2"), (0, 2, "+", "new"), (3, 3, " ", "3")]
    assert source_changes({}, {"/a/x.py": "1"}) == []  # a capture has no source


def test_of_several_ranks_the_page_says_which_one_is_shown() -> None:
    request = Request(str(FOLDER / "deepseek_v4/expert_parallel.py"))
    first = perform(VersionJob("1", "save 1", request))
    run, later = (json.loads(text) for text in (first.run, first.panels))
    assert re.fullmatch(r"6 programs on rank 1 of 2; all ranks: [\d.]+ µs", run["part"])
    assert later["panels"]["ranks"]["parts"]
    # AND a ratio to a save of which another program was shown would compare two things
    save = SaveBefore("1", "save 1", first.wall_ns, first.bound, first.sources, first.program)
    same, other = (
        perform(VersionJob("2", "save 2", request, before=one)) for one in (save, replace(save, program="x"))
    )
    assert same.versus is not None
    assert other.versus is not None
    assert ("ratio" in same.versus, "ratio" in other.versus) == (True, False)
