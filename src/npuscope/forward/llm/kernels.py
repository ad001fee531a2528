"""The kernels of a layer as vLLM-Ascend calls them: attention, dense or mixed feed-forward, and what they share.

Shapes, data types and formats are as the profiler lists them. Qwen3 and DeepSeek-V3 decode (vLLM-Ascend 0.15) are as
measured, the others by their structure. With latent attention (MLA) tokens are spread over the tensor-parallel ranks
between attention and experts, so most kernels see a rank's share of the rows; the compressed queries and the cache
entries are gathered, which are two collectives.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Literal

from npuscope.base.frozen import dataclass
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.llm.config import BLOCK, Experts, Indexer, Latent, ModelConfig, PassSettings

Part = Literal["head", "layer", "tail"]
# gate_up and down of 768 rows ran as MatMulV2, of 3,072 rows as MatMulV3 (measured_kernels_by_shape.csv); where
# between them the kernel changes is not known
V3_ROWS = 1024


@dataclass(frozen=True)
class ModelKernel:
    """A kernel call and what it is for; `weights` counts the parameters that it reads on this rank.

    `layer` is None in head and tail of the pass, `position` counts inside the layer, head or tail.
    """

    role: str
    call: Call
    weights: int = 0
    part: Part = "layer"
    layer: int | None = None
    position: int = 0


Tensors = tuple[CallTensor | None, ...]


def kernel(
    role: str, kind: str, inputs: Tensors, outputs: Tensors = (), weights: int = 0, **given: float
) -> ModelKernel:
    """`given` is what shapes cannot tell."""
    return ModelKernel(role, Call(kind, inputs, outputs, given), weights)


def tensor(*shape: int, dtype: str = "BF16", format: str = "ND") -> CallTensor:
    return CallTensor(shape, dtype, format)


def projection(
    role: str, m: int, k: int, n: int, run: PassSettings, *, ffn: bool = False, bias: bool = False
) -> list[ModelKernel]:
    """A matmul with its weight stored as NZ; INT8 with W8A8, quantised before it.

    `ffn`: the rows have scales of their own, and the kernel for many rows may take it.
    """
    out, weights, summand = tensor(m, n), (k + 1) * n if bias else k * n, (tensor(n),) if bias else ()
    if run.quant == "w8a8":
        weight = tensor(ceil(n / 32), ceil(k / 16), 16, 32, dtype="INT8", format="FRACTAL_NZ")
        inputs = (tensor(m, k, dtype="INT8"), weight, tensor(n, dtype="FLOAT"), *summand)
        return [*quantise(f"{role} quant", m, k, run, ffn), kernel(role, "QuantBatchMatmulV3", inputs, (out,), weights)]
    weight = tensor(ceil(k / 16), ceil(n / 16), 16, 16, format="FRACTAL_NZ")
    kind = "MatMulV3" if ffn and m >= V3_ROWS else "MatMulV2"
    return [kernel(role, kind, (tensor(m, k), weight, *summand), (out,), weights)]


def plain_matmul(role: str, m: int, k: int, n: int) -> ModelKernel:
    """BF16 whatever the quantisation, its weight stored row by row: LM head, router, indexer."""
    return kernel(role, "MatMulV2", (tensor(m, k), tensor(n, k)), (tensor(m, n),), k * n)


def quantise(role: str, m: int, k: int, run: PassSettings, dynamic: bool = True) -> list[ModelKernel]:
    """With scales of each row, or of the checkpoint. Nothing without quantisation."""
    if run.quant != "w8a8":
        return []
    x, out = tensor(m, k), tensor(m, k, dtype="INT8")
    if dynamic:
        return [kernel(role, "DynamicQuant", (x,), (out, tensor(m, dtype="FLOAT")))]
    return [kernel(role, "AscendQuantV2", (x, tensor(k), tensor(k)), (out,))]


def add_norm(role: str, m: int, width: int) -> ModelKernel:
    """Residual and norm in one."""
    x = tensor(m, width)
    return kernel(role, "AddRmsNormBias", (x, x, tensor(width), None), (x, tensor(m, 1, dtype="FLOAT"), x), width)


def norm(role: str, *shape: int) -> ModelKernel:
    x, rstd = tensor(*shape), tensor(*shape[:-1], 1, dtype="FLOAT")
    return kernel(role, "RmsNorm", (x, tensor(shape[-1])), (x, rstd), shape[-1])


def swiglu(m: int, width: int) -> ModelKernel:
    """`width` is gate and up together."""
    return kernel("swiglu", "SwiGlu", (tensor(m, width),), (tensor(m, width // 2),))


def collective(role: str, kind: str, ranks: int, *shape: int) -> list[ModelKernel]:
    """`shape` is the BF16 buffer that each rank gives. One rank alone needs none."""
    given = {"bytes": 2.0 * prod(shape), "ranks": float(ranks)}
    return [kernel(role, f"hcom_{kind}_", (tensor(*shape),), (), 0, **given)] if ranks > 1 else []


def over_sequence(model: ModelConfig, run: PassSettings) -> bool:
    """True where norms run on a rank's share of the tokens: prefill, and any phase of latent attention."""
    return run.tp > 1 and (run.phase == "prefill" or model.latent is not None)


