"""`a + b`, `a[i]` and `a[i] = b` on tensors and tiles mean ops: importing this puts the operators into the classes."""

from __future__ import annotations

from collections.abc import Callable

from npuscope.ops.elementwise import ADD, DIV, MUL, NEG, SUB
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls import subscript
from npuscope.tile.calls.bound import function_of
from npuscope.tile.values.tensors import Operand


def _operator(spec: OpSpec, swapped: bool = False) -> Callable[[Operand, object], object]:
    op = function_of(spec.name)

    def apply(self: Operand, other: object) -> object:
        return op(other, self) if swapped else op(self, other)

    return apply


def _negative(self: Operand) -> object:
    return function_of(NEG.name)(self)


for _method, _spec in {"add": ADD, "sub": SUB, "mul": MUL, "truediv": DIV}.items():
    setattr(Operand, f"__{_method}__", _operator(_spec))
    setattr(Operand, f"__r{_method}__", _operator(_spec, swapped=True))
for _method, _meaning in {"neg": _negative, "getitem": subscript.get, "setitem": subscript.put}.items():
    setattr(Operand, f"__{_method}__", _meaning)
