"""Functions of the language: entries, inline helpers, incore kernels, extern kernels, programs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType as Function
from typing import Any, NoReturn, TypeVar, cast

from npuscope.ops.dtypes import Array
from npuscope.tile.enums import FunctionType, Level, Role
from npuscope.tile.fault import Unsupported, fault
from npuscope.tile.language.rewrite import Rewritten, rewritten, source_of
from npuscope.tile.record import sites
from npuscope.tile.record.model import Core, Mode
from npuscope.tile.record.recorder import Launch, TaskDraft, asked_for
from npuscope.tile.run import state
from npuscope.tile.run.arguments import Parameter, by_name, names_around, parameters
from npuscope.tile.run.cube_vector_rings import HandedTiles
from npuscope.tile.run.execute import Compiled, EntryCall, Finished, record, run_entry
from npuscope.tile.run.regions import Spmd, half_of, mark_no_dep, not_dumped, open_task, run_single
from npuscope.tile.run.state import TileRun, store_box
from npuscope.tile.shapes.reuse import Code
from npuscope.tile.values.checks import TaskId, flat_ids
from npuscope.tile.values.tensors import Tensor, Tile

_CORES: dict[str, Core] = {"aic": "AIC", "aiv": "AIV", "mixed": "MIX", "mix": "MIX"}
_GRAPH_TENSORS, _GRAPH_NUMBERS = 128, 64  # that a recorded graph takes
Args = tuple[object, ...]
Named = dict[str, object]


class TileFunction:
    """A function of a tile program: called from outside an entry runs, called from a program each kind does its own."""

    kind = "inline"

    def __init__(self, function: Function, options: Named, owner: TileProgram | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.owner, self.options = function, owner, options
        self.source = source_of(function)
        self.name = function.__name__
        self.around = names_around(function)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        place = sites.site(sites.here())
        about = f"{self.name}.{name} belongs to PyPTO's IR, and nothing is compiled here"
        raise Unsupported(about, path=place.file, line=place.line)

    @functools.cached_property
    def rewritten(self) -> Rewritten:
        return rewritten(self.function, self.source)

    @functools.cached_property
    def body(self) -> Callable[..., object]:
        """The function as it runs; a method's `self` stands for its program."""
        body = self.rewritten.body
        return body if self.owner is None else functools.partial(body, self.owner)

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        found = parameters(self.function, self.around)
        return found[1:] if self.owner is not None else found

    @property
    def _func(self) -> TileFunction:
        """What old scripts reached the function by; its signature is the function's."""
        return self

    @property
    def param_names(self) -> list[str]:
        """What scripts ask PyPTO's functions for."""
        return [parameter.name for parameter in self.parameters]

    @property
    def output_param_names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters if parameter.direction is not None]

    def _param_names(self) -> list[str]:
        return self.param_names

    @property
    def _cache(self) -> dict[object, object]:
        """Compiled forms, which tests of the language clear; nothing is compiled here."""
        return {}

    def code(self) -> Code:
        """The function as it runs, and what it reads besides its arguments."""
        return Code(self.rewritten.body, self.rewritten.reads if self.owner is None else None)

    def bound(self, owner: TileProgram) -> TileFunction:
        """The same function as a method of a program."""
        method = type(self)(self.function, self.options, owner)
        method.around = self.around
        return method

    def arguments(self, args: Args, kwargs: Named) -> list[tuple[Parameter, object]]:
        """Each parameter that a call gives, with its value."""
        given = {**dict(zip([p.name for p in self.parameters], args, strict=False)), **kwargs}
        return [(p, given[p.name]) for p in self.parameters if p.name in given]

    def __call__(self, *args: object, **kwargs: object) -> object:
        run = state.under_way()
        if run is None:
            raise fault(f"{self.name} is a helper of tile programs", "Call a @pl.jit entry instead.")
        return self.inside(run, args, kwargs)

    def inside(self, run: TileRun, args: Args, kwargs: Named) -> object:
        """Called by a program: spliced in."""
        given = by_name(self.name, self.parameters, args, kwargs)
        if run.block is None:  # calls inside a task make none: they need no number
            run.orchestration.count_call(self.name)
        for parameter, value in self.arguments(args, kwargs):
            if parameter.rows_at_run_time and isinstance(value, Tensor):
                value.bind_dynamic(0, None)
        with run.orchestration.call(self.name):
            return self.body(**given)


