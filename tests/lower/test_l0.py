"""The cut of a product for the cube's buffers, beside the formula of facts/chip.md §4 in plain Python over all cuts."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.check.rules.memory import buffer_overflow
from npuscope.chip.devices import Device, load
from npuscope.lower.model import instructions
from npuscope.lower.products import Cut, Product, choose
from tests.lower.kernels import lowered, used

CHIPS = {name: load(name) for name in ("ascend910b1", "ascend950")}
BYTES = (1, 2, 4)


def cycles(p: Product, m: int, n: int, k: int, chip: Device) -> float:
    """wall = max(C_load, C_mad) + C_drain."""
    core = {name: constant.value for name, constant in chip.core.items()}
    tiles = ceil(p.m / m) * ceil(p.n / n)
    fractals = ceil(p.k / (core["fractal_k"] / p.left))
    step = core["l0_cycles_fp32"] if p.left == 4 else core["l0_cycles"]
    mad = tiles * (ceil(p.k / k) * core["l0_head"] + step * ceil(m / 16) * fractals * ceil(n / 16))
    bytes_a, bytes_b = p.m * p.k * p.left, p.k * p.n * p.right
    often_a, often_b = ceil(p.n / n), ceil(p.m / m)  # how often each is streamed when none is held
    # one of the two is held, the better, where K is whole
    ways = [(1, often_b), (often_a, 1)] if k >= p.k else [(often_a, often_b)]
    load_time = min(a * bytes_a / core["l0_left"] + b * bytes_b / core["l0_right"] for a, b in ways)
    blocks = ceil(n * p.acc / 32)
    while blocks % 2 == 0:
        blocks //= 2
    row = max(core["l0_drain_row"], p.acc * n / core["l0_drain"]) + core["l0_drain_odd"] * (blocks - 1)
    return max(load_time, mad) + tiles * (core["l0_drain_fixed"] + m * row)


def legal(p: Product, chip: Device, whole_output: bool) -> Iterator[tuple[int, int, int]]:
    """All cuts into whole fractals that fit, both operands twice."""
    left, right, acc = (chip.space[name].size.value for name in ("Left", "Right", "Acc"))
    deep = max(16, 32 // p.left)
    for m in steps(p.m, 16, whole_output):
        for n in steps(p.n, 16, whole_output):
            if ceil(m / p.acc_rows) * p.acc_rows * n * p.acc > acc:
                continue
            for k in steps(p.k, deep, False):
                if 2 * m * k * p.left <= left and 2 * k * n * p.right <= right:
                    yield m, n, k


def steps(extent: int, step: int, whole: bool) -> list[int]:
    return [extent] if whole or extent <= step else sorted({*range(step, extent + 1, step), extent})


@st.composite
def products(draw: st.DrawFn) -> Product:
    size = draw(st.sampled_from(BYTES))
    # sizes that are multiples of 16 mostly, as tiles are
    m, n, k = (draw(st.integers(1, 12)) * 16 - draw(st.sampled_from([0, 0, 0, 5])) for _ in range(3))
    wide = draw(st.sampled_from([1, 4]))
    return Product(m, n * wide, k, size, size, 4, draw(st.sampled_from([16, 32])))


@given(products(), st.booleans(), st.sampled_from(sorted(CHIPS)))
@examples(60)
def test_no_legal_cut_is_faster(product: Product, whole_output: bool, name: str) -> None:
    chip = CHIPS[name]
    found = choose(product, chip, whole_output)
    times = {cut: cycles(product, *cut, chip) for cut in legal(product, chip, whole_output)}
    if not times:
        assert found is None
        return
    assert found is not None
    mine = (found.m, found.n, found.k)
    assert found.cycles == pytest.approx(times[mine])
    assert round(found.cycles) == min(round(time) for time in times.values())
    # of equally fast ones one that pads least, of these one with the fewest steps of K
    equal = [cut for cut, time in times.items() if round(time) == round(found.cycles)]

    def order(cut: tuple[int, int, int]) -> tuple[int, int]:
        steps = [ceil(extent / size) for extent, size in zip((product.m, product.n, product.k), cut, strict=True)]
        return prod(count * size for count, size in zip(steps, cut, strict=True)), steps[2]

    assert order(mine) == min(map(order, equal))


@pytest.mark.parametrize(
    ("product", "cut"),
    [
        # The projections of the BF16 layer (facts/qwen3_decode.md §3): Left 16·k·2·4 copies = 8, 4 and 2 KiB.
        (Product(16, 256, 256, 2, 2, 4, 16), (16, 256, 64)),
        (Product(16, 512, 64, 2, 2, 4, 16), (16, 512, 32)),
        (Product(16, 1024, 64, 2, 2, 4, 16), (16, 1024, 16)),
        # lm_head of the 14B prefill (PTOAS test/samples): k = 80 takes one step less, but the last is not full
        (Product(16, 192, 512, 2, 2, 4, 16), (16, 192, 64)),
    ],
)
def test_cuts_of_known_kernels(product: Product, cut: tuple[int, int, int]) -> None:
    found = choose(product, CHIPS["ascend910b1"], whole_output=True)
    assert isinstance(found, Cut)
    assert (found.m, found.n, found.k) == cut


def test_an_output_that_is_too_large_is_cut_or_refused() -> None:
    huge = Product(512, 512, 64, 2, 2, 4, 16)  # 1 MiB of sums, Acc has 128 KiB
    assert choose(huge, CHIPS["ascend910b1"], whole_output=True) is None
    cut = choose(huge, CHIPS["ascend910b1"], whole_output=False)
    assert cut is not None
    assert cut.m * cut.n * 4 <= 131_072


def test_a_product_too_large_for_the_accumulator_leaves_it_in_pieces_to_the_next_product() -> None:
    # GIVEN (a @ b) @ e as in a public example of the compiler: [256, 256] of FP32 is twice what Acc has
    @pl.jit
    def chain(
        a: pl.Tensor[[256, 192], pl.BF16],
        b: pl.Tensor[[192, 256], pl.BF16],
        e: pl.Tensor[[256, 64], pl.BF16],
        out: pl.Out[pl.Tensor[[256, 64], pl.FP32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="chain"):
            c = pl.matmul(a[:, :], b[:, :], out_dtype=pl.FP32)
            narrowed = pl.cast(c, pl.BF16, mode="rint")
            out = pl.assemble(out, pl.matmul(narrowed, e[:, :], out_dtype=pl.FP32), [0, 0])
        return out

    program, found = lowered(chain)
    # THEN it is cut, the pieces are narrowed into Mat, and all is within the cube core
    assert list(buffer_overflow.check(program)) == []
    assert {one.unit for one in instructions(found[0].lowered.items)} == {"AIC"}
    assert used(found)["chain", "Acc"] == 131_072
