"""FLOPs and bytes of kernels whose price is the bytes of their tensors: norms, activations, copies, cache writes."""

from __future__ import annotations

from npuscope.chip.kernels import Formula, WorkRule
from npuscope.forward.calls import Call, Tensor
from npuscope.forward.work.amount import NotPriced, Work
from npuscope.forward.work.tensor_size import DTYPES, elements, present, rates_as, size

FLOATS = ("bf16", "fp16", "fp32", "fp64")


def by_bytes(call: Call, rule: WorkRule) -> Work:
    """Every tensor once, save pools and look-up tables, of which only what is touched counts."""
    how = rule.work
    inputs = [tensor if slot not in how.pools else None for slot, tensor in enumerate(call.inputs)]
    moved = present(inputs)
    outputs = present(call.outputs)
    told = [*present(call.inputs), *outputs]
    if not told:
        raise NotPriced("its tensors are scalars or absent" if call.inputs else "shapes are not recorded")
    dtype = next((tensor.dtype for tensor in told if tensor.dtype), None)
    notes: list[str] = []
    if any(tensor.dtype is None for tensor in (*moved, *outputs)) and dtype is not None:
        notes.append(f"a data type is not recorded: taken as {dtype}, as another tensor's")
    written = _written(call, how, dtype, notes)
    if how.reads == "output":
        if not outputs:
            raise NotPriced("how much is read is not recorded: it is as much as the output, which is absent")
        read = min(written, size(told[0], dtype)) + sum(size(tensor, dtype) for tensor in present(inputs[1:]))
    else:
        read = sum(_touched(tensor, moved[0], how, dtype) for tensor in moved)
    if read + written == 0:
        raise NotPriced("its tensors are empty")
    biggest = moved[0] if how.table and moved else max((*moved, *outputs), key=elements, default=told[0])
    ops = round(how.ops * elements(biggest))
    rate = rates_as(biggest.dtype or dtype)
    if rate not in FLOATS and how.in_floats:
        rate = "fp32"
    known = ops > 0 and rate in FLOATS
    return Work(
        rule.family,
        ops if known else 0,
        None if how.floor else "vector",
        rate if known else None,
        read,
        written,
        note="; ".join(notes) or None,
        byte_bound=how.floor,
    )


def _touched(tensor: Tensor, first: Tensor, how: Formula, dtype: str | None) -> int:
    """Bytes read: of a look-up table one row per row of the first input."""
    rows = first.shape[0]
    if how.table and tensor is not first and len(tensor.shape) == 2 and tensor.shape[0] > rows:
        return size(Tensor((rows, tensor.shape[1]), tensor.dtype), dtype)
    return size(tensor, dtype)


def _written(call: Call, how: Formula, dtype: str | None, notes: list[str]) -> int:
    """Bytes written: rows into a pool, else the outputs, else what the family usually writes."""
    if how.writes:
        told = [call.inputs[slot] for slot in how.writes if slot < len(call.inputs)]
        return sum(size(tensor, dtype) for tensor in present(told))
    if outputs := present(call.outputs):
        return sum(size(tensor, dtype) for tensor in outputs)
    data = [t for t in present(call.inputs) if t.dtype is None or t.dtype in DTYPES]
    # rope works in place, on everything but its tables
    data = [t for t in data if t.shape[0] == data[0].shape[0]] if how.table else sorted(data, key=elements)[-1:]
    if how.output is not None and data:
        notes.append("output not recorded: taken from the input")
        return round(how.output * sum(size(tensor, dtype) for tensor in data))
    notes.append("output not recorded: not counted")
    return 0
