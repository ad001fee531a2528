"""Which name of the language means what: `pl`, `pl.tile`, `pl.tensor` are three views of one set of ops."""

from __future__ import annotations

import difflib
from types import SimpleNamespace
from typing import Any

from npuscope.ops import dtypes
from npuscope.tile import enums
from npuscope.tile.calls import checks, cube, elements, reduce, shaping, slicing, sort, system, transfer, vector
from npuscope.tile.fault import Unsupported, fault
from npuscope.tile.language import functions, retired
from npuscope.tile.run import loops, regions, signature, tasks, values
from npuscope.tile.run.arguments import Placeholder
from npuscope.tile.run.execute import collecting
from npuscope.tile.run.optimizations import CrossCoreSlot, Split


class Namespace(SimpleNamespace):
    """`pl.tile` and the like: a name it lacks is named, with the nearest it has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(self.__dict__.get("_label", "pl"), name, self.__dict__)


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


def static_assert(condition: Any, message: str = "") -> None:
    if not checks.flag(condition, "static_assert", "its condition"):
        raise fault(f"pl.static_assert failed {message}")


def _vector() -> dict[str, Any]:
    """Ops that mean the same on tensors and tiles."""
    names = [
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "fmod",
        "fmods",
        "rem",
        "and_",
        "or_",
        "xor",
        "shl",
        "shr",
        "neg",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "recip",
        "relu",
        "sin",
        "cos",
        "not_",
        "row_expand",
        "col_expand",
        "row_expand_add",
        "col_expand_add",
        "row_expand_sub",
        "col_expand_sub",
        "row_expand_mul",
        "col_expand_mul",
        "row_expand_div",
        "col_expand_div",
        "row_expand_max",
        "col_expand_max",
        "row_expand_min",
        "col_expand_min",
        "row_expand_expdif",
        "col_expand_expdif",
        "expands",
        "cast",
        "cmp",
        "sel",
        "sels",
        "lrelu",
        "prelu",
    ]
    found = {name: getattr(vector, name) for name in names}
    for name in ["add", "sub", "mul", "div", "maximum", "minimum", "rem", "and", "or", "xor", "shl", "shr", "cmp"]:
        scalar = {"and": "ands", "or": "ors"}.get(name, f"{name}s")
        found[scalar] = found.get(name) or found[f"{name}_"]
    found |= {"abs": vector.absolute, "min": vector.scalar_min, "max": vector.scalar_max}
    found |= {"part_add": vector.add, "part_mul": vector.mul, "part_max": vector.maximum, "part_min": vector.minimum}
    return found


def _common() -> dict[str, Any]:
    """What `pl`, `pl.tile` and `pl.tensor` share."""
    found = _vector()
    for module, names in (
        (
            reduce,
            "row_sum row_max row_min row_prod row_argmax row_argmin "
            "col_sum col_max col_min col_prod col_argmax col_argmin",
        ),
        (
            cube,
            "matmul matmul_acc matmul_bias matmul_dual matmul_dual_acc "
            "batch_matmul batch_matmul_acc gemv gemv_acc gemv_bias",
        ),
        (slicing, "slice"),
        (transfer, "load store assemble move gather_row create_tile create_l1"),
        (elements, "read write dim"),
        (
            shaping,
            "reshape transpose transpose_view concat set_validshape fillpad fillpad_expand full arange tri "
            "reinterpret_view aiv_shard aic_gather",
        ),
        (sort, "sort32 mrgsort gather gather_mask scatter"),
        (system, "get_block_idx get_block_num get_subblock_idx"),
    ):
        found |= {name: getattr(module, name) for name in names.split()}
    found |= {"fillpad_inplace": shaping.fillpad, "ci": shaping.arange}
    return found


def language() -> dict[str, Any]:
    """Every name of `pl`."""
    common = _common()
    found: dict[str, Any] = {dtype.name: dtype for dtype in dtypes.ALL}
    found |= common
    found |= {
        "tile": Namespace(_label="pl.tile", **common, create=transfer.create_tile, MaskPattern=enums.MaskPattern),
        "tensor": Namespace(
            _label="pl.tensor",
            **common,
            create=transfer.create_tensor,
            view=shaping.view,
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
            syncall=system.syncall,
            task_dummy=system.task_dummy,
            task_invalid=system.task_invalid,
            available_cluster_count=system.available_cluster_count,
            available_aiv_count=system.available_aiv_count,
            cacheinvalid=system.nothing,
            fence=system.nothing,
            sync_set=system.nothing,
            sync_wait=system.nothing,
            set_ffts=system.nothing,
        ),
        "prefetch": Namespace(
            _label="pl.prefetch",
            make_context=system.make_context,
            async_prefetch=system.async_prefetch,
            session=system.nothing,
            wait=system.nothing,
        ),
    }
    found["tile"].gather = sort.gather_flat
    found |= {name: getattr(enums, name) for name in dir(enums) if name[0].isupper() and name != "MaskPattern"}
    found["Mem"] = enums.MemorySpace
    found |= {
        name: getattr(signature, name)
        for name in ("Out", "InOut", "Scalar", "Array", "Tuple", "TensorView", "DynVar", "dynamic")
    }
    found |= {"Tensor": values.Tensor, "Tile": values.Tile, "TaskId": tasks.TaskId}
    found |= {
        "create_tensor": transfer.create_tensor,
        "const": const,
        "static_print": static_print,
        "static_assert": static_assert,
        "func_attr": system.nothing,
        "dump_tag": system.nothing,
        "split": Split,
        "cross_core_slot": CrossCoreSlot,
        "jit": functions.jit,
        "function": functions.function,
        "program": functions.program,
        "inline": functions.jit.inline,
        "submit": functions.submit,
        "spmd_submit": functions.spmd_submit,
        "range": loops.range_,
        "parallel": loops.parallel,
        "pipeline": loops.pipeline,
        "unroll": loops.unroll,
        "while_": loops.while_,
        "cond": loops.cond,
        "yield_": loops.yield_,
        "split_aiv": loops.split_aiv,
        "at": regions.at,
        "spmd": regions.spmd,
        "scope": regions.scope,
        "manual_scope": regions.manual_scope,
        "cluster": regions.cluster,
        "no_dep": regions.no_dep,
        "incore": retired.incore,
        "auto_incore": retired.auto_incore,
        "auto_chunk": retired.auto_chunk,
        "collecting": collecting,
        "Placeholder": Placeholder,
    }
    return found
