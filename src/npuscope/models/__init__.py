"""The tile programs that come with npuscope: `models/` of a clone, `npuscope/models/` of an installed wheel.

Every command takes one by name: `npuscope simulate model:qwen3_14b/decode_layer`. In Python
`npuscope.models.file_of("model:qwen3_14b/decode_layer")` is its file.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from npuscope.base.errors import BadInput, NpuscopeError

PREFIX = "model:"
_CLONE = Path(__file__).resolve().parents[3] / "models"
# a clone has them outside the package, so that people find them; a wheel has them here
FOLDER = _CLONE if (_CLONE / "basics").is_dir() else Path(__file__).resolve().parent
if str(FOLDER) not in __path__:
    __path__.append(str(FOLDER))


@dataclass(frozen=True)
class ModelProgram:
    """A program: its name after `model:`, its file and the first sentence it says of itself."""

    name: str
    file: Path
    about: str


def models() -> tuple[ModelProgram, ...]:
    """Every program that runs by itself, by name; modules that programs share are left out."""
    files = sorted(file for file in FOLDER.rglob("*.py") if file.name != "__init__.py")
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    programs = {file: text for file, text in texts.items() if 'if __name__ == "__main__"' in text}
    return tuple(ModelProgram(_name(file), file, _about(text)) for file, text in programs.items())


def program_file(path: str | Path) -> Path:
    """The file of a program; refuses what is none."""
    file = Path(path)
    if not file.exists():
        raise BadInput("no such file", path=path, remedy="`npuscope models` lists programs that come with npuscope.")
    if not file.is_file():
        raise BadInput("not a Python file", path=path, remedy="A capture is explained by `npuscope report`.")
    if file.suffix == ".pto":
        remedy = "`npuscope memory` reads it, `npuscope simulate PROGRAM.py --build FOLDER` times it in its program."
        raise BadInput("not a Python file but what the compiler made of a kernel", path=path, remedy=remedy)
    return file


def file_of(name: str) -> str:
    """The file of `model:NAME`; anything else is a file already and stays as it is."""
    if not name.startswith(PREFIX):
        return name
    known = {model.name: model.file for model in models()}
    wanted = name.removeprefix(PREFIX).removesuffix(".py")
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, 1)
        asked = f"Did you mean {PREFIX}{near[0]}? " if near else ""
        raise NpuscopeError(f"no model '{wanted}'", remedy=f"{asked}`npuscope models` lists them.")
    return str(known[wanted])


def needs(file: Path) -> tuple[Path, ...]:
    """A program and what it needs beside it, as seen from the folder of all: its own folder where it has one."""
    folder = file.parent
    together = (folder,) if (folder / "__init__.py").is_file() else (file, *_beside(file))
    return tuple(dict.fromkeys(place.relative_to(FOLDER) for place in together))


def _beside(file: Path) -> list[Path]:
    """The modules of the same folder that a program imports, and those that they import."""
    found: list[Path] = []
    waiting = [file]
    while waiting:
        for node in ast.walk(ast.parse(waiting.pop().read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            new = [file.with_name(f"{name}.py") for name in names if (file.with_name(f"{name}.py")).is_file()]
            waiting += [place for place in new if place not in found]
            found += [place for place in new if place not in found]
    return found


def _name(file: Path) -> str:
    return file.relative_to(FOLDER).with_suffix("").as_posix()


def _about(text: str) -> str:
    """The first sentence of a module's docstring."""
    words = " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
    return words.split(". ")[0].rstrip(".")
