"""The feed-forward half of a layer: dense, or a mixture of experts."""

from __future__ import annotations

from npuscope.forward.calls import Call
from npuscope.forward.llm.config import Experts, Model
from npuscope.forward.llm.kernels import (
    Kernel,
    collective,
    matmul,
    over_sequence,
    plain_matmul,
    quantise,
    swiglu,
    tensor,
)
from npuscope.forward.llm.run import Run


def dense(model: Model, run: Run) -> list[Kernel]:
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


def mixture(model: Model, run: Run) -> list[Kernel]:
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
        Kernel("top-k", Call("MoeGatingTopK", inputs, chosen), bias),
    ]
    if experts.shared:
        kernels += _shared(model, run, experts, m)
    fused = experts.fused and (spread or run.tp * run.dp == 1)
    kernels += [_fused(model, run, experts, m)] if fused else _grouped(model, run, experts, m)
    x = tensor(m, model.hidden)
    if experts.scale != 1:
        kernels.append(Kernel("scale", Call("Muls", (x,), (x,))))
    if experts.shared:
        kernels.append(Kernel("add shared", Call("Add", (x, x), (x,))))
    if not spread and over_sequence(run, model.latent is not None):
        return kernels + collective("down reduce", "reduceScatter", run.tp, run.padded_rows, model.hidden)
    if not spread:
        return kernels + collective("down reduce", "allReduce", run.tp, m, model.hidden)
    # latent attention and prefill gather in the next layer; else every rank needs all rows again
    if over_sequence(run, model.latent is not None):
        return kernels
    return kernels + collective("experts gather", "allGather", run.tp, m, model.hidden)


def tokens_per_expert(run: Run, experts: Experts) -> float:
    """Rows of each expert when the router spreads tokens evenly. Experts that are not spread see their own group's."""
    groups = run.dp if run.ep > 1 else 1
    return run.tokens * groups * experts.per_token / experts.count


def _shared(model: Model, run: Run, experts: Experts, m: int) -> list[Kernel]:
    """The experts that every token visits: whole on every rank that has its own tokens, else split like the others."""
    width = experts.shared * experts.intermediate // (1 if run.ep > 1 else run.tp)
    return [
        *quantise("shared gate_up quant", m, model.hidden, run, dynamic=True),
        matmul("shared gate_up", m, model.hidden, 2 * width, run, large=True),
        swiglu(m, 2 * width),
        *quantise("shared down quant", m, width, run, dynamic=True),
        matmul("shared down", m, width, model.hidden, run, large=True),
    ]


def _weights(model: Model, run: Run, experts: Experts, share: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    own = experts.count // run.ep
    return (own, model.hidden, 2 * share), (own, share, model.hidden)


def _fused(model: Model, run: Run, experts: Experts, m: int) -> Kernel:
    """One kernel for exchange, both matmuls and the way back."""
    dtype = "INT8" if run.quant == "w8a8" else "BF16"
    up, down = _weights(model, run, experts, experts.intermediate)
    x = tensor(m, model.hidden)
    inputs = (x, tensor(*up, dtype=dtype), tensor(*down, dtype=dtype), tensor(m, experts.per_token, dtype="INT32"))
    given = {"tokens_per_expert": tokens_per_expert(run, experts), "ranks": float(run.ep)}
    weights = 3 * up[0] * model.hidden * experts.intermediate
    return Kernel("experts", Call("DispatchFFNCombine", inputs, (x,), given), weights)


def _grouped(model: Model, run: Run, experts: Experts, m: int) -> list[Kernel]:
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

    def product(role: str, shape: tuple[int, ...]) -> Kernel:
        a = tensor(rows, shape[1], dtype=dtype)
        call = Call("GroupedMatmul", (a, tensor(*shape, dtype=dtype)), (tensor(rows, shape[2]),), each)
        return Kernel(role, call, shape[0] * shape[1] * shape[2])

    return [
        Kernel("dispatch", Call(first, (x, chosen), (routed,), given)),
        *quantise("experts quant", rows, model.hidden, run, dynamic=True),
        product("experts gate_up", up),
        swiglu(rows, 2 * share),
        *quantise("experts quant", rows, share, run, dynamic=True),
        product("experts down", down),
        Kernel("combine", Call(last, (routed, chosen), (x,), given)),
    ]
