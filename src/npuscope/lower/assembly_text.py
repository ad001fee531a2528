"""The text that the compiler writes of a kernel (`.pto`, one file each) as ops with their operands, loops and branches.

One op per statement; one may go on over several lines. What an op means is said in
`assembly_run`; here nothing is known of ops but those that have blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.lower.model import CoreKind

_GOES_ON = re.compile(
    r"[(:{),]|->|ins\s*\(|outs\s*\(|attributes\b|iter_args\b|loc\("
)  # how a line goes on with the one before
_ATTRIBUTES = re.compile(r"pto\.(?!section)[\w.]+\s*\{[^{}]*$")  # of an op, not yet closed
_LOC = re.compile(r'\s*loc\("(?P<file>[^"]*)":(?P<line>\d+):\d+\)\s*$')
_OP = re.compile(
    r"(?:(?P<results>%[\w#:, %]+?)\s*=\s*)?(?P<name>(?:[a-z]\w*\.)+\w+|return|builtin\.\w+)(?P<rest>.*)$", re.S
)
_TILE = re.compile(r"!pto\.tile_buf<(?P<inside>[^<>]*)>")
_SHORT = re.compile(r"(?P<space>\w+),\s*(?P<shape>(?:[\d?]+x){2,})(?P<dtype>[\w!.]+)")
_FUNCTION = re.compile(r"func\.func\s+(?:private\s+)?@(?P<name>[\w$.]+)\((?P<arguments>.*?)\)(?P<rest>[^)]*)$", re.S)
_SSA = re.compile(r"%[\w#]+")
_KINDS: dict[str, CoreKind] = {"cube": "AIC", "vector": "AIV"}


@dataclass(frozen=True, slots=True)
class TileBuffer:
    """A tile's type: a place on chip and what lies there."""

    space: str
    dtype: str
    rows: int
    columns: int
    valid: tuple[int | None, int | None]  # None where an operand says it


