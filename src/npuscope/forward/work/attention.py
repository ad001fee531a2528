"""FLOPs and bytes of attention. How long the cached context is stands in no shape of a paged cache: it must be given.

`context` is the number of tokens each sequence had in its cache before the step; the step's own tokens come on top.
Multi-head latent attention (MLA) keeps one latent of 512 and one rope part of 64 per token for all heads, and
reads it once for both products.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuscope.forward.calls import Call, Tensor
from npuscope.forward.work.amount import NotPriced, Work
from npuscope.forward.work.tensor_size import bits, present, rates_as, size

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


def attention(call: Call, family: str) -> Work:
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


def sparse_attention(call: Call, family: str) -> Work:
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


def indexer(call: Call, family: str) -> Work:
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
    return Work(family, flops, "cube", rates_as(q.dtype), read, written)


def _work(call: Call, family: str, query: _Query, pairs: float, keys: float, kv_heads: int, shared: bool) -> Work:
    """`shared`: keys and values are one latent, read once."""
    q, k = present(call.inputs[:2])
    per_key = query.width if shared else kv_heads * (query.width + query.value_width)
    rope = _rope_part(call, q)
    out = present(call.outputs)
    written = sum(size(tensor, q.dtype) for tensor in out) if out else size(q)
    return Work(
        family,
        round(2 * pairs * query.heads * (query.width + query.value_width)),
        "cube",
        rates_as(q.dtype),
        size(q) + (size(rope, q.dtype) if rope else 0) + round(keys * per_key * bits(k.dtype or q.dtype) / 8),
        written,
        note=None if out else "output not recorded: taken as the query's shape",
    )


def _rope_part(call: Call, q: Tensor) -> Tensor | None:
    """MLA's second part of the query: as many rows and heads as the first, with a narrower head."""
    for tensor in present(call.inputs[3:]):
        if (
            len(tensor.shape) == len(q.shape) >= 3
            and tensor.shape[:-1] == q.shape[:-1]
            and tensor.shape[-1] < q.shape[-1]
        ):
            return tensor
    return None


def _query(call: Call, q: Tensor, rope: Tensor | None) -> _Query:
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


def _kv_heads(k: Tensor, width: int) -> int:
    """Heads of a paged cache [blocks, block, heads·width], [blocks, heads, block, width] or one of NZ."""
    if len(k.shape) == 3:
        return max(1, k.shape[-1] // width) if k.shape[-1] % width == 0 else k.shape[1]
    if len(k.shape) == 4:
        return min(k.shape[1], k.shape[2])  # a block has more tokens than there are heads
    return k.shape[1]


def _dense_layout(call: Call, q: Tensor, k: Tensor) -> tuple[_Query, float, int] | None:
    """[batch, heads, tokens, width] without pages; an output [batch, heads, tokens, 8] tells which is which."""
    if len(q.shape) != 4 or len(k.shape) != 4 or min(*q.shape, *k.shape) <= 0:
        return None
    told = [t.shape for t in present(call.outputs) if len(t.shape) == 4 and t.shape[-1] == 8]
    if told:
        heads = 1 if told[0][1:3] == q.shape[1:3] else 2
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
