"""Large tensors of a script are made when somebody asks for their elements, and hold what they would hold otherwise."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from npuscope.tile.script.lazy_torch import LARGE, LazyTensor, lazily  # noqa: E402 (it imports torch)
from npuscope.tile.script.run import run_script  # noqa: E402

ROWS, COLUMNS = 256, 256  # large enough to be lazy
assert ROWS * COLUMNS >= LARGE

# Each makes tensors `t` of one size out of others, or changes one in place, or a view of one.
STEPS = [
    lambda t, r: t.append(torch.randn(ROWS, COLUMNS)),
    lambda t, r: t.append(torch.rand(ROWS, COLUMNS) - 0.5),
    lambda t, r: t.append(torch.randint(0, 9, (ROWS, COLUMNS)).float()),
    lambda t, r: t.append(torch.empty(ROWS, COLUMNS).uniform_(-1, 1)),
    lambda t, r: t.append(torch.randn(ROWS, COLUMNS, generator=of(r))),
    lambda t, r: t.append(torch.empty(ROWS, COLUMNS).normal_(1.0, 0.5, generator=of(r))),
    lambda t, r: t.append(torch.rand(5, generator=of(r)).sum() * r.choice(t)),
    lambda t, r: of(r).manual_seed(r.randrange(3)),  # often to what it was before
    lambda t, r: of(r).set_state(of(r).get_state()),
    lambda t, r: torch.manual_seed(r.randrange(3)),
    lambda t, r: t.append(r.choice(t) + r.choice(t)),
    lambda t, r: t.append(r.choice(t).to(torch.bfloat16).float()),
    lambda t, r: t.append(torch.where(r.choice(t) > 0, r.choice(t), torch.tensor(2.0))),
    lambda t, r: t.append(r.choice(t).reshape(-1, 64).sort(dim=-1).values.reshape(ROWS, COLUMNS)),
    lambda t, r: t.append(r.choice(t).clone()),
    lambda t, r: t.append(r.choice(t)),
    lambda t, r: t.append(r.choice(t).T),
    lambda t, r: r.choice(t)[3:9].fill_(r.random()),
    lambda t, r: r.choice(t)[:, ::2].mul_(2),
    lambda t, r: r.choice(t).__setitem__((slice(0, 8), 3), torch.arange(8.0)),
    lambda t, r: r.choice(t).copy_(r.choice(t).abs()),
    lambda t, r: t.append(r.choice(t).amax(dim=-1, keepdim=True) + r.choice(t)),
    lambda t, r: t.append(torch.randn(7).sum() * r.choice(t)),  # drawn at once: the stream is moved on before
    lambda t, r: t.append(torch.where(r.choice(t).mean() > 0, r.choice(t), r.choice(t))),
    lambda t, r: t.append(r.choice(t) * float(r.choice(t)[r.randrange(ROWS), 5])),  # asks for an element
    lambda t, r: t.append(torch.stack([r.choice(t)[r.randrange(ROWS)] for _ in range(ROWS)])),
    lambda t, r: t.append(torch.stack([torch.randn(COLUMNS) for _ in range(ROWS)])),
    lambda t, r: t.append(r.choice(t)[r.randrange(ROWS)].expand(ROWS, COLUMNS).contiguous()),
    lambda t, r: r.choice(t).masked_fill_(r.choice(t) > 0.5, -1.0),
]


class Script(Random):
    """Chooses what comes next; it has generators of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.generators = [torch.Generator().manual_seed(seed), torch.Generator()]


def of(script: Script):
    return script.choice(script.generators)


def written(seed: int) -> list:
    random = Script(seed)
    torch.manual_seed(seed)
    tensors = [torch.randn(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)]
    for _ in range(20):
        random.choice(STEPS)(tensors, random)
    return tensors


