"""Programs of models/ with one fault each, and what the judge must say of them.

A fault is planted as text: in the kernels' own code (`Model.faults`), in a task of its own, at the top of the file or
in the golden. `mutants(many)` goes round models and faults; numbers in them differ, so that no two are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from judging.models import MODELS, TEXTS, Model, Replaced
from npuscope.answer.request import Request

AT = "with pl.at(level=pl.Level.CORE_GROUP, name_hint={name!r}):"


@dataclass(frozen=True)
class Mutant:
    """`files` by name, of which `entry` is judged. `verdicts` that are right for it, and the rules of which one must
    be among the reasons."""

    name: str
    kind: str
    model: str
    files: dict[str, str]
    entry: str
    argv: tuple[str, ...]
    verdicts: tuple[str, ...]
    ids: tuple[str, ...] = ()

    def written(self, place: Path) -> Request:
        """In a folder of its own."""
        for name, text in self.files.items():
            file = place / self.name / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Request(str(place / self.name / self.entry), self.argv, name=self.name)


Plant = Callable[[Model, int], Replaced]  # the file that it changes, and its new text


def _task(*lines: str) -> Plant:
    """Lines at the end of the entry; {n} stands for a number, TASK(name) opens a task."""

    def plant(model: Model, n: int) -> Replaced:
        text = TEXTS[model.program]
        last = re.compile(r"^( +)return .*$", re.MULTILINE).search(text, text.index("@pl.jit\n"))
        assert last is not None, model
        told = [AT.format(name=line[5:-1]) if line.startswith("TASK(") else line for line in lines]
        body = "".join(f"{last[1]}{line.replace('{n}', str(n))}\n" for line in told)
        return model.program, text[: last.start()] + body + text[last.start() :]

    return plant


def _on_top(*lines: str) -> Plant:
    """Before anything runs."""

    def plant(model: Model, n: int) -> Replaced:
        text, start = TEXTS[model.entry], '\nif __name__ == "__main__":'
        return model.entry, text.replace(start, "\n" + "\n".join(lines).replace("{n}", str(n)) + f"\n\n{start}", 1)

    return plant


def _in_golden(*lines: str) -> Plant:
    def plant(model: Model, n: int) -> Replaced:
        file = model.golden[0] or model.entry
        text = TEXTS[file]
        found = re.compile(model.golden[1], re.MULTILINE).search(text)
        assert found is not None, model
        inside = " " * (len(found[0]) - len(found[0].lstrip(" ")) + 4)
        body = "".join(f"{inside}{line.replace('{n}', str(n))}\n" for line in lines)
        return file, text[: found.end()] + body + text[found.end() :]

    return plant


SPARE = "spare_m = pl.create_tensor([64, 64], dtype=pl.FP32)"
FULL = "    spare_m = pl.assemble(spare_m, pl.full([64, 64], dtype=pl.FP32, value={n}.0), [0, 0])"
KINDS: dict[str, tuple[tuple[Plant, ...], tuple[str, ...], tuple[str, ...], int]] = {  # plants, verdicts, rules, weight
    "wrong numbers": ((), ("wrong",), (), 6),
    "too large tile": (
        (_task(SPARE, "TASK(large_m)", "    wide_m = pl.full([512, 256], dtype=pl.FP32, value={n}.0)",
               "    spare_m = pl.assemble(spare_m, wide_m[0:64, 0:64], [0, 0])"),),
        ("unfit",), ("buffer-overflow",), 3,
    ),
    "illegal cast": (
        (_task(SPARE, "TASK(cast_m)", "    odd_m = pl.cast(pl.arange({n}, [1, 64], dtype=pl.UINT32), pl.FP32)",
               "    spare_m = pl.assemble(spare_m, odd_m, [0, 0])"),),
        ("unfit",), ("illegal-cast",), 3,
    ),
    "illegal move": (
        (_task(SPARE, "left_m = pl.create_tensor([64, 64], dtype=pl.BF16)", "TASK(left_m)",
               "    ones_m = pl.cast(pl.full([64, 64], dtype=pl.FP32, value={n}.0), pl.BF16)",
               "    left_m = pl.assemble(left_m, ones_m, [0, 0])",
               "TASK(product_m)", "    product_m = pl.matmul(left_m[0:64, :], left_m[0:64, :])",
               "    moved_m = pl.move(product_m, target_memory=pl.MemorySpace.Vec)",
               "    spare_m = pl.assemble(spare_m, pl.add(moved_m, 1.0), [0, 0])"),),
        ("unfit",), ("illegal-move",), 2,
    ),
    "race": (
        (_task(SPARE, "seen_m = pl.create_tensor([64, 64], dtype=pl.FP32)", "TASK(fill_m)", FULL, "TASK(reader_m)",
               "    seen_m = pl.assemble(seen_m, pl.add(spare_m[0:64, :], 1.0), [0, 0])", "TASK(writer_m)", FULL),
         _task(SPARE, "for _ in pl.spmd(4, name_hint='blocks_m'):", FULL)),
        ("race",), ("race",), 3,
    ),
    "crash": (
        (_on_top("import os", "os.abort()  # {n}"), _in_golden("import ctypes", "ctypes.string_at({n})"),
         _on_top("import os", "os.kill(os.getpid(), 9)  # {n}")),
        ("crashed",), (), 2,
    ),
    "exit": (
        (_on_top("import os", "os._exit({n} % 2)"), _in_golden("import os", "os._exit(0)  # {n}"),
         _on_top("raise SystemExit({n} % 2)")),
        ("exited",), (), 2,
    ),
    "error": (
        (_on_top("{n} / 0"), _in_golden("raise ValueError('{n}')"), _on_top("assert {n} < 0"),
         _on_top("import no_such_module_{n}")),
        ("fails",), (), 2,
    ),
    "endless loop": (
        (_on_top("while True:", "    {n} + 1"), _in_golden("while True:", "    {n} + 1")), ("time",), (), 1,
    ),
    "memory hog": (
        (_on_top("held = []", "while True:", "    held.append(bytearray(b'{n}') * 10_000_000)"),
         _in_golden("held = []", "while True:", "    held.append(bytearray(b'{n}') * 10_000_000)")),
        ("memory",), (), 1,
    ),
    "none": ((_on_top("# nothing is wrong with this one: {n}"),), ("good",), (), 3),
}  # fmt: skip
FEW = {"endless loop": 16, "memory hog": 24}  # at most: each takes as long, or as much, as it may


def mutants(many: int, few: dict[str, int] | None = None) -> Iterator[Mutant]:
    """The first so many, every kind among them."""
    return islice(_all(FEW if few is None else few), many)


def _all(few: dict[str, int]) -> Iterator[Mutant]:
    made = dict.fromkeys(KINDS, 0)
    for n in count(1):
        for first, (kind, (plants, verdicts, ids, weight)) in enumerate(KINDS.items()):
            for turn in range(weight):
                if made[kind] >= few.get(kind, 10**9):
                    continue
                number = n * weight + turn
                model = MODELS[(first + 4 * made[kind]) % len(MODELS)]  # small and large ones in turn
                of_both = [*plants, *model.faults.get(kind, ())]
                name, text = of_both[made[kind] // len(MODELS) % len(of_both)](model, number)
                made[kind] += 1
                files = {**model.files(), name: f"{text}\n# {number}\n"}
                told = f"{model.name}_{kind.replace(' ', '_')}_{number}"
                yield Mutant(told, kind, model.name, files, model.entry, model.argv, verdicts, ids)
