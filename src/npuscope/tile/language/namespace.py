"""Which name of the language means what: `pl`, `pl.tile`, `pl.tensor` are three views of one set of ops."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from npuscope.ops import dtypes
from npuscope.ops.table import BY_SPELLING
from npuscope.tile import enums
from npuscope.tile.calls import crossing, shaping, transfer, vector
from npuscope.tile.calls import scalars as system
from npuscope.tile.calls.spellings import function_of, members
from npuscope.tile.fault import Unsupported, fault
from npuscope.tile.language import functions, history, runtime
from npuscope.tile.run import loops, regions
from npuscope.tile.run.arguments import Placeholder
from npuscope.tile.run.execute import collecting
from npuscope.tile.run.regions import CrossCoreSlot, Split
from npuscope.tile.values import checks, signature
from npuscope.tile.values import checks as tasks
from npuscope.tile.values import tensors as values
from npuscope.tile.values.checks import index, shown
from npuscope.tile.values.tensors import Tensor, Tile

_OF_SIGNATURES = (
    "Out", "InOut", "Scalar", "Array", "Tuple", "TensorView", "DynVar", "MemRef", "RUNTIME", "dynamic", "constexpr",
    "ConstexprMarker",
)  # fmt: skip
_ARGUMENTS = ("input", "output", "output_existing", "inout", "no_dep", "scalar")  # directions in printed programs


class Namespace(SimpleNamespace):
    """`pl.tile` and the like: a name it lacks is named, with the nearest it has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return late(self.__dict__.get("_label", "pl"), name, self.__dict__)


def late(label: str, name: str, known: dict[str, Any]) -> Any:
    """A name that a namespace lacks: an op that was added to the table since, or an error."""
    if label in ("pl", "pl.tile", "pl.tensor") and name in BY_SPELLING:
        return function_of(name)
    raise missing(label, name, known)


def missing(label: str, name: str, known: dict[str, Any]) -> AttributeError:
    """The error for a name npuscope does not have."""
    if name.startswith("__"):
        return AttributeError(name)
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], n=1, cutoff=0.4)
    hint = f"The nearest name it has is {label}.{near[0]}." if near else ""
    error = fault(f"{label}.{name} is not supported by npuscope", hint)
    return Unsupported(error.what, path=error.path, line=error.line, remedy=error.remedy)


def const(value: Any, dtype: Any) -> Any:
    """A typed literal."""
    number = checks.fitting(value, checks.dtype_of(dtype, "const"), "pl.const")
    return vector.cast(number, dtype) if isinstance(number, float) else number


def static_print(*_: Any) -> None:
    """Prints while a program is compiled; here nothing is."""


def static_assert(condition: Any, msg: str = "") -> None:
    if not checks.flag(condition, "static_assert", "its condition"):
        raise fault(f"pl.static_assert failed {msg}")


