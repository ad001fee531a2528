"""Whatever a program's answer depends on, once it has changed the next answer is of what it is now.

The tile of every program here depends on something beside its own text. All are judged by one warm pool, the things
change, and all are judged again: nothing of a program's answer may have been kept.
"""

from __future__ import annotations

import os
import pickle
import sqlite3
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from npuscope.answer.answer import Answer
from npuscope.answer.judge import How, judge_many
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.chip.devices import Constant, inheriting_file

HOW = How(golden=False, jobs=2)
PROGRAM = """import os, sys
from pathlib import Path

import numpy as np
import npuscope.tile as pl

ROWS, COLS = 64, 256
HERE = Path(__file__).parent
THING = str(HERE / "thing")
{code}
TILE = int(tile)


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(COLS // TILE, name_hint="copy"):
        tile = pl.slice(x, [ROWS, TILE], [0, block * TILE])
        y = pl.assemble(y, pl.add(tile, tile), [0, block * TILE])
    return y


program(np.zeros((ROWS, COLS), np.float32), np.zeros((ROWS, COLS), np.float32))
"""
OLD, NEW = 64, 32  # columns of a tile, before and after the change


def text(place: Path, tile: int) -> None:
    """The thing has the number as text, and is of the same size and age before and after."""
    (place / "thing").write_text(str(tile))
    os.utime(place / "thing", (1e9, 1e9))


def module(place: Path, tile: int) -> None:
    (place / "helper.py").write_text(f"tile = {tile}\n")


def packaged(place: Path, tile: int) -> None:
    (place / "data").mkdir(exist_ok=True)
    (place / "data" / "__init__.py").touch()
    (place / "data" / "tile.txt").write_text(str(tile))


def zipped(place: Path, tile: int) -> None:
    with zipfile.ZipFile(place / "all.zip", "w") as file:
        file.writestr("zipped.py", f"tile = {tile}\n")


def table(place: Path, tile: int) -> None:
    (place / "thing").write_text(f"tile\n{tile}\n")


def database(place: Path, tile: int) -> None:
    with sqlite3.connect(place / "thing") as base:
        base.execute("create table if not exists tiles (tile)")
        base.execute("delete from tiles")
        base.execute("insert into tiles values (?)", (tile,))
    base.close()


def number(place: Path, tile: int) -> None:
    np.array([tile], np.int64).tofile(place / "thing")


def array(place: Path, tile: int) -> None:
    np.save(place / "thing.npy", np.array([tile]))


def pickled(place: Path, tile: int) -> None:
    (place / "thing").write_bytes(pickle.dumps({"tile": tile}))


def made_later(place: Path, tile: int) -> None:
    if tile == NEW:
        (place / "thing").write_text(str(tile))


def module_made_later(place: Path, tile: int) -> None:
    if tile == NEW:
        module(place, tile)


def many_files(place: Path, tile: int) -> None:
    for n in range(tile):
        (place / f"{n}.part").touch()


def aged(place: Path, tile: int) -> None:
    (place / "thing").touch()
    os.utime(place / "thing", (tile, tile))


def long(place: Path, tile: int) -> None:
    (place / "thing").write_bytes(bytes(tile))


def allowed(place: Path, tile: int) -> None:
    (place / "thing").touch()
    (place / "thing").chmod(0o600 if tile == OLD else 0o640)


def linked(place: Path, tile: int) -> None:
    (place / "one").write_text(str(OLD))
    (place / "two").write_text(str(NEW))
    (place / "thing").unlink(missing_ok=True)
    (place / "thing").symlink_to(place / ("one" if tile == OLD else "two"))


def folder_linked(place: Path, tile: int) -> None:
    for name, one in (("one", OLD), ("two", NEW)):
        (place / name).mkdir(exist_ok=True)
        (place / name / "thing").write_text(str(one))
    (place / "current").unlink(missing_ok=True)
    (place / "current").symlink_to(place / ("one" if tile == OLD else "two"))


def itself(place: Path, tile: int) -> None:
    file = place / "program.py"
    file.write_text(file.read_text().replace(f"tile = {OLD}\n", f"tile = {tile}\n"))


def nothing(place: Path, tile: int) -> None:
    """The program itself, the environment or the working directory is what changes."""


def edited_in_the_run(place: Path, tile: int) -> None:
    if tile == OLD:
        module(place, tile)


@dataclass(frozen=True)
class Case:
    """How a program gets its tile, and what sets that up."""

    code: str
    setting: Callable[[Path, int], None] = text


