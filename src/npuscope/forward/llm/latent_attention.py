"""Latent attention (MLA) of a layer: DeepSeek-V3 decode as measured with vLLM-Ascend 0.15, the rest by structure.

Tokens are spread over the tensor-parallel ranks between attention and experts, so most kernels see a rank's share of
the rows; the compressed queries and the cache entries are gathered, which are two collectives.
"""

from __future__ import annotations

from npuscope.forward.calls import Call
from npuscope.forward.llm.attention import MASK, TABLE
from npuscope.forward.llm.config import Indexer, Latent, Model
from npuscope.forward.llm.kernels import Kernel, collective, matmul, norm, plain_matmul, quantise, tensor
from npuscope.forward.llm.run import BLOCK, Run


def latent_attention(model: Model, run: Run) -> list[Kernel]:
    """From the normed share of a rank to the reduced share."""
    latent = model.latent
    assert latent is not None  # the caller chose by it
    heads = model.heads // run.tp
    if model.indexer is not None:
        kernels = _picked(model, run, latent, model.indexer, heads)
    else:
        kernels = _compressed(model, run, latent, heads)
        kernels += _absorbed(run, latent, heads) if run.phase == "decode" else _expanded(run, latent, heads)
    rows, width = run.padded_rows, heads * latent.value
    kernels += quantise("o quant", rows, width, run)
    kernels.append(matmul("o", rows, width, model.hidden, run))
    return kernels + collective("o reduce", "reduceScatter", run.tp, rows, model.hidden)


def _compressed(model: Model, run: Run, latent: Latent, heads: int) -> list[Kernel]:
    """Down-projections, norms, the query's up-projection, rope and cache write."""
    own, m = run.slice_rows, run.tokens
    entry = latent.kv_lora + latent.rope
    kernels = quantise("qkv_a quant", own, model.hidden, run)
    kernels.append(matmul("qkv_a", own, model.hidden, latent.q_lora + entry, run))
    kernels += collective("q_a gather", "allGather", run.tp, own, latent.q_lora)
    kernels += collective("kv_a gather", "allGather", run.tp, own, entry)
    kernels.append(norm("q_a norm", m, latent.q_lora))
    if run.quant == "w8a8":
        x = tensor(m, latent.q_lora)
        kernels.append(Kernel("q_a bias", Call("Add", (x, tensor(latent.q_lora)), (x,))))
    kernels += quantise("q_b quant", m, latent.q_lora, run)
    kernels.append(matmul("q_b", m, latent.q_lora, heads * (latent.nope + latent.rope), run))
    if run.phase == "decode":
        a, b = tensor(heads, m, latent.nope), tensor(heads, latent.nope, latent.kv_lora)
        absorb = Call("BatchMatMulV2", (a, b), (tensor(heads, m, latent.kv_lora),))
        kernels.append(Kernel("k absorb", absorb, heads * latent.nope * latent.kv_lora))
    q, table = tensor(m, heads, 1, latent.rope), tensor(m, 1, 1, latent.rope)
    kernels.append(Kernel("rope", Call("InterleaveRope", (q, table, table), (q,))))
    pools = tensor(run.pages, BLOCK, 1, latent.rope), tensor(run.pages, BLOCK, 1, latent.kv_lora)
    inputs = (tensor(m, 1, 1, entry), tensor(latent.kv_lora), table, table, tensor(m, dtype="INT64"), *pools)
    return [*kernels, Kernel("cache", Call("KvRmsNormRopeCache", inputs), latent.kv_lora)]


