"""For every rule the shortest program text that breaks it, the same mended, and what the rule counts as its cost."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """`before` and `after` are Python; `costs` is "" where a finding has no price."""

    before: str
    after: str
    costs: str = ""


EXAMPLES: dict[str, Example] = {
    "buffer-overflow": Example(
        "x = pl.add(pl.slice(a, [128, 512], [0, 0]), 1.0)  # FP32: 262144 bytes of Vec, which has 188416",
        "x = pl.add(pl.slice(a, [64, 512], [0, 0]), 1.0)",
    ),
    "illegal-move": Example(
        "tile = pl.move(product, target_memory=pl.MemorySpace.Vec)  # Acc to Vec: not on 910B",
        "tile = pl.cast(product, target_type=pl.BF16)  # the compiler hands it over to the vector cores",
    ),
    "store-type": Example(
        "out = pl.assemble(out, pl.matmul(a, b, out_dtype=pl.BF16), [0, 0])  # on a chip that drains FP32 only",
        "out = pl.assemble(out, pl.cast(pl.matmul(a, b, out_dtype=pl.FP32), pl.BF16), [0, 0])",
    ),
    "atomic-type": Example(
        "out = pl.assemble(out, tile, [0, 0], atomic=pl.AtomicType.Add)  # BF16 on the 950",
        "out = pl.assemble(out, pl.cast(tile, pl.FP32), [0, 0], atomic=pl.AtomicType.Add)  # out is FP32",
    ),
    "misaligned-tile": Example(
        "scores = pl.matmul(q, pl.slice(k, [120, 128], [row, 0]), b_trans=True)  # N is 120",
        "scores = pl.matmul(q, pl.slice(k, [128, 128], [row, 0], valid_shape=[120, 128]), b_trans=True)",
    ),
    "syncall-occupancy": Example(
        'for b in pl.spmd(16):\n    pl.system.syncall(mode="hard")',
        'for b in pl.spmd(24, sync_start=True):\n    pl.system.syncall(mode="hard")',
    ),
    "race": Example(
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE):  # does not wait for the reader above\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
        "with pl.at(level=CORE) as reader:\n"
        "    out = pl.assemble(out, pl.slice(tmp, [16, 64], [0, 0]), [0, 0])\n"
        "with pl.at(level=CORE, deps=[reader]):\n"
        "    tmp = pl.assemble(tmp, tile, [0, 0])",
    ),
    "ring-deadlock": Example(
        "for i in pl.range(20000):  # a scope may have 16384 tasks\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.slice(x, [1, 64], [i, 0]), [i, 0])",
        "for i in pl.spmd(1250):  # one task\n"
        "    out = pl.assemble(out, pl.slice(x, [16, 64], [i * 16, 0]), [i * 16, 0])",
    ),
    "uninitialised-read": Example(
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0])",
        "padded = pl.create_tensor([16, 128], dtype=pl.BF16)\n"
        "padded = pl.assemble(padded, heads, [0, 0])  # 8 rows\n"
        "tile = pl.slice(padded, [16, 128], [0, 0], valid_shape=[8, 128])",
    ),
    "shared-line": Example(
        "for b in pl.spmd(16):\n    pl.write(lengths, [b], n)  # 16 numbers in one line of 512 bytes",
        "for b in pl.spmd(16):\n    pl.write(lengths, [b, 0], n)  # [16, 128] INT32: a line each",
    ),
    "gm-round-trip": Example(
        "with pl.at(level=CORE):\n"
        "    scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)\n"
        "with pl.at(level=CORE):\n"
        "    weights = pl.exp(scores)",
        "with pl.at(level=CORE):\n"
        "    scores = pl.matmul(q, k, b_trans=True, out_dtype=pl.FP32)\n"
        "    weights = pl.exp(scores)",
        "bytes written and read back, tasks saved",
    ),
    "split-halves": Example(
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "with pl.at(level=CORE):\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "with pl.at(level=CORE):\n"
        "    gate = pl.matmul(x, w, out_dtype=pl.FP32)\n"
        "    out = pl.assemble(out, pl.mul(gate, scale), [0, n0])",
        "bytes written and read back, tasks saved",
    ),
    "gm-accumulate": Example(
        "for n0 in pl.range(0, INTER, 64):\n"
        "    with pl.at(level=CORE):\n"
        "        part = pl.matmul(mlp, w_down[n0 : n0 + 64, :])\n"
        "        down = pl.assemble(down, pl.add(down[:, :], part), [0, 0])  # the whole sum, every turn",
        "with pl.at(level=CORE):\n"
        "    acc = pl.matmul(mlp[:, 0:64], w_down[0:64, :], out_dtype=pl.FP32)\n"
        "    for n0 in pl.pipeline(64, INTER, 64, stage=2):\n"
        "        acc = pl.matmul_acc(acc, mlp[:, n0 : n0 + 64], w_down[n0 : n0 + 64, :])\n"
        "    down = pl.assemble(down, acc, [0, 0])",
        "bytes read and written beyond one write",
    ),
    "shared-load": Example(
        "with pl.at(level=CORE):\n"
        "    k = pl.matmul(pl.slice(normed, [16, 128], [0, 0]), wk_tile)\n"
        "with pl.at(level=CORE):\n"
        "    v = pl.matmul(pl.slice(normed, [16, 128], [0, 0]), wv_tile)",
        "with pl.at(level=CORE):\n"
        "    x = pl.slice(normed, [16, 128], [0, 0])\n"
        "    k = pl.matmul(x, wk_tile)\n"
        "    v = pl.matmul(x, wv_tile)",
        "bytes loaded again",
    ),
    "sequential-independent": Example(
        "for i in pl.range(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
        "for i in pl.parallel(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
    ),
    "serialised-parallel": Example(
        "for i in pl.parallel(8):\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(pl.slice(state, [16, 64], [i * 16, 0]), 1.0), [i * 16, 0])",
        "for i in pl.parallel(8):\n"
        "    part = pl.slice(state, [16, 64], [i * 16, 0])  # the task's argument is the slice\n"
        "    with pl.at(level=CORE):\n"
        "        part = pl.assemble(part, pl.add(part, 1.0), [0, 0])",
    ),
    "false-serialisation": Example(
        "with pl.at(level=CORE):  # waits for all who wrote to mid\n"
        "    y = pl.assemble(y, pl.slice(mid, [16, 64], [0, 0]), [0, 0])",
        "part = pl.slice(mid, [16, 64], [0, 0])\n"
        "with pl.at(level=CORE):  # waits for who wrote these rows\n"
        "    y = pl.assemble(y, part, [0, 0])",
    ),
    "many-tasks": Example(
        "for n0 in pl.parallel(0, N, 64):\n"
        "    with pl.at(level=CORE):\n"
        "        out = pl.assemble(out, pl.matmul(x, w[:, n0 : n0 + 64]), [0, n0])",
        "for b in pl.spmd(N // 64):\n    out = pl.assemble(out, pl.matmul(x, w[:, b * 64 : b * 64 + 64]), [0, b * 64])",
        "tasks saved",
    ),
    "short-task": Example(
        "for r in pl.range(0, ROWS, 1):  # a row is done before the next task is handed out\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 1, :], 1.0), [r, 0])",
        "with pl.at(level=CORE):\n"
        "    for r in pl.range(0, ROWS, 16):\n"
        "        state = pl.assemble(state, pl.add(state[r : r + 16, :], 1.0), [r, 0])",
        "tasks saved",
    ),
    "partial-wave": Example(
        "for b in pl.spmd(25):  # 24 cores: a second wave for one block",
        "for b in pl.spmd(24):",
    ),
    "l2-overflow": Example(
        "for n0 in pl.range(0, N, 256):  # every turn reads all of x, which L2 cannot keep beside the weights",
        "for n0 in pl.range(0, N, 1024):",
        "bytes read from memory again",
    ),
    "zero-fill": Example(
        "acc = pl.full([16, 64], dtype=pl.FP32, value=0.0)\n"
        "for k0 in pl.range(0, K, 128):\n"
        "    acc = pl.add(acc, pl.matmul(x[:, k0 : k0 + 128], w[k0 : k0 + 128, :]))",
        "acc = pl.matmul(x[:, 0:128], w[0:128, :], out_dtype=pl.FP32)\n"
        "for k0 in pl.range(128, K, 128):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "bytes of zeros written and read, tasks that do nothing else",
    ),
    "add-matmul": Example(
        "acc = pl.add(acc, pl.matmul(a, b))",
        "acc = pl.matmul_acc(acc, a, b)",
        "bytes that leave the accumulator and come back, additions",
    ),
    "padded-rows": Example(
        "q = pl.slice(q_padded, [16, 128], [0, 0])  # 8 rows are data",
        "q = pl.slice(q_padded, [16, 128], [0, 0], valid_shape=[8, 128])",
        "bytes and FLOPs of the rows without data",
    ),
    "unpipelined-k": Example(
        "for k0 in pl.range(128, K, 128):\n    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "for k0 in pl.pipeline(128, K, 128, stage=2):\n"
        "    acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, :])",
        "FLOPs during which nothing is loaded, or bytes during which nothing is multiplied",
    ),
    "pipeline-depth": Example(
        "for k0 in pl.pipeline(0, K, 512, stage=4):  # four tiles of 192 KiB in 512 KiB of Mat",
        "for k0 in pl.pipeline(0, K, 512, stage=2):",
    ),
    "short-row": Example(
        "w_tile = pl.slice(w, [128, 64], [k0, n0])  # BF16: 128 bytes of each line of 512",
        "w_tile = pl.slice(w, [128, 256], [k0, n0])",
        "bytes of lines that are paid for and thrown away",
    ),
    "tile-size": Example(
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 16], w[k0 : k0 + 16, 0:16])",
        "acc = pl.matmul_acc(acc, x[:, k0 : k0 + 128], w[k0 : k0 + 128, 0:128])",
        "FLOPs that fit into the starts",
    ),
    "cast-chain": Example(
        "q = pl.cast(x, target_type=pl.INT8)  # BF16 to INT8: three passes",
        "q = pl.cast(x32, target_type=pl.INT8)  # from the FP32 it was made of: two",
        "elements that pass once more",
    ),
    "unused-load": Example(
        "k_tile = pl.load(k, [0, 0], [128, 128])  # never used",
        "# leave it out",
        "bytes loaded",
    ),
    "variance-not-rsqrt": Example(
        "normed = pl.row_expand_mul(x, pl.add(mean_of_squares, EPS))",
        "normed = pl.row_expand_mul(x, pl.rsqrt(pl.add(mean_of_squares, EPS)))",
    ),
    "retired-spelling": Example("with pl.incore():", "with pl.at(level=pl.Level.CORE_GROUP):"),
    "rounding-mode": Example(
        "y = pl.cast(x, target_type=pl.BF16)",
        'y = pl.cast(x, target_type=pl.BF16, mode="rint")',
    ),
    "stale-constant": Example(
        "# tiles of BATCH_TILE=4 rows\nBATCH_TILE = 16",
        "# tiles of BATCH_TILE rows\nBATCH_TILE = 16",
    ),
    "fragile-assert": Example(
        "HIDDEN, K_TILE = 5120, 1024\nassert HIDDEN % K_TILE == 0  # 2048 fails",
        "HIDDEN, K_TILE = 5120, 512\nassert HIDDEN % K_TILE == 0",
    ),
    "unknown-ignore": Example(
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-rows]",
        "tile = pl.slice(w, [128, 64], [k0, n0])  # npuscope: ignore[short-row]",
    ),
}
