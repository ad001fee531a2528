"""Settings of a script from outside, `MLP_TN=256`, without a change to the file.

A setting reaches a script in every way that it has for it:
  an option      `--mlp-tn` or `--mlp_tn` of an argparse parser, over what the command line says; a switch is on for
                 1, true, yes, on and off for 0, false, no, off
  a constant     a top-level `MLP_TN = 128` of the file itself, whose value is replaced before it runs
  the environment variable MLP_TN
A name that the script has none of is an error.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from npuscope.errors import BadInput

ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


class UnknownSetting(BadInput):
    """A name that a script has no use for."""


class Settings:
    """Values by name, and which of them a script has had a use for so far."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.used: set[str] = set()
        self.asked: set[str] = set()  # variables that the environment was asked for
        self.offered: dict[str, None] = {}  # names that the script would have had a use for

    def check(self, file: Path) -> None:
        """Refuses names that nothing came of."""
        idle = [name for name in self.values if name not in self.used | self.asked]
        if idle:
            known = ", ".join(self.offered) or "none"
            raise UnknownSetting(
                f"it has no option, top-level constant or environment variable {', '.join(idle)}",
                path=file,
                remedy=f"Its options and constants are: {known}.",
            )

    @contextmanager
    def given(self) -> Iterator[None]:
        """Options and environment variables, for what runs inside the block."""
        if not self.values:
            yield
            return
        parse: Callable[..., object] = argparse.ArgumentParser.parse_known_args

        def parse_with(
            parser: argparse.ArgumentParser, args: Sequence[str] | None = None, *rest: object, **named: object
        ) -> object:
            return parse(parser, self.arguments(parser, sys.argv[1:] if args is None else args), *rest, **named)

        argparse.ArgumentParser.parse_known_args = parse_with  # type: ignore[method-assign, assignment]
        os.environ.update(self.values)  # whoever runs a script leaves the environment as it was
        try:
            yield
        finally:
            argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign, assignment]

    def arguments(self, parser: argparse.ArgumentParser, args: Sequence[str]) -> list[str]:
        """The arguments with those that settings stand for, after the others, so that they count."""
        options = {option: action for action in parser._actions for option in action.option_strings}
        self.offered |= {option: None for option in options if option.startswith("--") and option != "--help"}
        added = []
        for name, value in self.values.items():
            for option in (f"--{name.lower().replace('_', '-')}", f"--{name.lower()}"):
                if option in options:
                    self.used.add(name)
                    added += _words(option, options[option], value)
                    break
        end = list(args).index("--") if "--" in args else len(args)
        return [*args[:end], *added, *args[end:]]

    def run(self, file: Path) -> None:
        """The file as `__main__`, its constants replaced."""
        tree = ast.parse(file.read_bytes(), str(file))
        for node in tree.body:
            for target, value in _assigned(node):
                self.offered[target.id] = None
                if target.id in self.values:
                    self.used.add(target.id)
                    new = ast.Constant(_value(self.values[target.id]))  # type: ignore[arg-type]
                    _replace(node, value, ast.copy_location(new, value))
        module = ModuleType("__main__")
        module.__dict__.update(__file__=str(file), __package__="", __spec__=None, __builtins__=__builtins__)
        before = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(compile(tree, str(file), "exec"), module.__dict__)
        finally:
            sys.modules["__main__"] = before


def _words(option: str, action: argparse.Action, value: str) -> list[str]:
    """An option with its value as words of a command line."""
    if action.nargs != 0:
        return [f"{option}={value}"]
    if value.lower() not in ON | OFF:
        raise BadInput(f"{option} is a switch and takes 0 or 1, not '{value}'")
    on = value.lower() in ON
    if isinstance(action, argparse.BooleanOptionalAction):
        return [option if on else f"--no-{option[2:]}"]
    return [option] if on else []


def _value(text: str) -> object:
    """A number, a tuple or the like as Python reads it; else the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _assigned(node: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    """Names that a top-level statement gives a value, one by one also in `M, N = 512, 512`."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    found = []
    for target in node.targets:
        if isinstance(target, ast.Name):
            found.append((target, node.value))
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            found += [(one, value) for one, value in pairs if isinstance(one, ast.Name)]
    return found


def _replace(node: ast.stmt, old: ast.expr, new: ast.expr) -> None:
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    if node.value is old:
        node.value = new
    else:
        assert isinstance(node.value, ast.Tuple)
        node.value.elts = [new if one is old else one for one in node.value.elts]
