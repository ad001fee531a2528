"""Programs of models/basics with one fault each, and what the judge must say of them.

A fault is planted as text: in the kernel's store, in a task of its own, in a constant, at the top of the file or in
the golden. `mutants(many)` goes round models and faults; numbers in them differ, so that no two are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

BASICS = Path(__file__).resolve().parents[2] / "models" / "basics"
AT = "    with pl.at(level=pl.Level.CORE_GROUP, name_hint={name!r}):\n"


@dataclass(frozen=True)
class Mutant:
    """`verdicts` that are right for it, and the rules of which one must be among the reasons."""

    name: str
    kind: str
    source: str
    verdicts: tuple[str, ...]
    ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """`store`: what is left of the = of its last store. `large` and `fine`: a constant's line, other lines for it."""

    name: str
    store: str
    constant: str
    large: tuple[str, ...]
    fine: tuple[str, ...]
    cut: tuple[str, str]  # a loop, and the same without its last turn
    vector: bool = True  # whether its store may have one more vector op, and still fits


MODELS = (
    Model("softmax", "y[row : row + ROW_TILE, :]", "ROW_TILE = 32", ("ROW_TILE = 256", "ROW_TILE = 512"),
          ("ROW_TILE = 8", "ROW_TILE = 16", "ROW_TILE = 64"),
          ("pl.parallel(0, ROWS, ROW_TILE)", "pl.parallel(0, ROWS - ROW_TILE, ROW_TILE)")),
    Model("layer_norm", "y[row : row + ROW_TILE, :]", "ROW_TILE = 16", ("ROW_TILE = 128", "ROW_TILE = 256"),
          ("ROW_TILE = 8", "ROW_TILE = 32"),
          ('pl.spmd(BLOCKS, name_hint="apply")', 'pl.spmd(BLOCKS - 1, name_hint="apply")')),
    Model("rms_norm", "y[row : row + ROW_TILE, col : col + CHUNK]", "ROW_TILE, CHUNK = 16, 256",
          ("ROW_TILE, CHUNK = 16, 2048", "ROW_TILE, CHUNK = 128, 512"),
          ("ROW_TILE, CHUNK = 16, 128", "ROW_TILE, CHUNK = 8, 256"),
          ("pl.parallel(0, ROWS, ROW_TILE)", "pl.parallel(0, ROWS - ROW_TILE, ROW_TILE)")),
    Model("rope", "y[row : row + HEADS, :]", "TOKENS, HEADS, HEAD_DIM = 16, 8, 128",
          ("TOKENS, HEADS, HEAD_DIM = 16, 256, 128", "TOKENS, HEADS, HEAD_DIM = 8, 512, 128"),
          ("TOKENS, HEADS, HEAD_DIM = 16, 16, 128", "TOKENS, HEADS, HEAD_DIM = 8, 8, 128"),
          ("pl.spmd(TOKENS,", "pl.spmd(TOKENS - 1,")),
    Model("gemm", "c[m : m + TILE, n : n + TILE]", "TILE = 128", ("TILE = 512", "TILE = 256"),
          ("TILE = 64", "TILE = 32"), ("pl.spmd(BLOCKS,", "pl.spmd(BLOCKS - 1,"), vector=False),
    Model("topk", "values[row : row + 1, :]", "ROW_TILE = 8", (), ("ROW_TILE = 4", "ROW_TILE = 16"),
          ("pl.spmd(ROWS // ROW_TILE,", "pl.spmd(ROWS // ROW_TILE - 1,")),
)  # fmt: skip

Plant = Callable[[Model, str, int], str]


def _in_store(wrap: str) -> Plant:
    """Wraps what the last store writes; {} stands for it, {n} for a number."""

    def plant(model: Model, text: str, n: int) -> str:
        if not model.vector:
            return f"# {n}\n{_cut(model, text, n)}"
        at = text.rindex(f"{model.store} = ")
        end = text.index("\n", at)
        value = text[at + len(model.store) + 3 : end]
        return f"{text[:at]}{model.store} = {wrap.format(value, n=n)}{text[end:]}"

    return plant


