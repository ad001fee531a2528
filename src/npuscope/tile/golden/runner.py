"""Run a program on inputs made from specs, and hold its outputs against a golden reference.

Order: inputs → golden → the program, executed and recorded on the CPU → every output compared. Nothing is
compiled and no device is used, so `compile_cfg`, `runtime_cfg` and `runtime_dir` are accepted without effect, except
that `compile_cfg["distributed_config"]` says how many ranks there are, and that the sizes of rings in `runtime_cfg` are
recorded for `npuscope check` and `simulate`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.ops.dtypes import of_storage
from npuscope.tile.golden import data, validation
from npuscope.tile.golden.comparators import Verdict
from npuscope.tile.golden.spec import (
    Array,
    ScalarSpec,
    Seed,
    Spec,
    TensorSpec,
    UserTensor,
    Values,
    array_of,
    chosen,
    copy_of,
    described,
    holds_numbers,
    inputs_only_read,
    misuse,
    misuse_of,
    python_number,
    to_read,
)
from npuscope.tile.golden.validation import validate_golden
from npuscope.tile.record.model import Recording
from npuscope.tile.record.recorder import asked_for
from npuscope.tile.run.arguments import Placeholder, is_lazy, is_torch_tensor
from npuscope.tile.run.execute import Finished, record

MOST_NOTICES = 5  # of the run in the message of a failed golden
RUNTIME_KEYS = frozenset({"platform", "device_id", "device_ids", "log_level", "profiling", "pto_isa_commit"})
RUNTIME_KEYS |= {f"enable_{name}" for name in ("chip_swimlane", "dep_gen", "dump_args", "pmu", "scope_stats")}
RUNTIME_KEYS |= {"ring_dep_pool", "ring_heap", "ring_task_window"}
COMPILE_KEYS = frozenset({"backend_type", "compile_profiling", "distributed_config", "dump_passes", "platform"})
Golden = Callable[[dict[str, object]], object]
Execute = Callable[..., Finished]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RunResult:
    """How a run ended. `execution_time` in seconds; `run`: what it left behind, None if it did not run."""

    passed: bool
    error: str | None = None
    execution_time: float | None = None
    work_dir: Path | None = None
    bench: None = None  # for hardware; always None here
    run: Finished | None = field(default=None, repr=False)
    compared: bool | None = None  # False: there was nothing to compare; None: it did not come to that
    unchecked: str = ""  # why it passed although nothing was compared
    golden_fn: Callable[..., object] | None = field(default=None, repr=False)
    pairs: Mapping[str, tuple[UserTensor, UserTensor]] = field(default_factory=dict, repr=False)  # output, golden
    tolerance: tuple[float, float] | None = None  # relative and absolute

    def __str__(self) -> str:
        verdict = "PASS" if self.passed else f"FAIL: {self.error}" if self.error else "FAIL"
        if self.unchecked:
            verdict = f"not checked: {self.unchecked}"
        return verdict if self.execution_time is None else f"{verdict} ({self.execution_time:.2f}s)"


@dataclass(frozen=True)
class _Driver:
    """What the command that runs a script wants of its runs."""

    watch: Callable[[RunResult], None] | None = None
    shapes: bool = False
    golden: bool = True


_driver = _Driver()


@contextmanager
def driven(
    watch: Callable[[RunResult], None] | None = None, shapes: bool = False, golden: bool = True
) -> Iterator[None]:
    """For commands that run scripts: every run hands its result to `watch`; with `shapes` all are `compile_only`.

    Without `golden` a program computes and nothing is compared: who asks for its time does not wait for its golden.
    """
    global _driver
    before, _driver = _driver, _Driver(watch, shapes, golden)
    try:
        yield
    finally:
        _driver = before


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run in spring 2026, which are parameters of `golden.run` today (language/history.py)."""

    rtol: float = 1e-5
    atol: float = 1e-5
    compile_only: bool = False
    compile: Mapping[str, object] = field(default_factory=dict)
    runtime: Mapping[str, object] = field(default_factory=dict)