class Inline(TileFunction):
    """Spliced into its caller; parameters alias the caller's variables."""

    def inside(self, run: TileRun, args: Args, kwargs: Named) -> object:
        for name, site in self.rewritten.rebound.items():
            value = by_name(self.name, self.parameters, args, kwargs)[name]
            if isinstance(value, Tensor):
                about = f"{self.name}() gives the name {name} of its parameter {list(value.shape)} to a new value"
                run.recorder.notice("rebound", f"{about}: the caller's tensor is not written", site)
        return super().inside(run, args, kwargs)


class RecordedGraph(Inline):
    """A part of the orchestration that the runtime host_build_graph records at its first call and replays later.

    Its values are those of an inlined call; what a replay could not do is refused.
    """

    kind = "graph"

    def inside(self, run: TileRun, args: Args, kwargs: Named) -> object:
        for name in ("deps", "predicate"):
            if name in kwargs:
                raise fault(f"{self.name}() is a graph: it takes no {name}=", "Give it to a task inside.")
        given = by_name(self.name, self.parameters, args, kwargs)
        for p in self.parameters:
            if p.direction == "Out":
                about = (
                    f"{self.name}() is a graph, and its {p.name} is declared pl.Out: a replay needs memory that exists"
                )
                raise fault(about, "Make it in the caller and declare it pl.InOut.")
        tensors = [value for value in given.values() if isinstance(value, Tensor)]
        numbers = len(given) - len(tensors)
        if not 0 < len(tensors) <= _GRAPH_TENSORS or numbers > _GRAPH_NUMBERS:
            about = f"{self.name}() is a graph with {len(tensors)} tensors and {numbers} numbers"
            raise fault(about, f"It takes 1 to {_GRAPH_TENSORS} tensors and at most {_GRAPH_NUMBERS} numbers.")
        with run.orchestration.graphs.call(str(self.options.get("graph") or self.name), tensors):
            result = super().inside(run, args, kwargs)
        known = {value.buffer for value in tensors}
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if value is not None and not (isinstance(value, Tensor) and value.buffer in known):
                about = f"{self.name}() is a graph and returns what it made: nobody can wait for that in a replay"
                raise fault(about, "Write it into a pl.InOut parameter and return that.")
        return result


class EntryFunction(TileFunction):
    """A chip-level entry: runs when it is called from outside."""

    kind = "entry"

    def __call__(self, *args: object, config: object = None, device: object = None, **kwargs: object) -> object:
        run = state.under_way()
        if run is not None and run.orchestration.ranks is not None:
            return run.orchestration.ranks.dispatch(self, args, kwargs, device)
        if run is not None:
            return self.inside(run, args, kwargs)
        settings = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
        with state.turn(), asked_for(settings):
            scoped = bool(self.options.get("auto_scope", True))
            about = (self.name, self.body, self.parameters, args, kwargs)
            return run_entry(EntryCall(*about, auto_scope=scoped, specialises=self.owner is None))

    def record(self, *args: object, mode: Mode = "values", **kwargs: object) -> Finished:
        """Runs, and returns what it did; see npuscope.tile.run.execute.record."""
        return record(self, *args, mode=mode, **kwargs)

    def lower(self, *args: object, **kwargs: object) -> Compiled:
        """The program for these arguments, to look at or to call."""
        return Compiled(self.name, self, lambda: record(self, *args, mode="shapes", **kwargs))

    compile = specialize = warmup = lower


