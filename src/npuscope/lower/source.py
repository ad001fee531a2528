"""A user's source file: its tree and comments, which lines a statement stands on, what it calls a tile."""

from __future__ import annotations

import ast
import io
import linecache
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from npuscope.base.unsaved import is_unsaved, lines_of, source_age, source_bytes
from npuscope.ops.spec import OpSpec
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Site

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Comment:
    """`text` without the #; `own_line` where nothing but blanks stands before it."""

    line: int
    column: int
    text: str
    own_line: bool


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file; lines count from 1."""

    file: str
    text: str
    tree: ast.Module

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.rstrip("\r\n") for line in lines_of(self.text))

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    @cached_property
    def _tokens(self) -> tuple[tuple[Comment, ...], dict[int, range]]:
        comments, statements = [], {}
        first = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            line, column = token.start
            if token.type == tokenize.COMMENT:
                own = not token.line[:column].strip()
                comments.append(Comment(line, column, token.string[1:].strip(), own))
            elif token.type == tokenize.NEWLINE:
                together = range(first, line + 1)
                statements.update(dict.fromkeys(together, together))
                first = 0
            elif not first and token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                first = line
        return tuple(comments), statements

    @property
    def comments(self) -> tuple[Comment, ...]:
        return self._tokens[0]

    @property
    def statements(self) -> dict[int, range]:
        """Line -> the lines of the statement (or of the header of a block) it belongs to."""
        return self._tokens[1]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, outer before inner."""
        return tuple(ast.walk(self.tree))

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement on a line: of several around it the last to begin, of those the shortest."""
        return self._innermost.get(line)

    @cached_property
    def _innermost(self) -> dict[int, ast.stmt]:
        found = [node for node in self.nodes if isinstance(node, ast.stmt)]
        found.sort(key=lambda node: (node.lineno, -(node.end_lineno or 0)))
        return {line: node for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}

    def around(self, line: int) -> list[ast.stmt]:
        """The statements that cover a line, outermost first."""
        found = [n for n in self.nodes if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]
        return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Function))

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """A node's own text; columns of the tree count bytes."""
        first, last = node.lineno, node.end_lineno or node.lineno
        lines = [line.encode() for line in self.lines[first - 1 : last]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def replaced(self, node: ast.expr, text: str) -> str:
        """The line of a node with other text in its place, without indentation; the node must stand on one line."""
        raw = self.line(node.lineno).encode()
        return (raw[: node.col_offset] + text.encode() + raw[node.end_col_offset :]).decode().strip()

    def function_at(self, line: int) -> Function | None:
        """The innermost function around a line."""
        around = [f for f in self.functions if f.lineno <= line <= (f.end_lineno or f.lineno)]
        return max(around, key=lambda f: f.lineno, default=None)

    def calls_at(self, line: int, op: OpSpec) -> Iterator[ast.Call]:
        """Calls of an op, as `add(…)` or `anything.add(…)`, that begin on a line."""
        yield from (call for call in self._calls.get(line, ()) if called(call) in op.names)

    @cached_property
    def _calls(self) -> dict[int, list[ast.Call]]:
        found: dict[int, list[ast.Call]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Call):
                found.setdefault(node.lineno, []).append(node)
        return found


def read(file: str) -> SourceFile | None:
    """A file's source, or a notebook cell's; None where it cannot be read as Python any more."""
    try:
        return _read(file, source_age(file))
    except OSError:
        return _read(file, 0)


@lru_cache(maxsize=64)
def _read(file: str, _age: int) -> SourceFile | None:
    try:
        linecache.checkcache(file)
        text = source_bytes(file).decode() if is_unsaved(file) else "".join(linecache.getlines(file))
        source = SourceFile(file, text, ast.parse(text))
        source._tokens  # noqa: B018 (what cannot be tokenized cannot be read)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return None
    return source if text else None


def statement_at(site: Site) -> ast.stmt | None:
    """The innermost statement at a place; None where the source is gone."""
    source = read(site.file)
    return None if source is None else source.statement_at(site.line)


def name_of(site: Site, op: str) -> str:
    """What the user calls a tile: the name that the statement assigns to, or the op's where it has none."""
    statement = statement_at(site)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return op
