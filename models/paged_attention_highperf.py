"""Paged attention of one decode step in one task: SPMD over (row, KV head), software-pipelined.

Where `paged_attention.py` hands every score through global memory from task to task, this is one mixed kernel: 24
blocks (one per cube core and its two vector cores) take the (row, KV head) items in turn. Inside, a step covers two
pages of the context, so that the vector cores rescale half as often and P·V of both pages adds up in one accumulator;
and `pl.pipeline(stage=2)` doubles the buffers, so that the cube starts Q·Kᵀ of the next pages while the vector cores
still do the softmax of these.

A KV head serves a group of query heads (5 of Qwen3-14B's 40 with 8 KV heads); a cube tile has 16 rows, the rest stay
invalid. Cases are named as the profiling reports name them: rows, query heads, KV heads, context, page size, type.

    python models/paged_attention_highperf.py                                            b2_h10_kv2_s384_bs128_fp16
    python models/paged_attention_highperf.py --case b16_h40_kv8_s4096_bs128_fp16        the shape of the reports
    python models/paged_attention_highperf.py --case b4_h40_kv8_s1024_bs128_fp16 --varied     different context lengths
"""

import argparse
import math
import re
from dataclasses import dataclass
from functools import partial

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

HEAD_DIM = 128
CUBE_ROWS = 16
CORES = 24
LOWEST = float(np.finfo(np.float32).min)  # what PadValue.min is in fp32
SMALL = "b2_h10_kv2_s384_bs128_fp16"
DTYPES = {"fp16": pl.FP16, "bf16": pl.BF16}


