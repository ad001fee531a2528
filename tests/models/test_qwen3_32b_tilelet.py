"""The Qwen3-32B tilelet: as found with its faults and their cost in tasks, and improved."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest
from tile_programs import counts, load, recording

from npuscope.tile.golden import driven, run_jit
from npuscope.tile.record.model import Recording
from npuscope.tile.record.summary import summarise, work_of


@pytest.fixture(scope="module")
def tilelet() -> ModuleType:
    return load("qwen3_32b_tilelet")


def as_found_regions(heads: int, kv_heads: int, inter: int, lengths: list[int]) -> dict[str, tuple[int, str]]:
    """Tasks and core of every region, from the program's loops: columns in 64s, K in 128s, tokens in 64s, 8 heads."""
    columns, kv_columns, steps, groups = heads * 2, kv_heads * 2, heads, heads // 8
    rows, blocks, mlp = len(lengths), sum(-(-length // 64) for length in lengths), inter // 64
    return {
        "zero q, attention": (columns, "AIV"),
        "zero k, v": (kv_columns, "AIV"),
        "norm": (1, "AIV"),
        "q": (columns, "AIC"),
        "k": (kv_columns, "AIC"),
        "v": (kv_columns, "AIC"),
        "k rope": (rows, "AIV"),
        "q rope": (rows * groups, "AIV"),
        "qk": (groups * blocks, "AIC"),
        "softmax": (groups * blocks, "AIV"),
        "sv": (groups * blocks, "AIC"),
        "rescale": (groups * blocks, "AIV"),
        "divide": (rows * groups, "AIV"),
        # scope 3 as the compiler cut it: a task for each chunk of a chunked loop and for what stands between two
        "zero residual": (1, "AIV"),
        "o": (-(-columns // 8), "MIX"),
        "post norm": (1, "AIV"),
        "post norm applied": (1, "AIV"),  # a reshape stays in orchestration and ends the task before it
        "gate, up": (mlp, "MIX"),
        "down": (mlp * -(-steps // 4), "MIX"),
        "residual": (-(-steps // 4), "AIV"),
    }


def test_the_loops_give_the_counts_of_the_issue() -> None:
    tasks = [tasks for tasks, _ in as_found_regions(64, 8, 25600, [4096] * 16).values()]
    assert tasks[:2] == [128, 16]
    assert tasks[2:6] == [1, 128, 16, 16]
    assert sum(tasks[6:13]) == 16 * (1 + 8 * (1 + 256 + 1)) == 33_040
    assert sum(tasks[13:]) == 1 + 16 + 2 + 400 * (1 + 16) + 16 == 6_835
    assert sum(tasks) == 40_180


def test_as_found_passes_its_own_golden_with_a_task_for_every_step(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=8, kv_heads=1, inter=256, context=128)
    recorded = recording(tilelet.run(size, faults=True))
    lengths = next(spec.init_value() for spec in tilelet.specs(size, False) if spec.name == "seq_lens").tolist()
    wanted = as_found_regions(8, 1, 256, lengths)
    assert [(tasks, core) for tasks, _, core in counts(recorded).values()] == list(wanted.values())
    # the 8 rows of padding that nobody writes, read by QK and by SV
    found = {(finding.kind, finding.message.split(" of ")[1].split()[0]) for finding in recorded.notices}
    assert found == {("unwritten", "q_padded"), ("unwritten", "exp_padded")}


def test_as_found_is_not_rmsnorm(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=8, kv_heads=1, inter=256, context=128)
    right = partial(tilelet.golden, size, False)
    result = run_jit(tilelet.as_found(size), tilelet.specs(size, False), right, rtol=1e-2, atol=1e-2)
    assert not result.passed


def test_improved_passes_the_right_golden_in_nine_tasks(tilelet: ModuleType) -> None:
    recorded = recording(tilelet.run(tilelet.Size(heads=16, kv_heads=1, inter=512, context=256)))
    assert recorded.notices == ()
    assert counts(recorded) == {
        "input_norm": (1, 1, "AIV"),
        "q_proj": (1, 8, "AIC"),  # hidden 2048 in tiles of 256
        "kv_proj": (1, 1, "AIC"),  # 128 columns of K and of V
        "rope_cache": (1, 16, "AIV"),  # a block per row
        "attention": (1, 32, "MIX"),  # 16 rows x 2 groups of 8 heads
        "out_proj": (1, 8, "MIX"),
        "post_norm": (1, 1, "AIV"),
        "gate_up": (1, 2, "MIX"),  # intermediate 512
        "down_proj": (1, 8, "MIX"),
    }


def test_as_found_counts_at_the_width_of_the_issue(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=64, kv_heads=8, inter=512, context=128)  # the full 25600 and 4096 only repeat the loops
    with driven(shapes=True):
        recorded = recording(tilelet.run(size, faults=True, even=True))
    wanted = as_found_regions(64, 8, 512, [128] * 16)
    assert [(tasks, core) for tasks, _, core in counts(recorded).values()] == list(wanted.values())


def products(one: Recording) -> int:
    """Arithmetic of the cube; sums outside of it are what the improved form has fewer of."""
    return sum(
        work_of(one.bodies[group.body]).cube_flops * len(group.blocks) for task in one.tasks for group in task.groups
    )


def test_improved_does_the_same_products_with_fewer_bytes(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=16, kv_heads=2, inter=512, context=256)
    with driven(shapes=True):
        runs = [recording(tilelet.run(size, faults, even=True)) for faults in (True, False)]
    found, mended = (summarise([one]) for one in runs)
    assert products(runs[0]) == products(runs[1]) > 0
    assert mended.total("gm_read") < found.total("gm_read")
    assert mended.total("gm_written") < found.total("gm_written") / 5


def test_improved_at_full_size_is_nine_tasks(tilelet: ModuleType) -> None:
    with driven(shapes=True):
        found = counts(recording(tilelet.run(tilelet.FULL, even=True)))
    blocks = {kernel: count for kernel, (tasks, count, _) in found.items() if tasks == 1}
    assert blocks == {
        "input_norm": 1,
        "q_proj": 32,  # 8192 / 256
        "kv_proj": 8,  # 1024 / 128
        "rope_cache": 16,
        "attention": 128,  # 16 rows x 8 groups
        "out_proj": 32,
        "post_norm": 1,
        "gate_up": 100,  # 25600 / 256
        "down_proj": 32,
    }


def test_sizes_that_do_not_tile_are_refused(tilelet: ModuleType) -> None:
    with pytest.raises(SystemExit, match="multiple"):
        tilelet.run(tilelet.Size(heads=12))
