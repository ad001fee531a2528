"""A source file as LibCST has it, and what every fix needs of it: statements by line, edits that keep comments, names.

A fix takes statements apart and puts others in their place; whatever it does not touch keeps its every character. The
comments of a statement that goes stay where it stood, before the statement that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from npuscope.base.frozen import dataclass
from npuscope.check.rule import Finding

Statement = cst.BaseStatement
Block = cst.IndentedBlock | cst.Module
Node = TypeVar("Node", bound=cst.CSTNode)

GONE = cst.SimpleStatementLine((cst.Pass(),))  # holds the comments of a statement that went until they have a place

LOOPS = ("range", "pipeline", "unroll")  # whose turns come one after the other


@dataclass(frozen=True, eq=False)
class Source:
    """One file's text and tree."""

    file: str
    text: str

    @cached_property
    def _wrapper(self) -> MetadataWrapper:
        return MetadataWrapper(cst.parse_module(self.text), unsafe_skip_copy=True)

    @cached_property
    def module(self) -> cst.Module:
        return self._wrapper.module

    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, Any]:
        return self._wrapper.resolve(PositionProvider)

    @cached_property
    def _parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        """Of each node the one that it lies in, in the order of the text: children cost LibCST much, so once."""
        found: dict[cst.CSTNode, cst.CSTNode] = {}
        left: list[cst.CSTNode] = [self.module]
        while left:
            node = left.pop()
            children = node.children
            found.update(dict.fromkeys(children, node))
            left += reversed(children)
        return found

    @cached_property
    def nodes(self) -> tuple[cst.CSTNode, ...]:
        """Every node of the file."""
        return (self.module, *self._parents)

    @cached_property
    def _names(self) -> Counter[tuple[cst.CSTNode | None, str]]:
        """How often a function has a name."""
        return Counter((self._function(one), one.value) for one in self.nodes if isinstance(one, cst.Name))

    def _function(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return next((one for one in self.around(node) if isinstance(one, cst.FunctionDef)), None)

    def line(self, node: cst.CSTNode) -> int:
        return int(self._positions[node].start.line)

    def last_line(self, node: cst.CSTNode) -> int:
        return int(self._positions[node].end.line)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What a node lies in, the innermost first."""
        while (above := self.parent(node)) is not None:
            yield above
            node = above

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Every statement, outer before inner."""
        return tuple(sorted((one for one in self.nodes if isinstance(one, Statement)), key=self.line))

    def statement_at(self, line: int) -> Statement | None:
        """The innermost statement on a line."""
        around = [one for one in self.statements if self.line(one) <= line <= self.last_line(one)]
        return max(around, key=self.line, default=None)

    def around_line(self, line: int) -> list[cst.CSTNode]:
        """The innermost statement on a line and what it lies in, the innermost first."""
        found = self.statement_at(line)
        return [] if found is None else [found, *self.around(found)]

    def lines_of(self, finding: Finding) -> list[int]:
        """The lines of this file that a finding is about."""
        return [finding.line, *(line for file, line in finding.also if file == self.file)]

    def block_of(self, statement: cst.CSTNode) -> Block | None:
        """The block that a statement stands in."""
        above = self.parent(statement)
        return above if isinstance(above, cst.IndentedBlock | cst.Module) else None

    def siblings(self, statement: Statement) -> tuple[list[Statement], int]:
        """The statements of its block, and its place among them."""
        block = self.block_of(statement)
        body = [] if block is None else list(block.body)
        found: list[Statement] = [one for one in body if isinstance(one, Statement)]
        return found, next((n for n, one in enumerate(found) if one is statement), -1)

    def only_for(self, value: cst.CSTNode, user: Statement) -> Statement | None:
        """The statement of the same block that gives a name its value, where one other statement alone uses it."""
        if not isinstance(value, cst.Name):
            return None
        siblings, at = self.siblings(user)
        made = [n for n, one in enumerate(siblings[:at]) if (found := assigned(one)) and found[0] == value.value]
        uses = self._names[self._function(user), value.value]
        if len(made) != 1 or uses != 2 or names_in(siblings[made[0]]) & bound_in(*siblings[made[0] + 1 : at]):
            return None
        return siblings[made[0]]

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)

    def edited(self, edits: Iterable[Edit], nodes: Mapping[cst.CSTNode, cst.CSTNode] | None = None) -> str:
        """The text with statements replaced by others, and any other nodes by new ones."""
        changes: dict[cst.CSTNode, Any] = dict(nodes or {})
        for edit in edits:
            first, *others = edit.old
            changes[first] = cst.FlattenSentinel(_in_its_place(edit))
            changes |= dict.fromkeys(others, cst.RemoveFromParent())
        return self.module.visit(_StatementEdits(changes)).code


@dataclass(frozen=True, eq=False)
class Edit:
    """Statements of one block, in their order, and what stands in place of the first of them; the others go."""

    old: tuple[Statement, ...]
    new: tuple[Statement, ...] = ()