@dataclass(frozen=True, slots=True)
class AssemblyOp:
    """`inputs` and `outputs` stand in `ins(…)` and `outs(…)`; `text` is all that follows the name, `blocks` its bodies.

    `source`: the Python line that it comes from, where the compiler wrote it.
    """

    name: str
    results: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    text: str
    line: int
    source: tuple[str, int] | None = None
    blocks: tuple[tuple[AssemblyOp, ...], ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """Every value that the op names, in order."""
        return tuple(_SSA.findall(self.text))

    @property
    def tile(self) -> TileBuffer | None:
        """The last tile type that it names: what an allocation, a view or a hand-over gives."""
        found = [tile for tile in map(tile_of, _TILE.findall(self.text)) if tile]
        return found[-1] if found else None

    def values_of(self, key: str) -> tuple[str, ...]:
        """The values of `key = […]`."""
        found = re.search(rf"\b{key}\s*=\s*\[([^\]]*)\]", self.text)
        return tuple(part.strip() for part in found[1].split(",") if part.strip()) if found else ()

    def value_of(self, key: str) -> str | None:
        """The value of `key = …`."""
        found = re.search(rf"\b{key}\s*=\s*(%[\w#]+|-?\w+|#[\w.<>]+|\"[^\"]*\")", self.text)
        return found[1].strip('"') if found else None


@dataclass(frozen=True, slots=True)
class AssemblyFunction:
    """One function of a file; of a mixed kernel there are two, one per kind of core."""

    name: str
    unit: CoreKind | None
    arguments: tuple[tuple[str, str], ...]  # name, type
    body: tuple[AssemblyOp, ...]
    line: int


@dataclass(frozen=True, slots=True)
class AssemblyFile:
    """`arch` as the file says it, "" where it does not."""

    path: Path
    arch: str
    functions: tuple[AssemblyFunction, ...]


def read_assembly(path: Path) -> AssemblyFile:
    """One `.pto` file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read as text ({error.__class__.__name__})", path=path) from None
    return parse_assembly(text, path)


def parse_assembly(text: str, path: Path) -> AssemblyFile:
    arch = re.search(r'pto\.target_arch\s*=\s*"(\w+)"', text)
    functions = tuple(_functions(_Statements(text, path)))
    if not functions:
        raise BadInput("has no func.func, so it is no kernel's assembly", path=path)
    return AssemblyFile(path, arch[1] if arch else "", functions)


class _Statements:
    """Statements with the line that they begin on, and the Python line that they come from."""

    def __init__(self, text: str, path: Path) -> None:
        self.path = path
        self.all = list(_statements(text))
        self.next = 0

    def take(self) -> tuple[int, str]:
        if self.next == len(self.all):
            line = self.all[-1][0] if self.all else 1
            raise BadInput("ends inside a function: a } is missing", path=self.path, line=line)
        self.next += 1
        return self.all[self.next - 1]


def _statements(text: str) -> Iterator[tuple[int, str]]:
    first, held = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("//")[0].strip()
        if not line:
            continue
        if held and (_ATTRIBUTES.search(held) or _open(held) or _GOES_ON.match(line)):
            held += f" {line}"
            continue
        if held:
            yield first, held
        first, held = number, line
    if held:
        yield first, held


def _open(text: str) -> bool:
    """Whether a parenthesis, a type or a list goes on."""
    return (
        text.endswith((",", "->", ":"))
        or any(text.count(one) > text.count(other) for one, other in ("()", "[]"))
        or (text.count("<") > text.count(">") - text.count("->"))
    )


def _functions(statements: _Statements) -> Iterator[AssemblyFunction]:
    while statements.next < len(statements.all):
        line, text = statements.take()
        if not text.startswith("func.func") or not text.rstrip().endswith("{"):
            continue
        found = _FUNCTION.match(text.rstrip("{ "))
        if found is None:
            raise BadInput(f"is no function that can be read: {text[:60]}", path=statements.path, line=line)
        arguments = tuple(
            (name.strip(), kind.strip())
            for name, _, kind in (part.partition(":") for part in found["arguments"].split(",") if ":" in part)
        )
        kind = re.search(r"kernel_kind<(\w+)>", text)
        body, _ = _block(statements)
        yield AssemblyFunction(found["name"], _KINDS.get(kind[1]) if kind else None, arguments, body, line)


def _block(statements: _Statements) -> tuple[tuple[AssemblyOp, ...], str]:
    """Ops up to the closing brace, and what stands behind it."""
    ops: list[AssemblyOp] = []
    while True:
        line, text = statements.take()
        if text.startswith("}"):
            return tuple(ops), text[1:].strip()
        if text.startswith("^"):
            continue
        ops.append(_op(text, line, statements))


def _op(text: str, line: int, statements: _Statements) -> AssemblyOp:
    source = None
    if located := _LOC.search(text):
        source, text = (located["file"], int(located["line"])), text[: located.start()]
    found = _OP.match(text)
    if found is None:
        raise BadInput(f"is no op that can be read: {text[:60]}", path=statements.path, line=line)
    blocks = []
    rest = found["rest"].strip()
    opens = rest.endswith("{")
    while opens:
        body, behind = _block(statements)
        blocks.append(body)
        opens = behind.endswith("{")
    results = tuple(part.strip().partition(":")[0] for part in (found["results"] or "").split(",") if part.strip())
    inputs, outputs = (tuple(_SSA.findall(_inside(rest, key))) for key in ("ins", "outs"))
    return AssemblyOp(found["name"], results, inputs, outputs, rest, line, source, tuple(blocks))


def _inside(text: str, key: str) -> str:
    """What stands between the parentheses of `key(…)`, up to the types."""
    at = re.search(rf"\b{key}\s*\(", text)
    if at is None:
        return ""
    depth, end = 1, at.end()
    while end < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return re.sub(r"\{[^}]*\}", "", text[at.end() : end - 1]).partition(" : ")[0]


def tile_of(inside: str) -> TileBuffer | None:
    """A tile's type, long or short: `loc=vec, dtype=f32, rows=16, …` or `vec, 16x16xf32, …`."""
    if short := _SHORT.match(inside.strip()):
        rows, columns = (int(part) if part.isdecimal() else 0 for part in short["shape"].strip("x").split("x")[-2:])
        return TileBuffer(short["space"], short["dtype"], rows, columns, (rows, columns))
    said = dict(part.strip().split("=", 1) for part in inside.split(",") if "=" in part)
    height, width, *valid = (
        int(text) if (text := said.get(key, "")).isdecimal() else None for key in ("rows", "cols", "v_row", "v_col")
    )
    if not {"loc", "dtype"} <= said.keys() or height is None or width is None:
        return None
    return TileBuffer(said["loc"], said["dtype"], height, width, (valid[0], valid[1]))
