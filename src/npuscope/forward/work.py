"""What a kernel call has to do: FLOPs and bytes from its type, shapes, data types and formats, and nothing guessed.

What is transposed is not in a kernel table; it follows from which dimensions agree with each other and with the
output. FLOPs are of the logical sizes: what padding to fractals adds is a loss of the kernel, not its work. How long
the cached context is stands in no shape of a paged cache: it must be given (`context`: the tokens that each sequence
had in its cache before the step). Multi-head latent attention (MLA) keeps one latent of 512 and one rope part of 64
per token for all heads, and reads it once for both products.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import Literal

from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import Formula, WorkRule, rule_of
from npuscope.explain.work import BITS
from npuscope.forward.calls import (
    DTYPES,
    Call,
    CallTensor,
    NotPriced,
    bits,
    elements,
    is_nz,
    logical,
    present,
    rates_as,
    size,
)


@dataclass(frozen=True)
class CallWork:
    """FLOPs (a multiply-add is two) and bytes of one call. None is not known, with the reason in `why_unknown`.

    `message_bytes` is the buffer each rank gives to a collective. `note` says what a number that is known rests on.
    """

    family: str
    flops: int | None = None
    unit: Literal["cube", "vector"] | None = None
    dtype: str | None = None  # of the arithmetic, as devices name it: bf16, fp16, fp32, int8, fp8
    bytes_read: int | None = None
    bytes_written: int | None = None
    message_bytes: int | None = None
    ranks: int | None = None
    why_unknown: str | None = None
    note: str | None = None
    # a floor only: bytes are known, what is done with them is not
    byte_bound: bool = False
    one_core: bool = False  # of a task that one core runs: its part of the chip's rate counts

    @property
    def bytes(self) -> int | None:
        """Read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written


ROUTED = "message size not known: it depends on which experts the tokens chose"
BYTES_ONLY = "bytes of its tensors only: what it computes is not known"


def work_of(call: Call) -> CallWork:
    """The work of one call. What cannot be known is None, with the reason."""
    rule = rule_of(call.type)
    try:
        return _priced(call, rule)
    except NotPriced as why:
        return CallWork(rule.family, why_unknown=str(why))


def _priced(call: Call, rule: WorkRule) -> CallWork:
    match rule.work.by:
        case "matmul":
            return matmul(call, rule.family, rule.work.operands)
        case "grouped":
            return grouped(call, rule.family)
        case "prolog":
            return prolog(call, rule.family)
        case "attention":
            return attention(call, rule.family)
        case "sparse_attention":
            return sparse_attention(call, rule.family)
        case "indexer":
            return indexer(call, rule.family)
        case "collective" | "routed":
            return _message(call, rule)
        case "unpriced":
            raise NotPriced(rule.work.why)
        case "bytes":
            work = by_bytes(call, rule)
            return replace(work, note=BYTES_ONLY) if rule.work.floor else work


def _message(call: Call, rule: WorkRule) -> CallWork:
    """A collective: bytes each rank gives, and how many ranks take part, where somebody told."""
    size, ranks = call.given.get("bytes"), call.given.get("ranks")
    if size is None:
        raise NotPriced("message size not recorded" if rule.work.by == "collective" else ROUTED)
    if ranks is None:
        raise NotPriced("number of ranks not given")
    if size < 0 or ranks < 1:
        raise NotPriced("message size or number of ranks is not a count")
    return CallWork(rule.family, message_bytes=round(size), ranks=round(ranks))


EDGE = 64  # more than any fractal is padded by
OUTPUT = {"INT8": "BF16", "UINT8": "BF16", "INT4": "BF16"}  # what a quantised product is written as, where not told


def matmul(call: Call, family: str, operands: tuple[int, int]) -> CallWork:
    """Any kernel that multiplies two tensors, batched or not."""
    a, b = _factors(call, operands)
    out = next(iter(present(call.outputs)), None)
    batch, m, k, n = sizes(a, b, out)
    read = sum(size(tensor, a.dtype) for tensor in present(call.inputs))
    note = None
    if out is None:
        dtype = OUTPUT.get(a.dtype or "", a.dtype)
        written = size(CallTensor((batch, m, n), dtype))
        note = "output not recorded: taken as the product's shape"
    else:
        written = sum(size(tensor, a.dtype) for tensor in present(call.outputs))
    return CallWork(family, 2 * batch * m * n * k, "cube", _rate(a, b), read, written, note=note)


