"""Kernel types that tell where a forward pass is: attention once or twice per layer, sampling at its end, the
embedding at its begin. Patterns are found in a kernel's type, or in its name where a capture has no types.

Sources: ../shared/facts/forward_passes.md §1 (Ascend), names in the GPU captures of ../shared/data.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

ATTENTION = (
    r"FusedInferAttentionScore|SparseFlashAttention|RINGMLAPrefill|RingMLA|FlashAttention|PromptFlashAttention"
    r"|IncreFlashAttention|PagedAttention|MultiLatentAttention|UnpadFlashAttention"
    r"|flash_fwd|flash_attn|fmha|paged_attention|unified_attention|_fwd_grouped_kernel|attn_fwd|mla_decode"
    r"|pytorch_flash::|BatchPrefill|BatchDecode"
)
BACKWARD = r"(?i)grad|backward|bwd|reduce|combine"  # attention's other kernels
PREFILL, DECODE = r"(?i)prefill|prompt", r"(?i)decode|paged_?attention|IncreFlash"
SAMPLING = r"ArgMax|ApplyTopKTopP|DSARandom|Multinomial|TopKTopPSample|argmax|multinomial|top_p|topk_topp"
MAYBE_SAMPLING = r"^Sort|^Softmax|^TopK|^MaskedFill"  # in layers too, so no mark of their own
EMBEDDING = r"^Gather(V2|V3)?$|^Embedding|^IndexSelect|indexSelect|vectorized_gather|embedding"


def found(pattern: str, names: Sequence[str], but: str | None = None) -> list[bool]:
    """Which names a pattern is found in, and another one is not. Polars' expressions take linear time on any name."""
    series = pl.Series(names, dtype=pl.String)
    there = series.str.contains(pattern)
    return (there if but is None else there & ~series.str.contains(but)).to_list()