CASES = {
    "open": Case("tile = open(THING).read()"),
    "path as bytes": Case("tile = open(THING.encode()).read()"),
    "Path.read_text": Case("tile = Path(THING).read_text()"),
    "r+": Case("tile = open(THING, 'r+').read()"),
    "a+": Case("file = open(THING, 'a+')\nfile.seek(0)\ntile = file.read()"),
    "os.open": Case("tile = os.read(os.open(THING, os.O_RDONLY), 9)"),
    "directory handle": Case("folder = os.open(HERE, os.O_RDONLY)\n"
                             "tile = os.read(os.open('thing', os.O_RDONLY, dir_fd=folder), 9)"),
    "mmap": Case("import mmap\nfile = open(THING)\ntile = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:]"),
    "C library": Case("import ctypes\nc = ctypes.CDLL(None)\nroom = ctypes.create_string_buffer(9)\n"
                      "c.read(c.open(THING.encode(), 0), room, 8)\ntile = room.value"),
    "thread": Case("import threading\nfound = []\n"
                   "reader = threading.Thread(target=lambda: found.append(open(THING).read()))\n"
                   "reader.start()\nreader.join()\ntile = found[0]"),
    "another process": Case("ours, theirs = os.pipe()\nif not os.fork():\n"
                            "    os.write(theirs, open(THING, 'rb').read())\n    os._exit(0)\n"
                            "os.wait()\ntile = os.read(ours, 9)"),
    "subprocess": Case("import subprocess\ntile = subprocess.run(['cat', THING], capture_output=True).stdout"),
    "polars": Case("import polars\ntile = polars.read_csv(THING)['tile'][0]", table),
    "sqlite": Case("import sqlite3\ntile = sqlite3.connect(THING).execute('select tile from tiles').fetchone()[0]",
                   database),
    "np.fromfile": Case("tile = np.fromfile(THING, np.int64)[0]", number),
    "np.load": Case("tile = np.load(THING + '.npy')[0]", array),
    "np.memmap": Case("tile = np.memmap(THING, np.int64, 'r')[0]", number),
    "pickle": Case("import pickle\ntile = pickle.load(open(THING, 'rb'))['tile']", pickled),
    "json": Case("import json\ntile = json.load(open(THING))"),
    "linecache": Case("import linecache\ntile = linecache.getline(THING, 1)"),
    "file that did not exist": Case("try:\n    tile = open(THING).read()\nexcept OSError:\n    tile = 64", made_later),
    "exists": Case("tile = 32 if os.path.exists(THING) else 64", made_later),
    "access": Case("tile = 32 if os.access(THING, os.R_OK) else 64", made_later),
    "import that did not exist": Case("try:\n    from helper import tile\nexcept ImportError:\n    tile = 64",
                                      module_made_later),
    "find_spec": Case("import importlib.util\ntile = 32 if importlib.util.find_spec('helper') else 64",
                      module_made_later),
    "listdir": Case("tile = 32 if 'thing' in os.listdir(HERE) else 64", made_later),
    "scandir": Case("tile = 32 if 'thing' in {one.name for one in os.scandir(HERE)} else 64", made_later),
    "walk": Case("tile = 32 if any('thing' in files for _, _, files in os.walk(HERE)) else 64", made_later),
    "glob": Case("import glob\ntile = 32 if glob.glob(str(HERE / 'thin*')) else 64", made_later),
    "mtime": Case("tile = os.path.getmtime(THING)", aged),
    "size": Case("tile = os.stat(THING).st_size", long),
    "permissions": Case("tile = 64 if os.stat(THING).st_mode & 0o777 == 0o600 else 32", allowed),
    "symlink": Case("tile = open(THING).read()", linked),
    "readlink": Case("tile = 64 if os.readlink(THING).endswith('one') else 32", linked),
    "folder that is a symlink": Case("tile = (HERE / 'current' / 'thing').read_text()", folder_linked),
    "import": Case("from helper import tile", module),
    "import in a function": Case("def late():\n    import helper\n    return helper.tile\n\n\ntile = late()", module),
    "helper edited in the run": Case("from helper import tile\n(HERE / 'helper.py').write_text('tile = 32\\n')",
                                     edited_in_the_run),
    "zip import": Case("sys.path.insert(0, str(HERE / 'all.zip'))\nfrom zipped import tile", zipped),
    "importlib.resources": Case("import importlib.resources\n"
                                "tile = importlib.resources.files('data').joinpath('tile.txt').read_text()", packaged),
    "runpy": Case("import runpy\ntile = runpy.run_path(str(HERE / 'helper.py'))['tile']", module),
    "exec": Case("exec((HERE / 'helper.py').read_text())", module),
    "own text": Case("tile = 64", itself),
    "environment": Case("tile = os.environ['TILE_OF_TEST']", nothing),
    "environment of a child": Case("import subprocess\ntile = subprocess.getoutput('echo $TILE_OF_TEST')", nothing),
    "working directory": Case("tile = os.path.basename(os.getcwd())", nothing),
    "file in the working directory": Case("tile = open('tile.txt').read()", nothing),
}  # fmt: skip


