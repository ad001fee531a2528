"""What can be said of a program's text without running it: while it is typed, and at the cursor.

Syntax errors and names that the language does not have; the dotted name under the cursor, the lines that gave a
variable its value, the call that is being written; how lines of a saved text have moved since.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from inspect import Signature, signature
from typing import Any

from npuscope.base.frozen import dataclass
from npuscope.base.unsaved import lines_of
from npuscope.check.rule import Finding

LANGUAGES = ("pypto.language", "npuscope.tile")
SYNTAX, NO_SUCH_NAME = "syntax", "no-such-name"
_DOTTED = re.compile(r"[A-Za-z_][\w.]*")
_OPEN_CALL = re.compile(r"([A-Za-z_][\w.]*)\($")


@dataclass(frozen=True)
class Word:
    """A dotted name up to the part that the cursor is on, with its columns."""

    text: str
    start: int
    end: int


@cache
def language() -> dict[str, Any]:
    """Every name of the language, without `pl.` before it: `matmul`, `tile.add`, `system.syncall`."""
    import npuscope.tile as pl
    from npuscope.tile.language.namespace import Namespace

    found: dict[str, Any] = {}
    for name in dir(pl):
        if name.startswith("_"):
            continue
        value = getattr(pl, name)
        found[name] = value
        if isinstance(value, Namespace):
            found |= {f"{name}.{inner}": one for inner, one in vars(value).items() if not inner.startswith("_")}
    return found


def is_program(text: str) -> bool:
    """Whether a text imports the language: only then is it run."""
    return re.search(r"(?m)^\s*(import|from)\s+(pypto|npuscope\.tile)\b", text) is not None


def aliases(text: str) -> dict[str, str]:
    """What the language is called in a text, and what that stands for: {"pl": ""}, {"tile": "tile."}. Works on a text
    that is being typed, and so is no Python."""
    found = {}
    for module in LANGUAGES:
        for alias in re.findall(rf"(?m)^\s*import\s+{re.escape(module)}\s+as\s+(\w+)", text):
            found[alias] = ""
        package, _, name = module.rpartition(".")
        for alias in re.findall(rf"(?m)^\s*from\s+{re.escape(package)}\s+import\s+{name}\s+as\s+(\w+)", text):
            found[alias] = ""
    return found


def language_name(word: str, known: Mapping[str, str]) -> str | None:
    """A dotted name as the language has it: "pl.tile.add" is "tile.add"; None where it is not the language's."""
    head, _, rest = word.partition(".")
    return f"{known[head]}{rest}" if head in known and rest else None


def while_typing(text: str, file: str) -> Iterator[Finding]:
    """What is wrong by the text alone."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 1) or 1
        yield Finding(SYNTAX, "error", file, line, getattr(error, "msg", None) or str(error), "")
        return
    names = aliases(text)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner and (dotted := _dotted(node)):
            yield from _missing(dotted, node.lineno, file, names)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def _missing(dotted: str, line: int, file: str, names: Mapping[str, str]) -> Iterator[Finding]:
    name, known = language_name(dotted, names), language()
    if name is None:
        return
    head, _, rest = name.partition(".")
    wanted = name if rest and f"{head}." in _namespaces() else head
    if wanted in known or (rest and head in known and f"{head}." not in _namespaces()):
        return
    near = get_close_matches(wanted, known, n=1, cutoff=0.6)
    remedy = f"The nearest is pl.{near[0]}." if near else ""
    yield Finding(NO_SUCH_NAME, "warning", file, line, f"npuscope has no pl.{wanted}", remedy)


@cache
def _namespaces() -> frozenset[str]:
    return frozenset(f"{name.partition('.')[0]}." for name in language() if "." in name)


def word_at(line: str, column: int) -> Word | None:
    """The dotted name under a column, without what follows the part that the column is in."""
    for found in _DOTTED.finditer(line):
        if found.start() <= column <= found.end():
            end = line.find(".", column, found.end())
            end = found.end() if end < 0 else end
            return Word(line[found.start() : end].rstrip("."), found.start(), end)
    return None


def before_cursor(line: str, column: int) -> str:
    """The dotted name that is being written: "pl.ma" of `x = pl.ma`."""
    found = re.search(r"[A-Za-z_][\w.]*$", line[:column])
    return found.group() if found else ""


def open_call(text: str, line: int, column: int) -> tuple[str, int] | None:
    """The call that the cursor is in and the number of its argument there; None outside of one."""
    lines = [*lines_of(text), ""]  # the cursor may be behind the last line
    before = "".join([*lines[:line], *(one[:column] for one in lines[line : line + 1])])
    depth, commas = 0, 0
    for at in range(len(before) - 1, max(len(before) - 5000, -1), -1):
        char = before[at]
        if char in ")]}":
            depth += 1
        elif char in "([{" and depth:
            depth -= 1
        elif char == "(":
            found = _OPEN_CALL.search(before[: at + 1])
            return (found.group(1), commas) if found else None
        elif char == "," and not depth:
            commas += 1
        elif char in "[{" or (char == "\n" and not depth and before[at + 1 : at + 2].strip()):
            return None
    return None


def signature_of(name: str) -> Signature | None:
    """How a name of the language is called."""
    try:
        return signature(language()[name])
    except (KeyError, TypeError, ValueError):
        return None


def assignments(text: str, name: str, line: int) -> range:
    """The lines of the statement that last gave a variable its value before a line (counted from 1), in the same
    function; empty where none did."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return range(0)
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [one for one in scopes if one.lineno <= line <= (one.end_lineno or one.lineno)]
    scope: ast.AST = max(around, key=lambda one: one.lineno) if around else tree
    found = range(0)
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.lineno <= line:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named = {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
            if name in named and node.lineno >= found.start:
                found = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return found


@dataclass(frozen=True)
class MovedLines:
    """Where lines of a text are in a later one: those before the first difference stay, those after the last one move
    with the end, and those between are gone."""

    head: int
    tail: int
    old: int
    new: int

    def line(self, line: int) -> int | None:
        """Counted from 1."""
        if line <= self.head:
            return line
        return line + self.new - self.old if line > self.old - self.tail else None


def moved(old: str, new: str) -> MovedLines:
    a, b = lines_of(old), lines_of(new)
    most = min(len(a), len(b))
    head = next((n for n in range(most) if a[n] != b[n]), most)
    tail = next((n for n in range(most - head) if a[-1 - n] != b[-1 - n]), most - head)
    return MovedLines(head, tail, len(a), len(b))