@pytest.mark.parametrize("seed", range(16))
def test_a_lazy_tensor_holds_what_it_would_hold(seed):
    # GIVEN random calls of torch: draws, arithmetic, views, writes through views, looks at single elements
    wanted = [one.numpy().copy() for one in written(seed)]
    after = torch.rand(3)
    with lazily():
        # WHEN they are made lazily, and their results are asked for in any order
        found = written(seed)
        assert any(isinstance(one, LazyTensor) for one in found)
        order = list(range(len(found)))
        Random(-seed).shuffle(order)
        for place in order:
            if isinstance(found[place], LazyTensor) and place % 3 == 0:  # one row, and nothing else of it
                assert np.array_equal(found[place].made_row(place).numpy(), wanted[place][place], equal_nan=True)
            got = found[place].clone() if place % 2 else found[place]
            # THEN each is what torch makes at once
            assert np.array_equal(got.numpy(), wanted[place], equal_nan=True), place
        # AND the script's stream of random numbers is where it would be
        assert torch.equal(torch.rand(3), after)


def test_what_nobody_asks_for_is_not_made():
    with lazily():
        weights = (torch.randn(1 << 20, 1 << 20) * 0.02).to(torch.bfloat16)  # 4 TiB
        weights[0:3] = 1.0
        drawn = torch.empty(1 << 20, 1 << 20).normal_(generator=torch.Generator().manual_seed(1))
        assert isinstance(drawn + 1, LazyTensor)
        assert weights.T[:, 5:8].shape == (1 << 20, 3)
        assert torch.zeros(4, 4).tolist() == [[0.0] * 4] * 4


SCRIPT = """
import torch
import pypto.language as pl
from golden import TensorSpec, run

@pl.jit
def scaled(x: pl.Tensor[[1048576, 1048576], pl.FP32], rows: pl.Tensor[[1], pl.INT32], out: pl.Out[pl.Tensor]):
    for i in pl.range(pl.read(rows, [0])):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="one"):
            tile = pl.load(x, [i * 16, 0], [16, 64])
            pl.store(pl.mul(tile, 2.0), [i * 16, 0], out)
    return out

weights = torch.randn(1048576, 1048576) / 1024
specs = [
    TensorSpec("x", [1048576, 1048576], torch.float32, init_value=lambda: weights),
    TensorSpec("rows", [1], torch.int32, init_value=lambda: torch.tensor([5])),
    TensorSpec("out", [1024, 64], torch.float32, is_output=True),
]
run(scaled, specs)
"""


def test_a_script_with_terabytes_of_weights_is_recorded(tmp_path: Path):
    # GIVEN a script that draws 4 TiB of weights before it runs its program
    file = tmp_path / "large.py"
    file.write_text(SCRIPT)
    # WHEN it is recorded without values, THEN the numbers that steer it are there, and the weights never were
    (recording,) = run_script(file, mode="shapes").recordings
    assert [task.kernel for task in recording.tasks] == ["one"] * 5


def filled() -> list[Any]:
    """Tables filled entry by entry, between calls of torch that change what they are or where they lie."""
    tables = []
    for change in (
        lambda t: t,
        lambda t: t.fill_(1),
        lambda t: t.resize_(4),
        lambda t: t.unsqueeze_(0),
        lambda t: setattr(t, "data", torch.full((6,), 7, dtype=t.dtype)),
        lambda t: t.requires_grad_(False),
        lambda t: t.set_(torch.full((6,), 8, dtype=t.dtype)),
    ):
        for dtype in (torch.int32, torch.int64, torch.int8, torch.float32, torch.bool):
            table = torch.zeros(6, dtype=dtype)
            part, twin = table[1:], table.view(2, 3)
            for i in range(6):
                table[i] = i - 3
            change(table)
            for index, value in ((0, 5), (-1, 6), (0, 2.5), (0, True), (torch.tensor(0), 4), (slice(0, 2), 9), (0, 1)):
                table[index] = value
            table[0] = 11
            tables += [table, part, twin]
            for wrong, number in ((6, 0), (-9, 0), (0, 1 << 70), (0, "a"), (0, None)):
                try:
                    table[wrong] = number
                except Exception as error:
                    tables.append(torch.tensor([ord(letter) for letter in type(error).__name__ + str(error)]))
    return tables


def test_tables_filled_entry_by_entry_hold_what_they_would_hold():
    with lazily():
        here = filled()
    assert [table.tolist() for table in here] == [table.tolist() for table in filled()]


def test_memory_that_a_script_shares_is_still_made_late() -> None:
    with lazily():
        x = torch.ones(ROWS, COLUMNS)
        assert x.share_memory_() is x
        x += 1
    assert float(x[3, 5]) == 2
