"""Pytest files as entries: `npuscope run test_x.py` runs their tests with PyPTO's names served.

PyPTO's own tests have a harness (`harness.core.harness`: a case has tensors, a program and what is expected) and get a
runner and its settings from fixtures of a conftest that starts the device. Both are served here, written anew, and
that conftest is left out; any other conftest is the user's and counts.
"""

from __future__ import annotations

import enum
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from npuscope.base.errors import BadInput
from npuscope.base.unsaved import source_bytes
from npuscope.tile.fault import NeedsValues
from npuscope.tile.golden import RunResult, ScalarSpec
from npuscope.tile.golden import TensorSpec as GoldenSpec
from npuscope.tile.golden.runner import run_jit
from npuscope.tile.golden.spec import array_of
from npuscope.tile.language.functions import TileFunction, entry_of

PLATFORM = "a2a3sim"  # values are the same on every chip, so a test runs once
_PLATFORMS = {"sim": ("a2a3sim", "a5sim"), "onboard": ("a2a3", "a5")}
_TORCH = {
    "bf16": "bfloat16", "fp32": "float32", "fp16": "float16", "fp8e4m3fn": "float8_e4m3fn", "fp4": "float4_e2m1fn_x2",
    "fp8e8m0": "float8_e8m0fnu", "int32": "int32", "uint32": "int32", "int16": "int16", "uint16": "int16",
    "int8": "int8", "uint8": "uint8", "int64": "int64", "bool": "bool",
}  # fmt: skip
# (the harness carries wide unsigned numbers as the bits of signed ones: torch computes little with the former)
_THEIRS = ("harness.core", "pypto.runtime.runner")  # a conftest that names these starts the device


def has_tests(file: Path) -> bool:
    """Whether a file is one that pytest would collect tests from; a script may have such a name, too."""
    named = file.suffix == ".py" and (file.stem.startswith("test_") or file.stem.endswith("_test"))
    return named and _TEST.search(source_bytes(file)) is not None


_HARNESS = re.compile(rb"^\s*(from|import) harness\b", re.MULTILINE)
_TEST = re.compile(rb"^\s*((async )?def test|class \w*Test|from .+ import .*\b[tT]est)", re.MULTILINE)


@dataclass
class Outcome:
    """What the tests of a file came to."""

    passed: int = 0
    failed: dict[str, BaseException] = field(default_factory=dict)  # by the test's name
    skipped: int = 0

    @property
    def text(self) -> str:
        said = "; ".join(f"{name}: {_line(error)}" for name, error in list(self.failed.items())[:3])
        more = f"; and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        return f"{len(self.failed)} of {len(self.failed) + self.passed} tests failed: {said}{more}"


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(lines[0].split())[:200]


def run_tests(file: Path, argv: Sequence[str]) -> Outcome:
    """Runs the tests of a file in this process; arguments are pytest's (`-k name`)."""
    try:
        import pytest
    except ImportError:
        raise BadInput("a file of tests runs under pytest", path=file, remedy="pip install pytest") from None

    outcome = Outcome()
    sys.path.insert(1, str(_root(file)))  # whoever runs a script puts the path back
    options = ["--assert=plain", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(file.resolve().parent)]
    if starts_a_device := _starts_a_device(file):
        options += ["--noconftest", "-c", os.devnull]
    harnessed = starts_a_device or _HARNESS.search(source_bytes(file)) is not None
    code = pytest.main([str(file), *options, *argv], plugins=[_plugin(outcome, harnessed)])
    if code == pytest.ExitCode.USAGE_ERROR:
        raise BadInput("pytest refused these arguments", path=file, remedy="What stands after -- is pytest's.")
    needs = next((error for error in outcome.failed.values() if isinstance(error, NeedsValues)), None)
    if needs is not None:
        raise needs
    return outcome


def _root(file: Path) -> Path:
    """The tree that a file belongs to, whose packages its tests import."""
    folders = file.resolve().parents
    return next((one for one in folders if (one / ".git").exists() or (one / "pyproject.toml").is_file()), folders[0])


def _starts_a_device(file: Path) -> bool:
    beside = (folder / "conftest.py" for folder in file.resolve().parents)
    return any(any(word in one.read_text(errors="replace") for word in _THEIRS) for one in beside if one.is_file())