def sizes(a: CallTensor, b: CallTensor, out: CallTensor | None = None) -> tuple[int, int, int, int]:
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


def _columns(out: CallTensor, rows: int, n: int, padded: bool) -> int | None:
    """N by the output's elements: the factor's, or a little fewer where its storage is padded; None if neither fits."""
    columns, rest = divmod(prod(logical(out)), rows)
    fits = columns == n or (padded and 0 < n - columns < EDGE)
    return columns if fits and not rest else None


def grouped(call: Call, family: str) -> CallWork:
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
    return CallWork(
        family,
        round(2 * rows * k * n),
        "cube",
        _rate(a, b),
        round(rows * k * bits(a.dtype) / 8) + weight,
        round(rows * n * bits(written_as) / 8),
        note=f"{rows_each:g} tokens for each of {experts} experts, {used} of them used",
    )


def prolog(call: Call, family: str) -> CallWork:
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
    return CallWork(family, flops, "cube", _rate(x, weights[0]), read, written)


def _factors(call: Call, operands: tuple[int, int]) -> tuple[CallTensor, CallTensor]:
    found = [call.inputs[slot] if slot < len(call.inputs) else None for slot in operands]
    if found[0] is None or found[1] is None or not found[0].shape or not found[1].shape:
        raise NotPriced("shapes are not recorded")
    return found[0], found[1]


def _rate(a: CallTensor, b: CallTensor) -> str | None:
    """The arithmetic's type: the wider of the two, so that W8A16 runs at the rate of 16 bits."""
    known = [dtype for dtype in (a.dtype, b.dtype) if dtype in BITS]
    return rates_as(max(known, key=lambda dtype: BITS[dtype])) if known else None


NO_CONTEXT = "context not given"
CAUSAL_MASK = (2048, 2048)  # the compressed mask of the causal modes
WHOLE_NUMBERS = ("INT32", "INT64")


@dataclass(frozen=True)
class _Query:
    """Sequences, tokens each, heads, and the widths of a head: of the scores and of the values."""

    sequences: int
    tokens: float  # per sequence
    heads: int
    width: int
    value_width: int


def attention(call: Call, family: str) -> CallWork:
    """Scores and weighted values of every query head over the sequence's keys."""
    if len(call.inputs) < 3 or any(tensor is None or not tensor.shape for tensor in call.inputs[:3]):
        raise NotPriced("shapes are not recorded")
    q, k = present(call.inputs[:2])
    rope = _rope_part(call, q)
    paged = k.shape[0] != q.shape[0]
    if not paged and rope is None and (layout := _dense_layout(call, q, k)) is not None:
        query, keys, kv_heads = layout
    else:
        context = call.given.get("context")
        if context is None and (paged or len(q.shape) != 3):
            raise NotPriced(NO_CONTEXT)
        query = _query(call, q, rope)
        keys = query.tokens + context if context is not None else query.tokens
        kv_heads = 1 if rope is not None else _kv_heads(k, query.width)
    masked = any(tensor.shape[-2:] == CAUSAL_MASK for tensor in present(call.inputs[3:]))
    causal = query.tokens > 1 and (masked or bool(call.given.get("causal")))
    # query i of t sees all keys but the t − i that come after it
    pairs = query.sequences * query.tokens * (keys - ((query.tokens - 1) / 2 if causal else 0))
    return _work(call, family, query, pairs, query.sequences * keys, kv_heads, rope is not None)