class Incore(TileFunction):
    """A device kernel: one task per call from orchestration; inside a task, part of it."""

    kind = "incore"
    core: Core | None = None  # of functions that are written for one kind of core

    def inside(self, run: TileRun, args: Args, kwargs: Named) -> object:
        deps = kwargs.pop("deps", None)
        kwargs.pop("attrs", None)  # directions of a printed call, which the signature says here
        given = by_name(self.name, self.parameters, args, kwargs)
        if run.block is not None:
            run.block.task.called(self.name)
            if run.block.task.form == "spmd":
                self._declare(run.block.task, given)
            return self.in_block(run, given)
        attrs = self.options.get("attrs")
        windowize = isinstance(attrs, dict) and bool(attrs.get("windowize"))
        task = open_task(run, self.name, 1, "call", Launch(flat_ids(deps), windowize=windowize))
        given = {key: _in_gm(run, value) for key, value in given.items()}
        self._declare(task, given)
        result = run_single(run, task, lambda: self._into_outputs(run, task, given, self.in_block(run, given)))
        self._check_outputs(run, task, given)
        mark_no_dep(run, task, run.orchestration.take_opted_out())
        return _in_gm(run, result)

    def in_block(self, run: TileRun, given: Named) -> object:
        """What the kernel does as a part of the block under way."""
        if run.block is not None and run.block.handover is not None and self.core is not None:
            written = (given[p.name] for p in self.parameters if p.direction is not None)
            return run.block.handover.start(
                self.name, self.core == "AIV", lambda: self.body(**given), next(written, None)
            )
        return self.body(**given)

    def _into_outputs(self, run: TileRun, task: TaskDraft, given: Named, result: object) -> object:
        """A tile that a kernel returns goes into its pl.Out parameter of the same shape that nothing was written to."""
        values = list(result) if isinstance(result, tuple) else [result]
        written = {a.key[0] for a in task.arguments if a.writes}
        free = [given[p.name] for p in self.parameters if p.direction == "Out"]
        for n, value in enumerate(values):
            for tensor in free:
                if not isinstance(tensor, Tensor) or not isinstance(value, Tile) or tensor.buffer.id in written:
                    continue
                if (tensor.shape, tensor.dtype) == (value.shape, value.dtype):
                    values[n] = store_box(run, value, tensor, [0] * len(tensor.shape))
                    written.add(tensor.buffer.id)
                    break
        return tuple(values) if isinstance(result, tuple) else values[0]

    def submit(self, run: TileRun, args: Args, kwargs: Named, deps: object, early: bool) -> tuple[object, TaskId]:
        """pl.submit: what the kernel returns, and its task id."""
        number = len(run.recorder.tasks)
        result = self.inside(run, args, {**kwargs, "deps": deps})
        run.recorder.tasks[number].launch.early = early
        return result, TaskId(number)

    def _declare(self, task: TaskDraft, given: Named) -> None:
        """What the signature says of the tensors of a call; one given twice is written if either parameter is."""
        for parameter in self.parameters:
            value = given[parameter.name]
            if isinstance(value, Tensor):
                task.declared[value.buffer.id] = parameter.direction or task.declared.get(value.buffer.id, "In")
        for value in given.values():
            if isinstance(value, Tensor):
                task.argument((value.buffer.id, value.offset, value.shape, value.strides))

    def _check_outputs(self, run: TileRun, task: TaskDraft, given: Named) -> None:
        """A pl.Out parameter is written and not read before: the runtime copies nothing in and waits for no writer."""
        for parameter in self.parameters:
            value = given[parameter.name]
            if parameter.direction != "Out" or not isinstance(value, Tensor):
                continue
            seen = [a for a in task.arguments if a.key[0] == value.buffer.id]
            about = f"the kernel {self.name} declares {parameter.name} {list(value.shape)} pl.Out"
            if not any(a.writes for a in seen):
                run.recorder.notice("direction", f"{about} and never writes it")
            elif any(a.read_first for a in seen):
                run.recorder.notice("direction", f"{about} and reads it before it writes it: declare it pl.InOut")


