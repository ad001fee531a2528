"""Dimensions: of the model, of its tiles, of one run. Frozen, because tile programs fold them as constants.

QWEN3_14B has the tiles of the layer of June 2026 (24 kernels, 419 tasks); SMALL takes every path of the same code
(several K splits, N tiles, KV pages; a batch that is padded) in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ROWS = 16  # rows of every matmul: the batch of one window, padded
PAGE = 128  # tokens of a KV page
Q_PAD = 16  # the query heads of one KV head, padded to a cube tile


@dataclass(frozen=True)
class Tiles:
    """Widths in elements. A `slab` of the hidden states: what one task of the MLP reads, one of down_proj writes."""

    chunk: int = 256  # vector work
    slab: int = 1024
    qkv_n: int = 512
    qkv_tn: int = 256
    qkv_tk: int = 256
    out_n: int = 512
    out_k: int = 1024
    mlp_n: int = 1024
    tk: int = 64  # one cube step of out_proj and of the MLP
    lm_n: int = 512
    lm_tk: int = 128
    sample_blocks: int = 27  # each looks at an equal share of the LM head's N tiles
    a8_tn: int = 256  # of INT8 projections and of the A8W8 layer's MLP
    a8_tk: int = 512
    a8_out_n: int = 128
    a8_out_k: int = 1024
    a8_down_tk: int = 256
    a8_attn: int = 16  # tokens of one attention step of the A8W8 layer


@dataclass(frozen=True)
class Qwen3:
    """One model as one program runs it. `storage`: what weights, KV cache and activations are kept in, bf16 or fp32."""

    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tiles: Tiles = Tiles()
    eps: float = 1e-6
    theta: float = 1e6
    storage: str = "bf16"
    max_seq: int = 4096
    batch: int = 16
    context: int | None = None  # tokens of every row, the new one included; None: rows of several lengths

    def __post_init__(self) -> None:
        t = self.tiles
        whole = [
            (self.hidden, t.slab), (t.slab, t.chunk), (t.slab, t.qkv_tk), (t.slab, t.out_n), (t.slab, t.tk),
            (self.q_width, t.qkv_n), (self.kv_width, t.qkv_n), (t.qkv_n, t.qkv_tn), (self.hidden, t.out_n),
            (self.q_width, t.out_k), (t.out_k, t.tk), (self.intermediate, t.mlp_n), (t.mlp_n, t.chunk), (t.mlp_n, t.tk),
            (self.hidden, t.lm_tk), (self.lm_tiles, t.sample_blocks), (self.max_seq, PAGE), (PAGE, t.a8_attn),
            (self.q_width, t.a8_tn), (self.kv_width, t.a8_tn), (self.hidden, t.a8_tk), (self.hidden, 2 * t.a8_out_n),
            (self.q_width, t.a8_out_k), (t.a8_out_k, t.a8_tk), (self.hidden, 2 * t.a8_tn), (self.q_width, t.chunk),
            (self.intermediate, 2 * t.a8_down_tk), (ROWS * self.kv_heads, self.rope_blocks),
        ]  # fmt: skip
        for size, part in whole:
            if size % part:
                raise ValueError(f"{part} does not divide {size}: every tile of this program is a whole one")
        if min(self.layers, self.batch, self.max_seq) < 1:
            raise ValueError(
                f"{self.layers} layers, {self.batch} rows, {self.max_seq} tokens: there must be some of each"
            )
        if self.context is not None and not 1 <= self.context <= self.max_seq:
            raise ValueError(f"a context of {self.context} tokens: it is 1 to {self.max_seq}, the longest sequence")
        if self.group > Q_PAD:
            raise ValueError(f"{self.group} query heads share a KV head; a tile has {Q_PAD} rows")

    @property
    def q_width(self) -> int:
        return self.q_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.q_heads // self.kv_heads

    @property
    def vocab_padded(self) -> int:
        return self.lm_tiles * self.tiles.lm_n

    @property
    def lm_tiles(self) -> int:
        return -(-self.vocab // self.tiles.lm_n)

    @property
    def rope_blocks(self) -> int:
        return min(32, ROWS * self.kv_heads)

    @property
    def windows(self) -> int:
        """Batches of more rows than a tile run window by window, each reading all weights again."""
        return -(-self.batch // ROWS)

    @property
    def rows(self) -> int:
        return self.windows * ROWS

    @property
    def seq_pages(self) -> int:
        """KV pages of the longest sequence."""
        return self.max_seq // PAGE

    @property
    def pages(self) -> int:
        """KV pages of one layer."""
        return self.rows * self.seq_pages

    @property
    def cache_rows(self) -> int:
        """Rows of one layer's K or V cache: (page, KV head, token)."""
        return self.pages * self.kv_heads * PAGE


QWEN3_14B = Qwen3(hidden=5120, layers=40, q_heads=40, kv_heads=8, head_dim=128, intermediate=17408, vocab=151936)

SMALL = Qwen3(
    hidden=256, layers=2, q_heads=6, kv_heads=2, head_dim=64, intermediate=512, vocab=500, max_seq=384, batch=4,
    tiles=Tiles(chunk=64, slab=128, qkv_n=128, qkv_tn=64, qkv_tk=64, out_n=64, out_k=128, mlp_n=128, tk=64, lm_n=128,
                lm_tk=64, sample_blocks=2, a8_tn=64, a8_tk=64, a8_out_n=64, a8_out_k=128, a8_down_tk=64,
                a8_attn=64),
)  # fmt: skip


def sized(model: Qwen3, **changes: object) -> Qwen3:
    """The model with other sizes; None keeps what it has (so that command line options can be passed as they are)."""
    return replace(model, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
