"""Random tile programs: every kind of control flow that does not depend on float values; where asked for, also such.

All names are bound at the start of each region, so that any statement may use any name: what one turn of a loop
leaves, the next one finds.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np

TILES, NUMBERS, ROWS = ["t0", "t1", "t2"], ["s0", "s1", "s2"], ["r0", "r1"]

HEAD = '''"""Made by random_programs.py."""

import npuscope.tile as pl


@pl.jit.inline
def shifted(t, n, w):
    u = t
    for h in pl.range(n % 3):
        v = pl.load(w, [(h + n) % 13, 0], [4, 16])
        u = pl.add(u, v)
    return u


@pl.jit.inline
def counted(n, step):
    c = 0
    for h in pl.range(n % 4):
        if h % 2 == step % 2:
            c = c + step
    return c

'''


class Writer:
    """Writes one program, choice by choice; `again`: every task is launched several times; `measured`: floats steer."""

    def __init__(self, random: Random, again: bool = False, measured: bool = False) -> None:
        self.random, self.again = random, again
        self.lines: list[str] = []
        self.loops: list[str] = []  # loop variables in scope
        self.fresh = 0
        self.budget = 40  # statements that may still hold others
        # Few kinds of statements to a program: what forbids turns to be run as one is in some and not in others.
        kinds = [
            self.load,
            self.combine,
            self.store,
            self.assign,
            self.advance,
            self.read,
            self.write,
            self.swap,
            self.rows,
            self.odd,
            self.whole,
            self.put,
            self.helper,
            self.leave,
        ]
        self.kinds = [self.load, self.combine, self.store, *random.sample(kinds, random.randint(1, 6))]
        if measured:
            self.kinds += [self.measure, self.mark]

    def program(self) -> str:
        self.emit(0, "@pl.jit")
        self.emit(
            0,
            "def main(x: pl.Tensor, W: pl.Tensor, small: pl.InOut[pl.Tensor], lens: pl.Tensor, "
            "log: pl.InOut[pl.Tensor], out: pl.Out[pl.Tensor]):",
        )
        self.emit(1, "ids = pl.array.create(4, pl.TASK_ID)")
        if self.again:
            self.emit(1, "x0, w0 = x, W")
        for _ in range(self.random.randint(1, 3)):
            self.task(1)
        self.emit(1, "return out")
        return HEAD + "\n" + "\n".join(self.lines) + "\n"

    # --- tasks

    def task(self, depth: int) -> None:
        choice = self.random.randint(0, 6) if depth > 1 or not self.again else 0
        if choice == 0 and depth < 3:
            name = self.name("o")
            kind = self.random.choice(["range", "parallel"])
            turns = self.random.randint(2, 6) if self.again else self.random.randint(0, 3)
            self.emit(depth, f"for {name} in pl.{kind}({turns}):")
            self.loops.append(name)
            for _ in range(self.random.randint(1, 2) if self.again else 1):
                if self.again:
                    self.tensors(depth + 1, name)
                self.task(depth + 1)
            self.loops.pop()
            return
        deps = self.random.choice(["", "", ", deps=[ids]"])
        if choice <= 3:
            self.emit(depth, f'with pl.at(level=pl.Level.CORE_GROUP, name_hint="k{self.number(0, 2)}"{deps}) as tid:')
            self.region(depth + 1, None)
        elif choice <= 5:
            name = self.name("b")
            self.emit(depth, f"for {name} in pl.spmd({self.random.randint(0, 5)}):")
            self.loops.append(name)
            self.region(depth + 1, name)
            self.loops.pop()
            return
        else:
            self.emit(depth, f"with pl.spmd({self.random.randint(1, 5)}{deps}) as tid:")
            self.emit(depth + 1, "blk = pl.tile.get_block_idx()")
            self.loops.append("blk")
            self.region(depth + 1, "blk")
            self.loops.pop()
        self.emit(depth, f"ids[{self.number(0, 3)}] = tid")

    def tensors(self, depth: int, turn: str) -> None:
        """Other tensors than in the turn before: buffers of its own, views that lie elsewhere."""
        forms = [
            "x = pl.create_tensor([64, 64], dtype=pl.FP32)",
            "x = x0",
            "x = pl.slice(x0, [64, 64], [0, 0])",
            f"W = pl.slice(w0, [28, 16], [({turn} * 3) % 5, 0])",
            f"W = w0 if {turn} % 2 else pl.slice(w0, [32, 16], [0, 0])",
        ]
        for form in self.random.sample(forms, self.random.randint(0, 2)):
            self.emit(depth, form)

    def region(self, depth: int, block: str | None) -> None:
        for n, tile in enumerate(TILES):
            self.emit(depth, f"{tile} = pl.load(x, [{4 * n}, 0], [4, 16])")
        for n, row in enumerate(ROWS):
            self.emit(depth, f"{row} = pl.load(log, [0, {16 * n}], [1, 16])")
        for n, number in enumerate(NUMBERS):
            self.emit(depth, f"{number} = {n + 1}")
        self.emit(depth, "xs = []")
        kinds = self.kinds
        self.splits = block is None and self.random.randint(0, 7) == 0
        if self.splits:  # then vector work has its place inside, and this region has none
            self.kinds = [self.plain_load, self.store, self.assign, self.advance]
        self.statements(depth, self.random.randint(2, 5), 0)
        if block is not None and self.random.randint(0, 5) == 0:
            self.emit(depth, "pl.system.syncall()")
            self.statements(depth, 2, 0)
        self.emit(depth, f"pl.store({self.tile()}, [{self.row(4)}, {self.column()}], out)")
        self.kinds = kinds

    # --- statements

    def statements(self, depth: int, count: int, loops: int) -> None:
        for _ in range(count):
            self.statement(depth, loops)

    def statement(self, depth: int, loops: int) -> None:
        self.budget -= 1
        if self.budget > 0 and self.random.randint(0, 9) < 4 and loops < 3:
            nested = [self.loop, self.loop, self.loop, self.branch, self.while_]
            self.random.choice([*nested, self.split if self.splits else self.carrying])(depth, loops)
            return
        self.random.choice(self.kinds)(depth, loops)

    def loop(self, depth: int, loops: int) -> None:
        name = self.name("i")
        form = self.number(0, 6)
        if form == 0:
            bounds = f"{self.number(0, 7)}"
        elif form == 1:
            bounds = f"({self.expression()}) % 4"
        elif form == 2:
            start = self.expression()
            bounds = f"{start}, {start} + {self.number(0, 4)}"
        elif form == 3:
            bounds = f"{self.number(0, 6)}, {self.number(-3, 3)}, {self.random.choice([-1, -2, 2])}"
        elif form == 4:
            bounds = f"0, ({self.expression()}) % 7, {self.random.choice([2, 3])}"
        elif form == 5 and self.loops:
            bounds = f"{self.random.choice(self.loops)} % 5"
        else:
            bounds = f"pl.read(lens, [({self.expression()}) % 16])"
        kind = self.random.choice(["range", "range", "pipeline", "unroll"])
        if kind == "unroll":
            bounds = f"{self.number(0, 3)}"
        stage = ", stage=2" if kind == "pipeline" else ""
        self.emit(depth, f"for {name} in pl.{kind}({bounds}{stage}):")
        self.loops.append(name)
        self.statements(depth + 1, self.random.randint(1, 4), loops + 1)
        self.loops.pop()

    def branch(self, depth: int, loops: int) -> None:
        self.emit(depth, f"if {self.condition()}:")
        self.statements(depth + 1, self.random.randint(1, 2), loops + 1)
        if self.random.randint(0, 1):
            self.emit(depth, "else:")
            self.statements(depth + 1, self.random.randint(1, 2), loops + 1)

    def while_(self, depth: int, loops: int) -> None:
        n, m = self.name("w"), self.name("w")
        self.emit(depth, f"for {n}, {m} in pl.while_(init_values=(0, {self.expression()})):")
        limit = self.random.choice(["3", f"{m} % 4", f"pl.read(lens, [{n} % 16])"])
        self.emit(depth + 1, f"pl.cond({n} < {limit})")
        self.loops += [n, m]
        self.statements(depth + 1, self.random.randint(1, 2), loops + 1)
        self.emit(depth + 1, f"{n}, {m} = pl.yield_({n} + 1, ({self.expression()}) % 50)")
        del self.loops[-2:]

    def carrying(self, depth: int, loops: int) -> None:
        i, a, t = self.name("i"), self.random.choice(NUMBERS), self.random.choice(TILES)
        ca, ct = self.name("c"), self.name("c")
        self.emit(depth, f"for {i}, ({ca}, {ct}) in pl.range({self.number(0, 4)}, init_values=({a}, {t})):")
        self.loops += [i, ca]
        self.statements(depth + 1, self.random.randint(1, 2), loops + 1)
        new = self.random.choice([ca, f"({ca} + {self.expression()}) % 60"])
        value = self.random.choice([ct, f"pl.add({ct}, {self.tile()})", self.tile()])
        self.emit(depth + 1, f"{a}, {t} = pl.yield_({new}, {value})")
        del self.loops[-2:]

    def split(self, depth: int, loops: int) -> None:
        if any(name.startswith("v") for name in self.loops):
            return self.loop(depth, loops)
        name = self.name("v")
        self.emit(depth, f"for {name} in pl.split_aiv(2, mode=pl.SplitMode.NONE):")
        self.loops.append(name)
        self.statements(depth + 1, self.random.randint(1, 2), loops + 1)
        self.loops.pop()

    def leave(self, depth: int, loops: int) -> None:
        """break or continue, where the innermost statement around is a loop of the language."""
        inside = next((x.split() for x in reversed(self.lines) if len(x) - len(x.lstrip()) == 4 * (depth - 1)), [])
        if inside[:1] == ["for"] and inside[3].startswith("pl.range") and "init_values" not in " ".join(inside):
            self.emit(depth, f"if {self.condition()}:")
            self.emit(depth + 1, self.random.choice(["break", "continue"]))
        else:
            self.assign(depth, loops)

    def plain_load(self, depth: int, loops: int) -> None:
        where = f"[{self.row(4)}, {self.column()}]"
        self.emit(depth, f"{self.random.choice(TILES)} = pl.load(x, {where}, [4, 16])")

    def load(self, depth: int, loops: int) -> None:
        t = self.random.choice(TILES)
        if self.random.randint(0, 2):
            return self.plain_load(depth, loops)
        r = self.name("p")
        self.emit(depth, f"{r} = ({self.expression()}) % 64")
        if self.random.randint(0, 1):
            self.emit(depth, f"{t} = pl.slice(x, [4, 16], [{r}, 0], valid_shape=[pl.min(4, 64 - {r}), 16])")
            self.emit(depth, f"{t} = pl.fillpad({t})")
        else:
            self.emit(depth, f"{t} = pl.fillpad(pl.slice(x, [4, 16], [{r}, 0], clamp=True))")

    def combine(self, depth: int, loops: int) -> None:
        t, u, v = self.random.choice(TILES), self.tile(), self.tile()
        form = self.random.choice(
            [
                f"pl.add({u}, {v})",
                f"pl.mul({u}, {self.expression()})",
                f"pl.row_expand_mul({u}, pl.row_sum({v}))",
                f"pl.matmul_acc({u}, {v}, pl.load(W, [{self.expression()} % 3, 0], [16, 16]))",
                f"pl.mul({u}, pl.read({v}, [0, 0]))",
                f"pl.exp({u})",
                f"pl.full([4, 16], dtype=pl.FP32, value={self.expression()})",
            ]
        )
        self.emit(depth, f"{t} = {form}")

    def store(self, depth: int, loops: int) -> None:
        atomic = self.random.choice(["", "", ", atomic=pl.AtomicType.Add"])
        r, c = self.row(4), self.column()
        if self.random.randint(0, 2) == 0:
            self.emit(depth, f"out = pl.assemble(out, {self.tile()}, [{r}, {c}]{atomic})")
        else:
            self.emit(depth, f"pl.store({self.tile()}, [{r}, {c}], out{atomic})")

    def assign(self, depth: int, loops: int) -> None:
        self.emit(depth, f"{self.random.choice(NUMBERS)} = ({self.expression()}) % 97 - {self.number(0, 20)}")

    def advance(self, depth: int, loops: int) -> None:
        s = self.random.choice(NUMBERS)
        self.emit(depth, f"{s} = ({s} + {self.expression()}) % 83")

    def read(self, depth: int, loops: int) -> None:
        s = self.random.choice(NUMBERS)
        where = self.expression()
        form = self.random.choice(
            [
                f"pl.read(lens, [({where}) % 16])",
                f"pl.read(log, [0, ({where}) % 64])",
                f"log[0, ({where}) % 64]",
                f"pl.read({self.random.choice(ROWS)}, [0, ({where}) % 16])",
            ]
        )
        self.emit(depth, f"{s} = {form}")

    def measure(self, depth: int, loops: int) -> None:
        """A float decides: of an input, of what tasks wrote, of a tile."""
        place = f"[({self.expression()}) % 4, ({self.expression()}) % 16]"
        source = self.random.choice(["x", "out", "out", "small", self.tile()])
        value = f"pl.read({source}, {place})"
        limit = self.random.choice(["0.5", "1.0", "pl.read(x, [1, 1])"])
        form = self.random.choice(
            [f"{value} > {limit}", f"{value} + {value} < {limit}", f"pl.max({value}, 0.25) > {limit}"]
        )
        if self.random.randint(0, 1):
            self.emit(depth, f"{self.random.choice(NUMBERS)} = 5 if {form} else 2")
        else:
            self.emit(depth, f"if {form}:")
            self.store(depth + 1, loops)

    def mark(self, depth: int, loops: int) -> None:
        """A float written by itself, known or computed."""
        value = self.random.choice(["1.5", "-0.75", f"pl.read({self.tile()}, [0, 1])", "pl.read(small, [2, 3])"])
        self.emit(depth, f"pl.write(out, [({self.expression()}) % 4, ({self.expression()}) % 16], {value})")

    def write(self, depth: int, loops: int) -> None:
        target, size = self.random.choice([("log", 64), ("log", 64), (self.random.choice(ROWS), 16)])
        place = f"({self.random.choice([self.expression(), *self.loops[-1:]])}) % {size}"
        self.emit(depth, f"pl.write({target}, [0, {place}], ({self.expression()}) % 40)")

    def rows(self, depth: int, loops: int) -> None:
        r, q = self.random.choice(ROWS), self.random.choice(ROWS)
        form = self.random.choice(
            [
                f"{r} = pl.load(log, [0, ({self.expression()}) % 49], [1, 16])",
                f"{r} = pl.add({q}, {self.expression()})",
                f"{r} = pl.minimum({q}, {r})",
                f"{r} = pl.full([1, 16], dtype=pl.INT32, value={self.expression()})",
                f"{r} = pl.arange({self.expression()}, [1, 16], dtype=pl.INT32)",
                f"pl.store({r}, [0, ({self.expression()}) % 49], log)",
                f"pl.store({r}, [0, 16], log, atomic=pl.AtomicType.Add)",
                f"{r} = pl.create_tensor([1, 16], dtype=pl.INT32)",
            ]
        )
        self.emit(depth, form)

    def swap(self, depth: int, loops: int) -> None:
        names = self.random.choice([TILES, NUMBERS, ROWS])
        a, b = self.random.choice(names), self.random.choice(names)
        self.emit(depth, self.random.choice([f"{a}, {b} = {b}, {a}", f"{a} = {b}"]))

    def odd(self, depth: int, loops: int) -> None:
        s, e = self.random.choice(NUMBERS), self.expression()
        form = self.random.choice(
            [
                f"{s} = {{0: 3, 1: 5, 2: 1}}[({e}) % 3]",
                f'{s} = int(f"{{{e}}}") % 50',
                f"xs.append({self.random.choice(TILES)})",
                f"{s} = len(xs) + ({e}) % 5",
                f"{self.random.choice(TILES)} = xs[-1] if xs else {self.tile()}",
                f"{s} = sum(range(({e}) % 5))",
                f"{s} = divmod({e}, 7)[1]",
                f"{s} = pl.cast(({e}) / 2, pl.INDEX) % 30",
                f"{s} = 7 if ({e}) % 5 in (1, 3) else {s}",
            ]
        )
        self.emit(depth, form)

    def whole(self, depth: int, loops: int) -> None:
        t = self.random.choice(TILES)
        form = self.random.choice(
            [
                f"{t} = pl.add({self.tile()}, small)",
                f"{t} = pl.add({self.tile()}, small)",
                f"pl.store({self.tile()}, [0, 0], small)",
                f"small[0:2, :] = pl.slice({self.tile()}, [2, 16], [0, 0])",
                f"{t} = pl.mul({self.tile()}, pl.reshape(small, [4, 16]))",
            ]
        )
        self.emit(depth, form)

    def put(self, depth: int, loops: int) -> None:
        rows = self.random.choice(["0:2", "1:3"])
        part = f"pl.slice({self.tile()}, [2, 16], [({self.expression()}) % 3, 0])"
        r, q = self.random.choice(ROWS), self.random.choice(ROWS)
        form = self.random.choice(
            [
                f"{self.random.choice(TILES)}[{rows}, :] = {part}",
                f"{r}[:, 4:12] = pl.slice({q}, [1, 8], [0, ({self.expression()}) % 9])",
            ]
        )
        self.emit(depth, form)
        if self.random.randint(0, 3) == 0:  # a list holds it, too
            self.emit(depth, f"xs.append({self.random.choice([*TILES, r])})")

    def helper(self, depth: int, loops: int) -> None:
        if self.random.randint(0, 1):
            self.emit(depth, f"{self.random.choice(TILES)} = shifted({self.tile()}, ({self.expression()}) % 11, W)")
        else:
            self.emit(depth, f"{self.random.choice(NUMBERS)} = counted({self.expression()}, {self.expression()}) % 90")

    # --- expressions

    def expression(self, depth: int = 0) -> str:
        leaves = [*NUMBERS, *self.loops, *self.loops]
        if depth > 1 or self.random.randint(0, 2) == 0:
            return self.random.choice([*leaves, str(self.number(-9, 20))])
        a, b = self.expression(depth + 1), self.expression(depth + 1)
        return self.random.choice(
            [
                f"({a} + {b})",
                f"({a} - {b})",
                f"({a} * {b})",
                f"({a} // {self.random.choice([2, 3, -4])})",
                f"({a} % {self.random.choice([2, 5, -3])})",
                f"pl.min({a}, {b})",
                f"pl.max({a}, {b})",
                f"min({a}, {b})",
                f"(({a} < {b}) + ({b} < 3))",
                f"({a} if {b} > 2 else {b})",
                f"abs({a})",
                f"(-{a})",
                f"pl.cast({a}, pl.INDEX)",
            ]
        )

    def condition(self) -> str:
        a, b = self.expression(1), self.expression(1)
        return self.random.choice(
            [
                f"{a} < {b}",
                f"{a} % 2 == 0",
                f"{a} == {self.number(0, 4)}",
                f"{a} > 1 and {b} < 5",
                f"not {a} >= {b}",
                f"pl.read(lens, [({a}) % 16]) > 2",
                f"pl.read(log, [0, ({a}) % 64]) > 3",
            ]
        )

    def row(self, height: int) -> str:
        return self.moving() or f"({self.expression()}) % {65 - height}"

    def column(self) -> str:
        return self.moving() or f"({self.expression()}) % 49"

    def moving(self) -> str:
        """From 0 to 39, and what a task's own number adds is only added: nobody looks at it."""
        outer = [name for name in self.loops if name.startswith("o")]
        inner = [*(name for name in self.loops if not name.startswith("o")), *NUMBERS, "3"]
        if not self.again or not outer or self.random.randint(0, 2) == 0:
            return ""
        term = self.random.choice(
            ["{o} * {a}", "{a} * {o}", "{a} * ({o} - 1) + {a}", "({o} + {o} + {o}) * {b}", "-{o}"]
        )
        own = term.format(o=self.random.choice(outer), a=self.number(-3, 3), b=self.number(-1, 1))
        return f"{own} + 15 + ({self.random.choice(inner)}) % 10"

    def tile(self) -> str:
        return self.random.choice(TILES)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def name(self, letter: str) -> str:
        self.fresh += 1
        return f"{letter}{self.fresh + 9}"

    def emit(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)


def source(random: Random, again: bool = False, measured: bool = False) -> str:
    return Writer(random, again, measured).program()


def module(text: str, path: Path) -> ModuleType:
    """Source as an imported module: the rewriter reads it from its file."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def arguments() -> tuple[np.ndarray, ...]:
    """x, W, small, lens, log, out: fresh each time, for programs write to them."""
    draw = np.random.default_rng(5)
    x, w = draw.standard_normal((64, 64), np.float32), draw.standard_normal((32, 16), np.float32)
    small = draw.standard_normal((4, 16), np.float32)
    lens = draw.integers(0, 5, 16).astype(np.int32)
    log = draw.integers(0, 9, (1, 64)).astype(np.int32)
    return x, w, small, lens, log, np.zeros((64, 64), np.float32)
