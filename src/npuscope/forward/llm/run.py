"""How a model is run: phase, tokens, and how it is spread over ranks; checked against the model."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from npuscope.base.errors import NpuscopeError
from npuscope.forward.llm.config import Model

Phase = Literal["decode", "prefill"]
Quant = Literal["none", "w8a8"]
BLOCK = 128  # tokens of a page of the cache
MOST = 10**7


@dataclass(frozen=True)
class Run:
    """One forward pass on one rank. `batch`, `tokens` and `context` are those of one data-parallel group.

    `batch` sequences have `context` tokens each in the cache before the pass, which computes `tokens` in all:
    one per sequence in decode.
    """

    phase: Phase
    batch: int
    tokens: int
    context: int
    tp: int = 1
    dp: int = 1
    ep: int = 1
    quant: Quant = "none"

    @property
    def slice_rows(self) -> int:
        """Rows of one rank where the tokens are spread over the tensor-parallel ranks (sequence parallel)."""
        return ceil(self.tokens / self.tp)

    @property
    def padded_rows(self) -> int:
        return self.slice_rows * self.tp

    @property
    def pages(self) -> int:
        """Pages of the cache that the sequences fill."""
        return self.batch * ceil((self.context + self.tokens / self.batch) / BLOCK)


def run_of(
    model: Model,
    phase: str,
    *,
    batch: int = 1,
    tokens: int | None = None,
    context: int = 0,
    tp: int = 1,
    dp: int = 1,
    ep: int | None = None,
    quant: str = "none",
) -> Run:
    """A run that the model can be spread over; raises with one sentence where it cannot."""
    if phase not in ("decode", "prefill"):
        raise NpuscopeError(f"no phase '{phase}'", remedy="Phases are decode and prefill.")
    if quant not in ("none", "w8a8"):
        raise NpuscopeError(f"no quantisation '{quant}'", remedy="Known are w8a8 and none.")
    for name, value, least in (("batch", batch, 1), ("context", context, 0), ("tp", tp, 1), ("dp", dp, 1)):
        _check(name, value, least)
    if phase == "decode":
        if tokens is not None and tokens != batch:
            raise NpuscopeError("decode computes one token per sequence", remedy="Give --batch, not --tokens.")
        tokens = batch
    if tokens is None:
        raise NpuscopeError("prefill needs the number of tokens", remedy="Give --tokens, of all sequences together.")
    _check("tokens", tokens, 1)
    if tokens % batch:
        raise NpuscopeError(f"{tokens} tokens do not spread evenly over {batch} sequences")
    ep = _experts_over(model, tp, dp, ep)
    _check_tensor_parallel(model, tp, ep)
    return Run(phase, batch, tokens, context, tp, dp, ep, quant)  # type: ignore[arg-type]  # checked above


def _check(name: str, value: int, least: int) -> None:
    if not least <= value <= MOST:
        raise NpuscopeError(f"--{name} is {value}, not a number from {least} to {MOST:,}")


def _experts_over(model: Model, tp: int, dp: int, ep: int | None) -> int:
    if ep is not None:
        _check("ep", ep, 1)
    if model.experts is None:
        if ep is not None and ep > 1:
            raise NpuscopeError(f"--ep {ep} for a model without experts")
        return 1
    ep = tp * dp if ep is None else ep
    if ep not in (1, tp * dp):
        raise NpuscopeError(
            f"--ep {ep} is neither 1 nor tp·dp = {tp * dp}", remedy="Experts go over all ranks or none."
        )
    if model.experts.count % ep:
        raise NpuscopeError(f"{model.experts.count} experts cannot be spread over {ep} ranks")
    return ep


def _check_tensor_parallel(model: Model, tp: int, ep: int) -> None:
    if model.heads % tp:
        raise NpuscopeError(f"tp {tp} does not divide the {model.heads} attention heads")
    if model.latent is None and max(model.kv_heads, tp) % min(model.kv_heads, tp):
        raise NpuscopeError(f"tp {tp} neither divides nor is a multiple of the {model.kv_heads} key-value heads")
    has_dense = any(not model.has_experts(layer) for layer in range(model.layers))
    if has_dense and model.intermediate % tp:
        raise NpuscopeError(f"tp {tp} does not divide the intermediate size {model.intermediate}")
    if model.experts is not None and ep == 1 and model.experts.intermediate % tp:
        raise NpuscopeError(f"tp {tp} does not divide the experts' intermediate size {model.experts.intermediate}")
