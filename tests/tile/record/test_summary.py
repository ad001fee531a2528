"""How much a run did: counted through loops, groups and tasks exactly as if everything were unrolled."""

from __future__ import annotations

import numpy as np
from recordings import buffer, recording, task, whole

from npuscope.ops.spec import Plane
from npuscope.tile.record.model import Access, BlockGroup, Body, Loop, Op, Segment
from npuscope.tile.record.summary import summarise, unit_of


def op(name: str, plane: Plane, *accesses: Access, flops: int = 0) -> Op:
    return Op(name, plane, 0, accesses=accesses, flops=flops)


def test_every_iteration_of_every_block_counts() -> None:
    # GIVEN a bf16 weight read tile by tile: two rolled-up iterations of three inner ones, then one of another shape
    x, w, y = buffer(0, 16, 64), buffer(1, 64, 64, dtype="BF16"), buffer(2, 16, 64)
    step = op("load", "load", Access(1, "read", (16, 16), (64, 1))), op("matmul_acc", "cube", flops=100)
    tail = op("load", "load", Access(1, "read", (8, 16), (64, 1))), op("matmul_acc", "cube", flops=50)
    inner = Loop("pipeline", 2, 0, (Segment(3, step),))
    loop = Loop("range", 1, 0, (Segment(2, (inner,)), Segment(1, tail)))
    body = Body((op("load", "load", Access(0, "read", (16, 64), (64, 1))),), (loop,))
    store = Body((), (op("store", "store", Access(2, "add", (16, 64), (64, 1))),))
    none = (np.zeros(1, np.int64),)
    groups = (BlockGroup(0, np.arange(5), none * 3), BlockGroup(1, np.array([5]), none))
    arguments = whole(x), whole(w), whole(y, "w")
    tasks = [task(n, *arguments, kernel="proj", core="MIX", blocks=6, groups=groups) for n in range(2)]

    # WHEN it is summed
    work = summarise([recording([x, w, y], tasks, bodies=(body, store))])

    # THEN two tasks of five blocks: FP32 prologue 16·64·4, then BF16 2·3·16·16·2 + 8·16·2; 2·3·100 + 50 FLOPs
    (proj,) = work.kernels
    assert (proj.tasks, proj.blocks, proj.unit) == (2, 12, "MIX")
    assert proj.flops == 2 * 5 * (600 + 50)
    assert proj.gm_read == 2 * 5 * (16 * 64 * 4 + 2 * 3 * 16 * 16 * 2 + 8 * 16 * 2)
    assert proj.gm_written == 2 * 16 * 64 * 4
    assert proj.ops == 2 * (5 * (1 + 2 * 3 * 2 + 2) + 1)


def test_kernels_keep_the_order_of_their_first_task_and_sum_over_recordings() -> None:
    x = buffer(0, 4)
    one = recording([x], [task(0, whole(x), kernel="b"), task(1, whole(x), kernel="a")])
    two = recording([x], [task(0, whole(x), kernel="a", blocks=3), task(1, kernel="c", core="none", blocks=0)])
    work = summarise([one, two])
    assert [(k.kernel, k.tasks, k.blocks, k.unit) for k in work.kernels] == [
        ("b", 1, 1, "AIV"),
        ("a", 2, 4, "AIV"),
        ("c", 1, 0, "none"),
    ]
    assert work.as_dict()["tasks"] == work.total("tasks") == 4
    assert "4 tasks with 5 blocks of 3 kernels" in str(work)


def test_a_task_whose_predicate_was_false_is_a_task_without_blocks() -> None:
    x = buffer(0, 4)
    (kernel,) = summarise([recording([x], [task(0, whole(x), blocks=8, predicated=True, skipped=True)])]).kernels
    assert (kernel.tasks, kernel.blocks) == (1, 0)


def test_a_kernel_needs_what_its_tasks_need_together() -> None:
    assert unit_of(["AIC", "AIC"]) == "AIC"
    assert unit_of(["AIC", "AIV"]) == "MIX"
    assert unit_of(["none", "AIV"]) == "AIV"
    assert unit_of([]) == "none"