MASK = (2048, 2048)  # the compressed causal mask
LONGEST = 81920  # rows of the rope table, as captured
TABLE = 512  # pages per sequence that a block table has room for, as captured


def grouped_query(model: ModelConfig, run: PassSettings, layer: int) -> list[ModelKernel]:
    """From the normed hidden state to the attention's sum over ranks."""
    m, width, hidden, prefill = run.tokens, model.head_dim, model.hidden, run.phase == "prefill"
    heads, kv = model.heads // run.tp, max(1, model.kv_heads // run.tp)
    rows, pool, flat = tensor(m, kv, width), tensor(run.pages, BLOCK, kv, width), tensor(m, kv * width)
    q, pages, lengths = (
        tensor(m, heads, width),
        tensor(run.pages, BLOCK, kv * width),
        tensor(run.batch, dtype="INT64"),
    )
    scored = (q, pages, pages, None, tensor(*MASK, dtype="INT8"), lengths, lengths, *[None] * 7)
    table = tensor(run.batch, TABLE, dtype="INT32")
    summed = ("reduceScatter", run.padded_rows) if prefill else ("allReduce", m)
    return [
        *(collective("qkv gather", "allGather", run.tp, run.slice_rows, hidden) if prefill else ()),
        *projection("qkv", m, hidden, (heads + 2 * kv) * width, run, bias=model.qkv_bias),
        *_split_and_rotate(model, m, heads, kv, layer),
        *([kernel("copy", "TensorMove", (flat,), (flat,))] if prefill else ()),
        kernel("cache", "ReshapeAndCacheNdKernel", (rows, rows, pool, pool, tensor(m, dtype="INT32"))),
        kernel("attention", "FusedInferAttentionScore", (*scored, table), (q,), context=float(run.context)),
        *projection("o", m, heads * width, hidden, run),
        *collective("o reduce", summed[0], run.tp, summed[1], hidden),
    ]


def _split_and_rotate(model: ModelConfig, m: int, heads: int, kv: int, layer: int) -> list[ModelKernel]:
    """One fused kernel; in layer 0, where the fusion does not match, and without QK norm, its parts."""
    width = model.head_dim
    qkv, table, two = tensor(m, (heads + 2 * kv) * width), tensor(LONGEST, width), tensor(2, dtype="INT64")
    flat = {name: tensor(m, n * width) for name, n in (("q", heads), ("k", kv), ("v", kv))}
    if model.qk_norm and layer > 0:
        inputs = (qkv, table, tensor(m, dtype="INT64"))
        return [kernel("split, norm, rope", "split_qkv_rmsnorm_rope_kernel", inputs, tuple(flat.values()), 2 * width)]
    q, k = tensor(m, heads, width), tensor(m, kv, width)
    norms = [norm("q norm", m, heads, width), norm("k norm", m, kv, width)] if model.qk_norm else []
    return [
        *(kernel(f"slice {name}", "Slice", (qkv, two, two), (out,)) for name, out in flat.items()),
        *norms,
        kernel("rope", "_triton_rope", (q, k, table), (q, k)),
    ]


