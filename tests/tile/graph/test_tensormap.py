"""The tensormap against the runtime itself: real deps.json files, replayed argument by argument."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuscope.tile.graph import Box
from npuscope.tile.graph.task_graph import TensorMap, status

RUNS = ["bgemm_Case1_L4", "dummy_DenseFanoutFanin", "hbg_paged_attention_small1", "paged_attention_CaseVarSeq4"]
RUNS += ["spmd_multiblock_mix", "sync_start_drain"]


@pytest.mark.parametrize("run", RUNS)
def test_a_replay_finds_the_edges_of_the_real_run(shared: Path, run: str) -> None:
    # GIVEN what the runtime was given: per task its arguments with directions and regions
    document = json.loads((shared / "simpler" / "swimlane" / run / "deps.json").read_text())
    numbers = {tensor["tensor_id"]: n for n, tensor in enumerate(document["tensors"])}
    known = TensorMap([int(tensor["buffer_numel"]) for tensor in document["tensors"]])

    # WHEN the tasks are submitted to our map
    found = set()
    for task in document["tasks"]:
        boxes = {
            arg["idx"]: (
                arg["type"],
                Box(numbers[arg["tensor_id"]], int(arg["start_offset"]), tuple(arg["shape"]), tuple(arg["strides"])),
            )
            for arg in task["args"]
            if arg["type"] != "OUTPUT"  # allocated by the task itself: not in the map
        }
        for idx, (way, box) in boxes.items():
            hits = list(known.lookup(box)) if way in ("INPUT", "INOUT") else []
            for entry, writers, covered in hits:
                found |= {(w, task["task_id"], idx, "covered" if covered else "other") for w in writers}
                if covered and way == "INOUT":
                    known.remove(entry)
        for way, box in boxes.values():
            if way in ("INOUT", "OUTPUT_EXISTING"):
                known.insert(box, task["task_id"])

    # THEN it finds the tensormap edges that the runtime wrote down, each with its kind of overlap
    wanted = {
        (edge["pred"], edge["succ"], edge["arg"], edge["overlap"])
        for edge in document["edges"]
        if edge["source"] == "tensormap"
    }
    assert found == wanted


def test_statuses() -> None:
    row = Box(0, 0, (1, 16), (16, 1))
    assert status(Box(0, 0, (4, 16), (16, 1)), row, 64) == "covered"
    assert status(row, Box(0, 0, (4, 16), (16, 1)), 64) == "other"
    assert status(Box(0, 0, (4, 8), (16, 1)), Box(0, 8, (4, 8), (16, 1)), 64) == "apart"
    assert status(Box(0, 0, (4, 8), (16, 1)), Box(0, 8, (4, 8), (16, 1)), 60) == "other"  # no whole rows: cannot tell
    assert status(Box(0, 0, (8,), (2,)), Box(0, 1, (8,), (2,)), 64) == "other"  # a step: cannot tell


def test_one_long_box_does_not_hide_short_ones() -> None:
    known = TensorMap([1000])
    boxes = [Box(0, 0, (1000,), (1,)), *(Box(0, 10 * n, (10,), (1,)) for n in range(100))]
    for n, box in enumerate(boxes):
        known.insert(box, n)
    assert sorted(w for _, writers, _ in known.lookup(Box(0, 505, (10,), (1,))) for w in writers) == [0, 51, 52]
    known.remove(boxes[0])
    assert sorted(w for _, writers, _ in known.lookup(Box(0, 505, (10,), (1,))) for w in writers) == [51, 52]
