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
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from npuscope.base.errors import BadInput
from npuscope.tile.language.grammar import called
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import NAMES

Kind = Literal["option", "constant", "default", "field", "jit", "variable"]
UNTOLD: Any = type("Untold", (), {"__repr__": lambda self: "UNTOLD"})()  # a value that is not in the text
DEEP = 6  # configurations inside configurations


@dataclass(frozen=True)
class Place:
    """One of them: its full name, where it stands, its value as the text has it.

    `target` is the name in the file that is assigned (`owner` the class or function around it), `path` the fields below
    it. `taken` tells of a field that its class's default decides, of a default that some object takes it.
    """

    name: str
    kind: Kind
    file: str
    line: int
    value: object = UNTOLD
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

    places: tuple[Place, ...]
    files: tuple[str, ...]
    computed: bool


@dataclass(frozen=True)
class _Class:
    name: str
    module: OwnFile
    fields: dict[str, tuple[int, ast.expr | None]]
    is_data: bool


@dataclass
class _Found:
    places: list[Place] = field(default_factory=list)
    taken: set[tuple[str, str]] = field(default_factory=set)  # (class, field) whose default an object has
    computed: bool = False

    def add(self, name: str, kind: Kind, file: OwnFile, line: int, value: object = UNTOLD, **more: Any) -> None:
        self.places.append(Place(name, kind, str(file.path), line, value, module=file.module, **more))


def places_of(script: str | Path) -> Places:
    """Everything that a setting can reach in a script and in the modules of the user's own that it imports."""
    files = own_files(Path(script))
    classes = {cls.name: cls for file in files for cls in _classes(file)}
    found = _Found()
    for file in files:
        _constants(file, classes, found)
        _jit_options(file, found)
        _outside(file, found)
    for cls in classes.values():
        _defaults(cls, found)
    return Places(tuple(found.places), tuple(str(file.path) for file in files), found.computed)


def literal(node: ast.expr | None) -> object:
    """A value as the text has it, UNTOLD for what must be computed."""
    try:
        return UNTOLD if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNTOLD


