"""Small tile programs as files: one that fits, one whose tiles do not, and names that are markup."""

from pathlib import Path

PROGRAM = """import numpy as np
import npuscope.tile as pl

M, K, N = 16, 2048, 1024
TK = {tk}
TN = {tn}


@pl.jit
def layer(
    x: pl.Tensor[[M, K], pl.BF16], w: pl.Tensor[[K, N], pl.BF16], out: pl.Out[pl.Tensor[[M, N], pl.FP32]]
):
    for n in pl.parallel(0, N, TN):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate"):
            acc = pl.matmul(x[:, 0:TK], w[0:TK, n : n + TN], out_dtype=pl.FP32)
            for k in pl.pipeline(TK, K, TK, stage=2):
                acc = pl.matmul_acc(acc, x[:, k : k + TK], w[k : k + TK, n : n + TN])  # {comment}
            out = pl.assemble(out, pl.mul(acc, 0.5), [0, n])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="norm"):
        rows = out[:, 0:256]
        out = pl.assemble(out, pl.add(rows, rows), [0, 0])
    return out


layer(np.zeros((M, K), pl.BF16.storage), np.zeros((K, N), pl.BF16.storage), np.zeros((M, N), np.float32))
"""


def written(path: Path, tk: int = 128, tn: int = 256, comment: str = "the K loop") -> Path:
    path.write_text(PROGRAM.format(tk=tk, tn=tn, comment=comment))
    return path
