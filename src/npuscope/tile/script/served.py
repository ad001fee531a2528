"""What a script imports of PyPTO and of golden, served from npuscope where the package is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from npuscope.chip.devices import load
from npuscope.ops import dtypes
from npuscope.tile.distributed.ranks import SubWorker
from npuscope.tile.enums import FunctionType
from npuscope.tile.fault import fault
from npuscope.tile.golden import RunResult
from npuscope.tile.golden.runner import run_jit
from npuscope.tile.language.functions import TileFunction
from npuscope.tile.record.recorder import RUNTIME, asked_for, asked_runtime
from npuscope.tile.run.execute import Compiled, StackedDeviceTensor, Worker, record
from npuscope.tile.script.benchmark import BenchmarkStats, benchmark
from npuscope.tile.script.places import SERVED
from npuscope.tile.script.pytest_files import RunSettings

_UNLOADED = (*SERVED, "harness")


@contextmanager
def served() -> Iterator[tuple[str, ...]]:
    """While inside, imports of what is not installed find npuscope's; the names served."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in _UNLOADED}
    for name in before:
        del sys.modules[name]
    new = _modules()
    sys.modules.update(new)
    sys.meta_path.append(_MissingParts)
    try:
        yield tuple(new)
    finally:
        sys.meta_path.remove(_MissingParts)
        for name in [name for name in sys.modules if name.split(".")[0] in _UNLOADED]:
            del sys.modules[name]
        sys.modules.update(before)


def _modules() -> dict[str, ModuleType]:
    found: dict[str, ModuleType] = {}
    if not _installed("pypto"):
        import npuscope.tile as language
        from npuscope.tile import distributed

        found = {name: MissingModule(name, members) for name, members in _members().items()}
        found |= dict.fromkeys(("pypto.language", "pypto.language.typing", "pypto.language.op"), language)
        found["pypto.language.distributed"] = distributed
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

    passes = {"PassContext": _Context, "RuntimeKind": AnyName(), "MemoryPlanner": AnyName()}
    return {
        "pypto": {"CacheConfig": Anything, "configure_cache": _ignored, "DataType": _TYPES},
        "pypto.backend": {
            "BackendType": AnyName(),
            "set_backend_type": _ignored,
            "reset_for_testing": _ignored,
            "Backend": Backend,
            "Backend910B": SimpleNamespace(instance=lambda: Backend("910B", "ascend910b1")),
            "Backend950": SimpleNamespace(instance=lambda: Backend("950", "ascend950")),
        },
        "pypto.ir": {"compile": compile_program, "FunctionType": FunctionType, "DistributedConfig": Anything},
        "pypto.ir.compiled_program": {"CompiledProgram": Compiled},
        "pypto.ir.distributed_compiled_program": {
            "DistributedConfig": Anything,
            "DistributedCompiledProgram": Compiled,
        },
        "pypto.ir.pass_manager": {"OptimizationStrategy": AnyName()},
        "pypto.ir.printer": {},
        "pypto.jit": {"JITFunction": TileFunction},
        "pypto.jit.decorator": {"JITFunction": TileFunction},
        "pypto.passes": passes,
        "pypto.pypto_core": {"DataType": _TYPES},
        "pypto.pypto_core.ir": {"CoreType": CoreType},
        "pypto.pypto_core.passes": passes,
        "pypto.runtime.distributed_runner": {"_tensor_from_continuous": lambda tensor: tensor},
        "pypto.runtime.runner": {"RunConfig": RunSettings, "RunResult": RunResult},
        "pypto.torch": {"init": _ignored, "register": lambda function, *_, **__: function},  # as an op of torch
        "pypto.runtime.tensor_spec": {"ScalarSpec": ScalarSpec, "TensorSpec": TensorSpec},
        "pypto.runtime": {
            "RunConfig": RunSettings,
            "CompileOptions": RunSettings,
            "DistributedConfig": Anything,
            "RunResult": RunResult,
            "BenchmarkStats": BenchmarkStats,
            "benchmark": benchmark,
            "run": _run_program,
            "Worker": Worker,
            "ChipWorker": Worker,
            "DistributedWorker": Worker,
            "StackedDeviceTensor": StackedDeviceTensor,
            "ensure_pto_isa_root": _ignored,
            "ScalarSpec": ScalarSpec,
            "TensorSpec": TensorSpec,
            "pto_isa_include_dir": lambda: Path("pto_isa", "include"),
        },
    }


