"""Waits that are missing or needless, operands turned on their way, rows without data, zeros under one atomic add."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mended import EXAMPLES, errors_and_races, keeps_everything, patches, twice_changes_nothing, written

HEAD = """ROWS, COLUMNS = {rows}, 64


@pl.jit
def program(
    x: pl.Tensor[[ROWS, COLUMNS], pl.FP32],
    w: pl.Tensor[[COLUMNS, COLUMNS], pl.BF16],
    y: pl.Out[pl.Tensor[[ROWS, COLUMNS], pl.FP32]],
):
{body}
    return y


rng = np.random.default_rng(0)
program(
    rng.normal(size=(ROWS, COLUMNS)).astype(np.float32),
    rng.normal(size=(COLUMNS, COLUMNS)).astype(bfloat16),
    np.zeros((ROWS, COLUMNS), np.float32),
)
"""


def kernel(body: list[str], rows: int = 32) -> str:
    return HEAD.format(rows=rows, body="\n".join(f"    {line}" for line in body))


def scope(name: str, more: str = "", named: bool = False) -> str:
    return f'with pl.at(level=pl.Level.CORE_GROUP, name_hint="{name}"{more}){f" as {name}_id" if named else ""}:'


def racing(random: Random) -> str:
    """A view of a scratch is read, another of the same memory overwritten: nobody makes the writer wait."""
    name = random.choice(["reader", "first"])
    lines = ["scratch = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)  # shared"]
    lines += ["left = pl.slice(scratch, [ROWS, 32], [0, 0])", "flat = pl.reshape(scratch, [ROWS // 2, 128])"]
    lines += [scope("fill", named=True), "    scratch[:, :] = pl.add(x[:, :], 1.0)"]
    lines += [scope(name, named=random.random() < 0.5), "    y[:, 0:32] = pl.mul(left[:, :], 2.0)  # read"]
    lines += [scope("writer", random.choice(["", ", deps=[fill_id]"])), "    # written"]
    lines += ["    flat[0:8, :] = pl.full([8, 128], dtype=pl.FP32, value=-7.0)"]
    return kernel(lines, random.choice([32, 64]))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_a_race_is_ordered(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), racing(Random(seed))), "deps")
    assert found
    for patch in found:
        assert errors_and_races(patch.file, patch.after) < errors_and_races(patch.file, patch.before)
        keeps_everything(patch)
        twice_changes_nothing(patch)


def serialised(random: Random) -> str:
    """Every turn writes its own rows of a tensor that it is given whole."""
    kind = random.choice(["parallel", "range"])
    lines = ["state = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)"]
    lines += [scope("fill"), "    state[:, :] = pl.add(x[:, :], 1.0)"]
    lines += [f"for i in pl.{kind}(ROWS // 16):  # turns", f"    {scope('turn')}  # its rows"]
    lines += ["        part = pl.slice(state, [16, COLUMNS], [i * 16, 0])"]
    lines += ["        state = pl.assemble(state, pl.add(part, 1.0), [i * 16, 0])"]
    lines += [scope("end"), "    y[:, :] = pl.mul(state[:, :], 2.0)"]
    return kernel(lines, random.choice([64, 128, 256]))


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_needless_waits_are_taken_out_and_the_trial_says_which_were_needed(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), serialised(Random(seed))), "no-dep")
    assert found
    for patch in found:
        assert "no_dep_args=[state]" in patch.after
        twice_changes_nothing(patch)
        if errors_and_races(patch.file, patch.after) == 0:  # the task after the loop may need the waits: then it races
            keeps_everything(patch)


def turning(random: Random) -> str:
    lines = [scope("product"), "    a = pl.cast(x[:, :], target_type=pl.BF16)  # the left one"]
    right = random.choice(
        ["pl.transpose(w[:, :], 0, 1)", "pl.transpose(pl.slice(w, [COLUMNS, COLUMNS], [0, 0]), 0, 1)"]
    )
    lines += [f"    z = pl.matmul(a, {right}, out_dtype=pl.FP32)  # turned"]
    lines += ["    y[:, :] = z", "    unused = pl.slice(x, [16, COLUMNS], [0, 0])  # of no use"]
    return kernel(lines)


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_operands_are_turned_while_they_are_loaded(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), turning(Random(seed))), "transposed", "unused-load")
    assert {patch.fix for patch in found} == {"transposed", "unused-load"}
    for patch in found:
        assert ("b_trans=True" in patch.after) == (patch.fix == "transposed")
        keeps_everything(patch)
        twice_changes_nothing(patch)


def padded(random: Random) -> str:
    data = random.choice([4, 8])
    lines = ["q = pl.create_tensor([16, COLUMNS], dtype=pl.BF16)  # padded"]
    lines += [scope("fill"), f"    q = pl.assemble(q, pl.cast(x[0:{data}, :], target_type=pl.BF16), [0, 0])"]
    lines += [scope("product")]
    if random.random() < 0.5:
        lines += ["    tile = pl.slice(q, [16, COLUMNS], [0, 0])", "    z = pl.matmul(tile, w, out_dtype=pl.FP32)"]
    else:
        lines += ["    z = pl.matmul(q, w, out_dtype=pl.FP32)"]
    lines += [f"    y = pl.assemble(y, pl.slice(z, [{data}, COLUMNS], [0, 0]), [0, 0])  # those with data"]
    return kernel(lines)


@EXAMPLES
@given(seed=st.integers(0, 2**32))
def test_rows_without_data_are_declared(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = patches(written(tmp_path_factory.mktemp("p"), padded(Random(seed))), "valid-rows")
    assert found
    for patch in found:
        assert "valid_shape=[" in patch.after
        assert errors_and_races(patch.file, patch.after) <= errors_and_races(patch.file, patch.before)
        twice_changes_nothing(patch)
