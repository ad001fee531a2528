"""Inputs and goldens on disk: saved by one run, replayed by another.

A folder has `in/<name>` and `out/<name>`, as `.pt` for torch users, else as `.npy`, and a `dtypes.json` beside them
(NumPy's format cannot say bf16: its bits are stored as uint16). Reading takes either, with or without the list; a
`.pt` only where the script imported torch. A golden of another dtype than its output is taken only if the list says
that it was saved so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from npuscope.base.errors import BadInput, CannotWrite
from npuscope.tile.golden.spec import (
    Array,
    Dtype,
    ScalarSpec,
    Spec,
    TensorSpec,
    UserTensor,
    array_of,
    storage_of,
    tensor_of,
    zeros,
)
from npuscope.tile.run.arguments import BFLOAT16, is_torch_tensor, torch_module

DTYPES = "dtypes.json"


def save(folder: Path, inputs: Mapping[str, UserTensor], goldens: Mapping[str, UserTensor]) -> None:
    """Write a folder, whole or not at all; one that was saved before is replaced."""
    from npuscope.trace.writers.atomic import whole_folder  # brings Polars, which a run does not need

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.strerror or "cannot be made", path=folder.parent) from error
    with whole_folder(folder, _was_saved) as place:
        for side, tensors in (("in", inputs), ("out", goldens)):
            (place / side).mkdir()
            _write(place / side, tensors)


def _was_saved(folder: Path) -> bool:
    """Whether a folder holds nothing but what a run saved."""
    for part in folder.iterdir():
        if part.name not in ("in", "out") or not part.is_dir():
            return False
        if any(file.suffix not in (".pt", ".npy") and file.name != DTYPES for file in part.iterdir()):
            return False
    return True


def _write(folder: Path, tensors: Mapping[str, UserTensor]) -> None:
    dtypes = {}
    for name, tensor in tensors.items():
        array = array_of(tensor)
        dtypes[name] = array.dtype.name
        if is_torch_tensor(tensor):
            torch_module().save(tensor, folder / f"{name}.pt")
            continue
        np.save(folder / f"{name}.npy", array.view(np.uint16) if array.dtype == BFLOAT16 else array, allow_pickle=False)
    if dtypes:
        (folder / DTYPES).write_text(json.dumps(dtypes, indent=1))


def load_inputs(folder: Path, specs: Sequence[Spec]) -> dict[str, UserTensor]:
    """What the program is called with: tensors by name (pure outputs are zeros), scalars as 0-d tensors."""
    _check_complete(folder, specs)
    return {
        spec.name: _load_spec(folder / "in", spec)
        if isinstance(spec, ScalarSpec) or spec.is_input
        else zeros(spec.shape, spec.dtype)
        for spec in specs
    }


def load_goldens(folder: Path, specs: Sequence[Spec]) -> dict[str, UserTensor]:
    """The expected outputs by name, of the output's dtype or of the one that the golden gave when it was saved."""
    _check_complete(folder, specs)
    return {
        spec.name: _load_spec(folder / "out", spec, golden=True)
        for spec in specs
        if isinstance(spec, TensorSpec) and spec.is_output
    }


def _check_complete(folder: Path, specs: Sequence[Spec]) -> None:
    wanted = [folder / "in" / s.name for s in specs if isinstance(s, ScalarSpec) or s.is_input]
    wanted += [folder / "out" / s.name for s in specs if isinstance(s, TensorSpec) and s.is_output]
    missing = [f"{path}.pt" for path in wanted if _found(path) is None]
    if missing:
        raise BadInput(f"golden_data is missing files: {missing}", remedy="A .npy of the same name does as well.")


def _found(path: Path) -> Path | None:
    # not with_suffix: names may have dots
    return next((p for end in (".pt", ".npy") if (p := path.with_name(path.name + end)).is_file()), None)


def _load_spec(folder: Path, spec: Spec, golden: bool = False) -> UserTensor:
    path = _found(folder / spec.name)
    assert path is not None  # _check_complete looked
    listed = _listed_dtype(folder / DTYPES, spec.name)
    array = _read_torch(path) if path.suffix == ".pt" else _read_numpy(path)
    if listed == BFLOAT16 and array.dtype == np.uint16:
        array = array.view(BFLOAT16)
    shape = () if isinstance(spec, ScalarSpec) else tuple(spec.shape)
    if array.shape != shape:
        raise BadInput(f"has shape {array.shape}, the spec of '{spec.name}' {shape}", path=path)
    if golden and array.dtype == listed:
        return array
    if storage_of(spec.dtype) != array.dtype:
        raise BadInput(f"holds {array.dtype}, the spec of '{spec.name}' says {spec.dtype}", path=path)
    return array if golden else tensor_of(array, spec.dtype)


def _read_torch(path: Path) -> Array:
    torch = torch_module()
    if torch is None:
        raise BadInput("was saved by torch", path=path, remedy="Import torch in the script, or save without it.")
    try:
        tensor = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError and more, with pages of advice
        raise BadInput("cannot be read: it is no tensor saved by torch", path=path) from error
    if not is_torch_tensor(tensor):
        raise BadInput(f"holds a {type(tensor).__name__}, no tensor", path=path)
    return array_of(tensor)


def _read_numpy(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", path=path) from error
    except MemoryError as error:
        raise BadInput("cannot be read: its header asks for more than fits into memory", path=path) from error
    except Exception as error:  # a header is Python source: its parser raises many kinds, and advises allow_pickle
        raise BadInput("cannot be read: it is no whole array in NumPy's .npy format", path=path) from error
    return array


def _listed_dtype(path: Path, name: str) -> Dtype | None:
    """What the folder's list of dtypes says of a tensor; None where it has no list, or this one is not on it."""
    if not path.is_file():
        return None
    try:
        table = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput("cannot be read: it is no JSON", path=path) from error
    if not isinstance(table, dict):
        raise BadInput(f"holds a {type(table).__name__}, not dtypes by name", path=path)
    listed = table.get(name)
    if listed is None or listed == BFLOAT16.name:
        return BFLOAT16 if listed else None
    try:
        return np.dtype(str(listed))
    except TypeError as error:
        raise BadInput(f"names {listed!r} for '{name}', which is no dtype", path=path) from error
