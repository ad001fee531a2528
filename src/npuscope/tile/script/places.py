"""What a setting can reach in a program, found in its text and in that of the user's modules, without running it.

option      `--mlp-tn` of an argparse parser
constant    `MLP_TN = 128` at the top of a file, or in a function around kernels
default     a field's default in a class: `tk: int = 64` of a dataclass, `TILE = 64` of any class
field       of an object that a file makes at its top: `QWEN3.tiles.tk` of `QWEN3 = Model(tiles=Tiles(tk=64))`
jit         an option of a kernel's decorator: `@pl.jit(auto_scope=False)`
variable    of the environment

A full name is always understood (`QWEN3.tiles.tk`, `config.ROWS`, `Tiles.tk`); words in front or between may be left
out as long as one place fits. A field's bare name is the default of its class where an object takes it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from npuscope.base.errors import BadInput
from npuscope.base.unsaved import source_bytes
from npuscope.tile.language.grammar import called
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import NAMES

Kind = Literal["option", "constant", "default", "field", "jit", "variable"]
NOT_IN_TEXT: Any = type("NotInText", (), {"__repr__": lambda self: "NOT_IN_TEXT"})()  # a value that is computed
DEEP = 6  # configurations inside configurations
MOST_FILES = 400  # a program of more is not one
SERVED = ("pypto", "golden")  # packages that npuscope has: what a tree has under these names does not run
ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
RUNTIME = frozenset(f"PTO2_{name.upper()}" for name in NAMES.values())  # variables that every program's run asks for
MOST_LISTED, MOST_NEAR = 12, 6


# --- files


@dataclass(frozen=True, eq=False)
class OwnFile:
    """A file of a program. `module`: the name it is imported by, "" for the script. Its tree is not to be changed."""

    path: Path
    module: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # of the tree, outer before inner


def own_files(script: Path) -> tuple[OwnFile, ...]:
    """The script first, then every module of the user's that it imports, as the text says.

    A file that is no Python is left out: running it will say so.
    """
    # beside it, above it (scripts of a package put that on their path), and on Python's path
    folder = script.resolve().parent
    users = [Path(place).resolve() for place in sys.path if place and not sites.is_installed(place)]
    roots = tuple(dict.fromkeys([folder, *folder.parents[:2], *users]))
    found: dict[Path, OwnFile] = {}
    waiting = [(script.resolve(), "")]
    while waiting and len(found) < MOST_FILES:
        path, module = waiting.pop(0)
        if path in found:
            continue
        try:
            tree, nodes = _parsed(source_bytes(path), str(path))
        except (OSError, SyntaxError, ValueError):
            continue
        found[path] = OwnFile(path, module, tree, nodes)
        for name in _imported(nodes, path, module):
            file = None if name.partition(".")[0] in SERVED else _file_of(name, roots)
            if file is not None and file not in found:
                waiting.append((file, name))
    return tuple(found.values())


@lru_cache(maxsize=64)
def _parsed(text: bytes, name: str) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """A file's tree and its nodes: the lab asks for them several times at every save."""
    tree = ast.parse(text, name)
    return tree, tuple(ast.walk(tree))


def _imported(nodes: Iterable[ast.AST], path: Path, module: str) -> Iterator[str]:
    """The names of modules that a file may import, wherever in it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if package and node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _file_of(name: str, roots: tuple[Path, ...]) -> Path | None:
    """The file of a module; None where it is not the user's."""
    parts = name.split(".")
    for root in roots if all(parts) else ():
        place = root.joinpath(*parts)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                return file.resolve() if sites.is_users(str(file)) else None
    return None


# --- places


@dataclass(frozen=True)
class SettingPlace:
    """What a setting can reach: its full name, where it stands, its value as the text has it.

    `target` is the name in the file that is assigned (`owner` the class or function around it), `path` the fields below
    it. `taken`: of a field, that its class's default decides it; of a default, that some object takes it.
    """

    name: str
    kind: Kind
    file: str
    line: int
    value: object = NOT_IN_TEXT
    choices: tuple[object, ...] = ()
    module: str = ""
    owner: str = ""
    target: str = ""
    path: tuple[str, ...] = ()
    taken: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Its name with the module that it stands in."""
        short = self.module.rpartition(".")[2]
        return (*([short] if short else []), *self.name.split("."))


@dataclass(frozen=True)
class Places:
    """All of a program's. `computed`: it makes names of options or variables as it runs, so there may be more."""

    places: tuple[SettingPlace, ...]
    files: tuple[str, ...]
    computed: bool