def _plugin(outcome: Outcome, harnessed: bool) -> object:
    """Fixtures and options of PyPTO's conftest, one platform of several, and a note of how each test ended."""
    import pytest

    class TestPlugin:
        @pytest.fixture(scope="session")
        def test_config(self) -> object:
            return RunSettings(platform=PLATFORM)

        @pytest.fixture(scope="session")
        def test_runner(self, test_config: object) -> CaseRunner:
            return CaseRunner(test_config)

        @pytest.fixture
        def case_run(self, _st_case: Case, test_runner: CaseRunner) -> CaseRun:
            return CaseRun(_st_case, test_runner.run(_st_case))

        @pytest.fixture(scope="session")
        def device_ids(self) -> list[int]:
            return list(range(8))

        @pytest.fixture(scope="session")
        def optimization_strategy(self) -> str:
            return "Default"

        if harnessed:

            def pytest_addoption(self, parser: Any) -> None:
                parser.addoption("--platform", default=PLATFORM)
                parser.addoption("--device", default="0-7")
                parser.addoption("--codegen-only", action="store_true")
                parser.addoption("--precompile-workers", default=None)

        def pytest_configure(self, config: Any) -> None:
            for name in ("platforms(*ids)", "slow", "device_batch"):
                config.addinivalue_line("markers", f"{name}: of PyPTO's own tests")

        def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
            other = [item for item in items if not _on_one_platform(item)]
            items[:] = [item for item in items if _on_one_platform(item)]
            if other:
                config.hook.pytest_deselected(items=other)

        def pytest_exception_interact(self, node: Any, call: Any) -> None:
            error = call.excinfo.value
            outcome.failed[node.name] = error.__cause__ if type(error).__name__ == "CollectError" else error

        def pytest_runtest_logreport(self, report: Any) -> None:
            outcome.passed += report.when == "call" and report.passed
            outcome.skipped += report.skipped

    return TestPlugin()


def _on_one_platform(item: Any) -> bool:
    platform = getattr(getattr(item, "callspec", None), "params", {}).get("platform")
    if not isinstance(platform, str) or platform not in (*_PLATFORMS["sim"], *_PLATFORMS["onboard"]):
        return True
    marks = [one for mark in item.iter_markers("platforms") for one in mark.args]
    wanted = next((one for one in (PLATFORM, "a2a3", "a5sim", "a5") if one in marks), PLATFORM) if marks else PLATFORM
    values = {
        other.callspec.params["platform"]
        for other in item.session.items
        if getattr(other, "originalname", None) == item.originalname and other.parent is item.parent
    }
    return platform == (wanted if wanted in values else sorted(values)[0])


# --- what PyPTO's tests import from their harness


@dataclass(init=False)
class RunSettings:
    """`pypto.runtime.RunConfig`: tolerances, which count here, and settings of compiler and device."""

    platform: str = PLATFORM
    device_id: int = 0
    rtol: float = 1e-5
    atol: float = 1e-5
    strategy: object = "Default"
    backend_type: object = "Ascend910B"
    codegen_only: bool = False
    memory_planner: object = None
    distributed_config: object = None
    ring_task_window: object = None
    ring_heap: object = None
    ring_dep_pool: object = None
    enable_chip_swimlane: int = 0
    enable_dump_args: int = 0
    enable_pmu: int = 0
    enable_dep_gen: bool = False
    enable_scope_stats: bool = False

    def __init__(self, **settings: object) -> None:
        for name, value in settings.items():  # others are of the device alone
            setattr(self, name, value)

    def compile_kwargs(self) -> dict[str, object]:
        """What `compile` would be given of them."""
        return {"distributed_config": self.distributed_config} if self.distributed_config is not None else {}


class CaseType(enum.Enum):
    """`DataType` of the harness: types by their small names."""

    BF16, FP32, FP16 = "bf16", "fp32", "fp16"
    FP8E4M3FN, FP8E8M0, FP4 = "fp8e4m3fn", "fp8e8m0", "fp4"
    INT32, UINT32, INT16, UINT16 = "int32", "uint32", "int16", "uint16"
    INT8, UINT8, INT64, BOOL = "int8", "uint8", "int64", "bool"

    @property
    def torch_dtype(self) -> Any:
        return getattr(importlib.import_module("torch"), _TORCH[self.value])


@dataclass
class CaseTensor:
    """`TensorSpec` of the harness; a callable is called with the shape."""

    name: str
    shape: list[int]
    dtype: CaseType
    init_value: Any = None
    is_output: bool = False