def language() -> dict[str, Any]:
    """Every name of `pl`."""
    found: dict[str, Any] = {dtype.name: dtype for dtype in dtypes.ALL}
    found |= members("pl")
    found |= {
        "tile": Namespace(
            _label="pl.tile", **members("tile"), MaskPattern=enums.MaskPattern, MemRefType=signature.TensorView
        ),
        "block": Namespace(_label="pl.block", **members("tile"), MaskPattern=enums.MaskPattern),  # `tile` in spring
        "tensor": Namespace(
            _label="pl.tensor",
            **members("tensor"),
            view=shaping.view,
            create_tensor=function_of("pl.create_tensor"),
            no_dep=regions.no_dep,
            dump_tag=system.nothing,
        ),
        "array": Namespace(
            _label="pl.array",
            create=tasks.create,
            get_element=tasks.get_element,
            update_element=tasks.update_element,
        ),
        "system": Namespace(
            _label="pl.system",
            **members("system"),
            task_dummy=system.task_dummy,
            task_invalid=system.task_invalid,
            available_cluster_count=system.available_cluster_count,
            available_aiv_count=system.available_aiv_count,
            cacheinvalid=system.nothing,
            fence=system.nothing,
            sync_set=system.nothing,
            sync_wait=system.nothing,
            set_ffts=system.nothing,
            sync_src=system.nothing,
            sync_dst=system.nothing,
            bar_v=system.nothing,
            bar_m=system.nothing,
            bar_all=system.nothing,
            AUTO=crossing.AUTO,
        ),
        "prefetch": Namespace(
            _label="pl.prefetch",
            make_context=system.make_context,
            **members("prefetch"),
            session=system.nothing,
            wait=system.nothing,
        ),
    }
    found["tile"].__dict__.update({op: _reduction(op) for op in ("sum", "max", "min")})
    found |= {
        name: getattr(enums, name) for name in dir(enums) if name[0].isupper() and name not in ("MaskPattern", "Enum")
    }
    found["Mem"] = enums.MemorySpace
    found |= {name: getattr(signature, name) for name in _OF_SIGNATURES}
    found |= enums.TensorLayout.__members__
    found["Buffer"] = signature.MemRef  # its name in July
    found |= dict.fromkeys(("TileView", "MemRefType", "Ptr", "PtrType"), signature.TensorView)  # of annotations
    found |= {"IntLike": int, "PrefetchAsyncContext": system.PrefetchContext, "AsyncEvent": object}
    found |= {"AsyncSession": object, "JITFunction": functions.EntryFunction, "InlineFunction": functions.Inline}
    found |= {"Tensor": values.Tensor, "Tile": values.Tile, "TaskId": tasks.TaskId}
    found |= {
        "const": const,
        "static_print": static_print,
        "static_assert": static_assert,
        "func_attr": regions.func_attr,
        "dump_tag": system.nothing,
        "set_cache_policy": transfer.set_cache_policy,
        "split": Split,
        "cross_core_slot": CrossCoreSlot,
        "jit": functions.jit,
        "function": functions.function,
        "program": functions.program,
        "inline": functions.jit.inline,
        "submit": functions.submit,
        "spmd_submit": functions.spmd_submit,
        "range": runtime.range_,
        "parallel": loops.parallel,
        "pipeline": loops.pipeline,
        "unroll": loops.unroll,
        "while_": loops.while_,
        "cond": loops.cond,
        "yield_": loops.yield_,
        "split_aiv": loops.split_aiv,
        "at": runtime.at,
        "spmd": regions.spmd,
        "scope": regions.scope,
        "manual_scope": regions.manual_scope,
        "cluster": regions.cluster,
        "graph": regions.graph,
        "no_dep": regions.no_dep,
        "incore": runtime.incore,
        "auto_incore": runtime.auto_incore,
        "auto_chunk": runtime.auto_chunk,
        "chunked_loop_optimizer": runtime.chunked_loop_optimizer,
        "collecting": collecting,
        "Placeholder": Placeholder,
        "parse": functions.parse,
        "parse_program": functions.parse,
        "loads": functions.loads,
        "loads_program": functions.loads,
        "optimizations": Namespace(_label="pl.optimizations", split=Split, cross_core_slot=CrossCoreSlot),
        **dict.fromkeys(("adir", "arg_direction"), Namespace(_label="pl.adir", **{name: name for name in _ARGUMENTS})),
        "AUTO": crossing.AUTO,
        "parser": Namespace(_label="pl.parser", parse=functions.parse, loads=functions.loads),
    }
    found |= {old: found[now] for old, now in history.renamed().items()}
    return found


def _along(op: str, value: Tensor | Tile, axis: object, keepdim: bool) -> object:
    number = int(index(axis, f"pl.tile.{op}", "axis"))
    if number not in (0, 1, -1):
        raise fault(f"pl.tile.{op}: axis= is 0 or 1, not {shown(axis)}")
    result = function_of(f"col_{op}" if number == 0 else f"row_{op}")(value)
    assert isinstance(result, Tile)
    return result if keepdim else shaping.reshape(result, [max(result.shape)])


def _reduction(op: str) -> Callable[..., object]:
    """`pl.tile.max(tile, axis)` is `row_max` or `col_max` today (history.py); of two scalars it is the larger one."""

    def reduce(tile: object = None, axis: object = 0, keepdim: bool = False, **named: object) -> object:
        if isinstance(tile, Tensor | Tile):
            return _along(op, tile, axis, keepdim)
        return function_of(op)(**{"lhs": tile, "rhs": axis, **named})

    return reduce
