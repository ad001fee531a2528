"""The ordered kernels of one forward pass on one rank, as vLLM-Ascend runs it: head, layers, tail with sampling.

Measured sequences (facts: forward_passes §2): Qwen3 decode with ACL graph, Qwen3 prefill with sequence parallelism,
DeepSeek-V3 decode with W8A8 on vLLM-Ascend 0.15. All else follows from the model's structure; `basis` says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from npuscope.base.frozen import dataclass
from npuscope.chip.devices import Device
from npuscope.explain.work import BITS
from npuscope.forward.llm.config import BLOCK, ModelConfig, PassSettings
from npuscope.forward.llm.kernels import (
    ModelKernel,
    Part,
    Tensors,
    add_norm,
    collective,
    dense,
    grouped_query,
    kernel,
    latent_attention,
    mixture,
    norm,
    over_sequence,
    plain_matmul,
    tensor,
)

# collectives counted in the DeepSeek-V3 capture (195) beyond those that its structure explains (192)
UNATTRIBUTED = 3


def forward_pass(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Every kernel of the pass, in order."""
    parts: list[tuple[Part, int | None, list[ModelKernel]]] = [
        ("head", None, _head(model, run)),
        *(("layer", layer, _layer(model, run, layer)) for layer in range(model.layers)),
        ("tail", None, _tail(model, run)),
    ]
    return [
        replace(one, part=part, layer=layer, position=n)
        for part, layer, kernels in parts
        for n, one in enumerate(kernels)
    ]


def basis(model: ModelConfig, run: PassSettings) -> str:
    """Where the sequence comes from: measured on this family and phase, or its structure alone."""
    if model.family == "qwen3" and run.quant == "none":
        return "sequence as measured on Qwen3-32B with vLLM-Ascend (TP16)"
    if model.family == "deepseek_v3" and run.phase == "decode" and run.quant == "w8a8" and run.ep == run.tp * run.dp:
        return "sequence as measured on DeepSeek-V3 with vLLM-Ascend 0.15 (W8A8, TP8 DP2 EP16)"
    return f"sequence by the structure of {model.title}, not measured"


def _layer(model: ModelConfig, run: PassSettings, layer: int) -> list[ModelKernel]:
    """Attention, norm, feed-forward, and the norm of the next layer (or the final one)."""
    spread, experts = over_sequence(model, run), model.has_experts(layer)
    rows = run.slice_rows if spread else run.tokens
    gather = collective("experts gather", "allGather", run.tp, run.slice_rows, model.hidden)
    return [
        *(grouped_query(model, run, layer) if model.latent is None else latent_attention(model, run)),
        add_norm("attention norm", rows, model.hidden),
        *(gather if experts and spread and run.ep == 1 else ()),
        *(mixture(model, run) if experts else dense(model, run)),
        add_norm("ffn norm", rows, model.hidden),
    ]


def _head(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Embedding, shared among the ranks by vocabulary, and the first layer's norm."""
    spread = over_sequence(model, run)
    m, vocab = run.tokens, -(-model.vocab // run.tp)
    x, mask = tensor(m, model.hidden), tensor(m, 1, dtype="BOOL")
    look_up = (tensor(vocab, model.hidden), tensor(m, dtype="INT64"))
    summed = ("reduceScatter", run.padded_rows) if spread else ("allReduce", m)
    return [
        kernel("embedding", "GatherV2", look_up, (x,), vocab * model.hidden),
        *([kernel("embedding mask", "MaskedFill", (x, mask), (x,))] if run.tp > 1 else ()),
        *collective("embedding reduce", summed[0], run.tp, summed[1], model.hidden),
        norm("first norm", run.slice_rows if spread else m, model.hidden),
    ]


def _tail(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Last tokens, LM head, logits of all ranks, sampling."""
    b, vocab = run.batch, -(-model.vocab // run.tp)
    kernels = []
    if over_sequence(model, run):
        kernels += collective("hidden gather", "allGather", run.tp, run.slice_rows, model.hidden)
    every = (tensor(run.tokens, model.hidden), tensor(b, dtype="INT64"))
    head = plain_matmul("lm_head", b, model.hidden, vocab)
    kernels.append(kernel("last tokens", "Index", every, (tensor(b, model.hidden),)))
    kernels.append(replace(head, weights=0) if model.tied else head)
    kernels += collective("logits gather", "allGather", run.tp, b, vocab)
    if run.tp > 1:
        inputs = (tensor(run.tp, b, vocab), tensor(3, dtype="INT64"))
        kernels.append(kernel("logits transpose", "Transpose", inputs, (tensor(b, run.tp, vocab),)))
    if model.family == "deepseek_v3" and run.dp > 1 and run.tp > 1 and run.phase == "decode" and run.ep > 1:
        kernels += [kernel("unattributed collective", "hcom_", ())] * UNATTRIBUTED
    return kernels + _sampling(model, run)


def _sampling(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """The kernels measured with Qwen3-32B; their order is our reading of the sampler."""
    logits, order, mask = (tensor(run.batch, model.vocab, dtype=dtype) for dtype in ("FLOAT", "INT32", "BOOL"))
    limits = tensor(run.batch, dtype="FLOAT"), tensor(run.batch, dtype="INT32")
    steps: list[tuple[str, str, Tensors, Tensors]] = [
        ("temperature", "RealDiv", (logits, tensor(run.batch, 1, dtype="FLOAT")), (logits,)),
        ("sort", "Sort", (logits,), (logits, order)),
        ("top-k, top-p", "ApplyTopKTopPCustom", (logits, order, *limits), (logits,)),
        ("softmax", "SoftmaxV2", (logits,), (logits,)),
        ("noise", "DSARandomUniform", (), (logits,)),
        ("noise compare", "GreaterEqual", (logits,), (mask,)),
        ("noise fill", "MaskedFill", (logits, mask), (logits,)),
        ("noise scale", "Mul", (logits,), (logits,)),
        ("noise divide", "RealDiv", (logits, logits), (logits,)),
        ("choose", "ArgMaxV2", (logits,), (tensor(run.batch, dtype="INT64"),)),
    ]
    return [kernel(f"sampling: {role}", kind, inputs, outputs) for role, kind, inputs, outputs in steps]


@dataclass(frozen=True)
class RankMemory:
    """Bytes; activations, buffers and the runtime come on top."""

    weights: int
    cache: int
    has: int  # the device

    @property
    def fits(self) -> bool:
        return self.weights + self.cache <= self.has

    def sentence(self) -> str:
        """What is needed of what is there."""
        need = f"{self.weights / 1e9:,.1f} GB of weights and {self.cache / 1e9:,.1f} GB of cache"
        there = f"the {self.has / 1e9:,.1f} GB of one rank"
        return f"{need} fit into {there}." if self.fits else f"It does not fit: {need} are more than {there}."


def rank_memory(model: ModelConfig, run: PassSettings, kernels: Iterable[ModelKernel], device: Device) -> RankMemory:
    """What the pass needs on one rank. The cache is BF16; a weight is as wide as the second tensor of its kernel."""
    weights = 0
    for one in kernels:
        second = one.call.inputs[1] if len(one.call.inputs) > 1 else None
        weights += one.weights * (16 if second is None else BITS.get(second.dtype or "BF16", 16)) // 8
    heads = -(-model.kv_heads // run.tp)  # copied where there are more ranks than heads
    width = model.latent.kv_lora + model.latent.rope if model.latent else 2 * heads * model.head_dim
    cache = run.pages * BLOCK * model.layers * width * 2
    return RankMemory(weights, cache, int(device.memory.size.value))
