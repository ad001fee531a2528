"""Functions of the language: entries, inline helpers, incore kernels, extern kernels, programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType as Function
from typing import Any

from npuscope.tile.enums import FunctionType
from npuscope.tile.fault import fault
from npuscope.tile.language.rewrite import rewritten
from npuscope.tile.language.source import source_of
from npuscope.tile.record.model import Mode
from npuscope.tile.run import state
from npuscope.tile.run.arguments import Parameter, by_name, parameters
from npuscope.tile.run.compiled import Compiled
from npuscope.tile.run.execute import Finished, record, run_entry
from npuscope.tile.run.regions import Spmd, mark_no_dep, open_task, run_single
from npuscope.tile.run.state import Run
from npuscope.tile.shapes.outside import Code
from npuscope.tile.values.task_ids import TaskId
from npuscope.tile.values.tensors import Tensor, Tile

_CORES = {"aic": "AIC", "aiv": "AIV", "mixed": "MIX", "mix": "MIX"}


class TileFunction:
    """A function of a tile program. Called from outside an entry runs; called from a program it does what its kind
    does.
    """

    kind = "inline"

    def __init__(self, function: Callable[..., Any], owner: Any = None, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.function, self.owner, self.options = function, owner, options
        self.source = source_of(function)
        self.name = function.__name__

    @functools.cached_property
    def body(self) -> Callable[..., Any]:
        """The function as it runs; a method's `self` stands for its program."""
        body = rewritten(self.function, self.source)
        return body if self.owner is None else functools.partial(body, self.owner)

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        found = parameters(self.function)
        return found[1:] if self.owner is not None else found

    @property
    def _func(self) -> TileFunction:
        """What scripts of 2026 reached the function by; its signature is the function's."""
        return self

    def code(self) -> Code:
        """The function as it runs, and what it reads besides its arguments."""
        plain = self.owner is None and isinstance(self.body, Function)
        return Code(self.body, self.body.__dict__["reads"] if plain else None)

    def bound(self, owner: Any) -> TileFunction:
        """The same function as a method of a program."""
        return type(self)(self.function, owner, **self.options)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Parameter, Any]]:
        """Each parameter that a call gives, with its value."""
        given = {**dict(zip([p.name for p in self.parameters], args, strict=False)), **kwargs}
        return [(p, given[p.name]) for p in self.parameters if p.name in given]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = state.under_way()
        if run is None:
            raise fault(f"{self.name} is a helper of tile programs", "Call a @pl.jit entry instead.")
        return self.inside(run, args, kwargs)

    def inside(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called by a program: spliced in."""
        given = by_name(self.name, self.parameters, args, kwargs)
        if run.block is None:  # calls inside a task make none: they need no number
            run.calls[self.name] = run.calls.get(self.name, 0) + 1
        count = run.calls.get(self.name, 0)
        run.recorder.layers.append(f"{self.name}#{count}")
        for parameter, value in self.arguments(args, kwargs):
            if parameter.rows_at_run_time and isinstance(value, Tensor):
                value.bind_dynamic(0, None)
        try:
            return self.body(**given)
        finally:
            run.recorder.layers.pop()


class Inline(TileFunction):
    """Spliced into its caller; parameters alias the caller's variables."""

    def inside(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        body = self.body
        for name, site in (body.func if isinstance(body, functools.partial) else body).__dict__["rebound"].items():
            value = by_name(self.name, self.parameters, args, kwargs)[name]
            if isinstance(value, Tensor):
                about = f"{self.name}() gives the name {name} of its parameter {list(value.shape)} to a new value"
                run.recorder.finding("rebound", f"{about}: the caller's tensor is not written", site)
        return super().inside(run, args, kwargs)


class Entry(TileFunction):
    """A chip-level entry: runs when it is called from outside."""

    kind = "entry"

    def __call__(self, *args: Any, config: Any = None, device: Any = None, **kwargs: Any) -> Any:
        run = state.under_way()
        if run is not None and run.host is not None:
            return run.host.dispatch(self, args, kwargs, device)
        if run is not None:
            return self.inside(run, args, kwargs)
        with state.turn:
            scoped = bool(self.options.get("auto_scope", True))
            return run_entry(self.name, self.body, self.parameters, args, kwargs, auto_scope=scoped)

    def record(self, *args: Any, mode: Mode = "values", **kwargs: Any) -> Finished:
        """Runs, and returns what it did; see npuscope.tile.run.execute.record."""
        return record(self, *args, mode=mode, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Compiled:
        """The program for these arguments, to look at or to call."""
        return Compiled(self.name, self, lambda: record(self, *args, mode="shapes", **kwargs))

    compile = lower


class Incore(TileFunction):
    """A device kernel: one task per call from orchestration; inside a task, part of it."""

    kind = "incore"

    def inside(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        deps = kwargs.pop("deps", None)
        given = by_name(self.name, self.parameters, args, kwargs)
        if run.block is not None:
            run.block.task.called(self.name)
            if run.block.task.form == "spmd":
                self._declare(run.block.task, given)
            return self.body(**given)
        task = open_task(run, self.name, 1, "call", deps)
        given = {key: _in_gm(run, value) for key, value in given.items()}
        self._declare(task, given)
        result = run_single(run, task, lambda: self.body(**given))
        self._kept_word(run, task, given)
        mark_no_dep(run, task, run.no_dep_next)
        run.no_dep_next.clear()
        return _in_gm(run, result)

    def submit(
        self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], deps: Any, early: bool
    ) -> tuple[Any, TaskId]:
        """pl.submit: what the kernel returns, and its task id."""
        number = len(run.recorder.tasks)
        result = self.inside(run, args, {**kwargs, "deps": deps})
        run.recorder.tasks[number].options["early"] = early
        return result, TaskId(number)

    def _declare(self, task: Any, given: dict[str, Any]) -> None:
        """What the signature says of the tensors of a call; one given twice is written if either parameter is."""
        for parameter in self.parameters:
            value = given[parameter.name]
            if isinstance(value, Tensor):
                task.declared[value.buffer.id] = parameter.direction or task.declared.get(value.buffer.id, "In")
        for value in given.values():
            if isinstance(value, Tensor):
                task.argument((value.buffer.id, value.offset, value.shape, value.strides))

    def _kept_word(self, run: Run, task: Any, given: dict[str, Any]) -> None:
        """A pl.Out parameter is written and not read before: the runtime copies nothing in and waits for no writer."""
        for parameter in self.parameters:
            value = given[parameter.name]
            if parameter.direction != "Out" or not isinstance(value, Tensor):
                continue
            seen = [a for a in task.arguments if a.key[0] == value.buffer.id]
            about = f"the kernel {self.name} declares {parameter.name} {list(value.shape)} pl.Out"
            if not any(a.writes for a in seen):
                run.recorder.finding("direction", f"{about} and never writes it")
            elif any(a.read_first for a in seen):
                run.recorder.finding("direction", f"{about} and reads it before it writes it: declare it pl.InOut")


def _in_gm(run: Run, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_gm(run, entry) for entry in value)
    return run.promoted(value) if isinstance(value, Tile) else value


class Extern(Incore):
    """A kernel written in another language: its task is recorded, its values come from a substitute."""

    kind = "extern"
    substitute: Callable[..., Any] | None = None

    def bind(self, substitute: Callable[..., Any]) -> Extern:
        """A Python function of the arguments as NumPy arrays that does what the kernel does, in place."""
        self.substitute = substitute
        return self

    def code(self) -> Code:
        return Code(self.body, None)  # its substitute may do anything

    def inside(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        core = _CORES.get(str(self.options.get("core_type", "aiv")), "AIV")
        given = {**dict(zip([p.name for p in self.parameters], args, strict=False)), **kwargs}
        if run.block is not None:
            task = run.block.task
            task.options["core"], task.form = core, "extern"
            task.called(self.name)
            first = run.block.first == 0
        else:
            task = open_task(run, self.name, 1, "extern", kwargs.pop("deps", None), core=core)
            first = True
        result = None
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if not isinstance(value, Tensor):
                continue
            task.declared[value.buffer.id] = parameter.direction or "In"  # type: ignore[assignment]
            draft = task.arguments[task.argument((value.buffer.id, value.offset, value.shape, value.strides))]
            draft.reads = draft.read_first = parameter.direction != "Out"
            if parameter.direction is not None:
                draft.writes = True
                value.buffer.store_count += 1
                value.buffer.changes += 1
                value.buffer.known = value.buffer.known and run.computes
                result = value if result is None else result
        if run.computes and first:
            self._substitute(run, given, task.id)
        return result

    def _substitute(self, run: Run, given: dict[str, Any], task: int) -> None:
        if self.substitute is None:
            raise fault(
                f"the extern kernel {self.name} has no Python body",
                f"Bind a substitute with {self.name}.bind(function), or record in shapes mode.",
            )
        for counts in run.each_memory(task):
            arrays = {k: v.view() if isinstance(v, Tensor) else v for k, v in given.items()}
            for parameter in self.parameters:
                if parameter.direction is None and isinstance(given.get(parameter.name), Tensor):
                    arrays[parameter.name].flags.writeable = False
            self.substitute(**arrays)
            for parameter in self.parameters:
                value = given.get(parameter.name)
                if counts and parameter.direction is not None and isinstance(value, Tensor):
                    value.buffer.written = None


def _decorator(kind: type[TileFunction]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        if function is None:
            return lambda f: kind(_plain(f), **options)
        return kind(_plain(function), **options)

    return decorate


def _plain(function: Any) -> Callable[..., Any]:
    """What a decorator stands on: a plain function, and no other decorator of the language."""
    if isinstance(function, TileFunction):
        raise fault(f"{function.name} has two decorators of the language", "Keep one.")
    if isinstance(function, type):
        raise fault(f"{function.__name__} is a class", "Write @pl.program on a class, @pl.jit on a function.")
    if not isinstance(function, Function):
        raise fault(f"a decorator of the language stands on a function, not on {function!r}")
    return function


class _Jit:
    """`pl.jit`, and its relatives as attributes."""

    def __call__(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        return _decorator(Entry)(function, **options)

    inline = staticmethod(_decorator(Inline))
    incore = staticmethod(_decorator(Incore))
    extern = staticmethod(_decorator(Extern))
    host: Callable[..., Any]  # of several ranks: put in by npuscope.tile


jit = _Jit()

_KINDS: dict[FunctionType, type[TileFunction]] = {
    FunctionType.Opaque: Entry,
    FunctionType.Orchestration: Entry,
    FunctionType.Inline: Inline,
    FunctionType.InCore: Incore,
    FunctionType.AIC: Incore,
    FunctionType.AIV: Incore,
    FunctionType.Group: Incore,
    FunctionType.Spmd: Incore,
    FunctionType.Extern: Extern,
}


def function(fn: Callable[..., Any] | None = None, *, type: Any = FunctionType.Opaque, **options: Any) -> Any:
    """One function of a program."""
    if not isinstance(type, FunctionType):
        raise fault(f"pl.function needs type=pl.FunctionType.…, not {type!r}")
    return _decorator(_KINDS[type])(fn, **options)


class Program:
    """`@pl.program class X`: its methods are the functions; calling it runs the entry."""

    def __init__(self, cls: type) -> None:
        self.__name__ = self.name = cls.__name__
        self.__doc__ = cls.__doc__
        self.functions: dict[str, TileFunction] = {}
        for base in reversed(cls.__mro__):
            for name, member in vars(base).items():
                if isinstance(member, TileFunction):
                    self.functions[name] = member.bound(self)
                elif base is not object and not name.startswith("__"):
                    setattr(self, name, member)

    def __getattr__(self, name: str) -> Any:
        functions = self.__dict__.get("functions", {})
        if name not in functions:
            raise AttributeError(f"the program {self.__dict__.get('name')} has no function {name}")
        return functions[name]

    @property
    def entry(self) -> Entry:
        """The function that starts the program: the last Opaque or Orchestration one."""
        entries = [f for f in self.functions.values() if isinstance(f, Entry)]
        if not entries:
            raise fault(f"the program {self.name} has no entry", "Give one function the type Orchestration or Opaque.")
        called = "main"
        return next((f for f in entries if f.name == called), entries[-1])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entry(*args, **kwargs)


def program(cls: type) -> Program:
    if not isinstance(cls, type):
        raise fault(f"@pl.program stands on a class, not on {getattr(cls, '__name__', repr(cls))}")
    return Program(cls)


def submit(
    kernel: Any, *args: Any, deps: Any = None, dumps: Any = None, allow_early_resolve: bool = False, **kwargs: Any
) -> Any:
    """Launches a kernel: what it returns, then its task id."""
    run = state.current()
    if not isinstance(kernel, Incore):
        raise fault(f"pl.submit launches an incore kernel, not {getattr(kernel, 'name', kernel)}")
    return kernel.submit(run, args, kwargs, deps, allow_early_resolve)


def spmd_submit(kernel: Any, *args: Any, core_num: Any, **options: Any) -> Any:
    """Launches a kernel on n blocks: what it returns, then its task id."""
    if not isinstance(kernel, TileFunction):
        raise fault(f"pl.spmd_submit launches a kernel, not {kernel!r}")
    launch = Spmd(core_num, name_hint=kernel.name, **options)
    number = launch.launch()
    result = launch.run(lambda index: kernel(*args))
    return result, number
