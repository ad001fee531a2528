"""Recordings made by hand: row-major buffers, views of them, and tasks that read and write those views."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np

from npuscope.tile.record.model import Access, Argument, BlockGroup, Body, Buffer, Op, Recording, Site, Task, Turn

SITE = Site("made.py", 1, "main")


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[k + 1 :]) for k in range(len(shape)))


def buffer(id: int, *shape: int, origin: Any = "created", dtype: str = "FP32", **more: Any) -> Buffer:
    return Buffer(id, f"t{id}", shape, dtype, origin, 0, **more)


def whole(of: Buffer, how: str = "r", **more: Any) -> Argument:
    """The whole buffer as an argument; `how` is r, w, rw (read first) or wr (read only what it wrote)."""
    return box(of, [0] * len(of.shape), list(of.shape), how, **more)


def box(of: Buffer, at: list[int], size: list[int], how: str = "r", **more: Any) -> Argument:
    """A slice of a buffer as an argument."""
    strides = row_major(of.shape)
    offset = sum(a * s for a, s in zip(at, strides, strict=True))
    return Argument(of.id, offset, tuple(size), strides, "r" in how, "w" in how, **more)


def task(id: int, *arguments: Argument, kernel: str = "k", deps: tuple[int, ...] = (), **more: Any) -> Task:
    """A task of one block without ops."""
    settings: dict[str, Any] = {"core": "AIV", "blocks": 1, "groups": (), "turns": (), "form": "at", **more}
    return Task(id=id, kernel=kernel, site=0, arguments=arguments, deps=deps, **settings)


def turns(*steps: tuple[Any, ...]) -> tuple[Turn, ...]:
    return tuple(Turn(*step) for step in steps)


def recording(buffers: list[Buffer], tasks: list[Task], **more: Any) -> Recording:
    return Recording("made", "values", (SITE,), tuple(buffers), more.pop("bodies", ()), tuple(tasks), **more)


def touching(made: Recording) -> Recording:
    """The recording with blocks that touch each argument whole, once: reads first, then writes."""
    modes: tuple[Literal["read"], Literal["write"]] = ("read", "write")
    bodies: list[Body] = []
    tasks: list[Task] = []
    for one in made.tasks:
        wanted = [(n, mode, a) for mode in modes for n, a in enumerate(one.arguments) if _does(a, mode)]
        ops = tuple(
            Op(mode, "load" if mode == "read" else "store", 0, accesses=(Access(n, mode, a.shape, a.strides),))
            for n, mode, a in wanted
        )
        offsets = tuple(np.array([a.offset]) for _, _, a in wanted)
        tasks.append(replace(one, groups=(BlockGroup(len(bodies), np.array([0]), offsets),)))
        bodies.append(Body((), ops))
    return replace(made, bodies=tuple(bodies), tasks=tuple(tasks))


def _does(argument: Argument, mode: str) -> bool:
    return argument.reads if mode == "read" else argument.writes