class _StatementEdits(cst.CSTTransformer):
    def __init__(self, changes: Mapping[cst.CSTNode, Any]) -> None:
        self.changes = changes

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self.changes

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        if original_node in self.changes:
            return self.changes[original_node]
        return _together(updated_node) if isinstance(updated_node, cst.IndentedBlock | cst.Module) else updated_node


def _in_its_place(edit: Edit) -> list[Statement]:
    """The new statements below the comments of the old ones that they do not have; those alone where nothing is new."""
    lost = Counter(comments_in(edit.old)) - Counter(comments_in(edit.new))
    lines: list[cst.EmptyLine] = []
    for line in leading(edit.old[0]):
        if line.comment is None or lost[line.comment.value] > 0:
            lines.append(line)
            lost[line.comment.value if line.comment else ""] -= 1
    lines += [cst.EmptyLine(comment=cst.Comment(text)) for text, times in lost.items() for _ in range(times) if text]
    if edit.new:
        first, *others = edit.new
        return [first.with_changes(leading_lines=[*lines, *leading(first)]), *others]
    commented = any(line.comment for line in lines)
    return [GONE.with_changes(leading_lines=lines)] if commented else []


def leading(statement: Statement) -> list[cst.EmptyLine]:
    return list(getattr(statement, "leading_lines", ()))


def _together(block: Block) -> Block:
    """Comments of statements that went, given to the statement that follows, or to the end of the block."""
    waiting: list[cst.EmptyLine] = []
    body: list[Any] = []
    for one in block.body:
        if isinstance(one, cst.SimpleStatementLine) and one.body is GONE.body:
            waiting += one.leading_lines
        elif waiting:
            body.append(one.with_changes(leading_lines=[*waiting, *getattr(one, "leading_lines", ())]))
            waiting = []
        else:
            body.append(one)
    if not body and isinstance(block, cst.IndentedBlock):
        body = [cst.SimpleStatementLine(body=[cst.Pass()], leading_lines=waiting)]
    elif waiting:
        block = block.with_changes(footer=[*waiting, *block.footer])
    return block.with_changes(body=body)


def comments_in(nodes: Iterable[cst.CSTNode]) -> list[str]:
    return [one.value for node in nodes for one in walk(node) if isinstance(one, cst.Comment)]


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from walk(child)


# --- reading


def called(node: cst.CSTNode | None) -> str:
    """`matmul` of `pl.matmul(…)`; "" for what is no call of a name."""
    if not isinstance(node, cst.Call):
        return ""
    func = node.func
    return func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""


def module_of(call: cst.Call) -> str:
    """`pl.` of `pl.matmul(…)`."""
    func = call.func
    if isinstance(func, cst.Attribute):
        return f"{text_of(func.value)}."
    return ""


def positional(call: cst.Call) -> list[cst.Arg]:
    return [one for one in call.args if one.keyword is None and not one.star]


def keywords(call: cst.Call) -> dict[str, cst.Arg]:
    return {one.keyword.value: one for one in call.args if one.keyword is not None}


def values(call: cst.Call) -> list[cst.BaseExpression]:
    """Of the arguments without a name."""
    return [one.value for one in positional(call)]


def options(call: cst.Call, *but: str) -> dict[str, cst.BaseExpression]:
    """Of the arguments with a name, but for some."""
    return {name: arg.value for name, arg in keywords(call).items() if name not in but}


def bounds(
    call: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression] | None:
    """Start, stop and step of `pl.range(…)` and its like; None where it has other arguments."""
    given = values(call) if isinstance(call, cst.Call) else []
    zero, one = cst.Integer("0"), cst.Integer("1")
    if len(given) == 1:
        return zero, given[0], one
    return (given[0], given[1], given[2] if len(given) == 3 else one) if len(given) in (2, 3) else None


def assigned(statement: cst.CSTNode | None) -> tuple[str, cst.BaseExpression] | None:
    """Name and value of `name = value`."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        return small.targets[0].target.value, small.value
    return None


def stored(statement: cst.CSTNode | None, stores: Sequence[str]) -> tuple[str, set[str]] | None:
    """The tensor that a statement stores to, `x[…] = v` or `x = pl.assemble(x, v, …)`, and the names that it reads."""
    found = assigned(statement)
    if found is not None and isinstance(found[1], cst.Call) and called(found[1]) in stores:
        others = [arg.value for arg in found[1].args]
        into = next((n for n, one in enumerate(others) if isinstance(one, cst.Name) and one.value == found[0]), None)
        return None if into is None else (found[0], names_in(*others[:into], *others[into + 1 :]))
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
        if isinstance(small, cst.Assign) and isinstance(target, cst.Subscript) and isinstance(target.value, cst.Name):
            return target.value.value, names_in(small.value, *target.slice)
    return None


def names_in(*nodes: cst.CSTNode) -> set[str]:
    """Every name that is read or written in these nodes; attributes and keywords are none."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case cst.Name(value=name):
                found.add(name)
            case cst.Attribute(value=value) | cst.Arg(value=value):
                found |= names_in(value)
            case _:
                found |= names_in(*node.children)
    return found


