"""Serves `pypto.language` and `golden` to scripts on machines where they are not installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NoReturn, Protocol

from npuscope.tile.fault import fault
from npuscope.tile.golden.runner import run_jit
from npuscope.tile.record.rings import asked_for


@contextmanager
def served() -> Iterator[tuple[str, ...]]:
    """While inside, imports of what is not installed find npuscope's; the names served."""
    before = {name: module for name, module in sys.modules.items() if _ours_to_serve(name)}
    for name in before:
        del sys.modules[name]
    new = _modules()
    sys.modules.update(new)
    try:
        yield tuple(new)
    finally:
        for name in [name for name in sys.modules if _ours_to_serve(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _ours_to_serve(name: str) -> bool:
    return name.split(".")[0] in ("pypto", "golden")


def _modules() -> dict[str, ModuleType]:
    found: dict[str, ModuleType] = {}
    if not _installed("pypto"):
        import npuscope.tile as language
        from npuscope.tile import distributed

        found = {name: _MissingModule(name, members) for name, members in _members().items()}
        found |= {"pypto.language": language, "pypto.language.distributed": distributed}
        for name, module in found.items():
            above, _, last = name.rpartition(".")
            if above and above != "pypto.language":
                setattr(found[above], last, module)
    if "pypto" in found or not _installed("golden"):
        found["golden"] = importlib.import_module("npuscope.tile.golden")
        parts = {"runner": "runner", "spec": "spec", "tensor_spec": "spec", "validation": "validation"}
        found |= {f"golden.{old}": importlib.import_module(f"npuscope.tile.golden.{new}") for old, new in parts.items()}
    return found


def _members() -> dict[str, dict[str, object]]:
    """What scripts import of PyPTO besides the language: settings, and choices of what does not exist here."""
    from npuscope.tile.golden import ScalarSpec, TensorSpec

    return {
        "pypto": {},
        "pypto.backend": {"BackendType": Constants(), "set_backend_type": _ignored, "reset_for_testing": _ignored},
        "pypto.ir": {},
        "pypto.ir.compiled_program": {},
        "pypto.ir.distributed_compiled_program": {"DistributedConfig": Anything},
        "pypto.ir.pass_manager": {"OptimizationStrategy": Constants()},
        "pypto.ir.printer": {},
        "pypto.passes": {},
        "pypto.runtime": {
            "RunConfig": Anything,
            "run": _run_program,
            "ScalarSpec": ScalarSpec,
            "TensorSpec": TensorSpec,
            "pto_isa_include_dir": lambda: Path("pto_isa", "include"),
        },
    }


class _MissingModule(ModuleType):
    """Stands in for a part of PyPTO; what it lacks is its compiler's or its device runtime's."""

    def __init__(self, name: str, members: dict[str, object]) -> None:
        super().__init__(name, self.__doc__)
        self.__path__: list[str] = []
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise fault(
            f"{self.__name__}.{name} belongs to PyPTO's compiler or device runtime, which npuscope does without",
            "Run the program itself: call its @pl.jit function, or golden.run_jit.",
        )


class _Program(Protocol):
    """What can be run: a @pl.jit function or a @pl.program."""

    def __call__(self, *args: object, config: object = None) -> object: ...


GoldenOfACase = Callable[[dict[str, object], dict[str, str]], object]


def _run_program(
    program: _Program,
    *args: object,
    config: Anything | None = None,
    tensor_specs: object = None,
    golden: GoldenOfACase | None = None,
) -> object:
    """Runs a program on these tensors; without tensors it is ready to be called with them.

    In April 2026 it took specs and a golden function, as golden.run does today (language/history.py).
    """
    if tensor_specs is None and args and isinstance(args[0], list | tuple):
        named: dict[str, object] = {"golden": golden, "config": config}
        named |= dict(zip(("tensor_specs", "golden", "config"), args, strict=False))
        return _run_program(program, **named)  # type: ignore[arg-type]
    settings = {} if config is None else vars(config)
    with asked_for(settings):
        if tensor_specs is None:
            return program(*args, config=config) if args else program
        rules = {name: settings[name] for name in ("rtol", "atol") if name in settings}
        given = None if golden is None else functools.partial(_golden_of_a_case, golden)
        return run_jit(program, tensor_specs, given, compile_only=bool(settings.get("codegen_only")), **rules)


def _golden_of_a_case(golden: GoldenOfACase, values: dict[str, object]) -> object:
    """A golden function took the parameters of its case, too; a script of its own had one case."""
    return golden(values, {"name": "Default"})


def _ignored(*_: object, **__: object) -> None:
    """Chooses something that does not exist here."""


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


class Anything(SimpleNamespace):
    """Holds whatever settings a script gives it."""

    def __init__(self, *_: object, **settings: object) -> None:
        super().__init__(**settings)


class Constants:
    """Every attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name
