"""Which expressions of a function the compiler knows the value of, as far as the text tells.

Literals, names from outside the function (module constants, closures) and their arithmetic are known; so is a local
name that is bound once, to such an expression, outside every loop and branch. Parameters, sizes that are asked for at
run time and everything read from a tensor are not.
"""

from __future__ import annotations

import ast


class Constants:
    """What is constant in one function; `local`: the names that it binds."""

    def __init__(self, definition: ast.FunctionDef, local: set[str]) -> None:
        bound: dict[str, int] = {}
        for node in ast.walk(definition):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] = bound.get(node.id, 0) + 1
        self._unknown = {*local, *bound}
        for statement in definition.body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                continue
            name = statement.targets[0].id
            if bound[name] == 1 and self.known(statement.value):
                self._unknown.discard(name)

    def known(self, expression: ast.expr) -> bool:
        allowed = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
        parts = list(ast.walk(expression))
        if not all(isinstance(part, allowed) for part in parts):
            return False
        return not any(isinstance(part, ast.Name) and part.id in self._unknown for part in parts)
