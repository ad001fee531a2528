"""Settings of a script from outside, `MLP_TN=256`, without a change to the file.

A setting reaches a script in every way that it has for it:
  an option      `--mlp-tn` or `--mlp_tn` of an argparse parser, over what the command line says; a switch is on for
                 1, true, yes, on and off for 0, false, no, off
  a constant     a top-level `MLP_TN = 128` of the file itself, whose value is replaced before it runs
  the environment variable MLP_TN
Where it has none of these, a setting is looked for in the modules of the user's that the script imports, in classes
and in the objects made of them (`QWEN3.tiles.tk`, `Tiles.tk`, `tk`; places.py has the rules). Values are replaced in
the source tree before a file runs. A name that the script has none of is refused before it runs.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from dataclasses import replace as replaced_fields
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from npuscope.base.errors import BadInput
from npuscope.tile.script.observed import Reads, current_reads, is_read, reads
from npuscope.tile.script.places import OFF, ON, Place, assigned, meant, places_of, unknown, value_for

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


HELPER = "__npuscope_with__"


@dataclass(frozen=True)
class Replacement:
    """A new value for a place; an object that is `only_watched` keeps its fields."""

    place: Place
    value: object
    only_watched: bool = False


def watching(places: Iterable[Place]) -> list[Replacement]:
    """Lets objects at the top of files pass through the helper, for who observes what a run reads of them."""
    objects = {(place.file, place.target): place for place in places if place.kind == "field"}
    return [Replacement(place, None, only_watched=True) for place in objects.values()]


def replaced(tree: ast.Module, those: Sequence[Replacement]) -> ast.Module:
    """A file's tree with new values; objects whose fields change go through the helper."""
    constants = {(r.place.owner, r.place.target): r.value for r in those if r.place.kind == "constant"}
    objects = {r.place.target for r in those if r.place.kind == "field"}
    defaults = {(r.place.owner, r.place.target): r.value for r in those if r.place.kind == "default"}
    options = {(r.place.owner, r.place.target, r.place.line): r.value for r in those if r.place.kind == "jit"}
    for node in tree.body:
        _statement(node, "", constants)
        for target, value in assigned(node):
            if target.id in objects:
                helper = ast.Call(ast.Name(HELPER, ast.Load()), [ast.Constant(target.id), value], [])
                _put(node, value, ast.copy_location(helper, value))
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                _statement(statement, node.name, constants)
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                for target, value in assigned(statement):
                    if (node.name, target.id) in defaults:
                        _default(statement, value, defaults[node.name, target.id])
    for function in ast.walk(tree) if options else ():
        for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            for word in decorator.keywords if isinstance(decorator, ast.Call) else ():
                key = (getattr(function, "name", ""), word.arg or "", word.value.lineno)
                if key in options:
                    word.value = _constant(options[key], word.value)
    return ast.fix_missing_locations(tree)


def _statement(node: ast.stmt, owner: str, constants: Mapping[tuple[str, str], object]) -> None:
    for target, value in assigned(node):
        if (owner, target.id) in constants:
            _put(node, value, _constant(constants[owner, target.id], value))


def _constant(value: object, at: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Constant(value), at)  # type: ignore[arg-type]


def _default(node: ast.stmt, value: ast.expr, new: object) -> None:
    if isinstance(value, ast.Call):  # field(default=64)
        for word in value.keywords:
            if word.arg == "default":
                word.value = _constant(new, word.value)
    else:
        _put(node, value, _constant(new, value))


def _put(node: ast.stmt, old: ast.expr, new: ast.expr) -> None:
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    if node.value is old:
        node.value = new
    else:
        assert isinstance(node.value, ast.Tuple)
        node.value.elts = [new if one is old else one for one in node.value.elts]


def helper_for(those: Sequence[Replacement]) -> Any:
    """What stands around an object whose fields change: gives the object as it should be."""
    changes: dict[str, list[Replacement]] = defaultdict(list)
    for one in those:
        if one.place.kind == "field" and not one.only_watched:
            changes[one.place.target].append(one)
    files = {one.place.target: one.place.file for one in those}

    def changed(target: str, value: object) -> object:
        ours = changes.get(target)
        if ours:
            value = _with(value, [(one.place.path, one.value) for one in ours], ours[0])
        seen = current_reads()
        return value if seen is None else seen.note(files[target], target, value)

    return changed


def changed_object(value: object, path: tuple[str, ...], new: object, place: Place) -> object:
    """An object with one field changed; refused where its class does not take it."""
    return _with(value, [(path, new)], Replacement(place, new))


def _with(value: object, changes: Sequence[tuple[tuple[str, ...], object]], first: Replacement) -> object:
    """An object with some fields changed, those of fields too, each object made once."""
    below: dict[str, list[tuple[tuple[str, ...], object]]] = defaultdict(list)
    new: dict[str, object] = {}
    for path, told in changes:
        if len(path) == 1:
            new[path[0]] = told
        else:
            below[path[0]].append((path[1:], told))
    name = ".".join([first.place.target, *first.place.path])
    for part, deeper in below.items():
        new[part] = _with(_part(value, part, first), deeper, first)
    for part in new:
        _part(value, part, first)
    try:
        return _copy(value, new)
    except Exception as error:
        place = first.place
        told = f"{name} cannot be {first.value} ({type(error).__name__}: {error})"
        raise BadInput(told, path=place.file, line=place.line) from error


def _part(value: object, name: str, first: Replacement) -> object:
    if isinstance(value, Mapping) and name in value:
        return value[name]
    if not isinstance(value, Mapping) and hasattr(value, name):
        return getattr(value, name)
    place = first.place
    raise BadInput(f"{place.target} has no {'.'.join(place.path)}", path=place.file, line=place.line)


def _copy(value: Any, new: dict[str, object]) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return replaced_fields(value, **new)
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        return value._replace(**new)
    other = copy.copy(value)
    for name, told in new.items():
        if isinstance(other, dict):
            other[name] = told
        else:
            setattr(other, name, told)
    return other


class _Loader(SourceFileLoader):
    """A module of the user's with values replaced; never from or into a cache of compiled files."""

    def __init__(self, fullname: str, path: str, those: Sequence[Replacement]) -> None:
        super().__init__(fullname, path)
        self.those = those

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = replaced(ast.parse(self.get_data(path), path), self.those)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[HELPER] = helper_for(self.those)
        super().exec_module(module)


@contextmanager
def modules_replaced(those: Sequence[Replacement], files: Sequence[str]) -> Iterator[None]:
    """While inside, modules are imported with their values replaced; `files` are those of the program.

    What was imported before is imported anew, and is as it was afterwards.
    """
    by_file: dict[str, list[Replacement]] = defaultdict(list)
    for one in those:
        by_file[one.place.file].append(one)
    if not by_file:
        yield
        return

    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        later = sys.meta_path[sys.meta_path.index(finder) + 1 :]
        for other in later:
            spec = other.find_spec(fullname, path, target)
            if spec is not None:
                file = str(Path(spec.origin).resolve()) if spec.has_location and spec.origin else ""
                if file in by_file:
                    spec.loader = _Loader(fullname, file, by_file[file])
                return spec
        return None

    finder: Any = SimpleNamespace(find_spec=find_spec)
    own = set(files)
    before = {
        name: module
        for name, module in list(sys.modules.items())
        if name != "__main__" and str(getattr(module, "__file__", "") or "") in own
    }
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(before)