def _absorbed(run: Run, latent: Latent, heads: int) -> list[Kernel]:
    """Decode: scores against the compressed cache itself, then the value's up-projection."""
    m, lora = run.tokens, latent.kv_lora
    x, three = tensor(m, heads, lora), tensor(3, dtype="INT64")
    up = tensor(heads, lora // 16, max(1, latent.value // 16), 16, 16, format="FRACTAL_NZ")
    q = tensor(m * heads * (latent.nope + latent.rope))
    rotated = tensor(m, heads, 1, latent.rope)
    return [
        Kernel("q transpose", Call("Transpose", (tensor(heads, m, lora), three), (x,))),
        Kernel("v weight layout", Call("TransData", (up,), (tensor(heads, lora, latent.value),))),
        Kernel("q view", Call("AsStrided", (q, three, three, tensor(1, dtype="INT64")), (rotated,))),
        Kernel("attention", _scores(run, latent, heads)),
        _value_up("v absorb", "TransposeBatchMatMul", run, latent, heads),
    ]


def _expanded(run: Run, latent: Latent, heads: int) -> list[Kernel]:
    """Prefill: keys and values are made from the compressed cache for every head."""
    m, seen = run.tokens, run.tokens + run.batch * run.context
    width, made = latent.nope + latent.rope, heads * (latent.nope + latent.value)
    up = Call("MatMulV2", (tensor(seen, latent.kv_lora), tensor(made, latent.kv_lora)), (tensor(seen, made),))
    q, k, v = tensor(m, heads, width), tensor(seen, heads, width), tensor(seen, heads, latent.value)
    lengths = tensor(run.batch, dtype="INT64")
    inputs = (q, k, v, None, tensor(*MASK, dtype="INT8"), lengths, lengths)
    given = {"context": float(run.context)}
    scores = Call("FusedInferAttentionScore", inputs, (tensor(m, heads, latent.value),), given)
    return [Kernel("kv_b", up, made * latent.kv_lora), Kernel("attention", scores)]


def _picked(model: Model, run: Run, latent: Latent, indexer: Indexer, heads: int) -> list[Kernel]:
    """DSA: one fused kernel before attention, an indexer, and attention over the keys it picked."""
    m, own, entry = run.tokens, run.slice_rows, latent.kv_lora + latent.rope
    dtype = "INT8" if run.quant == "w8a8" else "BF16"
    q_width = heads * (latent.nope + latent.rope)
    shapes: list[tuple[int, ...]] = [(model.hidden, latent.q_lora), (latent.q_lora, q_width)]
    shapes += [(heads, latent.nope, latent.kv_lora), (model.hidden, entry)]
    weights = tuple(tensor(*shape, dtype=dtype if len(shape) == 2 else "BF16") for shape in shapes)
    total = model.hidden * (latent.q_lora + entry) + latent.q_lora * q_width + heads * latent.nope * latent.kv_lora
    outputs = (tensor(m, heads, latent.kv_lora), tensor(m, heads, latent.rope))
    # `prolog`: the slots are those of MlaProlog, since this is our own call
    before = Call("mla_preprocess_0_mix_aic", (tensor(m, model.hidden), *weights), outputs, {"prolog": 1.0})
    scored = indexer.heads * indexer.head_dim
    given = {"context": float(run.context)}
    q, picked = tensor(m, indexer.heads, indexer.head_dim), tensor(m, 1, indexer.top, dtype="INT32")
    pool = tensor(run.pages, BLOCK, 1, indexer.head_dim)
    lengths = tensor(run.batch, dtype="INT32")
    index = Call("LightningIndexer", (q, pool, tensor(m, indexer.heads), lengths, lengths), (picked,), given)
    cache, rope_cache = (tensor(run.pages, BLOCK, 1, n) for n in (latent.kv_lora, latent.rope))
    table = tensor(run.batch, TABLE, dtype="INT32")
    sparse = (*outputs[:1], cache, cache, picked, table, lengths, lengths, outputs[1], rope_cache)
    kernels = collective("hidden gather", "allGather", run.tp, own, model.hidden)
    kernels.append(Kernel("mla preprocess", before, total + latent.q_lora + latent.kv_lora))
    kernels.append(matmul("indexer q", m, latent.q_lora, scored, run))
    kernels.append(plain_matmul("indexer k", m, model.hidden, indexer.head_dim))
    kernels.append(plain_matmul("indexer weights", m, model.hidden, indexer.heads))
    kernels.append(Kernel("indexer", index))
    kernels.append(Kernel("attention", Call("SparseFlashAttention", sparse, outputs[:1], given)))
    return [*kernels, _value_up("v absorb", "batch_matmul_transpose", run, latent, heads)]


def _value_up(role: str, kind: str, run: Run, latent: Latent, heads: int) -> Kernel:
    a, b = tensor(heads, run.tokens, latent.kv_lora), tensor(heads, latent.kv_lora, latent.value)
    call = Call(kind, (a, b), (tensor(heads, run.tokens, latent.value),))
    return Kernel(role, call, heads * latent.kv_lora * latent.value)


def _scores(run: Run, latent: Latent, heads: int) -> Call:
    m = run.tokens
    q, rope = tensor(m, heads, 1, latent.kv_lora), tensor(m, heads, 1, latent.rope)
    cache, rope_cache = (tensor(run.pages, 1, BLOCK, n) for n in (latent.kv_lora, latent.rope))
    lengths = tensor(run.batch, dtype="INT64")
    inputs = (q, cache, cache, *[None] * 3, lengths, *[None] * 7, tensor(m, TABLE, dtype="INT32"), *[None] * 9)
    given = {"context": float(run.context)}
    return Call("FusedInferAttentionScore", (*inputs, rope, rope_cache), (q,), given)
