"""Serves `pypto.language` and `golden` to scripts on machines where they are not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any


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

        found["pypto"] = pypto = _module("pypto")
        found["pypto.language"] = language
        found["pypto.language.distributed"] = distributed
        found["pypto.runtime"] = _module("pypto.runtime", RunConfig=Anything, execute_distributed=_no_runtime)
        found["pypto.ir"] = _module("pypto.ir")
        found["pypto.ir.distributed_compiled_program"] = _module(
            "pypto.ir.distributed_compiled_program", DistributedConfig=Anything
        )
        found["pypto.backend"] = _module("pypto.backend", BackendType=Constants())
        pypto.language, pypto.runtime, pypto.ir = language, found["pypto.runtime"], found["pypto.ir"]  # type: ignore[attr-defined]
        pypto.backend = found["pypto.backend"]  # type: ignore[attr-defined]
        for name, module in found.items():
            if name != "pypto.language" and not hasattr(module, "__path__"):
                module.__path__ = []
    if "pypto" in found or not _installed("golden"):
        found["golden"] = importlib.import_module("npuscope.tile.golden")
    return found


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _module(name: str, **members: Any) -> ModuleType:
    module = ModuleType(name, "Stands in for the part of PyPTO that scripts import and npuscope does not need.")
    module.__dict__.update(members)
    return module


class Anything(SimpleNamespace):
    """Holds whatever settings a script gives it."""

    def __init__(self, *_: Any, **settings: Any) -> None:
        super().__init__(**settings)


class Constants:
    """Every attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


def _no_runtime(*_: Any, **__: Any) -> None:
    from npuscope.tile.fault import fault

    raise fault("this script talks to PyPTO's device runtime itself", "Run its @pl.jit function or golden.run_jit.")