class PTOTestCase:
    """A case: its tensors, its program, and what is expected, computed in place."""

    def __init__(self, config: Any = None, *, platform: str | None = None, **_: object) -> None:
        self.config = config or RunSettings()
        self._platform = platform

    def get_name(self) -> str:
        return type(self).__name__

    def get_platform(self) -> str | None:
        return self._platform

    def get_strategy(self) -> str:
        return "Default"

    def define_tensors(self) -> list[CaseTensor]:
        raise NotImplementedError(f"{type(self).__name__} has no define_tensors")

    def define_scalars(self) -> list[ScalarSpec]:
        return []

    def get_program(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no get_program")

    def compute_expected(self, tensors: dict[str, Any], params: dict[str, Any] | None = None) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no compute_expected")

    @property
    def tensor_specs(self) -> list[CaseTensor]:
        return self.define_tensors()


@dataclass
class Case:
    """`st.case` of September 2026: a kernel, its arguments or its tensors, and what it should give.

    What is expected is what `golden` returns for the tensors by name (one output, or a dict of them), or writes there.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    name: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    golden: Callable[[dict[str, Any]], Any] | None = None
    tensors: Sequence[CaseTensor] | None = None
    scalars: Sequence[ScalarSpec] = ()
    rtol: float = 1e-5
    atol: float = 1e-5
    compare: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)  # of the compiler

    def __post_init__(self) -> None:
        self.config = RunSettings(rtol=self.rtol, atol=self.atol)

    def __getattr__(self, name: str) -> object:
        settings = self.__dict__.get("settings", {})
        if name in settings:
            return settings[name]
        if name.startswith("get_"):  # as a PTOTestCase is asked; what was not given is None
            return lambda: self.__dict__.get(name[4:], settings.get(name[4:]))
        raise AttributeError(name)

    def run(self) -> RunResult:
        given = dict(zip(getattr(self.kernel, "param_names", ()), self.arguments, strict=False)) | dict(self.inputs)
        arrays = {name: value for name, value in given.items() if hasattr(value, "shape")}
        others = {name: value for name, value in given.items() if name not in arrays}
        program = entry_of(self.kernel, others) if isinstance(self.kernel, TileFunction) else self.kernel
        if self.tensors is None:
            specs = [GoldenSpec(name, list(value.shape), value.dtype, value) for name, value in arrays.items()]
        else:
            specs = [_spec_of(one) for one in self.tensors]
        outputs = getattr(program, "output_param_names", None) or [one.name for one in specs if one.is_output]
        return _compared(program, [*specs, *self.scalars], self._expected(outputs), outputs, self)

    def _expected(self, outputs: Sequence[str]) -> Callable[[dict[str, Any]], None] | None:
        if self.golden is None:
            return None

        def fill(values: dict[str, Any]) -> None:
            assert self.golden is not None
            made = self.golden(values)
            for name, value in ({} if made is None else made if isinstance(made, dict) else {outputs[0]: made}).items():
                values[name][...] = value.to(values[name].dtype) if hasattr(value, "to") else value

        return fill


def case(
    kernel: Any,
    *sample_args: Any,
    name: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    golden: Any = None,
    tensors: Sequence[CaseTensor] | None = None,
    scalars: Sequence[ScalarSpec] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compare: Any = None,
    **settings: object,
) -> Case:
    title = name or str(getattr(kernel, "__name__", "case"))
    return Case(kernel, sample_args, title, inputs or {}, golden, tensors, scalars or (), rtol, atol, compare, settings)


def cases(*entries: Any) -> Any:
    """One test for each case."""
    import pytest

    ids = [getattr(entry, "id", None) or getattr(entry, "values", (entry,))[0].name for entry in entries]
    return pytest.mark.parametrize("_st_case", list(entries), ids=ids)


def rel_err_under(limit: float) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """A comparison: the norm of what is off is less than so much of the norm of what is expected."""

    def compare(actual: dict[str, Any], expected: dict[str, Any]) -> None:
        for name, got in actual.items():
            found, wanted = (np.asarray(array_of(one)).astype(np.float64) for one in (got, expected[name]))
            off = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
            assert off < limit, f"{name} is off by {off:.3g} of its norm, {limit} is allowed"

    return compare


@dataclass
class CaseRun:
    """What a test of a case looks at."""

    case: Case
    result: RunResult
    work_dir: None = None  # of a compiler

    @property
    def passed(self) -> bool:
        return self.result.passed

    @property
    def error(self) -> str | None:
        return self.result.error

    def assert_passed(self) -> None:
        assert self.passed, f"{self.case.name}: {self.error}"


class CaseRunner:
    """`test_runner`: runs a case here and compares its outputs."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def run(self, case: PTOTestCase | Case) -> RunResult:
        if isinstance(case, Case):
            return case.run()
        tensors = [_spec_of(one) for one in case.define_tensors()]

        def expected(values: dict[str, Any]) -> None:
            case.compute_expected(values)

        outputs = [one.name for one in tensors if one.is_output]
        specs: list[GoldenSpec | ScalarSpec] = [*tensors, *case.define_scalars()]
        return _compared(case.get_program(), specs, expected, outputs, case.config)


def _spec_of(one: CaseTensor) -> GoldenSpec:
    return GoldenSpec(one.name, one.shape, one.dtype.torch_dtype, _first_value(one), one.is_output)


def _compared(
    program: Any,
    specs: Sequence[GoldenSpec | ScalarSpec],
    expected: Callable[[dict[str, Any]], None] | None,
    outputs: Sequence[str],
    config: Any,
) -> RunResult:
    """Run and compared; what looks at all outputs together is asked with each of them."""
    whole = getattr(config, "compare", None)
    rule = _where_it_counts if whole is None else None
    rules = {name: rule or functools.partial(_as_whole, whole, outputs) for name in outputs}
    return run_jit(program, list(specs), expected, rtol=config.rtol, atol=config.atol, compare_fn=rules)


def _as_whole(whole: Any, names: Sequence[str], *_: Any, **all_of: Any) -> tuple[bool, str]:
    try:
        whole(*({name: all_of[kind][name] for name in names} for kind in ("actual_outputs", "expected_outputs")))
    except AssertionError as error:
        return False, str(error)
    return True, ""


def _where_it_counts(actual: Any, expected: Any, *, rtol: float, atol: float, **_: object) -> tuple[bool, str]:
    """Close to what is expected; where a case expects NaN, anything will do."""
    got, want = (np.asarray(array_of(one)).astype(np.float64) for one in (actual, expected))
    bad = ~(np.isnan(want) | np.isclose(got, want, rtol=rtol, atol=atol))
    if not bad.any():
        return True, ""
    first = tuple(int(n) for n in np.argwhere(bad)[0])
    about = f"{bad.sum():,} of {bad.size:,} elements are off"
    return False, f"{about}, first at {list(first)}: {got[first]:.6g} where {want[first]:.6g} is expected"


def _first_value(one: CaseTensor) -> object:
    """What a tensor begins with: a callable of the harness gets the shape, where torch's own get keywords, too."""
    value = one.init_value
    if not callable(value) or getattr(value, "__module__", None) in (None, "torch"):
        return value
    code = getattr(value, "__code__", None)
    takes = 0 if code is None else code.co_argcount - len(getattr(value, "__defaults__", None) or ())
    return value(one.shape) if takes else value


def modules(make: Callable[[str, dict[str, object]], ModuleType]) -> Mapping[str, ModuleType]:
    """`harness` and its parts."""
    import pytest

    every = {name: tuple(pytest.param(p, id=p) for p in ids) for name, ids in _PLATFORMS.items()}
    members: dict[str, object] = {
        "PLATFORMS": [*every["sim"], *every["onboard"]],
        "SIM_PLATFORMS": [*every["sim"]],
        "ONBOARD_PLATFORMS": [*every["onboard"]],
        "SIM_PLATFORM_IDS": _PLATFORMS["sim"],
        "ONBOARD_PLATFORM_IDS": _PLATFORMS["onboard"],
        "ALL_PLATFORM_IDS": (*_PLATFORMS["sim"], *_PLATFORMS["onboard"]),
        "DataType": CaseType,
        "TensorSpec": CaseTensor,
        "ScalarSpec": ScalarSpec,
        "PTOTestCase": PTOTestCase,
        "platform_to_backend": lambda platform: "Ascend950" if platform.startswith("a5") else "Ascend910B",
    }
    found = {
        "harness": make("harness", {}),
        "harness.st": make("harness.st", {one.__name__: one for one in (Case, CaseRun, case, cases, rel_err_under)}),
        "harness.core": make("harness.core", {}),
        "harness.core.harness": make("harness.core.harness", members),
        "harness.core.test_runner": make("harness.core.test_runner", {"TestRunner": CaseRunner}),
        "harness.core.environment": make("harness.core.environment", {"is_hardware_available": lambda: False}),
    }
    for name, module in found.items():
        above, _, last = name.rpartition(".")
        if above:
            setattr(found[above], last, module)
    return found