def _of_other_months(run: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`golden.run` that also takes `tensor_specs=` and `config=` of spring 2026, `fn=` and the `config=` of autumn."""
    places = ("config", "golden_fn", "golden_data", "runtime_dir")  # of spring, after the program and the specs

    @functools.wraps(run)
    def wrapped(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        if {"tensor_specs", "config", "fn"} & options.keys() or any(isinstance(one, RunConfig) for one in args):
            named = {**dict(zip(places, args[2:], strict=False)), **options}
            return run(*args[:2], **_renamed(named))  # type: ignore[arg-type]
        return run(*args, **options)

    return wrapped


def _renamed(options: dict[str, object]) -> dict[str, object]:
    for other, name in (("tensor_specs", "specs"), ("fn", "program")):
        if other in options:
            if name in options:
                raise misuse(f"golden.run is given {name}= and {other}=, which mean the same")
            options[name] = options.pop(other)
    config = options.pop("config", None)
    if config is None:
        return options
    if hasattr(config, "compile_kwargs"):  # pypto.runtime.RunConfig, whose tolerances are of its own tests
        config = {name: value for name, value in vars(config).items() if name not in ("rtol", "atol")}
    if isinstance(config, RunConfig):
        names = {"compile": "compile_cfg", "runtime": "runtime_cfg"}
        settings = {names.get(name, name): value for name, value in vars(config).items()}
    elif isinstance(config, Mapping):
        compiles = {key: value for key, value in config.items() if key in COMPILE_KEYS - RUNTIME_KEYS}
        settings = {"compile_cfg": compiles, "runtime_cfg": {k: v for k, v in config.items() if k not in compiles}}
    else:
        raise misuse(f"golden.run: config= takes a dict or a RunConfig, not {described(config)}")
    if twice := sorted(options.keys() & settings.keys()):
        raise misuse(f"golden.run is given {twice[0]}= beside config=, which says it too")
    return {**options, **settings}


@_of_other_months
def run(
    program: object,
    specs: Sequence[Spec],
    golden_fn: Golden | None = None,
    golden_data: str | Path | None = None,
    compile_cfg: Mapping[str, object] | None = None,
    runtime_cfg: Mapping[str, object] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compare_fn: Mapping[str, Callable[..., Verdict]] | None = None,
    compile_only: bool = False,
    runtime_dir: str | Path | None = None,
    save_data: bool | str | Path = False,
    *,
    seed: int | None = None,
) -> RunResult:
    """Run a `@pl.program` class or a `@pl.jit` function; specs in the order of its parameters.

    A spec may have another name than the parameter at its place, but not another parameter's. Where no spec says
    `is_output`, outputs are the parameters declared `pl.Out` and `pl.InOut`.

    `golden_fn(values)` fills the outputs in a dict of all tensors and Python numbers by name; inputs are read-only
    arrays, or copies where they are torch's. `golden_data` is a folder that `save_data` made, and goes before
    `golden_fn`; with neither, nothing is compared. `compile_only` records the program without computing. `save_data`
    keeps inputs and goldens in that folder, or in build_output/<program>/data for True.
    """
    if compile_only and runtime_dir is not None:
        return RunResult(False, "runtime_dir is incompatible with compile_only")
    start = time.perf_counter()
    specs = validation.with_directions(program, validation.checked_specs(specs))
    validation.check_golden(golden_fn)
    outputs = [spec.name for spec in _outputs(specs)]
    idle = {spec.name for spec in specs} - set(outputs)
    if isinstance(compare_fn, Mapping):
        idle &= compare_fn.keys()
        compare_fn = {name: compare for name, compare in compare_fn.items() if name not in idle}
    validation.check_rules(rtol, atol, compare_fn, outputs)
    validation.check_folders(golden_data, save_data, specs)
    validation.check_settings(compile_cfg=compile_cfg, runtime_cfg=runtime_cfg)
    unused = [
        f"compare_fn has '{name}', which is no output: nothing is compared"
        for name in sorted(idle)
        if compare_fn is not None
    ]
    for note in [*_notes(compile_cfg or {}, runtime_cfg or {}, runtime_dir), *unused]:
        print(f"[RUN]   note: {note}", flush=True)
    ranks = (compile_cfg or {}).get("distributed_config")
    execute = record if ranks is None else functools.partial(record, config=ranks)
    with asked_for({**(compile_cfg or {}), **(runtime_cfg or {})}):
        if compile_only or _driver.shapes:
            result = _record_shapes(program, specs, chosen(seed), execute)
        else:
            default = Path("build_output", getattr(program, "__name__", type(program).__name__), "data")
            target = None if not save_data else default if save_data is True else Path(save_data)
            source = _Source(golden_fn, None if golden_data is None else Path(golden_data), target, chosen(seed))
            compare = functools.partial(validate_golden, rtol=rtol, atol=atol, compare_fn=compare_fn)
            result = _run(program, specs, source, compare, execute)
    seconds = time.perf_counter() - start
    result = replace(result, execution_time=seconds, golden_fn=golden_fn, tolerance=(rtol, atol))
    if result.passed:
        print(f"[RUN] {result}", flush=True)
    if _driver.watch is not None:
        _driver.watch(result)
    return result


def run_jit(fn: object, *options: object, **named: object) -> RunResult:
    """`run` under the name that scripts use for a `@pl.jit` function."""
    return run(fn, *options, **named)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Source:
    """Where inputs and goldens come from, and the folder they are saved to."""

    golden_fn: Golden | None
    folder: Path | None
    target: Path | None
    seed: Seed

    def inputs(self, specs: Sequence[Spec]) -> dict[str, UserTensor]:
        """Tensors by name; scalars as 0-d tensors."""
        if self.folder is not None:
            print(f"[RUN]   cache hit: {self.folder / 'in'}", flush=True)
            return data.load_inputs(self.folder, specs)
        return {spec.name: make(spec, self.seed) for spec in specs}

    def goldens(self, specs: Sequence[Spec], inputs: Mapping[str, UserTensor]) -> dict[str, UserTensor] | None:
        """The expected outputs by name, None where there are none."""
        if self.folder is not None:
            print(f"[RUN]   cache hit: {self.folder / 'out'}", flush=True)
            return data.load_goldens(self.folder, specs)
        if self.golden_fn is None:
            return None
        values = Values()
        for spec in specs:
            given = inputs[spec.name]
            if isinstance(spec, ScalarSpec):
                values[spec.name] = python_number(given)
            else:
                values[spec.name] = copy_of(given) if spec.is_output else to_read(given)
        with inputs_only_read():
            self.golden_fn(values)
        return {spec.name: _expected(spec.name, values, self.golden_fn) for spec in _outputs(specs)}

    def save(
        self, specs: Sequence[Spec], inputs: Mapping[str, UserTensor], goldens: Mapping[str, UserTensor] | None
    ) -> None:
        if self.target is not None:
            given = {s.name: inputs[s.name] for s in specs if isinstance(s, ScalarSpec) or s.is_input}
            data.save(self.target, given, goldens or {})
            print(f"[RUN]   saved: {self.target}", flush=True)


def _run(
    program: object, specs: Sequence[Spec], source: _Source, compare: Callable[..., None], execute: Execute
) -> RunResult:
    place = None if source.target is None else source.target.parent
    try:
        with _stage("generate inputs"):
            inputs = source.inputs(specs)
        goldens = None
        if _driver.golden:
            with _stage("compute golden"):
                goldens = source.goldens(specs, inputs)
    except BadInput as error:  # of golden_data
        return RunResult(False, str(error))
    source.save(specs, inputs, goldens)
    with _stage("runtime"):
        ran = execute(program, *(_argument(spec, inputs[spec.name]) for spec in specs), mode="values")
    if not goldens:
        why = "no spec has is_output=True and no parameter is pl.Out, so there is no output to compare"
        if goldens is None:
            why = "no golden_fn or golden_data" if _driver.golden else "nobody asked for it"
        return RunResult(True, work_dir=place, run=ran, compared=False, unchecked=why)
    outputs = {spec.name: inputs[spec.name] for spec in _outputs(specs)}
    others = {name: value for name, value in inputs.items() if name not in outputs}
    pairs = {name: (outputs[name], goldens[name]) for name in outputs}
    try:
        with _stage("validate"):
            compare(outputs, goldens, inputs=others, run=ran)
    except AssertionError as error:
        why = f"{error}{_notices(ran.recording)}"
        return RunResult(False, why, work_dir=place, run=ran, compared=True, pairs=pairs)
    return RunResult(True, work_dir=place, run=ran, compared=True, pairs=pairs)


def _notices(recording: Recording) -> str:
    """What the run itself noticed, for it may be why the numbers are wrong: reads of memory never written, …"""
    lines = []
    for notice in recording.notices[:MOST_NOTICES]:
        site = recording.sites[notice.site]
        lines.append(f"\n  the run noticed: {site.file}, line {site.line}: {notice.message}")
    return "".join(lines)


def _record_shapes(program: object, specs: Sequence[Spec], seed: Seed, execute: Execute) -> RunResult:
    """Inputs get values when somebody asks for them, those that steer the program; numbers have theirs."""
    inputs = _Inputs(specs, seed)
    with _stage("generate inputs"):
        given = [
            _argument(spec, make(spec, seed))
            if isinstance(spec, ScalarSpec)
            else _placeholder(spec, functools.partial(inputs.values, place), functools.partial(inputs.row, place))
            for place, spec in enumerate(specs)
        ]
    with _stage("record shapes"):
        return RunResult(True, run=execute(program, *given, mode="shapes"), unchecked="recorded without values")


class _Inputs:
    """Inputs that are made when somebody asks; in their order where they draw from the script's own random stream."""

    def __init__(self, specs: Sequence[Spec], seed: Seed) -> None:
        self._specs, self._seed, self._in_order = specs, seed, seed.leaves_torch_alone()
        self._made: dict[int, UserTensor] = {}

    def values(self, place: int) -> Array:
        made = self._tensor(place)
        return array_of(made.made() if is_lazy(made) else made)  # a lazy one may stay so for others

    def row(self, place: int, number: int) -> Array:
        """Of the outermost axis, only to be read."""
        made = self._tensor(place)
        return array_of(made.made_row(number) if is_lazy(made) else made[number])

    def _tensor(self, place: int) -> UserTensor:
        for i in range(0 if self._in_order else place, place + 1):
            if i not in self._made:
                self._made[i] = make(self._specs[i], self._seed)
        return self._made[place]


def make(spec: Spec, seed: Seed) -> UserTensor:
    """What a spec describes: a tensor, 0-d for a scalar."""
    if isinstance(spec, ScalarSpec):
        return spec.tensor
    seed.before(spec.name)
    return spec.create_tensor(seed)


def _outputs(specs: Sequence[Spec]) -> list[TensorSpec]:
    return [spec for spec in specs if isinstance(spec, TensorSpec) and spec.is_output]


def _expected(name: str, values: Mapping[str, object], golden_fn: Callable[..., object]) -> UserTensor:
    """What a golden function left under the name of an output: the tensor it was given, or one of its own."""
    if name not in values:
        raise misuse_of(golden_fn, f"the golden deletes '{name}', an output")
    value = values[name]
    if not holds_numbers(value):
        raise misuse_of(golden_fn, f"the golden leaves {described(value)} for the output '{name}', no numbers")
    return value if is_torch_tensor(value) else np.asarray(value)


def _argument(spec: Spec, value: UserTensor) -> Array | int | float | bool:
    """What the program is called with: an array that shares memory with the tensor, a number for a scalar."""
    return python_number(value) if isinstance(spec, ScalarSpec) else array_of(value)


def _placeholder(spec: TensorSpec, make: Callable[[], Array], make_row: Callable[[int], Array]) -> Placeholder:
    dtype = of_storage(spec.storage)
    if dtype is None:
        raise NpuscopeError(f"'{spec.name}' is of {spec.dtype}, which the chip has not")
    return Placeholder(tuple(spec.shape), dtype, make, make_row)


def _notes(
    compile_cfg: Mapping[str, object], runtime_cfg: Mapping[str, object], folder: str | Path | None
) -> Iterator[str]:
    for name, given, known in (("compile_cfg", compile_cfg, COMPILE_KEYS), ("runtime_cfg", runtime_cfg, RUNTIME_KEYS)):
        for key in [key for key in given if key not in known]:
            yield f"{name} has '{key}', which npuscope does not know; it has no effect"
    if folder is not None:
        yield f"runtime_dir {folder} is not used: nothing is compiled, the program runs from its source"
    if os.environ.get("PYPTO_BENCH") == "1":
        yield "PYPTO_BENCH is for hardware: no benchmark here"


@contextmanager
def _stage(name: str) -> Iterator[None]:
    print(f"[RUN] {name} ...", flush=True)
    start = time.perf_counter()
    try:
        yield
    finally:
        print(f"[RUN] {name} done ({time.perf_counter() - start:.2f}s)", flush=True)
