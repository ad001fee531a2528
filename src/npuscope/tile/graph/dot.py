"""The graph for Graphviz: a node per task, or, for graphs too big to draw, per kernel."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from npuscope.tile.graph.edges import Graph, Origin
from npuscope.tile.record.model import Recording

By = Literal["task", "kernel"]
_SHAPES = {"AIC": "box", "AIV": "ellipse", "MIX": "diamond", "none": "point"}
_STYLES = {"creator": "dotted", "raw": "solid", "waw": "dashed", "explicit": "bold"}  # of the strongest origin
_STRENGTH: tuple[Origin, ...] = ("raw", "explicit", "waw", "creator")


def dot(recording: Recording, graph: Graph, by: By = "task") -> str:
    """Text for `dot`. Solid: raw, bold: explicit, dashed: waw only; allocations, done at once, are left out."""
    lines = [f"digraph {_quoted(recording.program)} {{", "  rankdir=LR;"]
    pairs = {pair: origins for pair, origins in graph.pairs.items() if pair[0] >= 0}
    if by == "kernel":
        lines += _by_kernel(recording, pairs)
    else:
        for task in recording.tasks:
            blocks = f" ×{task.blocks}" if task.blocks > 1 else ""
            label = f"{task.id} {task.kernel}{blocks}"
            lines.append(f"  {task.id} [label={_quoted(label)}, shape={_SHAPES[task.core]}];")
        for (src, dst), origins in pairs.items():
            strongest = next(origin for origin in _STRENGTH if origin in origins)
            lines.append(f"  {src} -> {dst} [style={_STYLES[strongest]}];")
    return "\n".join([*lines, "}", ""])


def _by_kernel(recording: Recording, pairs: dict[tuple[int, int], tuple[Origin, ...]]) -> list[str]:
    kernels = [task.kernel for task in recording.tasks]
    cores = {task.kernel: task.core for task in recording.tasks}
    numbers = {name: n for n, name in enumerate(cores)}
    lines = [
        f"  {numbers[name]} [label={_quoted(f'{name} ({count:,})')}, shape={_SHAPES[cores[name]]}];"
        for name, count in Counter(kernels).items()
    ]
    between = Counter((kernels[src], kernels[dst]) for src, dst in pairs)
    lines += [f"  {numbers[a]} -> {numbers[b]} [label={_quoted(f'{n:,}')}];" for (a, b), n in between.items()]
    return lines


def _quoted(text: str) -> str:
    """A DOT string; backslashes would start an escape, and a line break would end the line."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
