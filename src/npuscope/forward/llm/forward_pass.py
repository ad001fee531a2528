"""The ordered kernels of one forward pass on one rank, as vLLM-Ascend runs it: head, layers, tail with sampling.

Measured sequences (facts: forward_passes §2): Qwen3 decode with ACL graph, Qwen3 prefill with sequence parallelism,
DeepSeek-V3 decode with W8A8 on vLLM-Ascend 0.15. All else follows from the model's structure; `basis` says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from npuscope.chip.devices import Device
from npuscope.explain.work import BITS
from npuscope.forward.calls import Call
from npuscope.forward.llm.config import BLOCK, ModelConfig, PassSettings
from npuscope.forward.llm.kernels import (
    ModelKernel,
    add_norm,
    collective,
    dense,
    grouped_query,
    latent_attention,
    mixture,
    norm,
    over_sequence,
    plain_matmul,
    tensor,
)

Part = Literal["head", "layer", "tail"]
# collectives counted in the DeepSeek-V3 capture (195) beyond those that its structure explains (192)
UNATTRIBUTED = 3


@dataclass(frozen=True)
class Placed:
    """A kernel at its place: `layer` is null in head and tail, `position` counts inside the layer, head or tail.

    `weights` is the number of parameters it reads on this rank.
    """

    call: Call
    layer: int | None
    position: int
    part: Part
    role: str
    weights: int = 0


def forward_pass(model: ModelConfig, run: PassSettings) -> list[Placed]:
    """Every kernel of the pass, in order."""
    placed = _placed(_head(model, run), None, "head")
    for layer in range(model.layers):
        placed += _placed(_layer(model, run, layer), layer, "layer")
    return placed + _placed(_tail(model, run), None, "tail")


def basis(model: ModelConfig, run: PassSettings) -> str:
    """Where the sequence comes from: measured on this family and phase, or its structure alone."""
    if model.family == "qwen3" and run.quant == "none":
        return "sequence as measured on Qwen3-32B with vLLM-Ascend (TP16)"
    if model.family == "deepseek_v3" and run.phase == "decode" and run.quant == "w8a8" and run.ep == run.tp * run.dp:
        return "sequence as measured on DeepSeek-V3 with vLLM-Ascend 0.15 (W8A8, TP8 DP2 EP16)"
    return f"sequence by the structure of {model.title}, not measured"


def _placed(kernels: list[ModelKernel], layer: int | None, part: Part) -> list[Placed]:
    return [Placed(k.call, layer, place, part, k.role, k.weights) for place, k in enumerate(kernels)]


def _layer(model: ModelConfig, run: PassSettings, layer: int) -> list[ModelKernel]:
    """Attention, norm, feed-forward, and the norm of the next layer (or the final one)."""
    spread = over_sequence(run, model.latent is not None)
    rows = run.slice_rows if spread else run.tokens
    attention = grouped_query(model, run, layer) if model.latent is None else latent_attention(model, run)
    has_experts = model.has_experts(layer)
    forward = mixture(model, run) if has_experts else dense(model, run)
    if has_experts and spread and run.ep == 1:
        forward = [*collective("experts gather", "allGather", run.tp, run.slice_rows, model.hidden), *forward]
    after = add_norm("attention norm", rows, model.hidden)
    return [*attention, after, *forward, add_norm("ffn norm", rows, model.hidden)]


def _head(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Embedding, shared among the ranks by vocabulary, and the first layer's norm."""
    spread = over_sequence(run, model.latent is not None)
    m, vocab = run.tokens, -(-model.vocab // run.tp)
    x = tensor(m, model.hidden)
    look_up = Call("GatherV2", (tensor(vocab, model.hidden), tensor(m, dtype="INT64")), (x,))
    kernels = [ModelKernel("embedding", look_up, vocab * model.hidden)]
    if run.tp > 1:
        kernels.append(ModelKernel("embedding mask", Call("MaskedFill", (x, tensor(m, 1, dtype="BOOL")), (x,))))
    if spread:
        kernels += collective("embedding reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    else:
        kernels += collective("embedding reduce", "allReduce", run.tp, m, model.hidden)
    return [*kernels, norm("first norm", run.slice_rows if spread else m, model.hidden)]


def _tail(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """Last tokens, LM head, logits of all ranks, sampling."""
    spread = over_sequence(run, model.latent is not None)
    b, vocab = run.batch, -(-model.vocab // run.tp)
    kernels = []
    if spread:
        kernels += collective("hidden gather", "allGather", run.tp, run.slice_rows, model.hidden)
    chosen = Call("Index", (tensor(run.tokens, model.hidden), tensor(b, dtype="INT64")), (tensor(b, model.hidden),))
    head = plain_matmul("lm_head", b, model.hidden, vocab)
    kernels += [
        ModelKernel("last tokens", chosen),
        ModelKernel(head.role, head.call, 0 if model.tied else head.weights),
    ]
    kernels += collective("logits gather", "allGather", run.tp, b, vocab)
    if run.tp > 1:
        swapped = Call("Transpose", (tensor(run.tp, b, vocab), tensor(3, dtype="INT64")), (tensor(b, run.tp, vocab),))
        kernels.append(ModelKernel("logits transpose", swapped))
    if model.family == "deepseek_v3" and run.dp > 1 and run.tp > 1 and run.phase == "decode" and run.ep > 1:
        kernels += [ModelKernel("unattributed collective", Call("hcom_"))] * UNATTRIBUTED
    return kernels + _sampling(model, run)


def _sampling(model: ModelConfig, run: PassSettings) -> list[ModelKernel]:
    """The kernels measured with Qwen3-32B; their order is our reading of the sampler."""
    logits = tensor(run.batch, model.vocab, dtype="FLOAT")
    mask = tensor(run.batch, model.vocab, dtype="BOOL")
    scalar, order = tensor(run.batch, 1, dtype="FLOAT"), tensor(run.batch, model.vocab, dtype="INT32")
    limits = tensor(run.batch, dtype="FLOAT"), tensor(run.batch, dtype="INT32")
    calls = {
        "temperature": Call("RealDiv", (logits, scalar), (logits,)),
        "sort": Call("Sort", (logits,), (logits, order)),
        "top-k, top-p": Call("ApplyTopKTopPCustom", (logits, order, *limits), (logits,)),
        "softmax": Call("SoftmaxV2", (logits,), (logits,)),
        "noise": Call("DSARandomUniform", (), (logits,)),
        "noise compare": Call("GreaterEqual", (logits,), (mask,)),
        "noise fill": Call("MaskedFill", (logits, mask), (logits,)),
        "noise scale": Call("Mul", (logits,), (logits,)),
        "noise divide": Call("RealDiv", (logits, logits), (logits,)),
        "choose": Call("ArgMaxV2", (logits,), (tensor(run.batch, dtype="INT64"),)),
    }
    return [ModelKernel(f"sampling: {role}", call) for role, call in calls.items()]


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


def rank_memory(model: ModelConfig, run: PassSettings, kernels: Iterable[Placed], device: Device) -> RankMemory:
    """What the pass needs on one rank. The cache is BF16."""
    weights = sum(kernel.weights * _width(kernel) // 8 for kernel in kernels)
    heads = -(-model.kv_heads // run.tp)  # copied where there are more ranks than heads
    width = model.latent.kv_lora + model.latent.rope if model.latent else 2 * heads * model.head_dim
    cache = run.pages * BLOCK * model.layers * width * 2
    return RankMemory(weights, cache, int(device.memory.size.value))


def _width(kernel: Placed) -> int:
    """Bits of a weight: those of the second tensor, where matmuls have it."""
    second = kernel.call.inputs[1] if len(kernel.call.inputs) > 1 else None
    return BITS.get(second.dtype or "BF16", 16) if second is not None and kernel.weights else 16
