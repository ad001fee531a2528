"""Grouped-query attention of a layer: Qwen3 as measured, the others by their structure."""

from __future__ import annotations

from npuscope.forward.calls import Call
from npuscope.forward.llm.config import Model
from npuscope.forward.llm.kernels import Kernel, collective, matmul, norm, quantise, tensor
from npuscope.forward.llm.run import BLOCK, Run

MASK = (2048, 2048)  # the compressed causal mask
LONGEST = 81920  # rows of the rope table, as captured
TABLE = 512  # pages per sequence that a block table has room for, as captured


def grouped_query(model: Model, run: Run, layer: int) -> list[Kernel]:
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
        kernels.append(Kernel("copy", Call("TensorMove", (tensor(m, kv * width),), (tensor(m, kv * width),))))
    pool = tensor(run.pages, BLOCK, kv, width)
    rows = tensor(m, kv, width)
    cache = Call("ReshapeAndCacheNdKernel", (rows, rows, pool, pool, tensor(m, dtype="INT32")))
    kernels.append(Kernel("cache", cache))
    kernels.append(Kernel("attention", _scores(run, heads, kv, width)))
    kernels += quantise("o quant", m, heads * width, run)
    kernels.append(matmul("o", m, heads * width, model.hidden, run))
    if run.phase == "prefill":
        kernels += collective("o reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    else:
        kernels += collective("o reduce", "allReduce", run.tp, m, model.hidden)
    return kernels


def _split_and_rotate(model: Model, m: int, heads: int, kv: int, layer: int) -> list[Kernel]:
    """One fused kernel; in layer 0, where the fusion does not match, and without QK norm, its parts."""
    width = model.head_dim
    qkv = tensor(m, (heads + 2 * kv) * width)
    q, k = tensor(m, heads, width), tensor(m, kv, width)
    table = tensor(LONGEST, width)
    if model.qk_norm and layer > 0:
        inputs = (qkv, table, tensor(m, dtype="INT64"))
        flat = (tensor(m, heads * width), tensor(m, kv * width), tensor(m, kv * width))
        return [Kernel("split, norm, rope", Call("split_qkv_rmsnorm_rope_kernel", inputs, flat), 2 * width)]
    two = tensor(2, dtype="INT64")
    parts = [
        Kernel(f"slice {name}", Call("Slice", (qkv, two, two), (tensor(m, n * width),)))
        for name, n in (("q", heads), ("k", kv), ("v", kv))
    ]
    if model.qk_norm:
        parts += [norm("q norm", m, heads, width), norm("k norm", m, kv, width)]
    return [*parts, Kernel("rope", Call("_triton_rope", (q, k, table), (q, k)))]


def _scores(run: Run, heads: int, kv: int, width: int) -> Call:
    q, pool = tensor(run.tokens, heads, width), tensor(run.pages, BLOCK, kv * width)
    lengths = tensor(run.batch, dtype="INT64")
    inputs = [q, pool, pool, None, tensor(*MASK, dtype="INT8"), lengths, lengths, *[None] * 7]
    inputs.append(tensor(run.batch, TABLE, dtype="INT32"))
    return Call("FusedInferAttentionScore", tuple(inputs), (q,), {"context": float(run.context)})