def places_of(script: str | Path) -> Places:
    """Everything that a setting can reach in a script and in the user's modules that it imports."""
    files = own_files(Path(script))
    finder = _Finder({cls.name: cls for file in files for cls in _classes(file)})
    for file in files:
        finder.constants(file)
        finder.jit_options(file)
        finder.options_and_variables(file)
    finder.defaults()
    return Places(tuple(finder.places), tuple(str(file.path) for file in files), finder.computed)


def literal(node: ast.expr | None) -> object:
    """A value as the text has it, NOT_IN_TEXT for what must be computed."""
    try:
        return NOT_IN_TEXT if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return NOT_IN_TEXT


def assigned(node: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    """Names that a statement gives a value, one by one also in `M, N = 512, 512`."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    found = [(target, node.value) for target in node.targets if isinstance(target, ast.Name)]
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            found += [(one, value) for one, value in pairs if isinstance(one, ast.Name)]
    return found


def _is_of_language(function: ast.FunctionDef) -> bool:
    """Whether a decorator of the language stands on it: its text is read again, so that nothing in it is replaced."""
    return any(_root(decorator) in ("pl", "pypto", "language", "jit") for decorator in function.decorator_list)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class _Class:
    name: str
    file: OwnFile
    fields: dict[str, tuple[int, ast.expr | None]]
    is_data: bool


def _classes(file: OwnFile) -> Iterator[_Class]:
    for node in file.tree.body:
        if not isinstance(node, ast.ClassDef) or any("Enum" in ast.dump(base) for base in node.bases):
            continue
        is_data = any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list)
        is_data = is_data or any(_root(base) == "NamedTuple" for base in node.bases)
        fields: dict[str, tuple[int, ast.expr | None]] = {}
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                fields[line.target.id] = (line.lineno, line.value)
            elif not is_data:
                fields |= {name.id: (line.lineno, value) for name, value in assigned(line)}
        yield _Class(node.name, file, fields, is_data)


def _default_of(value: ast.expr | None) -> ast.expr | None:
    """What stands for a field's default: `64`, or the 64 of `field(default=64)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        return next((word.value for word in value.keywords if word.arg == "default"), None)
    return value


_Field = tuple[tuple[str, ...], int, object, bool]  # path, line, value, taken


class _Finder:
    def __init__(self, classes: dict[str, _Class]) -> None:
        self.classes = classes
        self.places: list[SettingPlace] = []
        self.taken: set[tuple[str, str]] = set()  # (class, field) whose default an object has
        self.computed = False

    def _add(self, name: str, kind: Kind, file: OwnFile, line: int, value: object = NOT_IN_TEXT, **more: Any) -> None:
        self.places.append(SettingPlace(name, kind, str(file.path), line, value, module=file.module, **more))

    def defaults(self) -> None:
        for cls in self.classes.values():
            for name, (line, given) in cls.fields.items():
                value = literal(_default_of(given))
                if value is not NOT_IN_TEXT:
                    taken = (cls.name, name) in self.taken
                    self._add(
                        f"{cls.name}.{name}", "default", cls.file, line, value,
                        owner=cls.name, target=name, taken=taken,
                    )  # fmt: skip

    def constants(self, file: OwnFile) -> None:
        objects: dict[str, ast.expr] = {}
        for node in file.tree.body:
            for target, value in assigned(node):
                name = target.id
                if name in objects:
                    continue
                objects[name] = value
                self._add(name, "constant", file, node.lineno, literal(value), target=name)
                for path, line, part, taken in self._fields(value, objects):
                    full = ".".join([name, *path])
                    self._add(full, "field", file, line or node.lineno, part, target=name, path=path, taken=taken)
            if not isinstance(node, ast.FunctionDef) or _is_of_language(node):
                continue
            for statement in node.body:
                for target, value in assigned(statement):
                    if target.id.isupper() and (known := literal(value)) is not NOT_IN_TEXT:
                        full = f"{node.name}.{target.id}"
                        self._add(full, "constant", file, statement.lineno, known, owner=node.name, target=target.id)

    def _fields(self, value: ast.expr, objects: dict[str, ast.expr], depth: int = 0) -> Iterator[_Field]:
        """The fields of an object that an expression makes, those inside its fields too; line 0: a class's default."""
        if not isinstance(value, ast.Call) or depth > DEEP:
            return
        given = {word.arg: word.value for word in value.keywords if word.arg}
        if called(value) == "replace" and value.args:  # of an object made above, with some of it changed
            first = value.args[0]
            before = objects.get(first.id) if isinstance(first, ast.Name) else None
            for path, line, known, taken in self._fields(before, objects, depth + 1) if before else ():
                if path[0] not in given:
                    yield path, line, known, taken
                elif len(path) == 1:
                    yield path, given[path[0]].lineno, literal(given[path[0]]), False
            return
        cls = self.classes.get(called(value))
        if cls is None or not cls.is_data or any(isinstance(one, ast.Starred) for one in value.args):
            return
        given |= dict(zip(cls.fields, value.args, strict=False))
        for name, (_, default) in cls.fields.items():
            part = given.get(name) or _default_of(default)
            if part is None:
                continue
            line = given[name].lineno if name in given else 0
            taken = name not in given and all(word.arg for word in value.keywords)
            if taken:
                self.taken.add((cls.name, name))
            yield (name,), line, literal(part), taken
            for path, below, known, deeper in self._fields(part, objects, depth + 1):
                yield (name, *path), below if line else 0, known, deeper

    def jit_options(self, file: OwnFile) -> None:
        for node in file.nodes:
            if not isinstance(node, ast.FunctionDef) or not _is_of_language(node):
                continue
            words = [word for one in node.decorator_list if isinstance(one, ast.Call) for word in one.keywords]
            for word in words:
                if word.arg and (value := literal(word.value)) is not NOT_IN_TEXT:
                    full = f"{node.name}.{word.arg}"
                    self._add(full, "jit", file, word.value.lineno, value, owner=node.name, target=word.arg)

    def options_and_variables(self, file: OwnFile) -> None:
        """Options of parsers and variables of the environment, and whether some names are made as the program runs."""
        understood: set[int] = set()
        for node in file.nodes:
            if isinstance(node, ast.Call):
                name = called(node)
                of_environ = isinstance(node.func, ast.Attribute) and _is_environ(node.func.value)
                if name == "add_argument":
                    self._option(node, file)
                elif name == "getenv" or (name in ("get", "setdefault", "pop") and of_environ):
                    self._variable(node.args[0] if node.args else None, node.lineno, file)
                    understood |= {id(part) for part in ast.walk(node.func)}
            elif isinstance(node, ast.Subscript) and _is_environ(node.value):
                if isinstance(node.ctx, ast.Load):
                    self._variable(node.slice, node.lineno, file)
                understood |= {id(part) for part in ast.walk(node.value)}
            elif isinstance(node, ast.Compare) and any(_is_environ(side) for side in node.comparators):
                self._variable(node.left, node.lineno, file)
                understood |= {id(part) for side in node.comparators for part in ast.walk(side)}
            elif isinstance(node, ast.Attribute | ast.Name) and _is_environ(node) and id(node) not in understood:
                self.computed = True  # handed on, or walked through

    def _option(self, node: ast.Call, file: OwnFile) -> None:
        names = [literal(argument) for argument in node.args]
        if any(name is NOT_IN_TEXT for name in names) or not names or any(not word.arg for word in node.keywords):
            self.computed = True
            return
        long = next((str(name) for name in names if str(name).startswith("--")), None)
        if long is None:
            return
        words = {word.arg: word.value for word in node.keywords}
        action, choices = literal(words.get("action")), literal(words.get("choices"))
        switch = action in ("store_true", "store_false")
        value = action == "store_false" if switch else literal(words.get("default"))
        switch = switch or "BooleanOptional" in ast.dump(words.get("action", node.func))
        listed: tuple[object, ...] = (False, True) if switch else ()
        if isinstance(choices, list | tuple | set | frozenset):
            listed = tuple(choices)
        self._add(long[2:].replace("-", "_"), "option", file, node.lineno, value, choices=listed, target=long)

    def _variable(self, node: ast.expr | None, line: int, file: OwnFile) -> None:
        name = literal(node)
        if not isinstance(name, str):
            self.computed = True
        elif not any(place.kind == "variable" and place.name == name for place in self.places):
            self._add(name, "variable", file, line, target=name)


def _is_environ(node: ast.expr) -> bool:
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) == "environ"


