"""What a person would have written: programs before and after a fix, to the last character."""

from __future__ import annotations

from pathlib import Path

import pytest
from mended import HEAD, patches, written
from planted_for_fixes import PRODUCT, PRODUCTS, ROWS, Stage, program, rows, sizes

AT = "with pl.at(level=pl.Level.CORE_GROUP):"
CASES = {
    "matmul-acc": (
        f"""{AT}
    x = pl.full([M, N], dtype=pl.FP32, value=0.0)
    for i in pl.range(K // TILE):
        left = pl.slice(a, [M, TILE], [0, i * TILE])  # a's tile
        x = pl.add(x, pl.matmul(left, pl.slice(b, [TILE, N], [i * TILE, 0])))
    c = pl.assemble(c, x, [0, 0])""",
        f"""{AT}
    left = pl.slice(a, [M, TILE], [0, 0])
    x = pl.matmul(left, pl.slice(b, [TILE, N], [0, 0]), out_dtype=pl.FP32)
    for i in pl.range(1, K // TILE):
        left = pl.slice(a, [M, TILE], [0, i * TILE])  # a's tile
        x = pl.matmul_acc(x, left, pl.slice(b, [TILE, N], [i * TILE, 0]))
    c = pl.assemble(c, x, [0, 0])""",
    ),
    "matmul-acc from a product": (
        f"""{AT}
    x = pl.matmul(a[:, 0:TILE], b[0:TILE, :], out_dtype=pl.FP32)
    for i in pl.range(TILE, K, TILE):
        part = pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32)  # one tile
        x = pl.add(part, x)
    c = pl.assemble(c, x, [0, 0])""",
        f"""{AT}
    x = pl.matmul(a[:, 0:TILE], b[0:TILE, :], out_dtype=pl.FP32)
    for i in pl.range(TILE, K, TILE):
        # one tile
        x = pl.matmul_acc(x, a[:, i : i + TILE], b[i : i + TILE, :])
    c = pl.assemble(c, x, [0, 0])""",
    ),
    "matmul-acc without a loop": (
        f"""{AT}
    x = pl.matmul(a, b, out_dtype=pl.FP32)
    x = pl.add(x, pl.matmul(a, w, out_dtype=pl.FP32))  # both
    c = pl.assemble(c, x, [0, 0])""",
        f"""{AT}
    x = pl.matmul(a, b, out_dtype=pl.FP32)
    x = pl.matmul_acc(x, a, w)  # both
    c = pl.assemble(c, x, [0, 0])""",
    ),
    "transposed": (
        f"""{AT}
    t = pl.transpose(w[:, :], 0, 1)  # turned
    left = pl.cast(x[:, :], target_type=pl.BF16)
    y[:, :] = pl.matmul(left, t, out_dtype=pl.FP32)""",
        f"""{AT}
    # turned
    left = pl.cast(x[:, :], target_type=pl.BF16)
    y[:, :] = pl.matmul(left, w[:, :], out_dtype=pl.FP32, b_trans=True)""",
    ),
    "private-scratch": (
        f"""# for all turns
half = pl.create_tensor([16, COLUMNS], dtype=pl.FP32)
for i in pl.range(ROWS // 16):
    {AT}
        half[:, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 0.5)
    {AT}
        y = pl.assemble(y, pl.exp(half[:, :]), [i * 16, 0])""",
        f"""# for all turns
for i in pl.range(ROWS // 16):
    half = pl.create_tensor([16, COLUMNS], dtype=pl.FP32)
    {AT}
        half[:, :] = pl.mul(x[i * 16 : i * 16 + 16, :], 0.5)
    {AT}
        y = pl.assemble(y, pl.exp(half[:, :]), [i * 16, 0])""",
    ),
    "finer": (
        f"""{AT}
    for i in pl.range(0, ROWS, 16):
        t = pl.slice(x, [16, COLUMNS], [i, 0])  # rows
        y = pl.assemble(y, pl.exp(t), [i, 0])""",
        """for block in pl.spmd(ROWS // 16, name_hint="y"):
    i = block * 16
    t = pl.slice(x, [16, COLUMNS], [i, 0])  # rows
    y = pl.assemble(y, pl.exp(t), [i, 0])""",
    ),
    "finer blocks": (
        """for block in pl.spmd(2, name_hint="half"):
    low = block * 16
    for i in pl.range(2):
        y[low + i * 8 : low + i * 8 + 8, :] = pl.exp(x[low + i * 8 : low + i * 8 + 8, :])""",
        """for item in pl.spmd(4, name_hint="half"):
    block = item // 2
    i = item % 2
    low = block * 16
    y[low + i * 8 : low + i * 8 + 8, :] = pl.exp(x[low + i * 8 : low + i * 8 + 8, :])""",
    ),
    "fuse-scopes of launches": (
        """half = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)
for block in pl.spmd(ROWS // 16, name_hint="halve"):
    half[block * 16 : block * 16 + 16, :] = pl.mul(x[block * 16 : block * 16 + 16, :], 0.5)
# then
for b in pl.spmd(ROWS // 16, name_hint="exp"):
    y[b * 16 : b * 16 + 16, :] = pl.exp(half[b * 16 : b * 16 + 16, :])  # rows""",
        """half = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)
for block in pl.spmd(ROWS // 16, name_hint="halve"):
    half[block * 16 : block * 16 + 16, :] = pl.mul(x[block * 16 : block * 16 + 16, :], 0.5)
    # then
    y[block * 16 : block * 16 + 16, :] = pl.exp(half[block * 16 : block * 16 + 16, :])  # rows""",
    ),
    "split-k": (
        """for block in pl.spmd(2, name_hint="thin"):
    n = block * 32
    x = pl.matmul(a[0:M, 0:TILE], b[0:TILE, n : n + 32])
    # along K
    for i in pl.pipeline(TILE, K, TILE, stage=2):
        x = pl.matmul_acc(x, a[0:M, i : i + TILE], b[i : i + TILE, n : n + 32])  # one tile
    c[0:M, n : n + 32] = x""",
        """for block in pl.spmd(2, name_hint="thin_zeros"):
    n = block * 32
    c = pl.assemble(c, pl.full([M, 32], dtype=pl.FP32, value=0.0), [0, n])
for item in pl.spmd(4, name_hint="thin"):
    block = item // 2
    part = item % 2
    n = block * 32
    first = part * (K // 2)
    x = pl.matmul(a[0:M, first : first + TILE], b[first : first + TILE, n : n + 32])
    # along K
    for i in pl.pipeline(first + TILE, first + K // 2, TILE, stage=2):
        x = pl.matmul_acc(x, a[0:M, i : i + TILE], b[i : i + TILE, n : n + 32])  # one tile
    c = pl.assemble(c, x, [0, n], atomic=pl.AtomicType.Add)""",
    ),
    "sum-on-chip": (
        f"""for i in pl.parallel(0, K, TILE):  # over K
    {AT}
        p = pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32)
        c = pl.assemble(c, p, [0, 0], atomic=pl.AtomicType.Add)""",
        f"""{AT}
    c_sum = pl.matmul(a[:, 0 : TILE], b[0 : TILE, :], out_dtype=pl.FP32)
    for i in pl.range(TILE, K, TILE):  # over K
        c_sum = pl.add(c_sum, pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32))
    c = pl.assemble(c, c_sum, [0, 0], atomic=pl.AtomicType.Add)""",
    ),
    "atomic": (
        f"""for i in pl.range(0, K, TILE):
    {AT}
        p = pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32)
        old = pl.slice(c, [M, N], [0, 0])
        c = pl.assemble(c, pl.add(old, p), [0, 0])  # added""",
        f"""for i in pl.parallel(0, K, TILE):
    {AT}
        p = pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32)
        # added
        c = pl.assemble(c, p, [0, 0], atomic=pl.AtomicType.Add)""",
    ),
    "drawn-tasks": (
        """with pl.auto_incore():
    twice = pl.mul(x, 2.0)
    for i in pl.parallel(0, ROWS, 4, chunk=2):  # rows
        y[i : i + 4, :] = pl.add(twice[i : i + 4, :], 1.0)""",
        f"""{AT}
    twice = pl.mul(x, 2.0)
for i_chunk in pl.parallel(0, ROWS, 8):  # rows
    {AT}
        for i in pl.range(i_chunk, i_chunk + 8, 4):  # rows
            y[i : i + 4, :] = pl.add(twice[i : i + 4, :], 1.0)""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fix_writes_what_a_person_would(name: str, tmp_path: Path) -> None:
    texts = []
    for body in CASES[name]:
        of_products = "c = pl.assemble(" in body or "c[" in body
        constants, tensors = (sizes(), PRODUCTS if "a, w" in body else PRODUCT) if of_products else (rows(), ROWS)
        texts.append(program(Stage(constants, tensors, tuple(body.splitlines()))))
    found = patches(written(tmp_path, texts[0]), name.split()[0])
    assert HEAD + texts[1] in [patch.after for patch in found], [patch.diff() for patch in found]


RINGS = """
from npuscope.tile.golden import TensorSpec, run_jit


@pl.jit
def copies(x: pl.Tensor[[64, 64], pl.FP32], y: pl.Out[pl.Tensor[[64, 64], pl.FP32]]):
    for _ in pl.range(4):
        for _ in pl.range(40):
            with pl.at(level=pl.Level.CORE_GROUP):
                y[:, :] = x[:, :]
    return y


specs = [TensorSpec("x", [64, 64], "float32"), TensorSpec("y", [64, 64], "float32", is_output=True)]
run_jit(copies, specs, runtime_cfg={"ring_task_window": 32})  # small
"""


def test_a_ring_that_is_full_before_all_is_submitted_gets_more_slots(tmp_path: Path) -> None:
    found = patches(written(tmp_path, RINGS), "ring")
    assert [one.title for one in found] == ["ring_task_window = 128", "ring_task_window = 512"]
    for one, slots in zip(found, (128, 512), strict=True):
        assert one.after == one.before.replace('"ring_task_window": 32}', f'"ring_task_window": {slots}}}')
    assert not patches(found[1].file, "ring", text=found[1].after)
