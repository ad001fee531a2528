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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from dataclasses import replace as replaced_fields
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from npuscope.base.errors import BadInput
from npuscope.base.unsaved import source_bytes
from npuscope.tile.script.observed import Reads, current_reads, is_read, reads
from npuscope.tile.script.places import OFF, ON, SettingPlace, assigned, places_named, places_of, unknown, value_for

HELPER = "__npuscope_with__"


@dataclass(frozen=True)
class Replacement:
    """A new value for a place; an object that is `only_watched` keeps its fields."""

    place: SettingPlace
    value: object
    only_watched: bool = False


class Settings:
    """Values by name for one script, and which of them it has had a use for so far."""

    def __init__(self, values: Mapping[str, str], file: Path) -> None:
        self.values = dict(values)
        self.file = file
        self.used: set[str] = set()
        self.asked: set[str] = set()  # variables that the environment was asked for
        self.fields: dict[str, SettingPlace] = {}  # of configurations: a run may have no use for them
        observed = current_reads() is not None
        self.places = places_of(file) if values or observed else None
        self.replacements: dict[str, list[Replacement]] = defaultdict(list)  # by file
        if self.places is None:
            return
        found = [(name, place) for name in self.values for place in places_named(name, self.places, file)]
        self.fields = {name: place for name, place in found if place.kind in ("field", "default")}
        if observed or self.fields:  # objects at the top of files pass through the helper, which observes their reads
            objects = {(place.file, place.target): place for place in self.places.places if place.kind == "field"}
            for place in objects.values():
                self.replacements[place.file].append(Replacement(place, None, only_watched=True))
        for name, place in found:
            if place.kind not in ("option", "variable"):
                self.used.add(name)
                value = value_for(place, self.values[name], name)
                self.replacements[place.file].append(Replacement(place, value))

    @property
    def rewrites(self) -> bool:
        """Whether the script's own text is to be replaced, so that Python cannot run the file as it is."""
        return self.places is not None

    def check(self) -> None:
        """Refuses names that nothing came of."""
        idle = [name for name in self.values if name not in self.used | self.asked]
        if idle and self.places:
            raise unknown(idle, self.places, self.file)

    def unread(self, seen: Reads | None) -> dict[str, SettingPlace]:
        """Fields of configurations that were set and that the run did not read: another configuration ran."""
        every = self.places.places if self.places else ()
        return {name: place for name, place in self.fields.items() if seen and not is_read(place, every, seen)}

    @contextmanager
    def given(self) -> Iterator[Reads | None]:
        """Options, environment variables and values of modules, for what runs inside the block; what it reads."""
        parse: Callable[..., object] = argparse.ArgumentParser.parse_known_args

        def parse_with(
            parser: argparse.ArgumentParser, args: Sequence[str] | None = None, *rest: object, **named: object
        ) -> object:
            return parse(parser, self.arguments(parser, sys.argv[1:] if args is None else args), *rest, **named)

        with ExitStack() as stack:
            if self.fields and current_reads() is None:
                stack.enter_context(reads())
            if self.places is not None:
                argparse.ArgumentParser.parse_known_args = parse_with  # type: ignore[method-assign, assignment]
                stack.callback(setattr, argparse.ArgumentParser, "parse_known_args", parse)
                # whoever runs a script leaves the environment as it was
                os.environ.update({name: text for name, text in self.values.items() if name.isidentifier()})
                own = str(self.file.resolve())
                others = {file: those for file, those in self.replacements.items() if file != own}
                stack.enter_context(_modules_replaced(others, self.places.files))
            yield current_reads()

    def arguments(self, parser: argparse.ArgumentParser, args: Sequence[str]) -> list[str]:
        """The arguments with those that settings stand for, after the others, so that they count."""
        options = {option: action for action in parser._actions for option in action.option_strings}
        added = []
        for name, value in self.values.items():
            spellings = (f"--{name.lower().replace('_', '-')}", f"--{name.lower()}")
            option = next((spelling for spelling in spellings if spelling in options), None)
            if option is not None:
                self.used.add(name)
                added += _words(option, options[option], value)
        end = list(args).index("--") if "--" in args else len(args)
        return [*args[:end], *added, *args[end:]]

    def run(self) -> None:
        """The file as `__main__`, its values replaced."""
        mine = self.replacements.get(str(self.file.resolve()), ())
        tree = _replaced(ast.parse(source_bytes(self.file), str(self.file)), mine)
        module = ModuleType("__main__")
        package = package_of(self.file)
        module.__dict__.update(__file__=str(self.file), __package__=package, __spec__=None, __builtins__=__builtins__)
        module.__dict__[HELPER] = _helper_for(mine)
        before = sys.modules["__main__"]
        sys.modules["__main__"] = module
        try:
            exec(compile(tree, str(self.file), "exec", dont_inherit=True), module.__dict__)
        finally:
            sys.modules["__main__"] = before