def latent_attention(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """From the normed share of a rank to the reduced share."""
    latent = model.latent
    assert latent is not None  # the caller chose by it
    heads = model.heads // run.tp
    if model.indexer is not None:
        kernels = _picked(model, run, latent, model.indexer, heads)
    else:
        scored = _absorbed(run, latent, heads) if run.phase == "decode" else _expanded(run, latent, heads)
        kernels = _compressed(model, run, latent, heads) + scored
    kernels += projection("o", run.padded_rows, heads * latent.value, model.hidden, run)
    return kernels + collective("o reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)


def _compressed(model: ModelConfig, run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
    """Down-projections, norms, the query's up-projection, rope and cache write."""
    share, m, lora = run.slice_rows, run.tokens, latent.kv_lora
    entry = lora + latent.rope
    kernels = projection("qkv_a", share, model.hidden, latent.q_lora + entry, run)
    kernels += collective("q_a gather", "allGather", run.tp, share, latent.q_lora)
    kernels += collective("kv_a gather", "allGather", run.tp, share, entry)
    kernels.append(norm("q_a norm", m, latent.q_lora))
    if run.quant == "w8a8":
        x = tensor(m, latent.q_lora)
        kernels.append(kernel("q_a bias", "Add", (x, tensor(latent.q_lora)), (x,)))
    kernels += projection("q_b", m, latent.q_lora, heads * (latent.nope + latent.rope), run)
    if run.phase == "decode":
        inputs, out = (tensor(heads, m, latent.nope), tensor(heads, latent.nope, lora)), tensor(heads, m, lora)
        kernels.append(kernel("k absorb", "BatchMatMulV2", inputs, (out,), heads * latent.nope * lora))
    q, table = tensor(m, heads, 1, latent.rope), tensor(m, 1, 1, latent.rope)
    pools = tensor(run.pages, BLOCK, 1, latent.rope), tensor(run.pages, BLOCK, 1, lora)
    written = (tensor(m, 1, 1, entry), tensor(lora), table, table, tensor(m, dtype="INT64"), *pools)
    rope = kernel("rope", "InterleaveRope", (q, table, table), (q,))
    return [*kernels, rope, kernel("cache", "KvRmsNormRopeCache", written, weights=lora)]


def _absorbed(run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
    """Decode: scores against the compressed cache itself, then the value's up-projection."""
    m, lora = run.tokens, latent.kv_lora
    three, rotated = tensor(3, dtype="INT64"), tensor(m, heads, 1, latent.rope)
    up = tensor(heads, lora // 16, max(1, latent.value // 16), 16, 16, format="FRACTAL_NZ")
    flat = tensor(m * heads * (latent.nope + latent.rope))
    q, lengths = tensor(m, heads, 1, lora), tensor(run.batch, dtype="INT64")
    cache, rope_cache = (tensor(run.pages, 1, BLOCK, n) for n in (lora, latent.rope))
    scored = (q, cache, cache, *[None] * 3, lengths, *[None] * 7, tensor(m, TABLE, dtype="INT32"), *[None] * 9)
    rope = rotated, rope_cache
    return [
        kernel("q transpose", "Transpose", (tensor(heads, m, lora), three), (tensor(m, heads, lora),)),
        kernel("v weight layout", "TransData", (up,), (tensor(heads, lora, latent.value),)),
        kernel("q view", "AsStrided", (flat, three, three, tensor(1, dtype="INT64")), (rotated,)),
        kernel("attention", "FusedInferAttentionScore", (*scored, *rope), (q,), context=float(run.context)),
        _value_up("TransposeBatchMatMul", run, latent, heads),
    ]


def _expanded(run: PassSettings, latent: Latent, heads: int) -> list[ModelKernel]:
    """Prefill: keys and values are made from the compressed cache for every head."""
    m, seen = run.tokens, run.tokens + run.batch * run.context
    width, made = latent.nope + latent.rope, heads * (latent.nope + latent.value)
    q, k, v = tensor(m, heads, width), tensor(seen, heads, width), tensor(seen, heads, latent.value)
    lengths, out = tensor(run.batch, dtype="INT64"), tensor(m, heads, latent.value)
    inputs = (q, k, v, None, tensor(*MASK, dtype="INT8"), lengths, lengths)
    return [
        plain_matmul("kv_b", seen, latent.kv_lora, made),
        kernel("attention", "FusedInferAttentionScore", inputs, (out,), context=float(run.context)),
    ]


def _picked(model: ModelConfig, run: PassSettings, latent: Latent, indexer: Indexer, heads: int) -> list[ModelKernel]:
    """DSA: one fused kernel before attention, an indexer, and attention over the keys it picked."""
    m, lora, entry = run.tokens, latent.kv_lora, latent.kv_lora + latent.rope
    dtype = "INT8" if run.quant == "w8a8" else "BF16"
    q_width, context = heads * (latent.nope + latent.rope), float(run.context)
    shapes: list[tuple[int, ...]] = [(model.hidden, latent.q_lora), (latent.q_lora, q_width)]
    shapes += [(heads, latent.nope, lora), (model.hidden, entry)]
    weights = tuple(tensor(*shape, dtype=dtype if len(shape) == 2 else "BF16") for shape in shapes)
    total = sum(map(prod, shapes)) + latent.q_lora + lora
    outputs = (tensor(m, heads, lora), tensor(m, heads, latent.rope))
    q, picked = tensor(m, indexer.heads, indexer.head_dim), tensor(m, 1, indexer.top, dtype="INT32")
    pool, lengths = tensor(run.pages, BLOCK, 1, indexer.head_dim), tensor(run.batch, dtype="INT32")
    cache, rope_cache = (tensor(run.pages, BLOCK, 1, n) for n in (lora, latent.rope))
    table = tensor(run.batch, TABLE, dtype="INT32")
    sparse = (outputs[0], cache, cache, picked, table, lengths, lengths, outputs[1], rope_cache)
    scores = (q, pool, tensor(m, indexer.heads), lengths, lengths)
    before = (tensor(m, model.hidden), *weights)
    return [
        *collective("hidden gather", "allGather", run.tp, run.slice_rows, model.hidden),
        # `prolog`: the slots are those of MlaProlog, since this is our own call
        kernel("mla preprocess", "mla_preprocess_0_mix_aic", before, outputs, total, prolog=1.0),
        projection("indexer q", m, latent.q_lora, indexer.heads * indexer.head_dim, run)[-1],
        plain_matmul("indexer k", m, model.hidden, indexer.head_dim),
        plain_matmul("indexer weights", m, model.hidden, indexer.heads),
        kernel("indexer", "LightningIndexer", scores, (picked,), context=context),
        kernel("attention", "SparseFlashAttention", sparse, outputs[:1], context=context),
        _value_up("batch_matmul_transpose", run, latent, heads),
    ]


def _value_up(kind: str, run: PassSettings, latent: Latent, heads: int) -> ModelKernel:
    inputs = tensor(heads, run.tokens, latent.kv_lora), tensor(heads, latent.kv_lora, latent.value)
    out = tensor(heads, run.tokens, latent.value)
    return kernel("v absorb", kind, inputs, (out,), heads * latent.kv_lora * latent.value)


def _gated(role: str, m: int, hidden: int, width: int, run: PassSettings) -> list[ModelKernel]:
    """gate and up in one, SwiGLU, down."""
    return [
        *projection(f"{role}gate_up", m, hidden, 2 * width, run, ffn=True),
        swiglu(m, 2 * width),
        *projection(f"{role}down", m, width, hidden, run, ffn=True),
    ]


def dense(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """With the sum over ranks."""
    spread = over_sequence(model, run)
    m = run.padded_rows if spread else run.tokens
    gather = collective("gate_up gather", "allGather", run.tp, run.slice_rows, model.hidden) if spread else []
    summed = collective("down reduce", "reduceScatter" if spread else "allReduce", run.tp, m, model.hidden)
    return [*gather, *_gated("", m, model.hidden, model.intermediate // run.tp, run), *summed]


def mixture(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Router, shared experts, and the routed experts: fused where captures of the architecture have them so."""
    experts = model.experts
    assert experts is not None  # the caller chose by it
    spread = run.ep > 1
    m = run.slice_rows if spread else run.tokens
    x, scores, bias = tensor(m, model.hidden), tensor(m, experts.count), experts.count if experts.router_bias else 0
    chosen = tensor(m, experts.per_token), tensor(m, experts.per_token, dtype="INT32")
    inputs = (scores, tensor(experts.count)) if bias else (scores,)
    kernels = [
        plain_matmul("router", m, model.hidden, experts.count),
        kernel("top-k", "MoeGatingTopK", inputs, chosen, bias),
    ]
    if experts.shared:  # every token visits them: whole on every rank that has its own tokens, else split like others
        width = experts.shared * experts.intermediate // (1 if spread else run.tp)
        kernels += _gated("shared ", m, model.hidden, width, run)
    fused = experts.fused and (spread or run.tp * run.dp == 1)
    kernels += [_fused(model, run, experts, m)] if fused else _grouped(model, run, experts, m)
    if experts.scale != 1:
        kernels.append(kernel("scale", "Muls", (x,), (x,)))
    if experts.shared:
        kernels.append(kernel("add shared", "Add", (x, x), (x,)))
    if not spread and over_sequence(model, run):
        return kernels + collective("down reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    if not spread:
        return kernels + collective("down reduce", "allReduce", run.tp, m, model.hidden)
    # latent attention and prefill gather in the next layer; else every rank needs all rows again
    gather = [] if over_sequence(model, run) else collective("experts gather", "allGather", run.tp, m, model.hidden)
    return kernels + gather


def tokens_per_expert(run: PassSettings, experts: Experts) -> float:
    """Rows of each expert of this rank in the mean. Experts that are not spread see their own group's."""
    groups = run.dp if run.ep > 1 else 1
    return run.tokens * groups * experts.per_token / experts.count * run.busiest


def _weights(model: ModelConfig, run: PassSettings, experts: Experts, share: int) -> list[CallTensor]:
    """Up and down of the experts that one rank has."""
    count, dtype = experts.count // run.ep, "INT8" if run.quant == "w8a8" else "BF16"
    return [tensor(count, model.hidden, 2 * share, dtype=dtype), tensor(count, share, model.hidden, dtype=dtype)]


def _fused(model: ModelConfig, run: PassSettings, experts: Experts, m: int) -> ModelKernel:
    """One kernel for exchange, both matmuls and the way back."""
    up, down = _weights(model, run, experts, experts.intermediate)
    x, chosen = tensor(m, model.hidden), tensor(m, experts.per_token, dtype="INT32")
    given = {"tokens_per_expert": tokens_per_expert(run, experts), "ranks": float(run.ep)}
    weights = prod(up.shape) + prod(down.shape)
    return kernel("experts", "DispatchFFNCombine", (x, up, down, chosen), (x,), weights, **given)


def _grouped(model: ModelConfig, run: PassSettings, experts: Experts, m: int) -> list[ModelKernel]:
    """Exchange, grouped matmuls, exchange back; routing inside the rank where experts are not spread."""
    share = experts.intermediate if run.ep > 1 else experts.intermediate // run.tp
    up, down = _weights(model, run, experts, share)
    each = tokens_per_expert(run, experts)
    rows = max(1, round(each * up.shape[0]))
    x, routed, chosen = tensor(m, model.hidden), tensor(rows, model.hidden), tensor(m, experts.per_token, dtype="INT32")
    moved = 2.0 * m * experts.per_token * model.hidden * run.busiest  # what it gets, if that is more than it sends
    given = {"bytes": moved, "ranks": float(run.ep)} if run.ep > 1 else {}
    first, last = ("MoeDistributeDispatchV2", "MoeDistributeCombineV2") if run.ep > 1 else (
        "MoeInitRoutingV2", "MoeFinalizeRoutingV2",
    )  # fmt: skip

    def product(role: str, weight: CallTensor) -> ModelKernel:
        _, k, n = weight.shape
        inputs = (tensor(rows, k, dtype=weight.dtype or "BF16"), weight)
        return kernel(role, "GroupedMatmul", inputs, (tensor(rows, n),), prod(weight.shape), tokens_per_expert=each)

    return [
        kernel("dispatch", first, (x, chosen), (routed,), 0, **given),
        *quantise("experts quant", rows, model.hidden, run),
        product("experts gate_up", up),
        swiglu(rows, 2 * share),
        *quantise("experts quant", rows, share, run),
        product("experts down", down),
        kernel("combine", last, (routed, chosen), (x,), 0, **given),
    ]