def _cut(model: Model, text: str, n: int) -> str:
    before, _, after = text.rpartition(model.cut[0])
    return f"{before}{model.cut[1]}{after}\n# {n}\n"


def _task(*lines: str) -> Plant:
    """Lines at the end of the entry; {n} stands for a number, TASK(name) opens a task."""

    def plant(model: Model, text: str, n: int) -> str:
        body = "".join(
            AT.format(name=line[5:-1]) if line.startswith("TASK(") else f"    {line.replace('{n}', str(n))}\n"
            for line in lines
        )
        at = text.index("    return ", text.index("@pl.jit"))
        return text[:at] + body + text[at:]

    return plant


def _on_top(*lines: str) -> Plant:
    def plant(model: Model, text: str, n: int) -> str:
        return text.replace("@pl.jit", "\n".join(lines).replace("{n}", str(n)) + "\n\n\n@pl.jit", 1)

    return plant


def _in_golden(*lines: str) -> Plant:
    def plant(model: Model, text: str, n: int) -> str:
        body = "".join(f"    {line.replace('{n}', str(n))}\n" for line in lines)
        return re.sub(r"(def golden\(.*\n)", lambda found: found[1] + body, text, count=1)

    return plant


def _constant(which: str) -> Plant:
    def plant(model: Model, text: str, n: int) -> str:
        lines = getattr(model, which)
        return f"{text.replace(model.constant, lines[n % len(lines)], 1)}\n# {n}\n" if lines else ""

    return plant


SPARE = "spare_m = pl.create_tensor([64, 64], dtype=pl.FP32)"
FULL = "    spare_m = pl.assemble(spare_m, pl.full([64, 64], dtype=pl.FP32, value={n}.0), [0, 0])"
KINDS: dict[str, tuple[tuple[Plant, ...], tuple[str, ...], tuple[str, ...], int]] = {  # plants, verdicts, rules, weight
    "wrong numbers": (
        (_in_store("pl.mul({}, {n}.5)"), _in_store("pl.add({}, {n}.25)"), _in_store("pl.sub(pl.abs({}), {n}.0)"), _cut),
        ("wrong",), (), 6,
    ),
    "too large tile": (
        (_constant("large"),
         _task(SPARE, "TASK(large_m)", "    wide_m = pl.full([512, 256], dtype=pl.FP32, value={n}.0)",
               "    spare_m = pl.assemble(spare_m, wide_m[0:64, 0:64], [0, 0])")),
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
    "unequal move": (
        (_task(SPARE, "TASK(shape_m)", "    part_m = pl.full([64, 64], dtype=pl.FP32, value={n}.0)",
               "    for _ in pl.range(2):", "        part_m = pl.add(part_m[0:32, :], {n}.0)",
               "    spare_m = pl.assemble(spare_m, part_m, [0, 0])"),),
        ("unfit",), ("unequal-move",), 2,
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
    "none": ((_constant("fine"), _on_top("# nothing is wrong with this one: {n}")), ("good",), (), 3),
}  # fmt: skip
FEW = {"endless loop": 16, "memory hog": 24}  # at most: each takes as long, or as much, as it may


def mutants(many: int, few: dict[str, int] | None = None) -> Iterator[Mutant]:
    """The first so many, every kind among them."""
    return islice(_all(FEW if few is None else few), many)


def _all(few: dict[str, int]) -> Iterator[Mutant]:
    texts = {model.name: (BASICS / f"{model.name}.py").read_text() for model in MODELS}
    made = dict.fromkeys(KINDS, 0)
    for n in count(1):
        for kind, (plants, verdicts, ids, weight) in KINDS.items():
            for turn in range(weight):
                if made[kind] >= few.get(kind, 10**9):
                    continue
                number = n * weight + turn
                model = MODELS[(number * 5 + n) % len(MODELS)]
                source = plants[number % len(plants)](model, texts[model.name], number)
                if source:
                    made[kind] += 1
                    yield Mutant(f"{model.name}_{kind.replace(' ', '_')}_{number}", kind, source, verdicts, ids)