def package_of(file: Path) -> str:
    """The package of a script that imports beside itself (`from .config import …`), whose root is made importable."""
    tree = ast.parse(source_bytes(file), str(file))
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in tree.body):
        return ""
    folder = file.resolve().parent
    names: list[str] = []
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if names and str(folder) not in sys.path:
        sys.path.insert(1, str(folder))  # whoever runs a script puts the path back
    return ".".join(names)


def _words(option: str, action: argparse.Action, value: str) -> list[str]:
    """An option with its value as words of a command line."""
    if action.nargs != 0:
        return [f"{option}={value}"]
    if value.lower() not in ON | OFF:
        raise BadInput(f"{option} is a switch and takes 0 or 1, not '{value}'")
    if value.lower() in ON:
        return [option]
    return [f"--no-{option[2:]}"] if isinstance(action, argparse.BooleanOptionalAction) else []


# --- values in the text


def _replaced(tree: ast.Module, those: Sequence[Replacement]) -> ast.Module:
    """A file's tree with new values; objects whose fields change go through the helper."""
    values = {(r.place.owner, r.place.target): r.value for r in those if r.place.kind in ("constant", "default")}
    objects = {r.place.target for r in those if r.place.kind == "field"}
    options = {(r.place.owner, r.place.target, r.place.line): r.value for r in those if r.place.kind == "jit"}
    for node in tree.body:
        inner = node.body if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        for owner, statement in [("", node), *((getattr(node, "name", ""), one) for one in inner)]:
            for target, value in assigned(statement):
                if (owner, target.id) in values:
                    _put(statement, value, values[owner, target.id])
                if not owner and target.id in objects:
                    helper = ast.Call(ast.Name(HELPER, ast.Load()), [ast.Constant(target.id), value], [])
                    _put(statement, value, helper)
    for function in ast.walk(tree) if options else ():
        for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            for word in decorator.keywords if isinstance(decorator, ast.Call) else ():
                key = (getattr(function, "name", ""), word.arg or "", word.value.lineno)
                if key in options:
                    word.value = ast.copy_location(ast.Constant(options[key]), word.value)  # type: ignore[arg-type]
    return ast.fix_missing_locations(tree)


def _put(node: ast.stmt, old: ast.expr, value: object) -> None:
    """Puts a value in the place of another: of all, of one in `M, N = 512, 512`, of the 64 in `field(default=64)`."""
    new = ast.copy_location(value if isinstance(value, ast.expr) else ast.Constant(value), old)  # type: ignore[arg-type]
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    defaults = [word for word in old.keywords if word.arg == "default"] if isinstance(old, ast.Call) else []
    if defaults and not isinstance(value, ast.expr):
        defaults[0].value = new
    elif node.value is old:
        node.value = new
    elif isinstance(node.value, ast.Tuple):
        node.value.elts = [new if one is old else one for one in node.value.elts]


def _helper_for(those: Sequence[Replacement]) -> Any:
    """What stands around an object whose fields change: gives the object as it should be."""
    changes: dict[str, list[Replacement]] = defaultdict(list)
    for one in those:
        if one.place.kind == "field" and not one.only_watched:
            changes[one.place.target].append(one)
    files = {one.place.target: one.place.file for one in those}

    def changed(target: str, value: object) -> object:
        if ours := changes.get(target):
            value = _with(value, [(one.place.path, one.value) for one in ours], ours[0].place, ours[0].value)
        seen = current_reads()
        return value if seen is None else seen.note(files[target], target, value)

    return changed


def changed_object(value: object, path: tuple[str, ...], new: object, place: SettingPlace) -> object:
    """An object with one field changed; refused where its class does not take it."""
    return _with(value, [(path, new)], place, new)


