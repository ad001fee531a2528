"""stale-constant: a docstring or a comment that names a constant with another value than the code gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from npuscope.check.findings import Finding
from npuscope.check.rule import Example, Rule
from npuscope.check.source.constants import Binding, bindings, evaluated, imported, module_constants
from npuscope.lower.program import Program
from npuscope.lower.source import Comment, Function, SourceFile, sources
from npuscope.tile.record.model import Site

# `TILE=4`, `TILE = 4`, `TILE is 4`, `TILE: 4`, `TILE of 4`, and `TILE 4` before a stop. A number that goes on (4 KB,
# 4 * N, 4.5, 4x) is arithmetic or prose, not a claim.
NAME = r"(?<![\w.])([A-Z][A-Z0-9_]*[A-Z0-9])"
NUMBER = r"(\d[\d_]*)(?!\w|\.\d|\s*[-+*/%×·<>~–]|\s?(?:KB|KiB|MB|MiB|B|bytes?)\b)"
EQUALS = re.compile(rf"{NAME}(?:\s*=\s*|\s+is\s+|:\s+|\s+of\s+){NUMBER}")
BESIDE = re.compile(rf"{NAME}\s+{NUMBER}(?=\s*(?:[,.;:)\]]|$))", re.MULTILINE)
OPERATOR = re.compile(r"[*/%+×·]\s*$|[\w)\]]\s*[-–]\s*$")
# Sentences that weigh values instead of stating one.
WEIGHS = re.compile(
    r"\b(if|would|could|was|were|used to|instead|not|fails?|failed|try|tried|e\.g\.|for example|unless|than|before"
    r"|until|cannot|when|whenever|formerly|say|either|or|default|max|min|at most|at least|up to|below|above)\b"
    r"|!=|<|>|->|→",
    re.IGNORECASE,
)


def check(program: Program) -> Iterator[Finding]:
    for source in sources(program.recording.sites):
        yield from findings_in(source)


def findings_in(source: SourceFile) -> Iterator[Finding]:
    """The stale claims of one file."""
    values = _Values(source)
    for line, text, function in (*_docstrings(source), *_comments(source)):
        for name, claimed, offset in _claims(text):
            real = values.of(name, function)
            if real and claimed not in real:
                shown = " or ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in real)
                at = line + text.count("\n", 0, offset)
                old = source.line(at).strip()
                yield RULE.at(
                    Site(source.file, at, "" if function is None else function.name),
                    f"the text says {name} is {claimed}, the code says {shown}",
                    f"Write {shown}, or leave the number out: the code says it.",
                    change=_changed(old, name, claimed, shown) if len(real) == 1 else "",
                    also=[Site(source.file, place, "") for place in values.lines(name, function)],
                )


class _Values:
    """What a name can be at a place: bindings of the functions around it, else of the module, else of any function."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.bindings = bindings(source)
        self.imports = imported(source)
        self.module = module_constants(source)

    def of(self, name: str, function: Function | None) -> list[int]:
        """The numbers a name is bound to; empty where one of them is not told by the text."""
        those = self._visible(name, function)
        if not those:
            value = self.imports.get(name)
            return [value] if isinstance(value, int) else []
        found = []
        for binding in those:
            inside = [b for b in self.bindings if b.function is binding.function and b.line <= binding.line]
            value = evaluated(inside, self.module if binding.function else self.imports).get(name)
            if not isinstance(value, int) or isinstance(value, bool):
                return []
            found.append(value)
        return list(dict.fromkeys(found))

    def lines(self, name: str, function: Function | None) -> list[int]:
        return [binding.line for binding in self._visible(name, function)]

    def _visible(self, name: str, function: Function | None) -> list[Binding]:
        named = [b for b in self.bindings if b.name == name]
        around = [b for b in named if b.function is not None and function is not None and _within(function, b.function)]
        return around or [b for b in named if b.function is None] or named


def _within(inner: Function, outer: Function) -> bool:
    return outer.lineno <= inner.lineno and (inner.end_lineno or 0) <= (outer.end_lineno or 0)


def _docstrings(source: SourceFile) -> Iterator[tuple[int, str, Function | None]]:
    for node in (source.tree, *source.functions):
        if ast.get_docstring(node, clean=False) is None:
            continue
        text = node.body[0]
        yield text.lineno, source.segment(text), node if isinstance(node, Function) else None


def _comments(source: SourceFile) -> Iterator[tuple[int, str, Function | None]]:
    """Comments; lines of their own one below the other are one text, since sentences go on."""
    blocks: list[list[Comment]] = []
    for comment in source.comments:
        last = blocks[-1][-1] if blocks else None
        goes_on = last is not None and last.own_line and comment.own_line and comment.line == last.line + 1
        if goes_on and not _is_code(comment.text):
            blocks[-1].append(comment)
        elif not _is_code(comment.text):
            blocks.append([comment])
    for block in blocks:
        yield block[0].line, "\n".join(c.text for c in block), source.function_at(block[0].line)


def _is_code(text: str) -> bool:
    """A statement that was commented out says nothing about the code."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.Assign | ast.AnnAssign) for node in tree.body)


def _claims(text: str) -> Iterator[tuple[str, int, int]]:
    """Names with the numbers a text gives them, and where."""
    for pattern in (EQUALS, BESIDE):
        for match in pattern.finditer(text):
            if pattern is BESIDE and "_" not in match[1]:
                continue  # "K 5120 in 512 steps"
            if OPERATOR.search(text[: match.start()]):
                continue  # "HIDDEN // K_TILE = 20"
            if not WEIGHS.search(_sentence(text, match.start(), match.end())):
                yield match[1], int(match[2].replace("_", "")), match.start()


def _sentence(text: str, start: int, end: int) -> str:
    """The sentence or the line of a table around a match, without it."""
    marks = [m.end() for m in re.finditer(r"[.;:!?]\s|\n\s*\n|\n\s*[-*|]", text[:start])]
    stop = re.search(r"[.;:!?](\s|$)|\n\s*\n|\n\s*[-*|]", text[end:])
    return text[marks[-1] if marks else 0 : start] + " " + text[end : end + stop.start() if stop else len(text)]


def _changed(line: str, name: str, claimed: int, shown: str) -> str:
    changed = re.sub(rf"(\b{name}\b\D{{1,6}}?){claimed}\b", rf"\g<1>{shown}", line, count=1)
    return changed if changed != line else ""


RULE = Rule(
    "stale-constant",
    "hint",
    "a docstring or comment names a constant with another value",
    "Who tunes the program by its description starts from the wrong tile.",
    check,
    Example(
        "# tiles of BATCH_TILE=4 rows\nBATCH_TILE = 16",
        "# tiles of BATCH_TILE rows\nBATCH_TILE = 16",
    ),
    about="quality",
)
