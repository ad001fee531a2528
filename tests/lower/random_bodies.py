"""Random bodies before anything is decided: loads, vector ops, products, stores, loops of every kind that carry."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from npuscope.lower.build import with_storages
from npuscope.lower.model import Instruction, Items, LoopCarry, Lowered, Repeat, Value

SHAPES = ((16, 64), (16, 256), (32, 256), (1, 128), (8, 16), (64, 128), (64, 512))
DTYPES = ("FP32", "BF16", "INT8")
ONE = ("exp", "recip", "rsqrt", "row_max_like", "cast", "neg")
TWO = ("add", "mul", "row_expand_mul", "col_expand_add", "maximum")
KINDS = ("range", "pipeline", "pipeline", "unroll", "while")


@dataclass
class Maker:
    """Draws one body. `scope` has the values that may be read where the next item goes."""

    draw: st.DrawFn
    values: list[Value] = field(default_factory=list)
    same: list[tuple[int, int]] = field(default_factory=list)
    loops: int = 0
    budget: int = 18

    def body(self) -> Lowered:
        items = self.items([], 0)
        return Lowered("kernel", 0, with_storages(self.values, self.same), items)

    def new(self, shape: tuple[int, ...], dtype: str, space: str = "") -> int:
        number = len(self.values)
        self.values.append(Value(number, f"t{number}", shape, dtype, 0, number, space, said=bool(space)))
        return number

    def items(self, scope: list[int], depth: int) -> Items:
        scope = list(scope)
        here = len(scope)  # sums begin and go on in one turn: each turn would add to one from outside anew
        made: list[Instruction | Repeat] = []
        for _ in range(self.draw(st.integers(1, 4))):
            if self.budget <= 0:
                break
            self.budget -= 1
            kind = self.draw(st.sampled_from(["load", "vector", "vector", "product", "store", "view", "loop", "loop"]))
            if kind == "loop" and depth < 3:
                made.append(self.loop(scope, depth))
            elif kind == "product":
                made += self.product(scope, scope[here:])
            else:
                made.append(self.instruction(kind, scope))
        return tuple(made)

    def load(self, scope: list[int], shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Instruction:
        shape = shape or self.draw(st.sampled_from(SHAPES))
        number = self.new(shape, dtype or self.draw(st.sampled_from(DTYPES)))
        scope.append(number)
        return Instruction("slice", "load", 0, (), number)

    def instruction(self, kind: str, scope: list[int]) -> Instruction:
        if kind in ("load", "loop") or not scope:
            return self.load(scope)
        read = self.draw(st.sampled_from(scope))
        if kind == "store":
            return Instruction("store", "store", 0, (read,))
        shape, dtype = self.values[read].shape, self.values[read].dtype
        if kind == "view":
            number = self.new(shape, dtype)
            self.same.append((read, number))
            scope.append(number)
            return Instruction("reshape", "view", 0, (read,), number)
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from(ONE))
            number = self.new(shape, self.draw(st.sampled_from(DTYPES)) if name == "cast" else dtype)
            operands: tuple[int, ...] = (read,)
        else:
            name, other = self.draw(st.sampled_from(TWO)), self.draw(st.sampled_from(scope))
            number, operands = self.new(shape, dtype), (read, other)
        if name == "row_max_like":
            name = "row_max"
        scope.append(number)
        return Instruction(name, "vector", 0, operands, number)

    def product(self, scope: list[int], own: list[int]) -> list[Instruction]:
        """Loads of its own, now and then an operand that the vector cores made; a sum or not."""
        k, n = self.draw(st.sampled_from([(64, 64), (256, 128), (64, 1024)]))
        left = self.load(scope, (16, k), "BF16")
        right = self.load(scope, (k, n), "BF16")
        assert left.result is not None
        made: list[Instruction] = [left, right]
        operand = left.result
        if self.draw(st.booleans()):
            operand = self.new((16, k), "BF16")
            made.append(Instruction("exp", "vector", 0, (left.result,), operand))
        sums = [v for v in own if self.values[v].space == "Acc" and self.values[v].shape == (16, n)]
        old = self.draw(st.sampled_from(sums)) if self.draw(st.booleans()) and sums else None
        result = self.new((16, n), "FP32", "Acc")
        if old is not None:
            self.same.append((old, result))
            scope[:] = [v for v in scope if v != old]  # an old sum is not read again
        scope.append(result)
        name = "matmul" if old is None else "matmul_acc"
        return [*made, Instruction(name, "cube", 0, (old, operand, right.result), result)]

    def loop(self, scope: list[int], depth: int) -> Repeat:
        self.loops += 1
        kind = self.draw(st.sampled_from(KINDS))
        stage = self.draw(st.integers(2, 3)) if kind == "pipeline" else 1
        loop = self.loops
        first = self.draw(st.sampled_from(scope)) if self.draw(st.booleans()) and scope else None
        if first is not None and self.values[first].space:
            first = None
        inside = list(scope)
        found = None
        if first is not None:
            found = self.new(self.values[first].shape, self.values[first].dtype)
            inside.append(found)
        items = self.items(inside, depth + 1)
        carries: tuple[LoopCarry, ...] = ()
        if found is not None and first is not None:
            following = self.new(self.values[first].shape, self.values[first].dtype)
            if self.draw(st.booleans()):
                items = (*items, Instruction("store", "store", 0, (found,)))
            if self.draw(st.integers(0, 3)):
                items = (*items, Instruction("add", "vector", 0, (found, found), following))
            else:  # the next turn finds a fresh tile
                items = (*items, Instruction("slice", "load", 0, (), following))
            if self.draw(st.booleans()):  # the old value is read once more: it cannot be overwritten
                items = (*items, Instruction("store", "store", 0, (found,)))
            if self.draw(st.booleans()):
                items = (*items, *self.items([v for v in inside if v != found], depth + 1))
            carries = (LoopCarry(found, first, following),)
            scope[:] = [v for v in scope if v != first]  # the loop may have written over it
            scope.append(following)
        return Repeat(kind, loop, stage, 0, self.draw(st.integers(1, 7)), items, carries)  # type: ignore[arg-type]


@st.composite
def bodies(draw: st.DrawFn) -> Lowered:
    return Maker(draw).body()