def _in_gm(run: TileRun, value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_in_gm(run, entry) for entry in value)
    return run.promoted(value) if isinstance(value, Tile) else value


class CubeFunction(Incore):
    core = "AIC"


class VectorFunction(Incore):
    core = "AIV"


class GroupFunction(Incore):
    """A cube function and a vector function side by side on one core group, which hand tiles to each other."""

    kind = "group"

    def in_block(self, run: TileRun, given: Named) -> object:
        block = run.block
        assert block is not None
        attrs = self.options.get("attrs")
        halved = half_of(attrs.get("split")) if isinstance(attrs, dict) else None
        if halved is not None:
            block.task.launch.split = halved
        block.handover = together = HandedTiles(block, run.enter, whole=halved is not None)
        try:
            result = self.body(**given)
            together.finish()
        finally:
            together.abandon()
            block.handover = None
        return result


class Extern(Incore):
    """A kernel written in another language: its task is recorded, its values come from a substitute."""

    kind = "extern"
    substitute: Callable[..., object] | None = None

    def bind(self, substitute: Callable[..., object]) -> Extern:
        """A Python function of the arguments as NumPy arrays that does what the kernel does, in place."""
        self.substitute = substitute
        return self

    def code(self) -> Code:
        return Code(self.rewritten.body, None)  # its substitute may do anything

    def inside(self, run: TileRun, args: Args, kwargs: Named) -> object:
        core = _CORES.get(str(self.options.get("core_type", "aiv")), "AIV")
        given = {**dict(zip([p.name for p in self.parameters], args, strict=False)), **kwargs}
        if run.block is not None:
            task = run.block.task
            task.launch.core, task.form = core, "extern"
            task.called(self.name)
            first = run.block.first == 0
        else:
            launch = Launch(flat_ids(kwargs.pop("deps", None)), core=core)
            task = open_task(run, self.name, 1, "extern", launch)
            first = True
        result, computes = None, run.computes or (task.computes and self.substitute is not None)
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if not isinstance(value, Tensor):
                continue
            task.declared[value.buffer.id] = parameter.direction or "In"
            draft = task.arguments[task.argument((value.buffer.id, value.offset, value.shape, value.strides))]
            draft.reads = draft.read_first = parameter.direction != "Out"
            if parameter.direction is not None:
                draft.writes = True
                value.buffer.changed()
                value.buffer.known = value.buffer.known and computes
                result = value if result is None else result
        if computes and first:
            self._substitute(run, given, task.id)
        return result

    def _substitute(self, run: TileRun, given: Named, task: int) -> None:
        if self.substitute is None:
            raise fault(
                f"the extern kernel {self.name} has no Python body",
                f"Bind a substitute with {self.name}.bind(function), or record in shapes mode.",
            )
        for counts in run.gm.each_memory(task):
            arrays: dict[str, Array | object] = dict(given)
            for parameter in self.parameters:
                tensor = given.get(parameter.name)
                if isinstance(tensor, Tensor):
                    view = arrays[parameter.name] = tensor.view()
                    view.flags.writeable = parameter.direction is not None and view.flags.writeable
            self.substitute(**arrays)
            for parameter in self.parameters:
                value = given.get(parameter.name)
                if counts and parameter.direction is not None and isinstance(value, Tensor):
                    value.buffer.written = None


Kind = TypeVar("Kind", bound=TileFunction)


def decorator(kind: type[Kind]) -> Callable[..., Kind | Callable[[object], Kind]]:
    def decorate(function: object = None, **options: object) -> Kind | Callable[[object], Kind]:
        if function is None:
            return lambda f: kind(plain_function(f, kind), options)
        return kind(plain_function(function, kind), options)

    return decorate


