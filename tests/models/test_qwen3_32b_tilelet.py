"""The Qwen3-32B tilelet: as found with its faults and their cost in tasks, and improved."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest
from tile_programs import counts, load, recording

from npuscope.tile.golden import driven, run_jit
from npuscope.tile.record.summary import summarise


@pytest.fixture(scope="module")
def tilelet() -> ModuleType:
    return load("qwen3_32b_tilelet")


def expected_as_found(heads: int, kv_heads: int, inter: int, lengths: list[int]) -> dict[str, int]:
    """Tasks per part, from the program's loops: chunks of 64 columns, K steps of 128, 64 tokens, groups of 8 heads."""
    columns, kv_columns, steps, groups = heads * 2, kv_heads * 2, heads, heads // 8
    return {
        "zero": columns + kv_columns,
        "norm and Q, K, V": 1 + columns + 2 * kv_columns,
        "attention": sum(1 + groups * (1 + 4 * -(-length // 64) + 1) for length in lengths),
        # the compiler's cut: zeros; 8 columns a task; norm; per 64 of inter one gate/up and 4 steps of down a task; sum
        "out and MLP": 1 + -(-columns // 8) + 1 + inter // 64 * (1 + -(-steps // 4)) + -(-steps // 4),
    }


def test_the_formula_gives_the_counts_of_the_issue() -> None:
    parts = expected_as_found(64, 8, 25600, [4096] * 16)
    assert parts["zero"] == 128 + 16
    assert parts["norm and Q, K, V"] == 1 + 128 + 16 + 16
    assert parts["attention"] == 16 * (1 + 8 * (1 + 256 + 1)) == 33_040
    assert parts["out and MLP"] == 1 + 16 + 1 + 400 * (1 + 16) + 16 == 6_834


def test_as_found_passes_its_own_golden_with_a_task_for_every_step(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=8, kv_heads=1, inter=256, context=128)
    result = tilelet.run(size, faults=True)
    lengths = next(spec.init_value() for spec in tilelet.specs(size, False) if spec.name == "seq_lens").tolist()
    assert len(recording(result).tasks) == sum(expected_as_found(8, 1, 256, lengths).values())
    # the 8 rows of padding that nobody writes, read by QK and by SV
    found = {(finding.kind, finding.message.split(" of ")[1].split()[0]) for finding in recording(result).findings}
    assert found == {("unwritten", "q_padded"), ("unwritten", "exp_padded")}


def test_as_found_is_not_rmsnorm(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=8, kv_heads=1, inter=256, context=128)
    right = partial(tilelet.golden, size, False)
    result = run_jit(tilelet.as_found(size), tilelet.specs(size, False), right, rtol=1e-2, atol=1e-2)
    assert not result.passed


def test_improved_passes_the_right_golden_in_nine_tasks(tilelet: ModuleType) -> None:
    recorded = recording(tilelet.run(tilelet.Size(heads=16, kv_heads=1, inter=512, context=256)))
    assert recorded.findings == ()
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
    assert len(recorded.tasks) == sum(expected_as_found(64, 8, 512, [128] * 16).values())


def test_improved_does_the_same_products_with_fewer_bytes(tilelet: ModuleType) -> None:
    size = tilelet.Size(heads=16, kv_heads=2, inter=512, context=256)
    with driven(shapes=True):
        found, mended = (summarise([recording(tilelet.run(size, faults, even=True))]) for faults in (True, False))
    assert mended.flops == found.flops
    assert mended.gm_read < found.gm_read
    assert mended.gm_written < found.gm_written / 5


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
