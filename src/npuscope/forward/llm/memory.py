"""Memory that one rank needs: the weights it reads in a pass, and the cache of its sequences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from npuscope.chip.devices import Device
from npuscope.explain.work import BITS
from npuscope.forward.llm.config import Model
from npuscope.forward.llm.forward_pass import Placed
from npuscope.forward.llm.run import BLOCK, Run


@dataclass(frozen=True)
class Memory:
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


def memory(model: Model, run: Run, kernels: Iterable[Placed], device: Device) -> Memory:
    """What the pass needs on one rank. The cache is BF16."""
    weights = sum(kernel.weights * _width(kernel) // 8 for kernel in kernels)
    heads = -(-model.kv_heads // run.tp)  # copied where there are more ranks than heads
    width = model.latent.kv_lora + model.latent.rope if model.latent else 2 * heads * model.head_dim
    cache = run.pages * BLOCK * model.layers * width * 2
    return Memory(weights, cache, int(device.memory.size.value))


def _width(kernel: Placed) -> int:
    """Bits of a weight: those of the second tensor, where matmuls have it."""
    second = kernel.call.inputs[1] if len(kernel.call.inputs) > 1 else None
    return BITS.get(second.dtype or "BF16", 16) if second is not None and kernel.weights else 16