def plain_function(function: object, kind: type[TileFunction] | None = None) -> Function:
    """What a decorator stands on: a plain function, and no other decorator of the language.

    An inline function may be made inline again, as `pl.inline(other._func)` of another module does: both are usable.
    """
    if isinstance(function, Inline) and kind is Inline:
        return function.function
    if isinstance(function, TileFunction):
        raise fault(f"{function.name} has two decorators of the language", "Keep one.")
    if isinstance(function, type):
        raise fault(f"{function.__name__} is a class", "Write @pl.program on a class, @pl.jit on a function.")
    if not isinstance(function, Function):
        raise fault(f"a decorator of the language stands on a function, not on {function!r}")
    return function


class _Jit:
    """`pl.jit`, and its relatives as attributes."""

    def __call__(self, function: object = None, **options: object) -> EntryFunction | Callable[[object], EntryFunction]:
        return decorator(EntryFunction)(function, **options)

    inline = staticmethod(decorator(Inline))
    incore = staticmethod(decorator(Incore))
    extern = staticmethod(decorator(Extern))
    graph = staticmethod(decorator(RecordedGraph))
    opaque = staticmethod(decorator(EntryFunction))
    host: Callable[..., object]  # of several ranks: put in by npuscope.tile
    sub_worker: Callable[..., object]


jit = _Jit()

_KINDS: dict[FunctionType, type[TileFunction]] = {
    **dict.fromkeys([FunctionType.Opaque, FunctionType.Orchestration], EntryFunction),
    FunctionType.Inline: Inline,
    FunctionType.Extern: Extern,
    FunctionType.AIC: CubeFunction,
    FunctionType.AIV: VectorFunction,
    FunctionType.Group: GroupFunction,
    FunctionType.Graph: RecordedGraph,
}


def function(
    fn: object = None, *, type: object = FunctionType.Opaque, **options: object
) -> TileFunction | Callable[[object], TileFunction]:
    """One function of a program."""
    if not isinstance(type, FunctionType):
        raise fault(f"pl.function needs type=pl.FunctionType.…, not {type!r}")
    if options.get("graph"):
        type = FunctionType.Graph
    if options.get("external_source"):
        return decorator(Extern)(fn, core_type=type.name.lower(), **options)
    if options.get("level") is Level.HOST and options.get("role") in (Role.Orchestrator, Role.SubWorker):
        made = jit.host if options["role"] is Role.Orchestrator else jit.sub_worker
        return cast("Callable[..., TileFunction]", made)(fn, **options)
    return decorator(_KINDS.get(type, Incore))(fn, **options)


class TileProgram:
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

    def __getattr__(self, name: str) -> TileFunction:
        functions = cast("Mapping[str, TileFunction]", self.__dict__.get("functions", {}))
        if name not in functions:
            raise AttributeError(f"the program {self.__dict__.get('name')} has no function {name}")
        return functions[name]

    def get_function(self, name: str) -> TileFunction | None:
        return self.functions.get(name)

    @property
    def entry(self) -> TileFunction:
        """The function that starts the program: the host's, else the last Opaque or Orchestration one."""
        hosts = [f for f in self.functions.values() if f.kind == "host"]
        entries = hosts or [f for f in self.functions.values() if isinstance(f, EntryFunction)]
        if not entries and len(self.functions) == 1:  # a kernel alone: the compiler writes the entry that calls it
            return entry_of(next(iter(self.functions.values())))
        if not entries:
            raise fault(f"the program {self.name} has no entry", "Give one function the type Orchestration or Opaque.")
        return next((f for f in entries if f.name == "main"), entries[-1])

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.entry(*args, **kwargs)


