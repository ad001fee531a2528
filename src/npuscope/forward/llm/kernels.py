"""The kernels of a layer as vLLM-Ascend calls them: attention, dense or mixed feed-forward, and what they share.

Shapes, data types and formats are as the profiler lists them. Qwen3 and DeepSeek-V3 decode (vLLM-Ascend 0.15) are as
measured, the others by their structure. With latent attention (MLA) tokens are spread over the tensor-parallel ranks
between attention and experts, so most kernels see a rank's share of the rows; the compressed queries and the cache
entries are gathered, which are two collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.llm.config import BLOCK, Experts, Indexer, Latent, ModelConfig, PassSettings

# gate_up and down of 768 rows ran as MatMulV2, of 3,072 rows as MatMulV3 (measured_kernels_by_shape.csv); where
# between them the kernel changes is not known
V3_ROWS = 1024


@dataclass(frozen=True)
class ModelKernel:
    """A kernel call and what it is for; `weights` counts the parameters that it reads on this rank."""

    role: str
    call: Call
    weights: int = 0


def tensor(*shape: int, dtype: str = "BF16", format: str = "ND") -> CallTensor:
    return CallTensor(shape, dtype, format)


def matmul(
    role: str, m: int, k: int, n: int, run: PassSettings, *, large: bool = False, bias: bool = False
) -> ModelKernel:
    """A projection with its weight stored as NZ; INT8 with W8A8. `large`: the kernel for many rows may take it."""
    out = tensor(m, n)
    weights, summand = (k + 1) * n if bias else k * n, (tensor(n),) if bias else ()
    if run.quant == "w8a8":
        weight = tensor(ceil(n / 32), ceil(k / 16), 16, 32, dtype="INT8", format="FRACTAL_NZ")
        inputs = (tensor(m, k, dtype="INT8"), weight, tensor(n, dtype="FLOAT"), *summand)
        return ModelKernel(role, Call("QuantBatchMatmulV3", inputs, (out,)), weights)
    weight = tensor(ceil(k / 16), ceil(n / 16), 16, 16, format="FRACTAL_NZ")
    kind = "MatMulV3" if large and m >= V3_ROWS else "MatMulV2"
    return ModelKernel(role, Call(kind, (tensor(m, k), weight, *summand), (out,)), weights)


def plain_matmul(role: str, m: int, k: int, n: int) -> ModelKernel:
    """BF16 whatever the quantisation, its weight stored row by row: LM head, router, indexer."""
    return ModelKernel(role, Call("MatMulV2", (tensor(m, k), tensor(n, k)), (tensor(m, n),)), k * n)


def quantise(role: str, m: int, k: int, run: PassSettings, *, dynamic: bool = False) -> list[ModelKernel]:
    """Before a quantised matmul: with scales of the checkpoint, or of each row. Nothing without quantisation."""
    if run.quant != "w8a8":
        return []
    out = tensor(m, k, dtype="INT8")
    if dynamic:
        return [ModelKernel(role, Call("DynamicQuant", (tensor(m, k),), (out, tensor(m, dtype="FLOAT"))))]
    return [ModelKernel(role, Call("AscendQuantV2", (tensor(m, k), tensor(k), tensor(k)), (out,)))]


def add_norm(role: str, m: int, width: int) -> ModelKernel:
    """Residual and norm in one."""
    x = tensor(m, width)
    outputs = (x, tensor(m, 1, dtype="FLOAT"), x)
    return ModelKernel(role, Call("AddRmsNormBias", (x, x, tensor(width), None), outputs), width)


def norm(role: str, *shape: int) -> ModelKernel:
    x, rstd = tensor(*shape), tensor(*shape[:-1], 1, dtype="FLOAT")
    return ModelKernel(role, Call("RmsNorm", (x, tensor(shape[-1])), (x, rstd)), shape[-1])


def swiglu(m: int, width: int) -> ModelKernel:
    """`width` is gate and up together."""
    return ModelKernel("swiglu", Call("SwiGlu", (tensor(m, width),), (tensor(m, width // 2),)))


def collective(role: str, kind: str, ranks: int, *shape: int) -> list[ModelKernel]:
    """`shape` is the BF16 buffer that each rank gives. One rank alone needs none."""
    if ranks == 1:
        return []
    given = {"bytes": 2.0 * prod(shape), "ranks": float(ranks)}
    return [ModelKernel(role, Call(f"hcom_{kind}_", (tensor(*shape),), (), given))]


def over_sequence(run: PassSettings, model_has_latent: bool) -> bool:
    """True where norms run on a rank's share of the tokens: prefill, and any phase of latent attention."""
    return run.tp > 1 and (run.phase == "prefill" or model_has_latent)


