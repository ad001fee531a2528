"""Scopes fused, loops moved into them, turns as blocks, loads hoisted, and what a file says brought up to date."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mended import EXAMPLES, keeps_everything, patches, twice_changes_nothing, written

KERNEL = """# a program of TILE={said} columns

M, N, K = {m}, {n}, {k}
TILE = {tile}


@pl.jit
def program(
    a: pl.Tensor[[M, K], pl.BF16],
    b: pl.Tensor[[K, N], pl.BF16],
    w: pl.Tensor[[K, N], pl.BF16],
    c: pl.Out[pl.Tensor[[M, N], pl.FP32]],
    d: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
{body}
    return c


rng = np.random.default_rng(0)
values = [rng.normal(size=shape).astype(bfloat16) for shape in ((M, K), (K, N), (K, N))]
program(*values, np.zeros((M, N), np.float32), np.zeros((M, N), np.float32))
"""


def kernel(body: list[str], n: int = 64, k: int = 128, tile: int = 32, m: int = 16, said: int = 32) -> str:
    return KERNEL.format(n=n, k=k, tile=tile, m=m, said=said, body="\n".join(f"    {line}" for line in body))


def scope(random: Random) -> str:
    return random.choice(["with pl.at(level=pl.Level.CORE_GROUP):", "with pl.incore():"])


def projections(random: Random) -> str:
    """Two products of one input, in scopes of their own, as K and V are projected."""
    turns = random.choice(["pl.range(1, K // TILE)", "pl.range(1, K // TILE, 1)"])
    lines = []
    opened = scope(random)
    for weight, name, target in (("b", "x", "c"), ("w", "y", "d")):
        lines += [opened + random.choice(["", f"  # {name}"])]
        lines += [f"    {name} = pl.matmul(pl.slice(a, [M, TILE], [0, 0]), pl.slice({weight}, [TILE, N], [0, 0]), "]
        lines[-1] += "out_dtype=pl.FP32)"
        lines += [f"    for i in {turns}:"]
        lines += ["        left = pl.slice(a, [M, TILE], [0, i * TILE])  # of both"]
        lines += [f"        {name} = pl.matmul_acc({name}, left, pl.slice({weight}, [TILE, N], [i * TILE, 0]))"]
        lines += [f"    {target} = pl.assemble({target}, {name}, [0, 0])"]
    return kernel(lines, k=random.choice([128, 256, 512]))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_two_products_of_one_input_share_a_load(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), projections(Random(seed))), "fuse-scopes")
    assert len(found) == 2  # walked together, or one after the other
    for patch in found:
        assert patch.after.count("\n    with ") == 1
        keeps_everything(patch)
        twice_changes_nothing(patch)
    assert found[0].after.count("left = ") == 1


def stages(random: Random) -> str:
    """A product, and what becomes of it in a scope of its own, in every turn of a loop or once."""
    opened = scope(random)
    inner = [opened, "    x = pl.matmul(a, pl.slice(b, [K, TILE], [0, i * TILE]), out_dtype=pl.FP32)  # scores"]
    if random.random() < 0.5:
        inner += ["half = pl.create_tensor([M, TILE], dtype=pl.FP32)"]
        inner += [opened, "    half = pl.assemble(half, pl.mul(x, 0.5), [0, 0])"]
        inner += [opened, "    c = pl.assemble(c, pl.exp(half), [0, i * TILE])"]
    else:
        inner += ["# then", opened, "    c = pl.assemble(c, pl.exp(x), [0, i * TILE])"]
    lines = [f"for i in pl.{random.choice(['range', 'parallel'])}(N // TILE):", *(f"    {line}" for line in inner)]
    return kernel(lines, n=random.choice([128, 256]), k=64)


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_stages_that_hand_over_become_one_scope(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), stages(Random(seed))), "fuse-scopes")
    assert found
    for patch in found:
        assert patch.after.count("with ") < patch.before.count("with ")
        keeps_everything(patch)
        twice_changes_nothing(patch)


def tasks(random: Random) -> str:
    """A loop whose turns are a task each."""
    opened = scope(random)
    way = random.choice(["count", "step", "nest"])
    kind = random.choice(["range", "parallel"])
    if way == "nest":
        lines = [
            "for m in pl.parallel(0, M, 16):",
            "    for n in pl.parallel(0, N, TILE):  # columns",
            f"        {opened}",
        ]
        indent, rows, at = " " * 12, "m", "n"
    elif way == "step":
        lines, indent, rows, at = [f"for n in pl.{kind}(0, N, TILE):", f"    {opened}"], " " * 8, "0", "n"
    else:
        lines, indent, rows, at = (
            [f"for i in pl.{kind}(N // TILE):", "    n = i * TILE", f"    {opened}"],
            " " * 8,
            "0",
            "n",
        )
    lines += [f"{indent}# one tile", f"{indent}x = pl.matmul(a[{rows} : {rows} + 16, :], b[:, {at} : {at} + TILE])"]
    lines += [f"{indent}c = pl.assemble(c, x, [{rows}, {at}])"]
    return kernel(lines, n=1024, tile=random.choice([16, 32]), m=random.choice([16, 32]) if way == "nest" else 16)


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_turns_become_blocks_of_one_launch(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), tasks(Random(seed))), "spmd", "loop-in-scope", "parallel")
    assert {"spmd"} <= {patch.fix for patch in found}
    for patch in found:
        keeps_everything(patch)
        twice_changes_nothing(patch)
    whole = [patch.after for patch in found if patch.fix == "spmd"][-1]
    assert "pl.parallel(" not in whole
    assert "with " not in whole


def reloading(random: Random) -> str:
    """Every turn loads the same."""
    lines = [scope(random), "    x = pl.full([M, N], dtype=pl.FP32, value=0.0)"]
    lines += [f"    for i in pl.range({random.choice([4, 8])}):{random.choice(['', '  # turns'])}"]
    lines += ["        rows = M"] * (random.random() < 0.5)
    lines += [f"        y = pl.slice(d, [{'rows' if 'rows = M' in lines[-1] else 'M'}, N], [0, 0])  # the same"]
    lines += ["        x = pl.add(x, pl.mul(y, 2.0))", "    c = pl.assemble(c, x, [0, 0])"]
    return kernel(lines).replace("d: pl.Out[pl.Tensor[[M, N], pl.FP32]]", "d: pl.Tensor[[M, N], pl.FP32]")


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_what_every_turn_loads_is_loaded_once(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), reloading(Random(seed))), "hoist")
    assert found
    for patch in found:
        assert "\n        y = pl.slice(" in patch.after
        keeps_everything(patch)
        twice_changes_nothing(patch)


def test_what_a_file_says_is_brought_up_to_date(tmp_path: Path) -> None:
    body = ["with pl.incore():  # old", "    c = pl.assemble(c, pl.matmul(a, b), [0, 0])"]
    found = patches(written(tmp_path, kernel(body, said=64)), "spellings", "stale-value")
    assert {patch.fix for patch in found} == {"spellings", "stale-value"}
    for patch in found:
        assert patch.quality
        keeps_everything(patch)
        twice_changes_nothing(patch)
    spelled, stale = (next(one for one in found if one.fix == fix).after for fix in ("spellings", "stale-value"))
    assert "with pl.at(level=pl.Level.CORE_GROUP):  # old" in spelled
    assert "TILE=32 columns" in stale
