# mypy: ignore-errors
"""A product and a row's sum in one task: both kinds of cores. Warm processes run it once."""

import npuscope.tile as pl


@pl.jit
def smallest(
    x: pl.Tensor[[64, 64], pl.FP32],
    w: pl.Tensor[[64, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="smallest"):
        product = pl.matmul(x[0:64, :], w[0:64, :])
        y[0:64, :] = pl.row_expand_sub(product, pl.row_sum(product))
    return y