MASK = (2048, 2048)  # the compressed causal mask
LONGEST = 81920  # rows of the rope table, as captured
TABLE = 512  # pages per sequence that a block table has room for, as captured


def grouped_query(model: ModelConfig, run: PassSettings, layer: int) -> list[ModelKernel]:
    """From the normed hidden state to the attention's sum over ranks."""
    m, width = run.tokens, model.head_dim
    heads, kv = model.heads // run.tp, max(1, model.kv_heads // run.tp)
    qkv = (heads + 2 * kv) * width
    kernels = []
    if run.phase == "prefill":
        kernels += collective("qkv gather", "allGather", run.tp, run.slice_rows, model.hidden)
    kernels += quantise("qkv quant", m, model.hidden, run)
    kernels.append(matmul("qkv", m, model.hidden, qkv, run, bias=model.qkv_bias))
    kernels += _split_and_rotate(model, m, heads, kv, layer)
    if run.phase == "prefill":
        kernels.append(ModelKernel("copy", Call("TensorMove", (tensor(m, kv * width),), (tensor(m, kv * width),))))
    pool = tensor(run.pages, BLOCK, kv, width)
    rows = tensor(m, kv, width)
    cache = Call("ReshapeAndCacheNdKernel", (rows, rows, pool, pool, tensor(m, dtype="INT32")))
    kernels.append(ModelKernel("cache", cache))
    kernels.append(ModelKernel("attention", _scores(run, heads, kv, width)))
    kernels += quantise("o quant", m, heads * width, run)
    kernels.append(matmul("o", m, heads * width, model.hidden, run))
    if run.phase == "prefill":
        kernels += collective("o reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    else:
        kernels += collective("o reduce", "allReduce", run.tp, m, model.hidden)
    return kernels


def _split_and_rotate(model: ModelConfig, m: int, heads: int, kv: int, layer: int) -> list[ModelKernel]:
    """One fused kernel; in layer 0, where the fusion does not match, and without QK norm, its parts."""
    width = model.head_dim
    qkv = tensor(m, (heads + 2 * kv) * width)
    q, k = tensor(m, heads, width), tensor(m, kv, width)
    table = tensor(LONGEST, width)
    if model.qk_norm and layer > 0:
        inputs = (qkv, table, tensor(m, dtype="INT64"))
        flat = (tensor(m, heads * width), tensor(m, kv * width), tensor(m, kv * width))
        return [ModelKernel("split, norm, rope", Call("split_qkv_rmsnorm_rope_kernel", inputs, flat), 2 * width)]
    two = tensor(2, dtype="INT64")
    parts = [
        ModelKernel(f"slice {name}", Call("Slice", (qkv, two, two), (tensor(m, n * width),)))
        for name, n in (("q", heads), ("k", kv), ("v", kv))
    ]
    if model.qk_norm:
        parts += [norm("q norm", m, heads, width), norm("k norm", m, kv, width)]
    return [*parts, ModelKernel("rope", Call("_triton_rope", (q, k, table), (q, k)))]


def _scores(run: PassSettings, heads: int, kv: int, width: int) -> Call:
    q, pool = tensor(run.tokens, heads, width), tensor(run.pages, BLOCK, kv * width)
    lengths = tensor(run.batch, dtype="INT64")
    inputs = [q, pool, pool, None, tensor(*MASK, dtype="INT8"), lengths, lengths, *[None] * 7]
    inputs.append(tensor(run.batch, TABLE, dtype="INT32"))
    return Call("FusedInferAttentionScore", tuple(inputs), (q,), {"context": float(run.context)})


def latent_attention(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
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


def _compressed(model: ModelConfig, run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
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
        kernels.append(ModelKernel("q_a bias", Call("Add", (x, tensor(latent.q_lora)), (x,))))
    kernels += quantise("q_b quant", m, latent.q_lora, run)
    kernels.append(matmul("q_b", m, latent.q_lora, heads * (latent.nope + latent.rope), run))
    if run.phase == "decode":
        a, b = tensor(heads, m, latent.nope), tensor(heads, latent.nope, latent.kv_lora)
        absorb = Call("BatchMatMulV2", (a, b), (tensor(heads, m, latent.kv_lora),))
        kernels.append(ModelKernel("k absorb", absorb, heads * latent.nope * latent.kv_lora))
    q, table = tensor(m, heads, 1, latent.rope), tensor(m, 1, 1, latent.rope)
    kernels.append(ModelKernel("rope", Call("InterleaveRope", (q, table, table), (q,))))
    pools = tensor(run.pages, BLOCK, 1, latent.rope), tensor(run.pages, BLOCK, 1, latent.kv_lora)
    inputs = (tensor(m, 1, 1, entry), tensor(latent.kv_lora), table, table, tensor(m, dtype="INT64"), *pools)
    return [*kernels, ModelKernel("cache", Call("KvRmsNormRopeCache", inputs), latent.kv_lora)]


def _absorbed(run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
    """Decode: scores against the compressed cache itself, then the value's up-projection."""
    m, lora = run.tokens, latent.kv_lora
    x, three = tensor(m, heads, lora), tensor(3, dtype="INT64")
    up = tensor(heads, lora // 16, max(1, latent.value // 16), 16, 16, format="FRACTAL_NZ")
    q = tensor(m * heads * (latent.nope + latent.rope))
    rotated = tensor(m, heads, 1, latent.rope)
    return [
        ModelKernel("q transpose", Call("Transpose", (tensor(heads, m, lora), three), (x,))),
        ModelKernel("v weight layout", Call("TransData", (up,), (tensor(heads, lora, latent.value),))),
        ModelKernel("q view", Call("AsStrided", (q, three, three, tensor(1, dtype="INT64")), (rotated,))),
        ModelKernel("attention", _latent_scores(run, latent, heads)),
        _value_up("v absorb", "TransposeBatchMatMul", run, latent, heads),
    ]


def _expanded(run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
    """Prefill: keys and values are made from the compressed cache for every head."""
    m, seen = run.tokens, run.tokens + run.batch * run.context
    width, made = latent.nope + latent.rope, heads * (latent.nope + latent.value)
    up = Call("MatMulV2", (tensor(seen, latent.kv_lora), tensor(made, latent.kv_lora)), (tensor(seen, made),))
    q, k, v = tensor(m, heads, width), tensor(seen, heads, width), tensor(seen, heads, latent.value)
    lengths = tensor(run.batch, dtype="INT64")
    inputs = (q, k, v, None, tensor(*MASK, dtype="INT8"), lengths, lengths)
    given = {"context": float(run.context)}
    scores = Call("FusedInferAttentionScore", inputs, (tensor(m, heads, latent.value),), given)
    return [ModelKernel("kv_b", up, made * latent.kv_lora), ModelKernel("attention", scores)]


def _picked(model: ModelConfig, run: PassSettings, latent: Latent, indexer: Indexer, heads: int) -> list[ModelKernel]:
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
    kernels.append(ModelKernel("mla preprocess", before, total + latent.q_lora + latent.kv_lora))
    kernels.append(matmul("indexer q", m, latent.q_lora, scored, run))
    kernels.append(plain_matmul("indexer k", m, model.hidden, indexer.head_dim))
    kernels.append(plain_matmul("indexer weights", m, model.hidden, indexer.heads))
    kernels.append(ModelKernel("indexer", index))
    kernels.append(ModelKernel("attention", Call("SparseFlashAttention", sparse, outputs[:1], given)))
    return [*kernels, _value_up("v absorb", "batch_matmul_transpose", run, latent, heads)]


def _value_up(role: str, kind: str, run: PassSettings, latent: Latent, heads: int) -> ModelKernel:
    a, b = tensor(heads, run.tokens, latent.kv_lora), tensor(heads, latent.kv_lora, latent.value)
    call = Call(kind, (a, b), (tensor(heads, run.tokens, latent.value),))
    return ModelKernel(role, call, heads * latent.kv_lora * latent.value)


def _latent_scores(run: PassSettings, latent: Latent, heads: int) -> Call:
    m = run.tokens
    q, rope = tensor(m, heads, 1, latent.kv_lora), tensor(m, heads, 1, latent.rope)
    cache, rope_cache = (tensor(run.pages, 1, BLOCK, n) for n in (latent.kv_lora, latent.rope))
    lengths = tensor(run.batch, dtype="INT64")
    inputs = (q, cache, cache, *[None] * 3, lengths, *[None] * 7, tensor(m, TABLE, dtype="INT32"), *[None] * 9)
    given = {"context": float(run.context)}
    return Call("FusedInferAttentionScore", (*inputs, rope, rope_cache), (q,), given)


def dense(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """gate and up in one, SwiGLU, down, and the sum over ranks."""
    spread = over_sequence(run, model.latent is not None)
    m = run.padded_rows if spread else run.tokens
    share = model.intermediate // run.tp
    kernels = collective("gate_up gather", "allGather", run.tp, run.slice_rows, model.hidden) if spread else []
    kernels += quantise("gate_up quant", m, model.hidden, run, dynamic=True)
    kernels.append(matmul("gate_up", m, model.hidden, 2 * share, run, large=True))
    kernels.append(swiglu(m, 2 * share))
    kernels += quantise("down quant", m, share, run, dynamic=True)
    kernels.append(matmul("down", m, share, model.hidden, run, large=True))
    return kernels + collective("down reduce", "reduceScatter" if spread else "allReduce", run.tp, m, model.hidden)


def mixture(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Router, shared experts, and the routed experts: fused where captures of the architecture have them so."""
    experts = model.experts
    assert experts is not None  # the caller chose by it
    spread = run.ep > 1
    m = run.slice_rows if spread else run.tokens
    scores = tensor(m, experts.count)
    chosen = tensor(m, experts.per_token), tensor(m, experts.per_token, dtype="INT32")
    bias = experts.count if experts.router_bias else 0
    inputs = (scores, tensor(experts.count)) if bias else (scores,)
    kernels = [
        plain_matmul("router", m, model.hidden, experts.count),
        ModelKernel("top-k", Call("MoeGatingTopK", inputs, chosen), bias),
    ]
    if experts.shared:
        kernels += _shared(model, run, experts, m)
    fused = experts.fused and (spread or run.tp * run.dp == 1)
    kernels += [_fused(model, run, experts, m)] if fused else _grouped(model, run, experts, m)
    x = tensor(m, model.hidden)
    if experts.scale != 1:
        kernels.append(ModelKernel("scale", Call("Muls", (x,), (x,))))
    if experts.shared:
        kernels.append(ModelKernel("add shared", Call("Add", (x, x), (x,))))
    if not spread and over_sequence(run, model.latent is not None):
        return kernels + collective("down reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    if not spread:
        return kernels + collective("down reduce", "allReduce", run.tp, m, model.hidden)
    # latent attention and prefill gather in the next layer; else every rank needs all rows again
    if over_sequence(run, model.latent is not None):
        return kernels
    return kernels + collective("experts gather", "allGather", run.tp, m, model.hidden)


def tokens_per_expert(run: PassSettings, experts: Experts) -> float:
    """Rows of each expert when the router spreads tokens evenly. Experts that are not spread see their own group's."""
    groups = run.dp if run.ep > 1 else 1
    return run.tokens * groups * experts.per_token / experts.count


def _shared(model: ModelConfig, run: PassSettings, experts: Experts, m: int) -> list[ModelKernel]:
    """The experts that every token visits: whole on every rank that has its own tokens, else split like the others."""
    width = experts.shared * experts.intermediate // (1 if run.ep > 1 else run.tp)
    return [
        *quantise("shared gate_up quant", m, model.hidden, run, dynamic=True),
        matmul("shared gate_up", m, model.hidden, 2 * width, run, large=True),
        swiglu(m, 2 * width),
        *quantise("shared down quant", m, width, run, dynamic=True),
        matmul("shared down", m, width, model.hidden, run, large=True),
    ]


def _weights(
    model: ModelConfig, run: PassSettings, experts: Experts, share: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    own = experts.count // run.ep
    return (own, model.hidden, 2 * share), (own, share, model.hidden)


def _fused(model: ModelConfig, run: PassSettings, experts: Experts, m: int) -> ModelKernel:
    """One kernel for exchange, both matmuls and the way back."""
    dtype = "INT8" if run.quant == "w8a8" else "BF16"
    up, down = _weights(model, run, experts, experts.intermediate)
    x = tensor(m, model.hidden)
    inputs = (x, tensor(*up, dtype=dtype), tensor(*down, dtype=dtype), tensor(m, experts.per_token, dtype="INT32"))
    given = {"tokens_per_expert": tokens_per_expert(run, experts), "ranks": float(run.ep)}
    weights = 3 * up[0] * model.hidden * experts.intermediate
    return ModelKernel("experts", Call("DispatchFFNCombine", inputs, (x,), given), weights)


def _grouped(model: ModelConfig, run: PassSettings, experts: Experts, m: int) -> list[ModelKernel]:
    """Exchange, grouped matmuls, exchange back; routing inside the rank where experts are not spread."""
    share = experts.intermediate if run.ep > 1 else experts.intermediate // run.tp
    up, down = _weights(model, run, experts, share)
    rows = max(1, round(tokens_per_expert(run, experts) * up[0]))
    x, routed = tensor(m, model.hidden), tensor(rows, model.hidden)
    chosen = tensor(m, experts.per_token, dtype="INT32")
    dtype = "INT8" if run.quant == "w8a8" else "BF16"
    each = {"tokens_per_expert": tokens_per_expert(run, experts)}
    message = {"bytes": 2.0 * m * experts.per_token * model.hidden, "ranks": float(run.ep)}
    first, last = ("MoeDistributeDispatchV2", "MoeDistributeCombineV2") if run.ep > 1 else (
        "MoeInitRoutingV2", "MoeFinalizeRoutingV2",
    )  # fmt: skip
    given = message if run.ep > 1 else {}

    def product(role: str, shape: tuple[int, ...]) -> ModelKernel:
        a = tensor(rows, shape[1], dtype=dtype)
        call = Call("GroupedMatmul", (a, tensor(*shape, dtype=dtype)), (tensor(rows, shape[2]),), each)
        return ModelKernel(role, call, shape[0] * shape[1] * shape[2])

    return [
        ModelKernel("dispatch", Call(first, (x, chosen), (routed,), given)),
        *quantise("experts quant", rows, model.hidden, run, dynamic=True),
        product("experts gate_up", up),
        swiglu(rows, 2 * share),
        *quantise("experts quant", rows, share, run, dynamic=True),
        product("experts down", down),
        ModelKernel("combine", Call(last, (routed, chosen), (x,), given)),
    ]
