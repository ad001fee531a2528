"""What the source says around a finding: its section, comments that silence rules, and the line as it should be.

A section of a function begins with a heading: an own-line comment at the top level of its body, such as
`# Scope 1: RMSNorm` or `# ── Attention ──`. Where a function has none, its kernels are the sections; a line outside of
every kernel belongs to its function, one outside of every function to its file.

`# npuscope: ignore[ID1,ID2]` or `# npuscope: ignore` at the end of a statement covers that statement (of a block its
header); on a line of its own, the next one.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from npuscope.base.frozen import dataclass
from npuscope.check.rule import Section
from npuscope.lower.program import Program
from npuscope.lower.source import Comment, Function, SourceFile, read, statement_at
from npuscope.ops.cube import MATMUL, MATMUL_ACC
from npuscope.ops.elementwise import ADD
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Site, Task

NUMBERED = re.compile(r"(scope|stage|step|phase|part|section)\s*[#:]?\s*\d", re.IGNORECASE)
DRAWN = re.compile(r"^[─━═=*#-]{2,}|[─━═=*#-]{2,}$")
MODULE_LEVEL = "Module level"
TASKS = frozenset({"at", "incore", "spmd", "cluster"})


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
            if any(isinstance(call, ast.Call) and called(call) in TASKS for call in header):
                opens = within
    return opens or within


PATTERN = re.compile(r"npuscope:\s*ignore(?!\w)\s*(?:\[([^\]]*)\])?")


@dataclass(frozen=True)
class Ignore:
    """Rules (none: all of them) that are silenced on some lines of a file; `line` is the comment's own."""

    file: str
    line: int
    lines: range
    rules: frozenset[str]

    def covers(self, id: str, line: int) -> bool:
        return line in self.lines and (not self.rules or id in self.rules)


def ignores_in(file: str) -> tuple[Ignore, ...]:
    source = read(file)
    return () if source is None else _ignores(source)


def silenced(id: str, file: str, line: int) -> bool:
    """Whether a comment in the source asks not to hear of a rule at a line."""
    return any(ignore.covers(id, line) for ignore in ignores_in(file))


@lru_cache(maxsize=64)
def _ignores(source: SourceFile) -> tuple[Ignore, ...]:
    found = []
    for comment in source.comments:
        match = PATTERN.search(comment.text)
        if match is None:
            continue
        line = comment.line
        if comment.own_line and line not in source.statements:
            line = min((n for n in source.statements if n > line), default=line)
        lines = source.statements.get(line, range(line, line + 1))
        names = (name.strip() for name in (match[1] or "").split(","))
        found.append(Ignore(source.file, comment.line, lines, frozenset(filter(None, names))))
    return tuple(found)


def loop_site(program: Program, task: Task, depth: int) -> tuple[Site, ast.For | None]:
    """The `for` of the orchestration loop that is number `depth` from the outside around a task.

    Loops are found in the source from the innermost outwards; where they are not those that ran (a caller's loop, a
    file that has changed), the task's own line stands for it.
    """
    site = program.site(task.site)
    source = read(site.file)
    around = [] if source is None else source.around(site.line)
    loops = [loop for loop in around if isinstance(loop, ast.For | ast.While) and not _is_cut(loop)]
    for turn, loop in zip(reversed(task.turns), reversed(loops), strict=False):
        if turn.kind == "while" or not isinstance(loop, ast.For) or called(loop.iter) != turn.kind:
            break
        if turn is task.turns[depth]:
            return Site(site.file, loop.lineno, site.function), loop
    return site, None


def _is_cut(loop: ast.For | ast.While) -> bool:
    """One with `chunk=` is cut into tasks and no loop of the orchestration."""
    return (
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and any(keyword.arg == "chunk" for keyword in loop.iter.keywords)
    )


def with_loop(loop: ast.stmt | None, kind: str, **more: str | int) -> str:
    """The head of a loop as another kind of loop; "" where there is none to show or blocks would not count from 0."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return ""
    if not isinstance(loop.iter.func, ast.Attribute) or (kind == "spmd" and len(loop.iter.args) != 1):
        return ""
    kept = [keyword for keyword in loop.iter.keywords if keyword.arg != "chunk"]
    added = [ast.keyword(name, ast.Constant(value)) for name, value in more.items()]
    call = ast.Call(_renamed(loop.iter.func, kind), loop.iter.args, [*kept, *added])
    return f"for {ast.unparse(loop.target)} in {ast.unparse(call)}:"


def pipelined(site: Site) -> str:
    """The head of a `for … in pl.range(…)` loop as a pipeline of two stages; "" where the line is no such loop."""
    loop = statement_at(site)
    is_range = isinstance(loop, ast.For) and called(loop.iter) in ("range", "parallel")
    return with_loop(loop, "pipeline", stage=2) if is_range else ""


def accumulated(add: Site) -> str:
    """The statement with `pl.add(acc, pl.matmul(a, b))` as `pl.matmul_acc(acc, a, b)`; "" where it has none."""
    found = statement_at(add)
    if found is None or isinstance(found, ast.For | ast.With | ast.If | ast.While | ast.FunctionDef):
        return ""
    rewriter = _Accumulated()
    new = rewriter.visit(ast.parse(ast.unparse(found)).body[0])
    return ast.unparse(new) if rewriter.changed else ""


class _Accumulated(ast.NodeTransformer):
    changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if called(node) in ADD.names and len(node.args) == 2:
            for acc, product in (node.args, node.args[::-1]):
                if isinstance(product, ast.Call) and called(product) in MATMUL.names:
                    kept = [keyword for keyword in product.keywords if keyword.arg in ("a_trans", "b_trans")]
                    node = ast.Call(_renamed(product.func, MATMUL_ACC.names[0]), [acc, *product.args[:2]], kept)
                    self.changed = True
                    break
        return self.generic_visit(node)


def _renamed(func: ast.expr, name: str) -> ast.expr:
    return ast.Attribute(func.value, name, ast.Load()) if isinstance(func, ast.Attribute) else ast.Name(name)
