"""The smallest tile program with a constant that decides its time."""

# Rows of a matrix, ROWS at a time: fewer and larger tasks until a tile and its sum no longer fit into 184 KiB.
ADD = """import numpy as np

import npuscope.tile as pl

ROWS = 16


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 1024, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            y = pl.assemble(y, pl.add(pl.slice(x, [ROWS, 256], [i, 0]), 1.0), [i, 0])
    return y


program(np.zeros((1024, 256), np.float32), np.zeros((1024, 256), np.float32))
"""