def _with(value: Any, changes: Sequence[tuple[tuple[str, ...], object]], place: SettingPlace, first: object) -> object:
    """An object with some fields changed, those of fields too, each object made once; `place` and `first` for errors"""
    below: dict[str, list[tuple[tuple[str, ...], object]]] = defaultdict(list)
    new: dict[str, object] = {}
    for path, given in changes:
        if not (path[0] in value if isinstance(value, Mapping) else hasattr(value, path[0])):
            raise BadInput(f"{place.target} has no {'.'.join(place.path)}", path=place.file, line=place.line)
        if len(path) == 1:
            new[path[0]] = given
        else:
            below[path[0]].append((path[1:], given))
    for name, deeper in below.items():
        part = value[name] if isinstance(value, Mapping) else getattr(value, name)
        new[name] = _with(part, deeper, place, first)
    try:
        return _copy(value, new)
    except Exception as error:
        name = ".".join([place.target, *place.path])
        what = f"{name} cannot be {first} ({type(error).__name__}: {error})"
        raise BadInput(what, path=place.file, line=place.line) from error


def _copy(value: Any, new: dict[str, object]) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return replaced_fields(value, **new)
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        return value._replace(**new)
    other = copy.copy(value)
    if isinstance(other, dict):
        return {**other, **new}
    for name, given in new.items():
        setattr(other, name, given)
    return other


class _Loader(SourceFileLoader):
    """A module of the user's with values replaced; never from or into a cache of compiled files."""

    def __init__(self, fullname: str, path: str, those: Sequence[Replacement]) -> None:
        super().__init__(fullname, path)
        self.those = those

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = _replaced(ast.parse(source_bytes(path), path), self.those)
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[HELPER] = _helper_for(self.those)
        super().exec_module(module)


@contextmanager
def importing(change: Callable[[ModuleSpec], None]) -> Iterator[None]:
    """While inside, `change` is given the spec of every module before it is loaded."""

    def find_spec(fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        later = sys.meta_path[sys.meta_path.index(finder) + 1 :]
        spec: ModuleSpec | None = next(filter(None, (o.find_spec(fullname, path, target) for o in later)), None)
        if spec is not None:
            change(spec)
        return spec

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the script has removed it
            sys.meta_path.remove(finder)


@contextmanager
def _modules_replaced(by_file: Mapping[str, Sequence[Replacement]], files: Sequence[str]) -> Iterator[None]:
    """While inside, modules are imported with their values replaced; `files` are those of the program.

    What was imported before is imported anew, and is as it was afterwards.
    """
    if not by_file:
        yield
        return

    def replace(spec: ModuleSpec) -> None:
        file = str(Path(spec.origin).resolve()) if spec.has_location and spec.origin else ""
        if file in by_file:
            spec.loader = _Loader(spec.name, file, by_file[file])

    modules = {name: module for name, module in sys.modules.items() if name != "__main__"}
    before = {name: module for name, module in modules.items() if getattr(module, "__file__", None) in files}
    for name in before:
        del sys.modules[name]
    try:
        with importing(replace):
            yield
    finally:
        sys.modules.update(before)


# --- a setting's value written into the text of a program, in place of the literal that stands there


def named_literals(text: str) -> Iterator[tuple[str, ast.expr]]:
    """Literals that are assigned to a name or passed by one; nothing of a text that is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.keyword) and node.arg is not None:
            pairs = [(ast.Name(node.arg), node.value)]
        for name, part in pairs:
            if isinstance(name, ast.Name) and isinstance(part, ast.Constant | ast.UnaryOp):
                yield name.id, part


def with_settings(file: Path, settings: Mapping[str, str]) -> dict[Path, tuple[str, str]]:
    """The files of a program that settings change: each one's text before and with their values written in."""
    places = places_of(file)
    found: dict[Path, tuple[str, str]] = {}
    for name, value in settings.items():
        for place in places_named(name, places, file):
            path = Path(place.file)
            before, text = found.get(path) or ((text_of := _text_of(path)), text_of)
            found[path] = before, _written(text, place, value_for(place, value, name), name)
    return found


def _text_of(path: Path) -> str:
    try:
        return source_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8, so nothing is written into it", path=path) from error


def _written(text: str, place: SettingPlace, value: object, name: str) -> str:
    """A text with another literal at a place."""
    called = "default" if place.kind == "option" else place.name.rpartition(".")[2]
    known = [
        node
        for one, node in named_literals(text)
        if one == called and ast.literal_eval(node) == place.value and node.lineno >= place.line
    ]
    if not known:
        raise BadInput(f"{name} is no plain value here, so it is not written", path=place.file, line=place.line)
    node = min(known, key=lambda one: one.lineno)
    lines = text.encode().splitlines(keepends=True)
    line = lines[node.lineno - 1]
    assert node.end_col_offset is not None
    lines[node.lineno - 1] = line[: node.col_offset] + repr(value).encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()