# --- names


class UnknownSetting(BadInput):
    """A name that a script has no use for."""


def places_named(name: str, places: Places, file: Path) -> tuple[SettingPlace, ...]:
    """The places that a name means; none where only the run can know. Refused: an unknown name, and one of several."""
    direct = [place for place in places.places if _is_direct(place, name)]
    if direct:
        return tuple(direct)
    wanted = name.split(".")
    found = _chosen([place for place in places.places if _within(wanted, place.words)], name)
    if not found:
        lower = name.lower().split(".")
        found = _chosen([p for p in places.places if _within(lower, [word.lower() for word in p.words])], name)
    if not found:
        found = _of_unknown_class(wanted, places)
    if len({(place.name, place.file) for place in found}) > 1:
        files = {place.name: {other.file for other in found if other.name == place.name} for place in found}
        each = sorted({".".join(place.words) if len(files[place.name]) > 1 else place.name for place in found})
        raise UnknownSetting(f"{name} may be any of {', '.join(each[:MOST_LISTED])}", path=file, remedy="Name one.")
    if not found and name not in RUNTIME and not places.computed:
        raise unknown([name], places, file)
    return tuple(found[:1])


def unknown(names: Sequence[str], places: Places, file: Path) -> UnknownSetting:
    """The error for names that a program does not have."""
    known = offered(places)
    near = known if len(known) <= MOST_LISTED else nearest(names, known)
    kinds = "option, constant, field or environment variable"
    begin = "It has" if near is known else "The nearest it has are"
    return UnknownSetting(
        f"it has no {kinds} {', '.join(names)}", path=file, remedy=f"{begin}: {', '.join(near)}." if near else ""
    )


