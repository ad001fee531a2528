"""The programs that mutants are made of, with the faults that fit each one's own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "models"
TEXTS = {str(file.relative_to(FOLDER)): file.read_text() for file in sorted(FOLDER.rglob("*.py"))}
Replaced = tuple[str, str]


@dataclass(frozen=True)
class Model:
    """`entry` is judged with `argv`; `program` is the file with its `@pl.jit`, `golden` that with its golden, and how
    that begins. `faults` by kind: each changes one file."""

    name: str
    entry: str
    program: str
    faults: dict[str, tuple[Callable[[Model, int], Replaced], ...]] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    golden: tuple[str, str] = ("", r"^def golden\(.*\n")

    def files(self) -> dict[str, str]:
        """All that a copy of it needs."""
        wanted = (self.entry, self.program, *self.beside)
        return {name: text for name, text in TEXTS.items() if name.startswith(wanted)}


def _instead(file: str, old: str, new: str) -> Callable[[Model, int], Replaced]:
    """The last `old` of a file becomes `new`; {n} in it is a number."""

    def plant(model: Model, n: int) -> Replaced:
        before, found, after = TEXTS[file].rpartition(old)
        assert found, (file, old)
        return file, before + new.replace("{n}", str(n)) + after

    return plant


def _all_instead(file: str, *pairs: tuple[str, str]) -> tuple[Callable[[Model, int], Replaced], ...]:
    return tuple(_instead(file, old, new) for old, new in pairs)


def _stored(file: str, store: str, wrap: str) -> Callable[[Model, int], Replaced]:
    """Wraps what the last store to `store` writes; {} stands for it, {n} for a number."""

    def plant(model: Model, n: int) -> Replaced:
        text = TEXTS[file]
        at = text.rindex(f"{store} = ")
        end = text.index("\n", at)
        value = text[at + len(store) + 3 : end]
        return file, f"{text[:at]}{store} = {wrap.format(value, n=n)}{text[end:]}"

    return plant


WRAPS = ("pl.mul({}, {n}.5)", "pl.add({}, {n}.25)", "pl.sub(pl.abs({}), {n}.0)")


def _basic(
    name: str, store: str, constant: str, large: tuple[str, ...], fine: tuple[str, ...], cut: tuple[str, str],
    vector: bool = True,
) -> Model:  # fmt: skip
    """`store`: what is left of the = of its last store. `constant`: a line, and other lines for it. `cut`: a loop, and
    the same without its last turn. `vector`: whether its store may have one more vector op, and still fits."""
    file = f"basics/{name}.py"
    wraps = tuple(_stored(file, store, wrap) for wrap in WRAPS) if vector else ()
    return Model(
        name, file, file,
        {
            "wrong numbers": (_instead(file, *cut), *wraps),
            "too large tile": tuple(_instead(file, constant, one) for one in large),
            "none": tuple(_instead(file, constant, one) for one in fine),
        },
    )  # fmt: skip


LAYER, A8W8 = "qwen3_14b/layer.py", "qwen3_14b/layer_a8w8.py"
ATTENTION, HIGHPERF, TILELET = "paged_attention.py", "paged_attention_highperf.py", "qwen3_32b_tilelet.py"
MODELS = (
    _basic("softmax", "y[row : row + ROW_TILE, :]", "ROW_TILE = 32", ("ROW_TILE = 256", "ROW_TILE = 512"),
           ("ROW_TILE = 8", "ROW_TILE = 16", "ROW_TILE = 64"),
           ("pl.parallel(0, ROWS, ROW_TILE)", "pl.parallel(0, ROWS - ROW_TILE, ROW_TILE)")),
    _basic("layer_norm", "y[row : row + ROW_TILE, :]", "ROW_TILE = 16", ("ROW_TILE = 128", "ROW_TILE = 256"),
           ("ROW_TILE = 8",),
           ('pl.spmd(BLOCKS, name_hint="apply")', 'pl.spmd(BLOCKS - 1, name_hint="apply")')),
    _basic("rms_norm", "y[row : row + ROW_TILE, col : col + CHUNK]", "ROW_TILE, CHUNK = 16, 256",
           ("ROW_TILE, CHUNK = 16, 2048", "ROW_TILE, CHUNK = 128, 512"),
           ("ROW_TILE, CHUNK = 16, 128", "ROW_TILE, CHUNK = 8, 256"),
           ("pl.parallel(0, ROWS, ROW_TILE)", "pl.parallel(0, ROWS - ROW_TILE, ROW_TILE)")),
    _basic("rope", "y[row : row + HEADS, :]", "TOKENS, HEADS, HEAD_DIM = 16, 8, 128",
           ("TOKENS, HEADS, HEAD_DIM = 16, 256, 128", "TOKENS, HEADS, HEAD_DIM = 8, 512, 128"),
           ("TOKENS, HEADS, HEAD_DIM = 16, 16, 128", "TOKENS, HEADS, HEAD_DIM = 8, 8, 128"),
           ("pl.spmd(TOKENS,", "pl.spmd(TOKENS - 1,")),
    _basic("gemm", "c[m : m + TILE, n : n + TILE]", "TILE = 128", ("TILE = 512", "TILE = 256"),
           ("TILE = 64", "TILE = 32"), ("pl.spmd(BLOCKS,", "pl.spmd(BLOCKS - 1,"), vector=False),
    _basic("topk", "values[row : row + 1, :]", "ROW_TILE = 8", (), ("ROW_TILE = 4", "ROW_TILE = 16"),
           ("pl.spmd(ROWS // ROW_TILE,", "pl.spmd(ROWS // ROW_TILE - 1,")),
    Model(
        "paged_attention", ATTENTION, ATTENTION,
        {
            "wrong numbers": _all_instead(
                ATTENTION,
                ("pl.mul(keep, pl.reshape(pl.load(total", "pl.mul(take, pl.reshape(pl.load(total"),
                ("valid = pl.min(PAGE, context - j * PAGE)", "valid = PAGE"),
                ("pad_value=pl.PadValue.min), SCALE)", "pad_value=pl.PadValue.min), SCALE * 1.{n})"),
                ("pages = (context + PAGE - 1) // PAGE", "pages = context // PAGE"),
                ("pl.row_expand_div(both_acc, both_total)", "pl.mul(pl.row_expand_div(both_acc, both_total), 1.5{n})"),
            ),
            "too large tile": _all_instead(ATTENTION, ("PAGE = 16, 128, 128", "PAGE = 16, 128, 512")),
            "none": _all_instead(ATTENTION, ("PAGE = 16, 128, 128", "PAGE = 16, 128, 64")),
        },
    ),
    Model(
        "highperf", HIGHPERF, HIGHPERF,
        {
            "wrong numbers": _all_instead(
                HIGHPERF,
                ("total = pl.add(pl.mul(total, keep), pl.add(l0, l1))", "total = pl.add(total, pl.add(l0, l1))"),
                ("p1, value_cache[second : second + PAGE, :]", "p1, value_cache[first : first + PAGE, :]"),
                ("context - (step + 1) * PAGE), 0)", "context - step * PAGE), 0)"),
                ("pl.mul(s1, SCALE)", "pl.mul(s1, SCALE * 1.{n})"),
            ),
            "race": _all_instead(HIGHPERF, ("pl.range(block, ITEMS, BLOCKS)", "pl.range(0, ITEMS, 1)")),
        },
    ),
    Model(
        "tilelet", TILELET, TILELET,
        {
            "wrong numbers": _all_instead(
                TILELET,
                ("pl.sub(pl.col_expand_mul(q_lo, cos), pl.col_expand_mul(q_hi, sin))",
                 "pl.add(pl.col_expand_mul(q_lo, cos), pl.col_expand_mul(q_hi, sin))"),
                ("pl.mul(squares, 1.0 / HIDDEN)", "pl.mul(squares, 1{n}.0 / HIDDEN)"),
                ("pl.pipeline(K_TILE, INTER, K_TILE, stage=2)", "pl.pipeline(K_TILE, INTER - K_TILE, K_TILE, stage=2)"),
                ("pl.mul(pl.mul(gate, sigmoid), up)", "pl.mul(pl.mul(up, sigmoid), up)"),
            ),
            "too large tile": _all_instead(
                TILELET,
                ("K_TILE, SEQ_TILE, NORM_TILE = 128, 128, 256", "K_TILE, SEQ_TILE, NORM_TILE = 512, 128, 256"),
                ("N_TILE, KV_TILE = 256, 128", "N_TILE, KV_TILE = 512, 128"),
            ),
            "race": _all_instead(
                TILELET,
                ("n0 = block * KV_TILE", "n0 = 0 * KV_TILE"),
                ("row = (b * GROUPS + g) * HEAD_GROUP", "row = g * HEAD_GROUP"),
            ),
            "none": _all_instead(TILELET, ("N_TILE, KV_TILE = 256, 128", "N_TILE, KV_TILE = 128, 128")),
        },
        beside=("qwen3_32b_reference.py", "qwen3_32b_tilelet_as_found.py"),
        golden=("qwen3_32b_reference.py", r"^def golden\(.*\n"),
    ),
    Model(
        "layer", "qwen3_14b/decode_layer.py", "qwen3_14b/decode_layer.py",
        {
            "wrong numbers": _all_instead(
                LAYER,
                ("h1 = pl.add(attn_proj[:, c : c + CHUNK]", "h1 = pl.sub(attn_proj[:, c : c + CHUNK]"),
                ("model.eps, 1.0 / HIDDEN", "model.eps, 1{n}.0 / HIDDEN"),
                ("h2 = pl.add(down[:, c : c + SLAB]", "h2 = pl.sub(down[:, c : c + SLAB]"),
                ("valid = pl.min(PAGE, pl.read(seq_lens, [row]) - part * PAGE)", "valid = PAGE"),
                ("slot % PAGE", "(slot + 1) % PAGE"),
            ),
            "race": _all_instead(
                LAYER,
                ("deps=[out_seed_tid, softmax_tid]", "deps=[softmax_tid]"),
                ("deps=[out_seed_tid, softmax_tid]", "deps=[out_seed_tid]"),
                ("deps=[down_seed_tid, silu_tids[k]]", "deps=[down_seed_tid]"),
                ("deps=[down_seed_tid, silu_tids[k]]", "deps=[silu_tids[k]]"),
                ("deps=[work_tid, rope_tid]", "deps=[work_tid]"),
                ("deps=[post_tid, both]", "deps=[both]"),
                ("deps=[post_tid, both]", "deps=[post_tid]"),
            ),
        },
        ("--small",), ("qwen3_14b/",), ("", r"^    def fill\(.*\n"),
    ),
    Model(
        "layer_a8w8", "qwen3_14b/decode_layer_a8w8.py", "qwen3_14b/decode_layer_a8w8.py",
        {
            "wrong numbers": _all_instead(
                A8W8,
                ("project(normed_i8, wv, wv_scale, act_scales, v_proj, layer, n",
                 "project(normed_i8, wk, wv_scale, act_scales, v_proj, layer, n"),
                ("pl.parallel(OUT_TASKS)", "pl.parallel(OUT_TASKS - 1)"),
                ("pl.col_expand_mul(part,", "pl.col_expand_mul(pl.mul(part, pl.add(part, {n}.0)),"),
            ),
            "race": _all_instead(A8W8, ('"act_quant", deps=[gamma_tids])', '"act_quant")')),
        },
        ("--small",), ("qwen3_14b/",), ("", r"^    def fill\(.*\n"),
    ),
)  # fmt: skip
