"""The ordered kernels of one forward pass on one rank, as vLLM-Ascend runs it: head, layers, tail with sampling.

Measured sequences (facts: forward_passes §2): Qwen3 decode with ACL graph, Qwen3 prefill with sequence parallelism,
DeepSeek-V3 decode with W8A8 on vLLM-Ascend 0.15. All else follows from the model's structure; `basis` says which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from npuscope.forward.calls import Call
from npuscope.forward.llm.attention import grouped_query
from npuscope.forward.llm.config import Model
from npuscope.forward.llm.ffn import dense, mixture
from npuscope.forward.llm.kernels import Kernel, add_norm, collective, norm, over_sequence, plain_matmul, tensor
from npuscope.forward.llm.latent_attention import latent_attention
from npuscope.forward.llm.run import Run

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


def forward_pass(model: Model, run: Run) -> list[Placed]:
    """Every kernel of the pass, in order."""
    placed = _placed(_head(model, run), None, "head")
    for layer in range(model.layers):
        placed += _placed(_layer(model, run, layer), layer, "layer")
    return placed + _placed(_tail(model, run), None, "tail")


def basis(model: Model, run: Run) -> str:
    """Where the sequence comes from: measured on this family and phase, or its structure alone."""
    if model.family == "qwen3" and run.quant == "none":
        return "sequence as measured on Qwen3-32B with vLLM-Ascend (TP16)"
    if model.family == "deepseek_v3" and run.phase == "decode" and run.quant == "w8a8" and run.ep == run.tp * run.dp:
        return "sequence as measured on DeepSeek-V3 with vLLM-Ascend 0.15 (W8A8, TP8 DP2 EP16)"
    return f"sequence by the structure of {model.title}, not measured"


def _placed(kernels: list[Kernel], layer: int | None, part: Part) -> list[Placed]:
    return [Placed(k.call, layer, place, part, k.role, k.weights) for place, k in enumerate(kernels)]


def _layer(model: Model, run: Run, layer: int) -> list[Kernel]:
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


def _head(model: Model, run: Run) -> list[Kernel]:
    """Embedding, shared among the ranks by vocabulary, and the first layer's norm."""
    spread = over_sequence(run, model.latent is not None)
    m, vocab = run.tokens, -(-model.vocab // run.tp)
    x = tensor(m, model.hidden)
    look_up = Call("GatherV2", (tensor(vocab, model.hidden), tensor(m, dtype="INT64")), (x,))
    kernels = [Kernel("embedding", look_up, vocab * model.hidden)]
    if run.tp > 1:
        kernels.append(Kernel("embedding mask", Call("MaskedFill", (x, tensor(m, 1, dtype="BOOL")), (x,))))
    if spread:
        kernels += collective("embedding reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    else:
        kernels += collective("embedding reduce", "allReduce", run.tp, m, model.hidden)
    return [*kernels, norm("first norm", run.slice_rows if spread else m, model.hidden)]


def _tail(model: Model, run: Run) -> list[Kernel]:
    """Last tokens, LM head, logits of all ranks, sampling."""
    spread = over_sequence(run, model.latent is not None)
    b, vocab = run.batch, -(-model.vocab // run.tp)
    kernels = []
    if spread:
        kernels += collective("hidden gather", "allGather", run.tp, run.slice_rows, model.hidden)
    chosen = Call("Index", (tensor(run.tokens, model.hidden), tensor(b, dtype="INT64")), (tensor(b, model.hidden),))
    head = plain_matmul("lm_head", b, model.hidden, vocab)
    kernels += [Kernel("last tokens", chosen), Kernel(head.role, head.call, 0 if model.tied else head.weights)]
    kernels += collective("logits gather", "allGather", run.tp, b, vocab)
    if run.tp > 1:
        swapped = Call("Transpose", (tensor(run.tp, b, vocab), tensor(3, dtype="INT64")), (tensor(b, run.tp, vocab),))
        kernels.append(Kernel("logits transpose", swapped))
    if model.family == "deepseek_v3" and run.dp > 1 and run.tp > 1 and run.phase == "decode" and run.ep > 1:
        kernels += [Kernel("unattributed collective", Call("hcom_"))] * UNATTRIBUTED
    return kernels + _sampling(model, run)


def _sampling(model: Model, run: Run) -> list[Kernel]:
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
    return [Kernel(f"sampling: {role}", call) for role, call in calls.items()]
