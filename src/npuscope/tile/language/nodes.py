"""All nodes under a node of a source tree, again and again.

The checks and the rewrite of a function look through the same statements many times, loop inside loop. Walking anew
each time took a third of the time of recording a layer, so nodes are listed once and each knows its part of the list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_PART = "_npuscope_part"


def called(node: ast.AST | None) -> str:
    """The last name of what a call calls: `spmd` of `pl.spmd(...)`; "" of what is no call."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def list_nodes(tree: ast.AST) -> None:
    """Lists the nodes under a tree, as it is now."""
    nodes: list[ast.AST] = []

    def add(node: ast.AST) -> None:
        first = len(nodes)
        nodes.append(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr_context | ast.operator):  # one object stands at many places
                add(child)
        setattr(node, _PART, (nodes, first, len(nodes)))

    add(tree)


def under(*trees: ast.AST) -> Iterable[ast.AST]:
    """The nodes of some trees, as they were when they were listed; of a new one, as it is."""
    found: list[ast.AST] = []
    for tree in trees:
        part = getattr(tree, _PART, None)
        found += ast.walk(tree) if part is None else part[0][part[1] : part[2]]
    return found