def offered(places: Places) -> list[str]:
    """The names to show: options, the script's own constants, then what lies in modules and classes."""
    known = [p for p in places.places if p.value is not NOT_IN_TEXT or p.kind in ("option", "variable")]
    own = [p.target for p in known if p.kind == "constant" and not p.module and not p.owner]
    options = [p.target for p in known if p.kind == "option"]
    rest = [p.name for p in known if not p.target.startswith("_") and not (p.kind == "field" and p.taken)]
    rest = [name for name in rest if f"--{name.replace('_', '-')}" not in options]
    return list(dict.fromkeys([*own, *options, *rest]))


def nearest(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Those of the known names that look most like what was written."""

    def likeness(one: str) -> float:
        last = one.rpartition(".")[2].lstrip("-").lower().replace("-", "_")
        words = [name.rpartition(".")[2].lower() for name in names]
        whole = max(SequenceMatcher(None, word, last).ratio() for word in words)
        shared = max(len({*word.split("_")} & {*last.split("_")}) for word in words)
        return whole + 0.3 * shared

    each: dict[str, str] = {}  # one name per field: the shortest, a class's own
    for one in sorted(known, key=lambda one: (one.count("."), one)):
        each.setdefault(one.rpartition(".")[2], one)
    return sorted(each.values(), key=lambda one: -likeness(one))[:MOST_NEAR]


def value_for(place: SettingPlace, text: str, name: str) -> object:
    """The value that a text is at this place: a number where a number stands, on or off where True or False does."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = text
    before = place.value
    if isinstance(before, bool):
        if text.lower() not in ON | OFF:
            raise BadInput(f"{name} is {before}; it takes 0 or 1, not '{text}'", path=place.file, line=place.line)
        return text.lower() in ON
    if isinstance(before, int | float) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise BadInput(f"{name} is {before}; it takes a number, not '{text}'", path=place.file, line=place.line)
    return text if isinstance(before, str) and not isinstance(value, str) else value


def _is_direct(place: SettingPlace, name: str) -> bool:
    """An option, a constant of the script itself, a variable: they go before all else, and together."""
    if place.kind == "option":
        return place.target in (f"--{name.lower().replace('_', '-')}", f"--{name.lower()}")
    own = place.kind == "constant" and not place.module and not place.owner
    return place.name == name and (own or place.kind == "variable")


def _within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words are a name with some in front or between left out."""
    if not wanted or wanted[-1] != words[-1]:
        return False
    rest = iter(words[:-1])
    return all(word in rest for word in wanted[:-1])


def _chosen(found: list[SettingPlace], name: str) -> list[SettingPlace]:
    """The likeliest of several that a name fits."""
    found = [place for place in found if place.kind not in ("option", "variable")]
    groups = (
        [place for place in found if place.name == name],
        [place for place in found if place.kind == "default" and place.taken],
        [place for place in found if place.kind != "default"],
        found,
    )
    return next((group for group in groups if group), [])


def _of_unknown_class(wanted: Sequence[str], places: Places) -> list[SettingPlace]:
    """`CONFIG.tile` where only the run knows what CONFIG is."""
    objects = [p for p in places.places if p.kind == "constant" and not p.owner and p.value is NOT_IN_TEXT]
    with_fields = {(p.file, p.target) for p in places.places if p.kind == "field"}
    return [
        replace(p, kind="field", name=".".join(wanted), path=tuple(wanted[1:]))
        for p in objects
        if len(wanted) > 1 and p.target == wanted[0] and (p.file, p.target) not in with_fields
    ]
