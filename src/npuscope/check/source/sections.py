"""Which part of a program a line belongs to, as a reviewer would cut it.

A scope is a section of a function that begins with a heading: an own-line comment at the top level of its body, such
as `# Scope 1: RMSNorm` or `# ── Attention ──`. Where a function has none, its kernels are the scopes; a line outside of
every kernel belongs to its function, one outside of every function to its file.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from npuscope.lower.source import Comment, Function, SourceFile, read

NUMBERED = re.compile(r"(scope|stage|step|phase|part|section)\s*[#:]?\s*\d", re.IGNORECASE)
DRAWN = re.compile(r"^[─━═=*#-]{2,}|[─━═=*#-]{2,}$")
MODULE_LEVEL = "Module level"
TASKS = frozenset({"at", "incore", "spmd", "cluster"})


@dataclass(frozen=True)
class Section:
    """Lines `first` to `last` of a file; (0, 0) where the source is not at hand."""

    file: str
    title: str
    first: int = 0
    last: int = 0

    def has(self, file: str, line: int) -> bool:
        return self.file == file and self.first <= line <= self.last


def section_of(file: str, line: int, kernel: str = "", function: str = "") -> Section:
    """The scope of a line; `kernel` and `function` name it where the source has no headings."""
    source = read(file)
    if source is None:
        return Section(file, kernel or function or Path(file).name)
    around = source.function_at(line)
    if around is None:
        return Section(file, MODULE_LEVEL, 1, len(source.lines))
    last = around.end_lineno or around.lineno
    starts = headings(source, around)
    before = [i for i, heading in enumerate(starts) if heading.line <= line]
    if before:
        after = starts[before[-1] + 1].line - 1 if before[-1] + 1 < len(starts) else last
        heading = starts[before[-1]]
        return Section(file, _title(heading.text), heading.line, after)
    if kernel and not starts:
        first, last = _launch(around, line) or (around.lineno, last)
        return Section(file, kernel, first, last)
    return Section(file, around.name, around.lineno, starts[0].line - 1 if starts else last)


def headings(source: SourceFile, function: Function) -> list[Comment]:
    """The comments that begin sections: those numbered or drawn as headings, else any if there are several."""
    body = function.body
    signature = source.statements.get(function.lineno, range(function.lineno, function.lineno + 1))
    last = function.end_lineno or function.lineno
    found = [
        comment
        for comment in source.comments
        if comment.own_line
        and signature[-1] < comment.line <= last
        and comment.column == body[0].col_offset
        and not source.line(comment.line - 1).lstrip().startswith("#")
        and source.function_at(comment.line) is function
        and _title(comment.text)
    ]
    strong = [c for c in found if NUMBERED.match(c.text) or DRAWN.search(c.text)]
    if strong:
        return strong
    weak = [c for c in found if not source.line(c.line - 1).strip() or c.line == signature[-1] + 1]
    return weak if len(weak) > 1 else []


def _title(text: str) -> str:
    """A heading's first sentence without what is drawn around it."""
    return text.strip("─━═=*#- \t").partition(". ")[0].rstrip(".")


def _launch(function: Function, line: int) -> tuple[int, int] | None:
    """The lines of the block that opens the task around a line, else of the innermost loop or block."""
    opens = within = None
    for node in ast.walk(function):  # outer before inner
        if isinstance(node, ast.With | ast.For) and node.lineno <= line <= (node.end_lineno or 0):
            within = (node.lineno, node.end_lineno or node.lineno)
            header = [item.context_expr for item in node.items] if isinstance(node, ast.With) else [node.iter]
            if any(_opens(expression) for expression in header):
                opens = within
    return opens or within


def _opens(expression: ast.expr) -> bool:
    return (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Attribute)
        and expression.func.attr in TASKS
    )