@dataclass(frozen=True)
class Case:
    """What the name of a case says."""

    batch: int
    heads: int
    kv_heads: int
    context: int
    page: int
    dtype: str

    @classmethod
    def named(cls, name: str) -> "Case":
        found = re.fullmatch(r"b(\d+)_h(\d+)_kv(\d+)_s(\d+)_bs(\d+)_(fp16|bf16)", name)
        if not found:
            raise SystemExit(f"{name!r} is no case: b<rows>_h<heads>_kv<kv heads>_s<context>_bs<page>_<fp16 or bf16>")
        case = cls(*(int(number) for number in found.groups()[:5]), found[6])
        if not all((case.batch, case.kv_heads, case.context, case.page)):
            raise SystemExit(f"{name!r}: every number must be at least 1")
        if case.heads % case.kv_heads or case.heads // case.kv_heads > CUBE_ROWS:
            raise SystemExit(f"{name!r}: query heads per KV head must be a whole number up to {CUBE_ROWS}")
        if case.page % 16 or case.page > 128:
            raise SystemExit(f"{name!r}: the page must be a multiple of 16 up to 128")
        return case

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def pages(self) -> int:
        return -(-self.context // self.page)


def program(case: Case):
    """The kernel for one case; its sizes are constants of the compiled program."""
    PAGE, KV_HEADS, GROUP, PAGES = case.page, case.kv_heads, case.group, case.pages
    DTYPE = DTYPES[case.dtype]
    Q_ROWS = case.batch * case.heads
    KV_ROWS = case.batch * PAGES * KV_HEADS * PAGE
    ITEMS = case.batch * KV_HEADS
    BLOCKS = min(CORES, ITEMS)
    SCALE = 1.0 / math.sqrt(HEAD_DIM)

    @pl.jit
    def paged_attention_highperf(
        query: pl.Tensor[[Q_ROWS, HEAD_DIM], DTYPE],
        key_cache: pl.Tensor[[KV_ROWS, HEAD_DIM], DTYPE],  # pages of [kv head, token]
        value_cache: pl.Tensor[[KV_ROWS, HEAD_DIM], DTYPE],
        block_table: pl.Tensor[[case.batch, PAGES], pl.INT32],
        context_lens: pl.Tensor[[case.batch], pl.INT32],
        out: pl.Out[pl.Tensor[[Q_ROWS, HEAD_DIM], DTYPE]],
    ):
        for block in pl.spmd(BLOCKS, name_hint="paged_attention", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
            for item in pl.range(block, ITEMS, BLOCKS):
                b = item // KV_HEADS
                h = item % KV_HEADS
                row = item * GROUP
                context = pl.cast(pl.read(context_lens, [b]), pl.INDEX)
                last = (context + PAGE - 1) // PAGE - 1
                q = pl.slice(query, [CUBE_ROWS, HEAD_DIM], [row, 0], valid_shape=[GROUP, HEAD_DIM])
                peak = pl.reshape(pl.full([1, CUBE_ROWS], dtype=pl.FP32, value=LOWEST), [CUBE_ROWS, 1])
                total = pl.reshape(pl.full([1, CUBE_ROWS], dtype=pl.FP32, value=0.0), [CUBE_ROWS, 1])
                acc = pl.full([CUBE_ROWS, HEAD_DIM], dtype=pl.FP32, value=0.0)

                for step in pl.pipeline(0, last + 1, 2, stage=2):
                    # two pages; where the second does not exist the last one is read again and masked out whole
                    first_page = pl.cast(pl.read(block_table, [b, step]), pl.INDEX)
                    second_page = pl.cast(pl.read(block_table, [b, pl.min(step + 1, last)]), pl.INDEX)
                    first = (first_page * KV_HEADS + h) * PAGE
                    second = (second_page * KV_HEADS + h) * PAGE
                    first_valid = pl.min(PAGE, context - step * PAGE)
                    second_valid = pl.max(pl.min(PAGE, context - (step + 1) * PAGE), 0)

                    s0 = pl.matmul(q, key_cache[first : first + PAGE, :], b_trans=True, out_dtype=pl.FP32)
                    s1 = pl.matmul(q, key_cache[second : second + PAGE, :], b_trans=True, out_dtype=pl.FP32)

                    s0 = pl.set_validshape(pl.mul(s0, SCALE), GROUP, first_valid)
                    s1 = pl.set_validshape(pl.mul(s1, SCALE), GROUP, second_valid)
                    s0 = pl.fillpad(s0, pad_value=pl.PadValue.min)
                    s1 = pl.fillpad(s1, pad_value=pl.PadValue.min)
                    new_peak = pl.maximum(peak, pl.maximum(pl.row_max(s0), pl.row_max(s1)))
                    p0 = pl.cast(pl.exp(pl.row_expand_sub(s0, new_peak)), target_type=DTYPE, mode="rint")
                    p1 = pl.cast(pl.exp(pl.row_expand_sub(s1, new_peak)), target_type=DTYPE, mode="rint")
                    l0 = pl.row_sum(pl.cast(p0, target_type=pl.FP32))  # of the rounded weights, as P·V uses them
                    l1 = pl.row_sum(pl.cast(p1, target_type=pl.FP32))
                    keep = pl.exp(pl.sub(peak, new_peak))
                    total = pl.add(pl.mul(total, keep), pl.add(l0, l1))
                    peak = new_peak

                    pv = pl.matmul(p0, value_cache[first : first + PAGE, :], out_dtype=pl.FP32)
                    pv = pl.matmul_acc(pv, p1, value_cache[second : second + PAGE, :])
                    acc = pl.add(pl.row_expand_mul(acc, keep), pv)

                result = pl.cast(pl.row_expand_div(acc, total), target_type=DTYPE, mode="rint")
                out = pl.assemble(out, pl.set_validshape(result, GROUP, HEAD_DIM), [row, 0])
        return out

    return paged_attention_highperf


def golden(case: Case, tensors: dict) -> None:
    """Dense attention of each group of query heads over its row's own context, in fp32."""
    query = tensors["query"].astype(np.float32).reshape(case.batch, case.kv_heads, case.group, HEAD_DIM)
    out = tensors["out"].reshape(query.shape)
    caches = [tensors[name].reshape(-1, case.kv_heads, case.page, HEAD_DIM) for name in ("key_cache", "value_cache")]
    for b, length in enumerate(tensors["context_lens"]):
        for h in range(case.kv_heads):
            pages = (cache[tensors["block_table"][b], h].reshape(-1, HEAD_DIM) for cache in caches)
            k, v = (tokens[:length].astype(np.float32) for tokens in pages)
            scores = query[b, h] @ k.T / np.float32(math.sqrt(HEAD_DIM))
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[b, h] = weights @ v / weights.sum(axis=1, keepdims=True)


def specs(case: Case, varied: bool) -> list[TensorSpec]:
    q_shape = [case.batch * case.heads, HEAD_DIM]
    kv_shape = [case.batch * case.pages * case.kv_heads * case.page, HEAD_DIM]
    lengths = np.linspace(case.context, 1, case.batch).astype(int) if varied else np.full(case.batch, case.context)
    dtype = DTYPES[case.dtype]

    def tensor(name: str, shape: list[int]) -> TensorSpec:
        return TensorSpec(name, shape, dtype, init_value=lambda rng: rng.standard_normal(shape, dtype=np.float32))

    def table(rng) -> np.ndarray:
        return rng.permutation(case.batch * case.pages).reshape(case.batch, case.pages)

    return [
        tensor("query", q_shape),
        tensor("key_cache", kv_shape),
        tensor("value_cache", kv_shape),
        TensorSpec("block_table", [case.batch, case.pages], pl.INT32, init_value=table),
        TensorSpec("context_lens", [case.batch], pl.INT32, init_value=lambda: lengths),
        TensorSpec("out", q_shape, dtype, is_output=True),
    ]


def run(name: str = SMALL, varied: bool = False) -> RunResult:
    case = Case.named(name)
    # the program rounds every weight and the result once to the case's type; the golden rounds the result alone
    tolerance = {"fp16": 2e-3, "bf16": 2e-2}[case.dtype]
    return run_jit(
        fn=program(case),
        specs=specs(case, varied),
        golden_fn=partial(golden, case),
        rtol=tolerance,
        atol=tolerance,
    )


def main() -> str | None:
    """What did not match, if anything: as an exit code that is 1 with the text printed, else 0."""
    parser = argparse.ArgumentParser(description="Paged attention in one task, SPMD over (row, KV head).")
    parser.add_argument(
        "--case", default=SMALL, help=f"b<rows>_h<heads>_kv<kv heads>_s<context>_bs<page>_<type>; {SMALL}"
    )
    parser.add_argument("--varied", action="store_true", help="context lengths from the case's down to 1")
    args = parser.parse_args()
    return run(args.case, args.varied).error


if __name__ == "__main__":
    raise SystemExit(main())
