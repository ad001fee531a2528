"""Inputs and goldens on disk: saved by one run, replayed by another.

A folder has `in/<name>` and `out/<name>`, as `.pt` for torch users, else as `.npy` with a `dtypes.json` beside them
(NumPy's format cannot say bf16: its bits are stored as uint16). Reading takes either; a `.pt` only where the script
imported torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuscope.errors import BadInput
from npuscope.tile.golden.arrays import BFLOAT16, array_of, is_torch_tensor, tensor_of, torch_module, zeros
from npuscope.tile.golden.spec import ScalarSpec, Spec, TensorSpec

DTYPES = "dtypes.json"


def save(folder: Path, inputs: Mapping[str, Any], goldens: Mapping[str, Any]) -> None:
    """Write a folder, whole or not at all; one that was saved before is replaced."""
    from npuscope.trace.writers.atomic import whole_folder  # brings Polars, which a run does not need

    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder, lambda path: {part.name for part in path.iterdir()} <= {"in", "out"}) as place:
        for side, tensors in (("in", inputs), ("out", goldens)):
            (place / side).mkdir()
            _write(place / side, tensors)


def _write(folder: Path, tensors: Mapping[str, Any]) -> None:
    dtypes = {}
    for name, tensor in tensors.items():
        if is_torch_tensor(tensor):
            torch_module().save(tensor, folder / f"{name}.pt")
            continue
        array = array_of(tensor)
        dtypes[name] = array.dtype.name
        np.save(folder / f"{name}.npy", array.view(np.uint16) if array.dtype == BFLOAT16 else array, allow_pickle=False)
    if dtypes:
        (folder / DTYPES).write_text(json.dumps(dtypes, indent=1))


def load_inputs(folder: Path, specs: Sequence[Spec]) -> dict[str, Any]:
    """What the program is called with: tensors by name (pure outputs are zeros), scalars as 0-d tensors."""
    _check_complete(folder, specs)
    return {
        spec.name: _load_spec(folder / "in", spec)
        if isinstance(spec, ScalarSpec) or spec.is_input
        else zeros(spec.shape, spec.dtype)
        for spec in specs
    }


def load_goldens(folder: Path, specs: Sequence[Spec]) -> dict[str, Any]:
    """The expected outputs by name, of the dtype they were saved with."""
    _check_complete(folder, specs)
    return {
        spec.name: _load_spec(folder / "out", spec, any_dtype=True)
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


def _load_spec(folder: Path, spec: Spec, any_dtype: bool = False) -> Any:
    path = _found(folder / spec.name)
    assert path is not None  # _check_complete looked
    array = _read_torch(path) if path.suffix == ".pt" else _read_numpy(path, spec.name)
    shape = () if isinstance(spec, ScalarSpec) else tuple(spec.shape)
    if array.shape != shape:
        raise BadInput(f"has shape {array.shape}, the spec of '{spec.name}' {shape}", path=path)
    if any_dtype:
        return array
    made = tensor_of(array, spec.dtype)
    if array_of(made).dtype != array.dtype:
        raise BadInput(f"holds {array.dtype}, the spec of '{spec.name}' says {spec.dtype}", path=path)
    return made


def _read_torch(path: Path) -> Any:
    torch = torch_module()
    if torch is None:
        raise BadInput("was saved by torch", path=path, remedy="Import torch in the script, or save without it.")
    try:
        tensor = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises RuntimeError, UnpicklingError, EOFError and more
        raise BadInput(f"is no tensor saved by torch: {error}", path=path) from error
    if not is_torch_tensor(tensor):
        raise BadInput(f"holds a {type(tensor).__name__}, no tensor", path=path)
    return array_of(tensor)


def _read_numpy(path: Path, name: str) -> Any:
    try:
        array = np.load(path, allow_pickle=False)
        dtypes = path.with_name(DTYPES)
        kind = json.loads(dtypes.read_text()).get(name) if dtypes.is_file() else None
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise BadInput(f"cannot be read: {error}", path=path) from error
    return array.view(BFLOAT16) if kind == BFLOAT16.name else array
