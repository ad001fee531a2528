"""The graph as the runtime's deps.json and its name map, so that every tool that reads a real one reads this.

Ids count submissions from 0, allocations among them as the runtime numbers them (ring 0: rings are a matter of scopes).
Tensors are known by the number of their buffer; no address is made up.
"""

from __future__ import annotations

from math import prod
from typing import Any

from npuscope.tile.graph.boxes import Box
from npuscope.tile.graph.edges import Edge, Graph
from npuscope.tile.record.model import Recording, Task

_TYPES = {"Input": "INPUT", "InOut": "INOUT", "OutputExisting": "OUTPUT_EXISTING", "NoDep": "NO_DEP"}
_DTYPES = {"FP32": "FLOAT32", "FP16": "FLOAT16", "BF16": "BFLOAT16"}


def submissions(recording: Recording, graph: Graph) -> dict[int, int]:
    """Node of the graph -> its number in order of submission."""
    order: list[int] = []
    allocation = 0
    for task in recording.tasks:
        while allocation < len(graph.allocations) and graph.allocations[allocation].before_task <= task.id:
            order.append(-1 - allocation)
            allocation += 1
        order.append(task.id)
    return {node: number for number, node in enumerate(order)}


def kernel_numbers(recording: Recording) -> dict[str, int]:
    """Kernels that run on a core, numbered in the order of their first task."""
    names = dict.fromkeys(task.kernel for task in recording.tasks if task.core != "none")
    return {name: number for number, name in enumerate(names)}


def deps_document(recording: Recording, graph: Graph) -> dict[str, Any]:
    """`tasks`, `tensors` and `edges` of deps.json; 64-bit numbers are text there."""
    ids, kernels = submissions(recording, graph), kernel_numbers(recording)
    dtypes = [_DTYPES.get(buffer.dtype, buffer.dtype) for buffer in recording.buffers]
    used = sorted({box.buffer for boxes in graph.footprints for box in boxes})
    tasks = []
    for node, number in ids.items():
        described = {"task_id": str(number), "scope": "auto", "early_dispatch": False}
        if node < 0:
            tasks.append({**described, "kernel_ids": [-1, -1, -1], "block_num": 1, "args": []})
            continue
        task = recording.tasks[node]
        scope = "manual" if task.manual_scope else "auto"
        told = {"scope": scope, "early_dispatch": task.early, "kernel_ids": _slots(task, kernels)}
        arguments = zip(graph.directions[node], graph.footprints[node], strict=True)
        args = [
            {"idx": n, "type": _TYPES[way], "tensor_id": str(box.buffer), "dtype": dtypes[box.buffer], **_place(box)}
            for n, (way, box) in enumerate(arguments)
        ]
        tasks.append({**described, **told, "block_num": task.blocks, "args": args})
    tensors = [
        {"tensor_id": str(n), "version": 0, "dtype": dtypes[n], "buffer_numel": str(prod(recording.buffers[n].shape))}
        for n in used
    ]
    return {"tasks": tasks, "tensors": tensors, "edges": [_edge(edge, ids, dtypes) for edge in graph.edges]}


def name_map(recording: Recording) -> dict[str, Any]:
    """The names of deps.json's kernel ids, as a name_map_*.json beside it has them."""
    names = {str(number): name for name, number in kernel_numbers(recording).items()}
    return {"level": 2, "orchestrator_name": recording.program, "callable_id_to_name": names}


def _slots(task: Task, kernels: dict[str, int]) -> list[int]:
    """Function of the cube, of vector 0, of vector 1."""
    number = kernels.get(task.kernel, -1)
    return {"AIC": [number, -1, -1], "AIV": [-1, number, -1], "MIX": [number] * 3, "none": [-1] * 3}[task.core]


def _edge(edge: Edge, ids: dict[int, int], dtypes: list[str]) -> dict[str, Any]:
    ends = {"pred": str(ids[edge.src]), "succ": str(ids[edge.dst]), "arg": edge.argument}
    if edge.dst_box is None:
        return {**ends, "source": "explicit", "flags": ["wait", "retain"]}
    consumer = {
        "tensor_id": str(edge.dst_box.buffer),
        "consumer_dtype": dtypes[edge.dst_box.buffer],
        **_place(edge.dst_box, "consumer_"),
    }
    if edge.src_box is None:
        return {**ends, "source": "creator", "flags": ["wait", "retain"], **consumer}
    overlap = "covered" if edge.covered else "other"
    told = {"source": "tensormap", "flags": ["wait"], "overlap": overlap}
    return {**ends, **told, **consumer, **_place(edge.src_box, "producer_")}


def _place(box: Box, side: str = "") -> dict[str, Any]:
    return {
        f"{side}shape": list(box.shape),
        f"{side}start_offset": str(box.offset),
        f"{side}strides": list(box.strides),
    }