def assigned(node: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    """Names that a statement gives a value, one by one also in `M, N = 512, 512`."""
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


def is_of_language(function: ast.FunctionDef) -> bool:
    """Whether a decorator of the language stands on it: its text is read again, so that nothing in it is replaced."""
    return any(_root(decorator) in ("pl", "pypto", "language", "jit") for decorator in function.decorator_list)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


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


def default_of(value: ast.expr | None) -> ast.expr | None:
    """What stands for a field's default: `64`, or the 64 of `field(default=64)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        return next((word.value for word in value.keywords if word.arg == "default"), None)
    return value


def _defaults(cls: _Class, found: _Found) -> None:
    for name, (line, given) in cls.fields.items():
        told = default_of(given)
        if told is not None and (value := literal(told)) is not UNTOLD:
            about = {"owner": cls.name, "target": name, "taken": (cls.name, name) in found.taken}
            found.add(f"{cls.name}.{name}", "default", cls.module, line, value, **about)


def _constants(file: OwnFile, classes: dict[str, _Class], found: _Found) -> None:
    seen: set[str] = set()
    objects: dict[str, ast.expr] = {}
    for node in file.tree.body:
        for target, value in assigned(node):
            if target.id in seen:
                continue
            seen.add(target.id)
            objects[target.id] = value
            found.add(target.id, "constant", file, node.lineno, literal(value), target=target.id)
            for path, line, told, taken in _fields(value, classes, objects, found):
                about = {"target": target.id, "path": path, "taken": taken}
                found.add(".".join([target.id, *path]), "field", file, line or node.lineno, told, **about)
        if isinstance(node, ast.FunctionDef) and not is_of_language(node):
            for statement in node.body:
                for target, value in assigned(statement):
                    if target.id.isupper() and (told := literal(value)) is not UNTOLD:
                        about = {"owner": node.name, "target": target.id}
                        found.add(f"{node.name}.{target.id}", "constant", file, statement.lineno, told, **about)


_Field = tuple[tuple[str, ...], int, object, bool]


def _fields(
    value: ast.expr, classes: dict[str, _Class], objects: dict[str, ast.expr], found: _Found, depth: int = 0
) -> Iterator[_Field]:
    """The fields of an object that an expression makes, those inside its fields too; line 0 for a class's default."""
    if not isinstance(value, ast.Call) or depth > DEEP:
        return
    if called(value) == "replace" and value.args:  # of an object made above, with some of it changed
        first = value.args[0]
        before = objects.get(first.id) if isinstance(first, ast.Name) else None
        given = {word.arg: word.value for word in value.keywords if word.arg}
        for path, line, told, taken in _fields(before, classes, objects, found, depth + 1) if before else ():
            if path[0] not in given:
                yield path, line, told, taken
            elif len(path) == 1:
                yield path, given[path[0]].lineno, literal(given[path[0]]), False
        return
    cls = classes.get(called(value))
    if cls is None or not cls.is_data or any(isinstance(one, ast.Starred) for one in value.args):
        return
    given = dict(zip(cls.fields, value.args, strict=False))
    given |= {word.arg: word.value for word in value.keywords if word.arg}
    whole = all(word.arg for word in value.keywords)
    for name, (_, default) in cls.fields.items():
        own = given.get(name)
        part = own if own is not None else default_of(default)
        taken = own is None and part is not None and whole
        if taken:
            found.taken.add((cls.name, name))
        line = own.lineno if own is not None else 0
        if part is None:
            continue
        yield (name,), line, literal(part), taken
        for path, below, told, deeper in _fields(part, classes, objects, found, depth + 1):
            yield (name, *path), below if own is not None else 0, told, deeper


def _jit_options(file: OwnFile, found: _Found) -> None:
    for node in file.nodes:
        if not isinstance(node, ast.FunctionDef) or not is_of_language(node):
            continue
        for decorator in node.decorator_list:
            for word in decorator.keywords if isinstance(decorator, ast.Call) else ():
                told = literal(word.value)
                if word.arg and told is not UNTOLD:
                    about = {"owner": node.name, "target": word.arg}
                    found.add(f"{node.name}.{word.arg}", "jit", file, word.value.lineno, told, **about)


def _outside(file: OwnFile, found: _Found) -> None:
    """Options of parsers and variables of the environment, and whether some names are made as the program runs."""
    literals: set[int] = set()
    for node in file.nodes:
        if isinstance(node, ast.Call):
            name = called(node)
            if name == "add_argument":
                _option(node, file, found)
            elif name == "getenv" or (name in ("get", "setdefault", "pop") and _is_environ(node.func)):
                _variable(node.args[:1], node.lineno, file, found)
                literals |= {id(part) for part in ast.walk(node.func)}
        elif isinstance(node, ast.Subscript) and _is_environ_itself(node.value):
            if isinstance(node.ctx, ast.Load):
                _variable([node.slice], node.lineno, file, found)
            literals |= {id(part) for part in ast.walk(node.value)}
        elif isinstance(node, ast.Compare) and any(_is_environ_itself(side) for side in node.comparators):
            _variable([node.left], node.lineno, file, found)
            literals |= {id(part) for side in node.comparators for part in ast.walk(side)}
        elif isinstance(node, ast.Attribute | ast.Name) and _is_environ_itself(node) and id(node) not in literals:
            found.computed = True  # handed on, or walked through


def _option(node: ast.Call, file: OwnFile, found: _Found) -> None:
    names = [literal(argument) for argument in node.args]
    if any(name is UNTOLD for name in names) or not names or any(not word.arg for word in node.keywords):
        found.computed = True
        return
    long = next((str(name) for name in names if str(name).startswith("--")), None)
    if long is None:
        return
    words = {word.arg: word.value for word in node.keywords}
    action = literal(words.get("action"))
    switch = action in ("store_true", "store_false") or "BooleanOptional" in ast.dump(words.get("action", node.func))
    value = False if action == "store_true" else True if action == "store_false" else literal(words.get("default"))
    choices = literal(words.get("choices"))
    listed: tuple[object, ...] = (False, True) if switch else ()
    if isinstance(choices, list | tuple | set | frozenset):
        listed = tuple(choices)
    found.add(long[2:].replace("-", "_"), "option", file, node.lineno, value, choices=listed, target=long)


def _variable(names: Sequence[ast.expr], line: int, file: OwnFile, found: _Found) -> None:
    told = literal(names[0]) if names else UNTOLD
    if not isinstance(told, str):
        found.computed = True
    elif not any(place.kind == "variable" and place.name == told for place in found.places):
        found.add(told, "variable", file, line, target=told)


def _is_environ(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and _is_environ_itself(node.value)


def _is_environ_itself(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "environ") or (
        isinstance(node, ast.Name) and node.id == "environ"
    )


MOST = 400  # files: a program of more is not one


@dataclass(frozen=True, eq=False)
class OwnFile:
    """One of them. `module` is the name that it is imported by, "" for the script. Its tree is not to be changed."""

    path: Path
    module: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # of the tree, outer before inner


def own_files(script: Path) -> tuple[OwnFile, ...]:
    """The script first, then what it imports. A file that is no Python is left out: running it will say so."""
    roots = _roots(script)
    found: dict[Path, OwnFile] = {}
    waiting = [(script.resolve(), "")]
    while waiting and len(found) < MOST:
        path, module = waiting.pop(0)
        if path in found:
            continue
        try:
            text = path.read_bytes()
            tree, nodes = _parsed(text, str(path))
        except (OSError, SyntaxError, ValueError):
            continue
        found[path] = OwnFile(path, module, tree, nodes)
        for name in _imported(nodes, path, module):
            waiting += [(file, name) for file in _files(name, roots) if file not in found]
    return tuple(found.values())


@lru_cache(maxsize=64)
def _parsed(text: bytes, name: str) -> tuple[ast.Module, tuple[ast.AST, ...]]:
    """A file's tree and its nodes: the lab asks for them several times at every save."""
    tree = ast.parse(text, name)
    return tree, tuple(ast.walk(tree))


def _roots(script: Path) -> tuple[Path, ...]:
    """Where its modules lie: beside it, above it (scripts of a package put that on their path), and on Python's."""
    folder = script.resolve().parent
    users = [Path(place).resolve() for place in sys.path if place and not sites.is_installed(place)]
    return tuple(dict.fromkeys([folder, *folder.parents[:2], *users]))


def _imported(nodes: Iterable[ast.AST], path: Path, module: str) -> Iterator[str]:
    """The names of modules that a file may import, wherever in it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if package else []
                base = ".".join([*above, base] if base else above)
            if base:
                yield base
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _files(name: str, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The file of a module and those of the packages that it lies in; none where it is not the user's."""
    parts = name.split(".")
    if not all(parts):
        return
    for root in roots:
        place = root.joinpath(*parts)
        file = next((f for f in (place.with_suffix(".py"), place / "__init__.py") if f.is_file()), None)
        if file is None:
            continue
        if sites.is_users(str(file)):
            yield file.resolve()
        return


ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
RUNTIME = frozenset(f"PTO2_{name.upper()}" for name in NAMES.values())  # variables that every program's run asks for
MOST_TOLD, MOST_NEAR = 12, 6


class UnknownSetting(BadInput):
    """A name that a script has no use for."""


def meant(name: str, places: Places, file: Path) -> tuple[Place, ...]:
    """The places that a name means; none where only the run can tell. Refused: an unknown name, and one of several."""
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
        each = sorted({".".join(_shortest(place, found)) for place in found})
        raise UnknownSetting(f"{name} may be any of {', '.join(each[:MOST_TOLD])}", path=file, remedy="Name one.")
    if not found and name not in RUNTIME and not places.computed:
        raise unknown([name], places, file)
    return tuple(found[:1])


def unknown(names: Sequence[str], places: Places, file: Path) -> UnknownSetting:
    """What is told of names that a program does not have."""
    known = offered(places)
    near = known if len(known) <= MOST_TOLD else nearest(names, known)
    kinds = "option, constant, field or environment variable"
    begin = "It has" if near is known else "The nearest it has are"
    return UnknownSetting(
        f"it has no {kinds} {', '.join(names)}", path=file, remedy=f"{begin}: {', '.join(near)}." if near else ""
    )


def offered(places: Places) -> list[str]:
    """The names to tell of: options, the script's own constants, then what lies in modules and classes."""
    told = [p for p in places.places if p.value is not UNTOLD or p.kind in ("option", "variable")]
    own = [p.target for p in told if p.kind == "constant" and not p.module and not p.owner]
    options = [p.target for p in told if p.kind == "option"]
    rest = [p.name for p in told if not p.target.startswith("_") and not (p.kind == "field" and p.taken)]
    return list(
        dict.fromkeys([*own, *options, *(name for name in rest if f"--{name.replace('_', '-')}" not in options)])
    )


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


def value_for(place: Place, text: str, name: str) -> object:
    """The value that a text is at this place: a number where a number stands, on or off where True or False does."""
    told: object = text
    try:
        told = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        told = text
    before = place.value
    if isinstance(before, bool):
        if text.lower() not in ON | OFF:
            raise BadInput(f"{name} is {before}; it takes 0 or 1, not '{text}'", path=place.file, line=place.line)
        return text.lower() in ON
    if isinstance(before, int | float) and (isinstance(told, bool) or not isinstance(told, int | float)):
        raise BadInput(f"{name} is {before}; it takes a number, not '{text}'", path=place.file, line=place.line)
    return text if isinstance(before, str) and not isinstance(told, str) else told


def _is_direct(place: Place, name: str) -> bool:
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


def _chosen(found: list[Place], name: str) -> list[Place]:
    """The likeliest of several that a name fits."""
    found = [place for place in found if place.kind not in ("option", "variable")]
    exact = [place for place in found if place.name == name]
    if exact:
        return exact
    defaults = [place for place in found if place.kind == "default"]
    for some in (
        [place for place in defaults if place.taken],
        [place for place in found if place.kind != "default"],
        defaults,
    ):
        if some:
            return some
    return []


def _of_unknown_class(wanted: Sequence[str], places: Places) -> list[Place]:
    """`CONFIG.tile` where only the run knows what CONFIG is."""
    objects = [p for p in places.places if p.kind == "constant" and not p.owner and p.value is UNTOLD]
    with_fields = {(p.file, p.target) for p in places.places if p.kind == "field"}
    return [
        replace(p, kind="field", name=".".join(wanted), path=tuple(wanted[1:]))
        for p in objects
        if len(wanted) > 1 and p.target == wanted[0] and (p.file, p.target) not in with_fields
    ]


def _shortest(place: Place, among: Sequence[Place]) -> tuple[str, ...]:
    same = [other for other in among if other.name == place.name and other.file != place.file]
    return place.words if same else tuple(place.name.split("."))