def entry_of(function: TileFunction, constants: Named | None = None) -> EntryFunction:
    """A function as an entry, with some of its arguments given; of a kernel it is an entry of one task."""
    entry = EntryFunction(function.function, function.options, function.owner)
    body = function.body if isinstance(function, EntryFunction) else function
    entry.body = functools.partial(body, **(constants or {}))
    entry.parameters = tuple(one for one in function.parameters if one.name not in (constants or {}))
    return entry


def program(cls: type | None = None, *, strict_ssa: bool = False) -> TileProgram | Callable[[type], TileProgram]:
    """`strict_ssa` would have the compiler refuse names that are given twice, which changes no program."""
    if cls is None:
        return functools.partial(program, strict_ssa=strict_ssa)  # type: ignore[return-value]  # of a class
    if not isinstance(cls, type):
        raise fault(f"@pl.program stands on a class, not on {getattr(cls, '__name__', repr(cls))}")
    return TileProgram(cls)


def submit(
    kernel: object,
    *args: object,
    deps: object = None,
    dumps: object = None,
    allow_early_resolve: bool = False,
    predicate: object = None,
    timing_slot: object = None,  # noqa: ARG001 (where a device keeps the task's times)
    **kwargs: object,
) -> tuple[object, TaskId]:
    """Launches a kernel: what it returns, then its task id."""
    run = state.current()
    if not isinstance(kernel, Incore):
        raise fault(f"pl.submit launches an incore kernel, not {getattr(kernel, 'name', kernel)}")
    not_dumped(dumps, "submit")
    if predicate is not None:
        options = {"deps": deps, "allow_early_resolve": allow_early_resolve, "predicate": predicate}
        given = by_name(kernel.name, kernel.parameters, args, kwargs)
        return spmd_submit(kernel, *given.values(), core_num=1, **options)
    return kernel.submit(run, args, kwargs, deps, allow_early_resolve)


def spmd_submit(
    kernel: object,
    *args: object,
    core_num: object,
    timing_slot: object = None,  # noqa: ARG001 (where a device keeps the task's times)
    **options: Any,
) -> tuple[object, TaskId]:
    """Launches a kernel on n blocks: what it returns, then its task id."""
    if not isinstance(kernel, TileFunction):
        raise fault(f"pl.spmd_submit launches a kernel, not {kernel!r}")
    launch = Spmd(core_num, name_hint=kernel.name, **options)
    number = launch.launch()
    if launch.skip:  # what it would have written is as it was
        written = (value for parameter, value in kernel.arguments(args, {}) if parameter.direction is not None)
        return next(written, None), number
    return launch.run(lambda index: kernel(*args)), number


# --- functions and programs from text, as files of programs are run


def parse(code: str, filename: str = "", **_: object) -> TileFunction | TileProgram:
    """The last function or program that a text defines."""
    if not isinstance(code, str):
        raise fault(f"pl.parse takes the text of a program, not {type(code).__name__}")
    with tempfile.NamedTemporaryFile("w", suffix=".py", prefix="parsed_", delete=False, encoding="utf-8") as file:
        file.write(code)
    atexit.register(_gone, file.name)  # its functions read their source when they first run
    return _defined(file.name, code, filename or "the text")


def loads(filepath: str | Path, **_: object) -> TileFunction | TileProgram:
    """The same from a file."""
    path = Path(filepath)
    if not path.is_file():
        raise fault(f"pl.loads: no file {filepath}")
    return _defined(str(path), path.read_text(encoding="utf-8"), str(filepath))


def _defined(path: str, code: str, title: str) -> TileFunction | TileProgram:
    names: dict[str, Any] = {"__name__": "parsed", "__file__": path, "pl": sys.modules["npuscope.tile"]}
    exec(compile(code, path, "exec"), names)
    found = [value for value in names.values() if isinstance(value, TileFunction | TileProgram)]
    if not found:
        what = f"pl.parse: {title} defines no function of the language"
        raise fault(what, "Decorate one with @pl.jit or @pl.program.")
    return found[-1]


def _gone(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