def sparse_attention(call: Call, family: str) -> CallWork:
    """As attention, over the few keys that an index has picked: the last dimension of the index is how many."""
    q = call.inputs[0] if call.inputs else None
    if q is None or not q.shape:
        raise NotPriced("shapes are not recorded")
    picked = [t for t in present(call.inputs[3:]) if t.dtype in WHOLE_NUMBERS and len(t.shape) >= 3]
    if not picked:
        raise NotPriced("how many keys were picked is not recorded")
    context = call.given.get("context")
    if context is None:
        raise NotPriced(NO_CONTEXT)
    query = _query(call, q, _rope_part(call, q))
    keys = min(picked[0].shape[-1], context + query.tokens)
    tokens = query.sequences * query.tokens
    distinct = min(tokens * keys, query.sequences * (context + query.tokens))
    return _work(call, family, query, tokens * keys, distinct, 1, True)


def indexer(call: Call, family: str) -> CallWork:
    """LightningIndexer: scores of a few small heads over the whole context, then a choice; no values."""
    q = call.inputs[0] if call.inputs else None
    if q is None or not q.shape:
        raise NotPriced("shapes are not recorded")
    context = call.given.get("context")
    if context is None:
        raise NotPriced(NO_CONTEXT)
    query = _query(call, q, None)
    keys = context + query.tokens
    pairs = query.sequences * query.tokens * keys
    flops = round(2 * pairs * query.heads * query.width)
    read = size(q) + round(query.sequences * keys * query.width * bits(q.dtype) / 8)
    written = sum(size(tensor) for tensor in present(call.outputs))
    return CallWork(family, flops, "cube", rates_as(q.dtype), read, written)


def _work(call: Call, family: str, query: _Query, pairs: float, keys: float, kv_heads: int, shared: bool) -> CallWork:
    """`shared`: keys and values are one latent, read once."""
    q, k = present(call.inputs[:2])
    per_key = query.width if shared else kv_heads * (query.width + query.value_width)
    rope = _rope_part(call, q)
    out = present(call.outputs)
    written = sum(size(tensor, q.dtype) for tensor in out) if out else size(q)
    return CallWork(
        family,
        round(2 * pairs * query.heads * (query.width + query.value_width)),
        "cube",
        rates_as(q.dtype),
        size(q) + (size(rope, q.dtype) if rope else 0) + round(keys * per_key * bits(k.dtype or q.dtype) / 8),
        written,
        note=None if out else "output not recorded: taken as the query's shape",
    )


def _rope_part(call: Call, q: CallTensor) -> CallTensor | None:
    """MLA's second part of the query: as many rows and heads as the first, with a narrower head."""
    for tensor in present(call.inputs[3:]):
        if (
            len(tensor.shape) == len(q.shape) >= 3
            and tensor.shape[:-1] == q.shape[:-1]
            and tensor.shape[-1] < q.shape[-1]
        ):
            return tensor
    return None


def _query(call: Call, q: CallTensor, rope: CallTensor | None) -> _Query:
    """From a query [tokens, heads, width], or [batch, heads, 1, width] and [batch, 1, heads, width]."""
    width = q.shape[-1]
    if min(q.shape) <= 0:
        raise NotPriced("a tensor is empty, or a dimension is not known")
    if len(q.shape) == 3:
        tokens, heads = q.shape[0], q.shape[1]
        sequences = _sequences(call, tokens)
    elif len(q.shape) == 4 and 1 in q.shape[1:3]:
        sequences = tokens = q.shape[0]
        heads = q.shape[1] * q.shape[2]
    else:
        raise NotPriced("which dimension of the query is the heads is not recorded")
    return _Query(sequences, tokens / sequences, heads, width + (rope.shape[-1] if rope else 0), width)


def _sequences(call: Call, tokens: int) -> int:
    """Rows of the block table, or the number of lengths given; they are the small whole-number inputs."""
    small = [t for t in present(call.inputs[3:]) if t.dtype in (*WHOLE_NUMBERS, None) and len(t.shape) <= 2]
    lengths = [t.shape[0] for t in small if 0 < t.shape[0] <= tokens]
    if not lengths:
        raise NotPriced("how many sequences there are is not recorded")
    return max(lengths)


