"""Python of the host between the calls of devices."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.script.served import compile_program

TWO = SimpleNamespace(device_ids=[0, 1])


@pl.program
class Doubled:
    @pl.function(type=pl.FunctionType.Orchestration)
    def add(
        self,
        a: pl.Tensor[[16, 64], pl.FP32],
        b: pl.Tensor[[16, 64], pl.FP32],
        out: pl.Out[pl.Tensor[[16, 64], pl.FP32]],
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        with pl.at(level=pl.Level.CORE_GROUP):
            out[:, :] = pl.add(a[:, :], b[:, :])
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
    def negate(
        x: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        out[:] = -x
        return out

    @pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)
    def look(x: pl.Tensor[[16, 64], pl.FP32]) -> None: ...

    @pl.function(level=pl.Level.HOST, role=pl.Role.Orchestrator)
    def main(
        self, a: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        twice = pl.create_tensor([16, 64], dtype=pl.FP32)
        less = pl.create_tensor([16, 64], dtype=pl.FP32)
        self.add(a, a, twice, device=0)
        self.negate(twice, less)
        self.look(less)
        return self.add(less, a, out, device=1)


def test_they_run_in_the_order_of_what_they_read_and_write() -> None:
    a, out = np.arange(1024, dtype=np.float32).reshape(16, 64), np.zeros((16, 64), np.float32)
    seen: list[float] = []

    def look(args: list[Any]) -> None:
        seen.extend(float(value) for value in args[0].reshape(-1))  # an array, or a tensor where torch is there

    with compile_program(Doubled, distributed_config=TWO).prepare(callbacks={"look": look}) as run:
        run(a, out)
    np.testing.assert_array_equal(out, -a)
    np.testing.assert_array_equal(seen, -2 * a.reshape(-1))


def test_one_without_a_body_is_bound_before_it_runs() -> None:
    made = compile_program(Doubled, distributed_config=TWO)
    assert made.sub_workers == {"negate": False, "look": True}
    with pytest.raises(ValueError, match="look"):
        made.prepare()
    with pytest.raises(ValueError, match="not sub-workers"):
        made.prepare(sub_worker_overrides={"other": print})
    with pytest.raises(TileError, match="sub worker look has no body"):
        made(np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32))
    assert not [one for one in threading.enumerate() if one.name == "npuscope stepped thread"]  # of calls before it


def test_the_host_holds_the_orchestration_of_a_chip() -> None:
    @pl.jit.host
    def main(
        a: pl.Tensor[[16, 64], pl.FP32], out: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
    ) -> pl.Tensor[[16, 64], pl.FP32]:
        with pl.at(level=pl.Level.CHIP, role=pl.Role.Orchestrator), pl.at(level=pl.Level.CORE_GROUP):
            half = pl.mul(a, 0.5)
            out = pl.assemble(out, half, [0, 0])
        return out

    a, out = np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)
    main(a, out, config=TWO)
    np.testing.assert_array_equal(out, a / 2)
