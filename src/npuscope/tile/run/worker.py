"""`pypto.runtime.Worker` and its kinds: programs prepared once, then called again and again with tensors that stay."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuscope.tile.fault import fault


class Registered:
    """A program at a worker: calling it runs it there."""

    def __init__(self, compiled: Any, worker: Worker) -> None:
        self.compiled, self.worker = compiled, worker

    @property
    def closed(self) -> bool:
        return self.worker.closed

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.worker.run(self.compiled, *args, **kwargs)


class Submitted:
    """A call that was submitted: it ran at once, so its result is there."""

    def __init__(self, value: object) -> None:
        self._value = value

    def result(self, *_: object, **__: object) -> object:
        return self._value


class Worker:
    """Runs programs one after the other; a device's memory is this process's, so its tensors are plain ones."""

    def __init__(self, programs: Any = (), *_: object, callbacks: object = None, **__: object) -> None:
        if callbacks:
            raise fault("a worker's callbacks= are not run here", "Leave them out.")
        self._programs = list(programs if isinstance(programs, Sequence) else [programs])
        self._loaded: list[object] = []
        self._owned_tensors: list[object] = []
        self.closed = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Runs the program that it was prepared for."""
        if len(self._programs) != 1:
            raise TypeError(f"a call is ambiguous with {len(self._programs)} programs: use run(compiled, ...)")
        return self.run(self._programs[0], *args, **kwargs)

    @property
    def aicpu_dlopen_count(self) -> int:
        """How many programs a device would have loaded: each once."""
        return len(self._loaded)

    def register(self, compiled: Any) -> Registered:
        self._load(compiled, "register")
        return Registered(compiled, self)

    def run(self, compiled: Callable[..., object], *args: object, **kwargs: object) -> object:
        self._load(compiled, "run")
        return compiled(*args, **kwargs)

    def submit(self, compiled: Callable[..., object], *args: object, **kwargs: object) -> Submitted:
        return Submitted(self.run(compiled, *args, **kwargs))

    def alloc_tensor(self, shape: Sequence[int], dtype: Any, *, init: Any = None, **_: object) -> Any:
        """A tensor that stays until it is freed: a copy of `init`, else zeros."""
        self._open("alloc_tensor")
        if init is not None and tuple(init.shape) != tuple(shape):
            raise ValueError(f"alloc_tensor: init has the shape {list(init.shape)}, not {list(shape)}")
        tensor: Any
        if type(dtype).__module__ == "torch":
            tensor = importlib.import_module("torch").zeros(tuple(shape), dtype=dtype)
        else:
            tensor = np.zeros(tuple(shape), dtype)
        if init is not None:
            tensor[...] = init
        self._owned_tensors.append(tensor)
        return tensor

    def free_tensor(self, tensor: object) -> None:
        if not any(one is tensor for one in self._owned_tensors):
            raise ValueError("free_tensor: the tensor is not this worker's, or was freed before")
        self._owned_tensors = [one for one in self._owned_tensors if one is not tensor]

    def close(self) -> None:
        self.closed = True
        self._owned_tensors.clear()

    def _open(self, what: str) -> None:
        if self.closed:
            raise RuntimeError(f"{what} called after close")

    def _load(self, compiled: object, what: str) -> None:
        self._open(what)
        if not any(one is compiled for one in self._loaded):
            self._loaded.append(compiled)
