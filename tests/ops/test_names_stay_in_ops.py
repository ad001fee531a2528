"""Outside npuscope/ops nothing knows an op by its name: it asks the op's spec. What compares strings drifts apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from npuscope.ops import table

ROOT = Path(__file__).resolve().parents[2] / "src" / "npuscope"
FOLDERS = ("tile", "lower", "check", "time", "report")
MODULES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
OPS = frozenset(table.BY_NAME) | frozenset(table.BY_SPELLING)
# Words that are names of ops and of other things too, and what they are compared with then.
OTHER = {
    "plane": {"load", "store", "move", "cube", "vector", "view", "sync", "scalar"},
    "mode": {"read", "write", "add"},
    "earlier": {"read", "write"},  # modes of accesses
    "later": {"read", "write"},
    "used": {"store"},  # planes
}
# file -> lines of code that may name ops, each with its reason
ALLOWED = {
    "tile/language/rewrite.py": {"_HOST_SIDE =": "what a compiler of spring 2026 left in orchestration, by its text"},
    "tile/language/grammar.py": {"_PYTHON =": "functions of Python itself"},
    "tile/calls/spellings.py": {'{"add":': "Python's operator methods, each with its op"},
    "lower/assembly_run.py": {
        "FREE =": "names of the assembly",
        "PUSHES": "the same",
        "POPS": "the same",
        "elif name ==": "the same",
        '"set_validshape",': "the same",
    },
    "tile/values/lanes.py": {"_PLAIN =": "Python's operators on lanes", "divides =": "the same"},
    "tile/script/places.py": {"and of_environ": "methods of os.environ, which is a dict of Python"},
}


def literals(node: ast.expr) -> list[str]:
    """The strings that a side of a comparison names."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        return [text for element in node.elts for text in literals(element)]
    if isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in ("frozenset", "set", "tuple"):
        return literals(node.args[0])
    return []


def word(node: ast.expr) -> str:
    """What a side of a comparison is called: `plane` of `one.plane`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def named_ops(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines where a string that names an op is compared, or stands in a set or table of several."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {word(side) for side in sides} - {""}
            for text in (text for side in sides for text in literals(side)):
                if text in OPS and not any(text in OTHER.get(one, ()) for one in words):
                    yield node.lineno, text
        elif isinstance(node, ast.Set | ast.Dict):
            elements = node.elts if isinstance(node, ast.Set) else [key for key in node.keys if key is not None]
            texts = [text for element in elements for text in literals(element)]
            found = [text for text in texts if text in OPS and not any(text in other for other in OTHER.values())]
            if len(found) > 1:
                yield node.lineno, ", ".join(found)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_compares_an_op_s_name_with_a_string(path: Path) -> None:
    text = path.read_text()
    allowed = ALLOWED.get(str(path.relative_to(ROOT)), {})
    lines = text.splitlines()
    found = [
        f"{path}:{line}: {what}"
        for line, what in named_ops(ast.parse(text))
        if not any(part in lines[line - 1] for part in allowed)
    ]
    assert not found, "ask the op's spec (docs/understand/architecture.md): " + "; ".join(found)
