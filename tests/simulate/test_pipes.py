"""One core: the compiled run and the same code as plain Python agree; a slower memory makes no block faster."""

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.simulate.core.pipes import time_block
from npuscope.simulate.core.stream import stream_of
from tests.lower.kernels import lowered, tensor

K, N = 256, 128


@pl.jit
def mixed(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    """A pipelined product whose operand comes from, and whose result goes to, a vector core."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="mixed"):
        acc = pl.matmul(pl.neg(x[:, 0:64]), w[0:64, :])
        for k in pl.pipeline(64, K, 64, stage=2):
            acc = pl.matmul_acc(acc, pl.neg(x[:, k : k + 64]), w[k : k + 64, :])
        out = pl.assemble(out, pl.exp(acc), [0, 0])
    return out


@pytest.mark.parametrize("slow", [1.0, 3.5])
def test_compiled_and_plain_agree(slow: float) -> None:
    program, found = lowered(mixed, tensor((16, K), "BF16"), tensor((K, N), "BF16"), tensor((16, N), "FP32"))
    stream = stream_of(found[0], program.device)
    compiled, plain = time_block(stream, slow), time_block(stream, slow, plain=True)
    assert compiled.duration == plain.duration > 0
    np.testing.assert_array_equal(compiled.busy, plain.busy)
    np.testing.assert_array_equal(compiled.stalls, plain.stalls)
    assert compiled.cube < compiled.vector  # the vector core stores what the cube hands it
    assert time_block(stream, slow * 2).duration > compiled.duration
