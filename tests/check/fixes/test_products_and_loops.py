"""Sums of products in the accumulator, zeros that nobody reads, loops that load ahead: on programs made at random."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mended import EXAMPLES, HEAD, keeps_everything, patches, twice_changes_nothing, written

KERNEL = """M, N, K = 16, {n}, {k}
TILE = {tile}


@pl.jit
def product(
    a: pl.Tensor[[M, K], pl.BF16],
    b: pl.Tensor[[K, N], pl.BF16],
    c: pl.Out[pl.Tensor[[M, N], pl.FP32]],
    d: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
{body}
    return c


rng = np.random.default_rng(0)
product(
    rng.normal(size=(M, K)).astype(bfloat16),
    rng.normal(size=(K, N)).astype(bfloat16),
    np.zeros((M, N), np.float32),
    np.zeros((M, N), np.float32),
)
"""


def summing_program(random: Random) -> str:
    """One or two sums of products in one loop, written in one of the ways that people write them."""
    n, k, tile = random.choice([32, 64]), random.choice([64, 128]), random.choice([16, 32])
    sums = random.sample(["x", "total", "other"], random.choice([1, 2]))
    by_step = random.random() < 0.5
    at = "i * TILE" if by_step else "i"
    head = "pl.range(K // TILE)" if by_step else "pl.range(0, K, TILE)"
    comment = random.choice(["", "  # as it is", "  # zeros"])
    lines = ['    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):']
    lines += [f"        # the sum {name}" for name in sums[:1] if random.random() < 0.7]
    lines += [f"        {name} = pl.full([M, N], dtype=pl.FP32, value=0.0){comment}" for name in sums]
    lines += [f"        for i in {head}:{random.choice(['', '  # over K'])}"]
    named = random.random() < 0.5
    if named:
        lines += [f"            left = pl.slice(a, [M, TILE], [0, {at}])  # a's tile"]
    for name in sums:
        left = "left" if named else f"pl.slice(a, [M, TILE], [0, {at}])"
        right = f"pl.slice(b, [TILE, N], [{at}, 0])"
        product = f"pl.matmul({left}, {right}{random.choice(['', ', out_dtype=pl.FP32'])})"
        sides = [name, product]
        random.shuffle(sides)
        lines += [f"            {name} = pl.add({', '.join(sides)})"]
    for name, target in zip(sums, "cd", strict=False):
        lines += [f"        {target} = pl.assemble({target}, {name}, [0, 0])"]
    return KERNEL.format(n=n, k=k, tile=tile, body="\n".join(lines))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_sums_of_products_stay_in_the_accumulator(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = written(tmp_path_factory.mktemp("p"), summing_program(Random(seed)))
    found = patches(file, "matmul-acc")
    assert found  # by a first turn in front of the loop, or by an if
    for patch in found:
        assert "pl.add(" not in patch.after
        assert "pl.full(" not in patch.after
        assert "pl.matmul_acc(" in patch.after
        keeps_everything(patch)
        twice_changes_nothing(patch)


def zeroing_program(random: Random) -> str:
    """A tensor that is zeroed, chunk by chunk or at once, and then written whole."""
    n, k, tile = 64, 64, 32
    lines = []
    if random.random() < 0.5:
        lines += ["    # zeros first", f"    for i in pl.{random.choice(['range', 'parallel'])}(N // TILE):"]
        lines += ['        with pl.at(level=pl.Level.CORE_GROUP, name_hint="zeros"):  # a task for each']
        lines += ["            zero = pl.full([M, TILE], dtype=pl.FP32, value=0.0)"]
        lines += ["            c = pl.assemble(c, zero, [0, i * TILE])"]
        lines += ["            d = pl.assemble(d, zero, [0, i * TILE])  # d too"] if random.random() < 0.5 else []
    else:
        lines += ['    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zeros"):']
        lines += ["        zero = pl.full([M, N], dtype=pl.FP32, value=0.0)  # all of it"]
        lines += ["        c = pl.assemble(c, zero, [0, 0])"]
    lines += ['    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):']
    lines += ["        x = pl.matmul(a, b, out_dtype=pl.FP32)"]
    lines += ["        c = pl.assemble(c, x, [0, 0])", "        d = pl.assemble(d, x, [0, 0])"]
    return KERNEL.format(n=n, k=k, tile=tile, body="\n".join(lines))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_zeros_that_nobody_reads_go_with_their_tasks(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = written(tmp_path_factory.mktemp("p"), zeroing_program(Random(seed)))
    found = patches(file, "no-zeros")
    assert found
    for patch in found:
        assert "pl.full(" not in patch.after
        keeps_everything(patch)
        twice_changes_nothing(patch)


def looping_program(random: Random) -> str:
    k, tile = random.choice([128, 256]), 32
    head = random.choice(["pl.range(TILE, K, TILE)", "pl.range(TILE, K, TILE, )"])
    lines = ['    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):']
    lines += ["        x = pl.matmul(a[:, 0:TILE], b[0:TILE, :], out_dtype=pl.FP32)"]
    lines += [f"        for i in {head}:{random.choice(['', '  # over K'])}"]
    lines += ["            x = pl.matmul_acc(x, a[:, i : i + TILE], b[i : i + TILE, :])  # one tile"]
    lines += ["        c = pl.assemble(c, x, [0, 0])", "        d = pl.assemble(d, x, [0, 0])"]
    return KERNEL.format(n=random.choice([64, 128]), k=k, tile=tile, body="\n".join(lines))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_a_loop_of_products_loads_ahead(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = written(tmp_path_factory.mktemp("p"), looping_program(Random(seed)))
    found = patches(file, "pipeline")
    assert [("stage=2" in one.after, "stage=3" in one.after) for one in found] == [(True, False), (False, True)]
    for patch in found:
        assert "pl.range(" not in patch.after
        keeps_everything(patch)
        twice_changes_nothing(patch)


def test_what_a_person_would_write(tmp_path: Path) -> None:
    text = HEAD + KERNEL.format(
        n=64,
        k=128,
        tile=32,
        body="""    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
        x = pl.full([M, N], dtype=pl.FP32, value=0.0)
        for i in pl.range(K // TILE):
            left = pl.slice(a, [M, TILE], [0, i * TILE])  # a's tile
            x = pl.add(x, pl.matmul(left, pl.slice(b, [TILE, N], [i * TILE, 0])))
        c = pl.assemble(c, x, [0, 0])""",
    )
    first = patches(written(tmp_path, text.removeprefix(HEAD)), "matmul-acc")[0]
    assert first.after == text.replace(
        "        x = pl.full([M, N], dtype=pl.FP32, value=0.0)\n        for i in pl.range(K // TILE):\n",
        "        left = pl.slice(a, [M, TILE], [0, 0])\n"
        "        x = pl.matmul(left, pl.slice(b, [TILE, N], [0, 0]), out_dtype=pl.FP32)\n"
        "        for i in pl.range(1, K // TILE):\n",
    ).replace(
        "x = pl.add(x, pl.matmul(left, pl.slice(b, [TILE, N], [i * TILE, 0])))",
        "x = pl.matmul_acc(x, left, pl.slice(b, [TILE, N], [i * TILE, 0]))",
    )
