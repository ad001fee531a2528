"""Steps found by repetition, where a capture marks none."""

import pytest
from made import US, Task, made

from npuscope import explain as analysis
from npuscope.explain.passes.ranks import forward_of

LAYER = ("norm", "qkv", "attention", "out_proj", "mlp")


def decode(steps: int, layers: int, *, pause: float = 20, slow_first: float = 0) -> list[Task]:
    """Steps of an embedding, layers and a sampling kernel, back to back on a stream, with a pause between steps."""
    tasks: list[Task] = []
    now = 0.0
    for step in range(steps):
        for kernel in ("embed", *(name for _ in range(layers) for name in LAYER), "sample"):
            length = 3 + (slow_first if step == 0 and kernel == "embed" else 0)
            tasks.append(Task(len(tasks), kernel, "stream_0", now, now + length))
            now += length + 1
        now += pause
    return tasks


def test_steps_and_their_layers_are_found() -> None:
    found = analysis.explain(made(decode(4, 6))).steps
    assert found.source == "passes"
    assert found.table["slices"].to_list() == [32] * 4
    # each step is 32 kernels of 3 µs and 31 gaps of 1 µs
    assert found.table["span_ns"].to_list() == [(32 * 3 + 31) * US] * 4
    assert found.table["core_ns"].to_list() == [96 * US] * 4
    assert (found.layers, found.unassigned, found.outliers) == (6, 0, [])


def test_a_slow_first_step_is_an_outlier() -> None:
    found = analysis.explain(made(decode(4, 6, slow_first=127))).steps
    assert found.first_penalty == pytest.approx(2.0)
    assert found.outliers == [0]


def test_what_comes_before_the_first_repeat_is_counted() -> None:
    before = [Task(-n, f"setup{chr(96 + n)}", "stream_0", -10 * n, -10 * n + 5) for n in range(1, 4)]
    found = analysis.explain(made([*before, *decode(3, 5)])).steps
    assert (found.table.height, found.unassigned) == (3, 3)


def test_no_repetition_is_no_step() -> None:
    tasks = [Task(n, f"kernel_{chr(97 + n)}", "stream_0", 10 * n, 10 * n + 5) for n in range(20)]
    found = analysis.explain(made(tasks)).steps
    assert (found.source, found.table.height) == ("none", 0)
    assert "no repetition found" in str(found)


def test_cores_are_ordered_by_task_not_by_start() -> None:
    # GIVEN two cores that run tasks of a repeating program out of order
    tasks = [
        Task(n, LAYER[n % 5], f"AIC_{n % 2}", 10 * n - (25 if n % 5 == 3 else 0), 10 * n + 2) for n in range(5, 45)
    ]
    found = analysis.explain(made(tasks)).steps
    assert (found.source, found.table.height) == ("repetition", 8)


def test_stretches_that_run_at_the_same_time_are_no_steps() -> None:
    # GIVEN many short chains of four kernels, started one after another and running side by side
    names = ("qk", "softmax", "sv", "sum")
    tasks = [Task(4 * n + k, names[k], f"AIC_{n % 8}", n + 30 * k, n + 30 * k + 5) for n in range(20) for k in range(4)]
    assert analysis.explain(made(tasks)).steps.source == "none"


def test_kernels_are_ordered_by_the_usual_step() -> None:
    # GIVEN four steps of 32 kernels of 3 µs, the first with 500 µs more of one that is of no weight in the others
    found = analysis.explain(made(decode(4, 6, slow_first=500)))
    kernels = found.tables()["kernels"].frame
    # THEN that one has most time, and comes behind the kernels of layers, six of each in a step
    assert dict(kernels.select("kernel", "usual_ns").iter_rows()) == {
        **dict.fromkeys(LAYER, 6 * 3 * US), "embed": 3 * US, "sample": 3 * US,
    }  # fmt: skip
    assert set(kernels["kernel"][:5]) == set(LAYER)
    assert kernels.sort("core_ns")["kernel"][-1] == "embed"
    # AND where no step is odd nothing is said of usual ones
    even = analysis.explain(made(decode(4, 6))).tables()["kernels"].frame
    assert even["usual_ns"].null_count() == even.height


def test_a_typical_pass_is_made_of_parts_that_add_up() -> None:
    # GIVEN five passes, one of them odd: an embedding, six layers of five kernels, a sampling kernel, 1 µs between all
    trace = made(decode(5, 6, slow_first=500))
    (rank,) = forward_of(trace, "made").ranks
    assert rank.statistics is not None
    rows = rank.statistics.typical.select("part", "kernels", "span_ns").iter_rows()
    parts = {part: (kernels, ns) for part, kernels, ns in rows}
    # THEN the pass in the middle has them
    assert sum(ns for _, ns in parts.values()) == (32 * 3 + 31) * US
    assert parts["6 layers"] == (30, 90 * US)
    assert parts["gaps between kernels"] == (None, 31 * US)
    assert rank.statistics.middle != 0