def gist(answer: Answer) -> tuple[object, ...]:
    """What of an answer depends on the tile."""
    assert answer.verdict == "good", answer
    return answer.wall_ns, answer.time, answer.blocks, answer.kernels, answer.bound_message


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Answer, Answer]]:
    """Of every case the answer before and after the change, and of programs that say their tile themselves."""
    top = tmp_path_factory.mktemp("stale")
    places = {name: top / str(n) for n, name in enumerate(CASES)}
    for name, place in places.items():
        place.mkdir()
        (place / "program.py").write_text(PROGRAM.format(code=CASES[name].code))
    plain = [PROGRAM.format(code=f"tile = {tile}") for tile in (OLD, NEW)]
    found = []
    for tile in (OLD, NEW):
        for name, place in places.items():
            CASES[name].setting(place, tile)
        here = top / "in" / str(tile)
        here.mkdir(parents=True)
        (here / "tile.txt").write_text(str(tile))
        with chdir(here), pytest.MonkeyPatch.context() as patch:
            patch.setenv("TILE_OF_TEST", str(tile))
            found.append(judge_many([*(place / "program.py" for place in places.values()), *plain], how=HOW))
    answers = dict(zip(places, zip(*found, strict=True), strict=False))
    return {**answers, "plain": (found[0][-2], found[0][-1])}


def test_the_tile_decides_the_answer(both: dict[str, tuple[Answer, Answer]]) -> None:
    old, new = both["plain"]
    assert (old.blocks, new.blocks) == (4, 8)
    assert old.wall_ns != new.wall_ns


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_of_what_its_program_depends_on_now(name: str, both: dict[str, tuple[Answer, Answer]]) -> None:
    assert [gist(one) for one in both[name]] == [gist(one) for one in both["plain"]]


def test_byte_code_does_not_hide_a_second_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows a source by size and second; of one that has just been written no byte code is kept."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(code=CASES["import"].code))
    soon = time.time() + 60  # never settled, however long this takes
    for tile in (OLD, NEW):
        module(tmp_path, tile)
        os.utime(tmp_path / "helper.py", (soon, soon))
        assert Prediction(Request(str(file))).brief().blocks == 256 // tile
    assert not (tmp_path / "__pycache__").exists()
    os.utime(tmp_path / "helper.py", (1e9, 1e9))
    assert Prediction(Request(str(file))).brief().blocks == 256 // NEW
    assert (tmp_path / "__pycache__").exists(), "what nobody edits is not compiled each time"


@pytest.mark.parametrize("chance", ["time.time_ns() // 1000", "time.perf_counter_ns() // 1000", "os.urandom(1)[0]"])
def test_time_and_chance_are_asked_anew(chance: str, tmp_path: Path) -> None:
    """A kept answer would be the same every time."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(code=f"import time\ntile = 64 if {chance} % 2 else 32"))
    seen: set[int | None] = set()
    for _ in range(10):
        seen |= {one.blocks for one in judge_many([file] * 3, how=HOW)}
        if seen == {4, 8}:
            return
    pytest.fail(f"30 answers alike: {seen}")


def test_a_chip_file_that_inherits_from_another_folder_is_read_anew(tmp_path: Path) -> None:
    """What it inherits from changes, and so does the key under which `--results` keeps answers."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "shared").mkdir()
    chip, base = tmp_path / "mine" / "chip.toml", tmp_path / "shared" / "base.toml"
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(code="tile = 64"))
    chip.write_text(inheriting_file("mine", "mine", "../shared/base.toml", {}))
    walls, keys = [], []
    for pickup in (4e-7, 4e-4):
        slow = Constant(pickup, "s", "a bench", "measured")
        base.write_text(inheriting_file("base", "base", "ascend910b1", {"pickup_first": slow}))
        (answer,) = judge_many([file], device=str(chip), how=HOW)
        walls.append(answer.wall_ns or 0)
        keys.append(Request(str(file), device=str(chip)).key)
    assert walls[1] > walls[0] + 300_000
    assert keys[0] != keys[1]
