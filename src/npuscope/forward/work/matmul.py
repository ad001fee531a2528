"""FLOPs and bytes of matrix multiplications: plain, batched, quantised, grouped, and the stack of them before MLA.

What is transposed is not in a kernel table; it follows from which dimensions agree with each other and with the
output. FLOPs are of the logical sizes: what padding to fractals adds is a loss of the kernel, not its work.
"""

from __future__ import annotations

from math import ceil, prod

from npuscope.explain.work import BITS
from npuscope.forward.calls import Call, Tensor
from npuscope.forward.work.amount import NotPriced, Work
from npuscope.forward.work.tensor_size import bits, elements, is_nz, logical, present, rates_as, size

EDGE = 64  # more than any fractal is padded by
OUTPUT = {"INT8": "BF16", "UINT8": "BF16", "INT4": "BF16"}  # what a quantised product is written as, where not told


def matmul(call: Call, family: str, operands: tuple[int, int]) -> Work:
    """Any kernel that multiplies two tensors, batched or not."""
    a, b = _factors(call, operands)
    out = next(iter(present(call.outputs)), None)
    batch, m, k, n = sizes(a, b, out)
    read = sum(size(tensor, a.dtype) for tensor in present(call.inputs))
    note = None
    if out is None:
        dtype = OUTPUT.get(a.dtype or "", a.dtype)
        written = size(Tensor((batch, m, n), dtype))
        note = "output not recorded: taken as the product's shape"
    else:
        written = sum(size(tensor, a.dtype) for tensor in present(call.outputs))
    return Work(family, 2 * batch * m * n * k, "cube", _rate(a, b), read, written, note=note)


def sizes(a: Tensor, b: Tensor, out: Tensor | None = None) -> tuple[int, int, int, int]:
    """batch, M, K, N of a product of two tensors as a kernel table has them."""
    left, right = logical(a), logical(b)
    left = left if len(left) > 1 else (1, *left)
    right = right if len(right) > 1 else (*right, 1)
    if min((*left, *right)) <= 0:
        raise NotPriced("a tensor is empty, or a dimension is not known")
    batch = prod(right[:-2])
    shared = batch if len(left) > 2 else 1  # how many of the left's rows belong to each product
    for left_k in dict.fromkeys((left[-1], left[-2])):
        for right_k, n in dict.fromkeys(((right[-2], right[-1]), (right[-1], right[-2]))):
            rows, rest = divmod(prod(left), left_k * shared)
            if rest or not _same(left_k, right_k, is_nz(a), is_nz(b)):
                continue
            columns = n if out is None else _columns(out, batch * rows, n, is_nz(b))
            if columns is not None:
                return batch, rows, min(left_k, right_k), columns
    raise NotPriced("the shapes of the factors and of the output do not agree")


def _same(left_k: int, right_k: int, left_padded: bool, right_padded: bool) -> bool:
    """One inner dimension, up to the padding of a storage format."""
    return (
        left_k == right_k
        or (right_padded and 0 < right_k - left_k < EDGE)
        or (left_padded and 0 < left_k - right_k < EDGE)
    )


def _columns(out: Tensor, rows: int, n: int, padded: bool) -> int | None:
    """N by the output's elements: the factor's, or a little fewer where its storage is padded; None if neither fits."""
    columns, rest = divmod(prod(logical(out)), rows)
    fits = columns == n or (padded and 0 < n - columns < EDGE)
    return columns if fits and not rest else None


def grouped(call: Call, family: str) -> Work:
    """Rows of experts, each expert with a matrix of its own. How many rows an expert got is not in the shapes."""
    a, b = _factors(call, (0, 1))
    shape = logical(b)
    if len(shape) != 3:
        raise NotPriced("the weights are not one matrix per expert")
    rows_each = call.given.get("tokens_per_expert")
    if rows_each is None:
        raise NotPriced("tokens per expert not given: the table has the rows allocated, not the rows used")
    experts, k = shape[0], a.shape[-1]
    if k not in shape[1:]:
        raise NotPriced("the shapes of the factors do not agree")
    n = shape[1] * shape[2] // k
    rows = experts * rows_each
    used = min(experts, ceil(rows))
    weight = size(b, a.dtype) * used // experts
    out = next(iter(present(call.outputs)), None)
    written_as = out.dtype if out is not None else OUTPUT.get(a.dtype or "", a.dtype)
    return Work(
        family,
        round(2 * rows * k * n),
        "cube",
        _rate(a, b),
        round(rows * k * bits(a.dtype) / 8) + weight,
        round(rows * n * bits(written_as) / 8),
        note=f"{rows_each:g} tokens for each of {experts} experts, {used} of them used",
    )


def prolog(call: Call, family: str) -> Work:
    """MlaProlog: the token rows times each of four weights (down Q, up Q, absorbed K, down KV), norms and rope."""
    if len(call.inputs) < 5 or any(tensor is None for tensor in call.inputs[:5]):
        raise NotPriced("the weights of the prolog are not recorded")
    x, *weights = present(call.inputs[:5])
    rows = elements(x) // x.shape[-1]
    pool = [tensor for tensor in present(call.inputs[5:]) if len(tensor.shape) >= 3 and tensor.shape[0] != rows]
    cached = sum(tensor.shape[-1] for tensor in pool)
    read = sum(size(tensor, x.dtype) for tensor in present(call.inputs) if tensor not in pool)
    pools = {tensor.shape for tensor in pool}
    outputs = [tensor for tensor in present(call.outputs) if tensor.shape not in pools]
    written = sum(size(tensor, x.dtype) for tensor in outputs) + rows * cached * bits(x.dtype) // 8
    flops = 2 * rows * sum(elements(weight) for weight in weights)
    return Work(family, flops, "cube", _rate(x, weights[0]), read, written)


def _factors(call: Call, operands: tuple[int, int]) -> tuple[Tensor, Tensor]:
    found = [call.inputs[slot] if slot < len(call.inputs) else None for slot in operands]
    if found[0] is None or found[1] is None or not found[0].shape or not found[1].shape:
        raise NotPriced("shapes are not recorded")
    return found[0], found[1]


def _rate(a: Tensor, b: Tensor) -> str | None:
    """The arithmetic's type: the wider of the two, so that W8A16 runs at the rate of 16 bits."""
    told = [dtype for dtype in (a.dtype, b.dtype) if dtype in BITS]
    return rates_as(max(told, key=lambda dtype: BITS[dtype])) if told else None
