"""Programs at hand, simulated again and again with other constants: recorded, lowered and planned once.

Each process keeps its share of the programs; what differs from one trial to the next is the device alone.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from published_changes.one_run import measured
from published_changes.rows import Measured, Side
from published_changes.runs import DEVICES
from validation.predictions import Bench as PublicBench
from validation.predictions import Value, predict, recorded

from npuscope.chip.devices import Device, with_values
from npuscope.lower.program import Program
from npuscope.time.run import Simulated, chip_to_time, simulate

Values = Mapping[str, float]  # `timing.load_fixed`, `op.vgather.row` -> its value


@dataclass(frozen=True)
class Outcome:
    """What one trial says."""

    runs: Mapping[Side, Measured]
    public: Mapping[str, Value]


@dataclass
class _Kept:
    """Programs of one process."""

    programs: dict[object, Program] = field(default_factory=dict)

    def again(self, key: object, program: Program, device: Device) -> Simulated:
        """The program on another device, with what does not depend on times taken over."""
        return simulate(self.programs.setdefault(key, program).with_timing(device))


@dataclass
class _Public(PublicBench):
    kept: _Kept = field(default_factory=_Kept)

    def run(self, file: Path, *argv: str) -> Simulated:
        key = (str(file), *argv)
        if key not in self.done:
            self.done[key] = self.kept.again(key, Program(recorded(file, *argv), self.device), self.device)
        return self.done[key]


class Workbench:
    """Some sides, as they were recorded, and some public rows."""

    def __init__(self, recordings: Mapping[Side, Path], public: Iterable[str], jobs: int) -> None:
        context = get_context("fork")
        shares: list[tuple[list[tuple[Side, Path]], list[str]]] = [([], []) for _ in range(jobs)]
        largest_first = sorted(recordings.items(), key=lambda one: -one[1].stat().st_size)
        for n, item in enumerate(largest_first):
            shares[n % jobs][0].append(item)
        for n, key in enumerate(public):
            shares[n % jobs][1].append(key)
        self._ends: list[Connection] = []
        for share in shares:
            end, other = context.Pipe()
            context.Process(target=_serve, args=(other, *share), daemon=True).start()
            self._ends.append(end)

    def run(self, values: Values, sides: frozenset[Side] | None = None) -> Outcome:
        """Everything with these constants, or some sides alone."""
        for end in self._ends:
            end.send((dict(values), sides))
        runs: dict[Side, Measured] = {}
        public: dict[str, Value] = {}
        for end in self._ends:
            found = end.recv()
            if isinstance(found, Exception):
                raise found
            runs.update(found.runs)
            public.update(found.public)
        return Outcome(runs, public)


def _serve(end: Connection, sides: Sequence[tuple[Side, Path]], public: Sequence[str]) -> None:
    kept = _Kept()
    for side, file in sides:
        with file.open("rb") as source:
            kept.programs[side] = Program(pickle.load(source), chip_to_time(DEVICES[side.platform]))
    gc.freeze()
    while True:
        try:
            values, only = end.recv()
            wanted = [side for side, _ in sides if only is None or side in only]
            end.send(_trial(kept, values, wanted, public if only is None else ()))
        except EOFError:
            return
        except Exception as error:
            end.send(error)


def _trial(kept: _Kept, values: Values, sides: Sequence[Side], public: Sequence[str]) -> Outcome:
    devices = {platform: with_values(chip_to_time(name), values) for platform, name in DEVICES.items()}
    runs = {}
    for side in sides:
        program = kept.programs[side]
        runs[side] = measured(program.recording, kept.again(side, program, devices[side.platform]))
    bench = _Public(devices["a2a3"], kept=kept)
    return Outcome(runs, {key: predict(key, bench) for key in public})
