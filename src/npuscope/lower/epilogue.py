"""What the cube core's way out to GM does on the way: an accumulator cut off at 0, scaled, narrowed.

A product that one cast, multiplication by a constant or maximum with 0 after the other leads to a store needs no vector
core where the way out computes the same: it cuts off first, then scales in FP32, rounds to even and holds what is too
large within the type. So a cast must say "rint", one to FP16 `saturation_mode="on"`, and after a negative scale
nothing is cut off. Only products that are one step of the cube are seen so: the sum of several leaves a loop.
(pypto docs/en/dev/passes/20-fold_fixpipe_acc_epilogue.md, September 2026)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from npuscope.chip.devices import Device
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, Value, carries
from npuscope.lower.products import choose, product_of
from npuscope.ops.cube import MATMUL, MATMUL_ACC, MATMUL_BIAS
from npuscope.ops.elementwise import CAST, MAXIMUM, MUL, NUMBER

FOLDED = {spec.name for spec in (CAST, MAXIMUM, MUL)}
_Gone = dict[int | None, Instruction | None]  # result -> what takes its instruction's place
UNSCALED = {"FP32": ("FP32", "FP16", "BF16"), "INT32": ("INT32",)}


def fold_epilogues(lowered: Lowered, device: Device) -> Lowered:
    """Chains that the way out does become one instruction of its own."""
    folder = _Folder(lowered, device)
    return replace(lowered, items=folder.items(lowered.items), values=tuple(folder.values))


class _Folder:
    def __init__(self, lowered: Lowered, device: Device) -> None:
        self.device, self.values = device, list(lowered.values)
        self.reads = Counter(number for one in lowered.instructions for number in one.reads)
        self.reads.update(n for c in carries(lowered.items) for n in (c.first, c.next) if n is not None)
        self.scaled = device.rules.scaled_types if device.rules else {}

    def items(self, items: Items) -> Items:
        readers = {number: one for one in items if isinstance(one, Instruction) for number in one.reads}
        gone: _Gone = {}
        for one in items:
            if isinstance(one, Instruction) and one.spec in (MATMUL, MATMUL_ACC, MATMUL_BIAS):
                gone |= self._folded(one, readers)
        return tuple(self._left(items, gone))

    def _left(self, items: Items, gone: _Gone) -> Iterator[Instruction | Repeat]:
        for item in items:
            if isinstance(item, Repeat):
                yield replace(item, items=self.items(item.items))
            elif item.result not in gone:
                yield item
            elif (instead := gone[item.result]) is not None:
                yield instead

    def _folded(self, product: Instruction, readers: dict[int, Instruction]) -> _Gone:
        """The chain behind a product, its last instruction as the way out does it; nothing where it does not."""
        chain: list[Instruction] = []
        acc = self.values[product.result]  # type: ignore[index]

        def follows(spec: object) -> Instruction | None:
            number = chain[-1].result if chain else product.result
            one = readers.get(number) if number is not None and self.reads[number] == 1 else None
            fits = one is not None and one.operands[0] == number and one.plane == "vector"
            return one if one is not None and fits and one.spec is spec else None

        relu = (one := follows(MAXIMUM)) is not None and one.attribute(NUMBER) == 0
        chain += [one] if relu and one else []
        one = follows(CAST)
        if one is not None and self._type(one) == "FP32" and _rounds_alike(one, "FP32"):
            chain.append(one)
        scale: float | None = None
        if (one := follows(MUL)) is not None:
            number = one.attribute(NUMBER)
            if not isinstance(number, float) or self._type(one) != "FP32":
                return {}
            scale = number
            chain.append(one)
        if not relu and (one := follows(MAXIMUM)) is not None and one.attribute(NUMBER) == 0:
            if scale is not None and scale < 0:
                return {}
            relu = True
            chain.append(one)
        if (one := follows(CAST)) is not None:
            if not _rounds_alike(one, self._type(one)):
                return {}
            chain.append(one)
        if not chain or not self._leaves(acc, chain[-1], readers, scale is not None) or not self._is_whole(product):
            return {}
        last = chain[-1]
        assert last.result is not None
        made = (("mode", "rint"), ("pre_quant", 1.0 if scale is None else scale), ("pre_relu", relu))
        self.values[last.result] = self.values[last.result]._replace(space="Acc", said=True, storage=acc.storage)
        out = last._replace(name=CAST.name, plane="move", operands=(acc.id,), attributes=made, flops=0)
        return {**{one.result: None for one in chain}, last.result: out}

    def _type(self, one: Instruction) -> str:
        return self.values[one.result].dtype  # type: ignore[index]

    def _leaves(self, acc: Value, last: Instruction, readers: dict[int, Instruction], scaled: bool) -> bool:
        """Whether the end of the chain is stored, once, in a type that the way out makes."""
        store = readers.get(last.result) if last.result is not None and self.reads[last.result] == 1 else None
        types = self.scaled.get(acc.dtype.lower(), frozenset()) if scaled else UNSCALED.get(acc.dtype, ())
        wanted = self._type(last)
        return store is not None and store.plane == "store" and (wanted.lower() if scaled else wanted) in types

    def _is_whole(self, one: Instruction) -> bool:
        """Whether the compiler does a product in one step."""
        if any(self.values[number].space in ("Left", "Right") for number in one.operands[1:3] if number is not None):
            return True
        product = product_of(one, self.values, self.device)
        cut = choose(product, self.device, whole_output=True)
        return cut is not None and (cut.m, cut.n, cut.k) == (product.m, product.n, product.k)


def _rounds_alike(cast: Instruction, dtype: str) -> bool:
    """Whether the way out gives what a cast does."""
    wanted = "on" if dtype == "FP16" else None
    return cast.attribute("mode") in ("none", "rint") and cast.attribute("saturation") == wanted