def bound_in(*nodes: cst.CSTNode) -> set[str]:
    """Names that these statements give a value."""
    found: set[str] = set()
    for one in (one for node in nodes for one in walk(node)):
        match one:
            case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target):
                found |= _targets(target)
            case cst.For(target=target):
                found |= _targets(target)
            case cst.AsName(name=name):
                found |= _targets(name)
    return found


def _targets(node: cst.CSTNode) -> set[str]:
    """`x[…] = …` changes x, too."""
    while isinstance(node, cst.Subscript | cst.Attribute):
        node = node.value
    if isinstance(node, cst.Tuple | cst.List):
        return {name for one in node.elements for name in _targets(one.value)}
    return {node.value} if isinstance(node, cst.Name) else set()


def calls_in(node: cst.CSTNode) -> list[cst.Call]:
    return [one for one in walk(node) if isinstance(one, cst.Call)]


def same(a: cst.CSTNode, b: cst.CSTNode) -> bool:
    """Equal but for comments and blanks."""
    return _bare(a) == _bare(b)


def _bare(node: cst.CSTNode) -> str:
    """As Python would write it again."""
    import ast

    text = text_of(node.with_changes(leading_lines=()) if hasattr(node, "leading_lines") else node)
    try:
        return ast.dump(ast.parse(text.strip()))
    except SyntaxError:
        return " ".join(text.split())


# --- writing


def statement(text: str) -> Statement:
    found = cst.parse_statement(text)
    assert isinstance(found, Statement)
    return found


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def bare(node: Node) -> Node:
    """A copy without its comments."""

    class WithoutComments(cst.CSTTransformer):
        def leave_EmptyLine(self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine) -> Any:
            return cst.RemoveFromParent() if updated_node.comment else updated_node

        def leave_TrailingWhitespace(
            self, original_node: cst.TrailingWhitespace, updated_node: cst.TrailingWhitespace
        ) -> cst.TrailingWhitespace:
            return (
                updated_node.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
                if updated_node.comment
                else updated_node
            )

    found = node.deep_clone().visit(WithoutComments())
    return found.with_changes(leading_lines=()) if hasattr(found, "leading_lines") else found  # type: ignore[return-value, union-attr]


def replaced(node: Node, nodes: Mapping[cst.CSTNode, cst.CSTNode]) -> Node:
    """A copy with some of the nodes in it replaced."""
    return node.visit(_StatementEdits(nodes)) if nodes else node  # type: ignore[return-value]


def with_names(node: Node, values: Mapping[str, cst.BaseExpression]) -> Node:
    """A copy with names replaced by expressions, and products and sums with 0 done."""

    class NamesReplaced(cst.CSTTransformer):
        def visit_Attribute(self, node: cst.Attribute) -> bool:
            return True

        def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
            return updated_node.with_changes(keyword=original_node.keyword)

        def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
            return updated_node.with_changes(attr=original_node.attr)

        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
            value = values.get(updated_node.value)
            return updated_node if value is None else value.deep_clone()

        def leave_BinaryOperation(
            self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
        ) -> cst.BaseExpression:
            return simplified(updated_node)

    return node.deep_clone().visit(NamesReplaced())  # type: ignore[return-value]


def simplified(node: cst.BinaryOperation) -> cst.BaseExpression:
    """`0 * x` is 0, `0 + x` is x, `x * 1` is x, and numbers are computed."""
    left, right, op = node.left, node.right, node.operator
    numbers = [
        int(one.value) if isinstance(one, cst.Integer) and one.value.isdecimal() else None for one in (left, right)
    ]
    if isinstance(op, cst.Multiply):
        if 0 in numbers:
            return cst.Integer("0")
        if numbers[0] == 1:
            return right
        if numbers[1] == 1:
            return left
        if None not in numbers:
            return cst.Integer(str(numbers[0] * numbers[1]))  # type: ignore[operator]
    if isinstance(op, cst.Add):
        if numbers[0] == 0:
            return right
        if numbers[1] == 0:
            return left
        if None not in numbers:
            return cst.Integer(str(numbers[0] + numbers[1]))  # type: ignore[operator]
    return node


def text_of(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def fresh(name: str, known: set[str], *others: str) -> str:
    """The name, or another like it, that is not known."""
    return next(one for one in (name, *others, *(f"{name}{n}" for n in range(2, 99))) if one not in known)


def renamed(call: cst.Call, name: str) -> cst.Call:
    """The same call of another function of the same module."""
    func = call.func
    if isinstance(func, cst.Attribute):
        return call.with_changes(func=func.with_changes(attr=cst.Name(name)))
    return call.with_changes(func=cst.Name(name))


def call_with(
    call: cst.Call, arguments: Sequence[cst.BaseExpression], named: Mapping[str, cst.BaseExpression]
) -> cst.Call:
    """The call with other arguments, written on one line."""
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    args = [cst.Arg(one.deep_clone()) for one in arguments]
    args += [cst.Arg(value.deep_clone(), keyword=cst.Name(name), equal=equal) for name, value in named.items()]
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    args = [one.with_changes(comma=comma) if n < len(args) - 1 else one for n, one in enumerate(args)]
    return cst.Call(call.func, args)