def _kv_heads(k: CallTensor, width: int) -> int:
    """Heads of a paged cache [blocks, block, heads·width], [blocks, heads, block, width] or one of NZ."""
    if len(k.shape) == 3:
        return max(1, k.shape[-1] // width) if k.shape[-1] % width == 0 else k.shape[1]
    if len(k.shape) == 4:
        return min(k.shape[1], k.shape[2])  # a block has more tokens than there are heads
    return k.shape[1]


def _dense_layout(call: Call, q: CallTensor, k: CallTensor) -> tuple[_Query, float, int] | None:
    """[batch, heads, tokens, width] without pages; an output [batch, heads, tokens, 8] tells which is which."""
    if len(q.shape) != 4 or len(k.shape) != 4 or min(*q.shape, *k.shape) <= 0:
        return None
    statistics = [t.shape for t in present(call.outputs) if len(t.shape) == 4 and t.shape[-1] == 8]
    if statistics:
        heads = 1 if statistics[0][1:3] == q.shape[1:3] else 2
    elif call.type.startswith("aten::"):  # torch's own: heads first in the public operator, second beneath it
        heads = 1 if "scaled_dot_product" in call.type else 2
    else:  # only heads can be fewer in the keys, by a whole factor
        fewer = [n for n in (1, 2) if q.shape[n] > k.shape[n] and q.shape[n] % k.shape[n] == 0]
        if len(fewer) != 1:
            raise NotPriced("which dimension of the query is the heads is not recorded")
        (heads,) = fewer
    tokens = 3 - heads
    query = _Query(q.shape[0], q.shape[tokens], q.shape[heads], q.shape[3], q.shape[3])
    return query, k.shape[tokens], k.shape[heads]


FLOATS = ("bf16", "fp16", "fp32", "fp64")


def by_bytes(call: Call, rule: WorkRule) -> CallWork:
    """Every tensor once, save pools and look-up tables, of which only what is touched counts."""
    how = rule.work
    inputs = [tensor if slot not in how.pools else None for slot, tensor in enumerate(call.inputs)]
    moved = present(inputs)
    outputs = present(call.outputs)
    tensors = [*present(call.inputs), *outputs]
    if not tensors:
        raise NotPriced("its tensors are scalars or absent" if call.inputs else "shapes are not recorded")
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype), None)
    notes: list[str] = []
    if any(tensor.dtype is None for tensor in (*moved, *outputs)) and dtype is not None:
        notes.append(f"a data type is not recorded: taken as {dtype}, as another tensor's")
    written = _written(call, how, dtype, notes)
    if how.reads == "output":
        if not outputs:
            raise NotPriced("how much is read is not recorded: it is as much as the output, which is absent")
        read = min(written, size(tensors[0], dtype)) + sum(size(tensor, dtype) for tensor in present(inputs[1:]))
    else:
        read = sum(_touched(tensor, moved[0], how, dtype) for tensor in moved)
    if read + written == 0:
        raise NotPriced("its tensors are empty")
    biggest = moved[0] if how.table and moved else max((*moved, *outputs), key=elements, default=tensors[0])
    ops = round(how.ops * elements(biggest))
    rate = rates_as(biggest.dtype or dtype)
    if rate not in FLOATS and how.in_floats:
        rate = "fp32"
    known = ops > 0 and rate in FLOATS
    return CallWork(
        rule.family,
        ops if known else 0,
        None if how.floor else "vector",
        rate if known else None,
        read,
        written,
        note="; ".join(notes) or None,
        byte_bound=how.floor,
    )


def _touched(tensor: CallTensor, first: CallTensor, how: Formula, dtype: str | None) -> int:
    """Bytes read: of a look-up table one row per row of the first input."""
    rows = first.shape[0]
    if how.table and tensor is not first and len(tensor.shape) == 2 and tensor.shape[0] > rows:
        return size(CallTensor((rows, tensor.shape[1]), tensor.dtype), dtype)
    return size(tensor, dtype)


def _written(call: Call, how: Formula, dtype: str | None, notes: list[str]) -> int:
    """Bytes written: rows into a pool, else the outputs, else what the family usually writes."""
    if how.writes:
        written = [call.inputs[slot] for slot in how.writes if slot < len(call.inputs)]
        return sum(size(tensor, dtype) for tensor in present(written))
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