class MissingModule(ModuleType):
    """Stands in for a part of PyPTO; what it lacks is its compiler's or its device runtime's."""

    def __init__(self, name: str, members: dict[str, object]) -> None:
        super().__init__(name, self.__doc__)
        self.__path__: list[str] = []
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("Error"):  # nobody raises it here
            made: type = type(name, (Exception,), {"__module__": self.__name__})
        else:
            made = _Missing(name, (), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class _MissingParts:
    """Finds every other part of PyPTO: a script may import what it does not use here."""

    @classmethod
    def find_spec(cls, name: str, *_: object) -> ModuleSpec | None:
        above = sys.modules.get(name.rpartition(".")[0])
        return ModuleSpec(name, cls, is_package=True) if isinstance(above, MissingModule) else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return MissingModule(spec.name, {})

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """There is nothing in it."""


class _Missing(type):
    """A name of PyPTO's compiler or device runtime. A module may import it or inherit from it, whoever uses it is told;
    a class that inherits from it is as missing.
    """

    def _refuse(cls, *_: object, **__: object) -> NoReturn:
        origin = cls.__mro__[-2]
        raise fault(
            f"{origin.__module__}.{origin.__name__} belongs to PyPTO's compiler or device runtime, which npuscope does "
            "without",
            "Run the program itself: call its @pl.jit function, or golden.run_jit.",
        )

    __call__ = __bool__ = __iter__ = __getitem__ = _refuse

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{cls.__name__}.{name}", (), {"__module__": cls.__module__})


def _run_program(program: Any, *args: Any, **options: Any) -> object:
    """`pypto.runtime.run`: runs a program on these tensors; without tensors it is ready to be called with them.

    In April 2026 it took specs and a golden function, as golden.run does today (language/history.py).
    """
    if args and isinstance(args[0], list | tuple):
        options |= dict(zip(("tensor_specs", "golden", "config"), args, strict=False))
    config, specs, golden = (options.get(name) for name in ("config", "tensor_specs", "golden"))
    settings = {} if config is None else vars(config)
    with asked_for(settings):
        if specs is None:
            return program(*args, config=config) if args else program
        rules = {name: settings[name] for name in ("rtol", "atol") if name in settings}
        # a golden function took the parameters of its case, too; a script of its own had one case
        given = None if golden is None else lambda values: golden(values, {"name": "Default"})
        return run_jit(program, specs, given, compile_only=bool(settings.get("codegen_only")), **rules)


def compile_program(
    program: Any, *_: Any, distributed_config: object = None, runtime: object = None, **__: object
) -> Compiled:
    """`pypto.ir.compile`: a program ready to be called, on the ranks of its configuration, for this runtime."""
    options = {} if distributed_config is None else {"config": distributed_config}
    entry = getattr(program, "entry", program)
    title = getattr(program, "__name__", type(program).__name__)
    runtime = runtime if runtime is not None else asked_runtime()

    def call(*args: Any, config: object = None, **named: Any) -> object:
        with under(runtime):
            return entry(*args, **named, **(options or ({} if config is None else {"config": config})))

    functions = getattr(program, "functions", {}).values()
    workers = {one.name: one.requires_runtime_binding for one in functions if isinstance(one, SubWorker)}
    return Compiled(title, call, lambda: record(entry, mode="shapes", **options), workers)


CoreType = IntEnum("CoreType", {"VECTOR": 0, "CUBE": 1})


@dataclass(frozen=True, eq=False)
class _Part:
    """A core, or what holds cores: a cluster, a die, a chip. Each has its parts with how many of them."""

    core_type: CoreType | None = None
    parts: Mapping[_Part, int] = field(default_factory=dict)

    @property
    def die_counts(self) -> Mapping[_Part, int]:
        return self.parts

    core_counts = cluster_counts = die_counts


class Backend:
    """`pypto.backend.Backend`: how many cores a chip has, as its device file says, in clusters of one cube core."""

    def __init__(self, name: str, device: str) -> None:
        self._name, self._cores = name, load(device).cores

    def get_type_name(self) -> str:
        return self._name

    def get_core_count(self, core_type: CoreType) -> int:
        cores = self._cores.cube if core_type is CoreType.CUBE else self._cores.vector
        return int(cores.value)

    @property
    def soc(self) -> _Part:
        cube, vector = (self.get_core_count(kind) for kind in (CoreType.CUBE, CoreType.VECTOR))
        cluster = _Part(None, {_Part(CoreType.CUBE): 1, _Part(CoreType.VECTOR): vector // cube})
        return _Part(None, {_Part(None, {cluster: cube}): 1})


class _Context:
    """`passes.PassContext`: settings of the compiler while it is open. Another runtime changes no value, but time."""

    def __init__(self, *_: object, runtime: object = None, **__: object) -> None:
        self._settings = under(runtime)

    def __enter__(self) -> _Context:
        self._settings.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._settings.__exit__(None, None, None)


def under(runtime: object) -> AbstractContextManager[None]:
    """What runs inside the block asks for this `RuntimeKind`, if any."""
    return asked_for({RUNTIME: str(runtime).lower()} if runtime else {})


def _ignored(*_: object, **__: object) -> None:
    """Chooses something that does not exist here."""


def _installed(name: str) -> bool:
    """A folder of that name without a module in it, such as a checkout of PyPTO, is no package."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


class Anything(SimpleNamespace):
    """Holds whatever settings a script gives it."""

    def __init__(self, *_: object, **settings: object) -> None:
        super().__init__(**settings)


class Choice(str):
    """A member of such a choice."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)

    value = name


class AnyName:
    """Every attribute is its own name."""

    def __getattr__(self, name: str) -> Choice:
        return Choice(name)

    def __or__(self, other: object) -> AnyName:  # in annotations
        return self


_TYPES = SimpleNamespace(**dtypes.BY_NAME)  # `DataType.FP32` of PyPTO's core
