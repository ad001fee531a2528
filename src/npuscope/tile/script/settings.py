"""Settings of a script from outside, `MLP_TN=256`, without a change to the file.

A setting reaches a script in every way that it has for it:
  an option      `--mlp-tn` or `--mlp_tn` of an argparse parser, over what the command line says; a switch is on for
                 1, true, yes, on and off for 0, false, no, off
  a constant     a top-level `MLP_TN = 128` of the file itself, whose value is replaced before it runs
  the environment variable MLP_TN
Where it has none of these, a setting is looked for in the modules of the user's own that the script imports, in
classes and in the objects made of them (`QWEN3.tiles.tk`, `Tiles.tk`, `tk`; npuscope.tile.script.named has the rules).
A name that the script has none of is refused before it runs.
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

from npuscope.base.errors import BadInput
from npuscope.tile.script.named import OFF, ON, meant, unknown, value_for
from npuscope.tile.script.observed import Reads, current_reads, is_read, reads
from npuscope.tile.script.places import Place, places_of
from npuscope.tile.script.replaced import HELPER, Replacement, helper_for, modules_replaced, replaced, watching

IN_TEXT = ("constant", "default", "field", "jit")


class Settings:
    """Values by name for one script, and which of them it has had a use for so far."""

    def __init__(self, values: Mapping[str, str], file: Path) -> None:
        self.values = dict(values)
        self.file = file
        self.used: set[str] = set()
        self.asked: set[str] = set()  # variables that the environment was asked for
        self.fields: dict[str, Place] = {}  # of configurations: a run may have no use for them
        observed = current_reads() is not None
        self.places = places_of(file) if values or observed else None
        self.replacements: list[Replacement] = []
        for name, text in self.values.items():
            for place in meant(name, self.places, file) if self.places else ():
                if place.kind in IN_TEXT:
                    self.used.add(name)
                    self.replacements.append(Replacement(place, value_for(place, text, name)))
                if place.kind in ("field", "default"):
                    self.fields[name] = place
        if self.places and (observed or self.fields):
            self.replacements = [*watching(self.places.places), *self.replacements]

    @property
    def rewrites(self) -> bool:
        """Whether the script's own text is to be replaced, so that Python cannot run the file as it is."""
        return self.places is not None

    def check(self) -> None:
        """Refuses names that nothing came of."""
        idle = [name for name in self.values if name not in self.used | self.asked]
        if idle and self.places:
            raise unknown(idle, self.places, self.file)

    def unread(self, seen: Reads | None) -> dict[str, Place]:
        """Fields of configurations that were set and that the run did not read: another configuration ran."""
        every = self.places.places if self.places else ()
        return {name: place for name, place in self.fields.items() if seen and not is_read(place, every, seen)}

    @contextmanager
    def given(self) -> Iterator[Reads | None]:
        """Options, environment variables and values of modules, for what runs inside the block; what it reads."""
        if self.fields and current_reads() is None:
            with reads(), self._given():
                yield current_reads()
        else:
            with self._given():
                yield current_reads()

    @contextmanager
    def _given(self) -> Iterator[None]:
        if self.places is None:
            yield
            return
        parse: Callable[..., object] = argparse.ArgumentParser.parse_known_args

        def parse_with(
            parser: argparse.ArgumentParser, args: Sequence[str] | None = None, *rest: object, **named: object
        ) -> object:
            return parse(parser, self.arguments(parser, sys.argv[1:] if args is None else args), *rest, **named)

        argparse.ArgumentParser.parse_known_args = parse_with  # type: ignore[method-assign, assignment]
        os.environ.update({name: text for name, text in self.values.items() if name.isidentifier()})
        own = str(self.file.resolve())
        try:
            with modules_replaced([one for one in self.replacements if one.place.file != own], self.places.files):
                yield
        finally:  # whoever runs a script leaves the environment as it was
            argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign, assignment]

    def arguments(self, parser: argparse.ArgumentParser, args: Sequence[str]) -> list[str]:
        """The arguments with those that settings stand for, after the others, so that they count."""
        options = {option: action for action in parser._actions for option in action.option_strings}
        added = []
        for name, value in self.values.items():
            for option in (f"--{name.lower().replace('_', '-')}", f"--{name.lower()}"):
                if option in options:
                    self.used.add(name)
                    added += _words(option, options[option], value)
                    break
        end = list(args).index("--") if "--" in args else len(args)
        return [*args[:end], *added, *args[end:]]

    def run(self) -> None:
        """The file as `__main__`, its values replaced."""
        own = str(self.file.resolve())
        mine = [one for one in self.replacements if one.place.file == own]
        tree = replaced(ast.parse(self.file.read_bytes(), str(self.file)), mine)
        module = ModuleType("__main__")
        module.__dict__.update(__file__=str(self.file), __package__="", __spec__=None, __builtins__=__builtins__)
        module.__dict__[HELPER] = helper_for(mine)
        before = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(compile(tree, str(self.file), "exec"), module.__dict__)
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
