"""What an op of the tile language is, said once: `OpSpec`.

Values call its `numeric`, lowering asks its planes and what it needs in memory, time asks its cost, rules ask its
roles, and the namespace `pl` and the op reference (the page of ops) are made from all of them. Nothing else knows an op
by its name: a recorded op carries the name as data and finds its spec with `table.spec_of(name)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Literal

from npuscope.base.errors import NpuscopeError
from npuscope.ops.dtypes import Array

Plane = Literal["cube", "vector", "scalar", "load", "store", "move", "view", "sync"]
Form = Literal["unary", "binary", "spread", "reduction", "custom", "lowered"]
Axis = Literal["", "rows", "columns"]
Storage = Literal["free", "separate", "separate_if_wider", "operand"]
Numeric = Callable[..., Array]

VECTOR: tuple[Plane, ...] = ("vector",)
MAY_BE_FREE = {"view", "sync"}  # planes whose ops may take no time of their own
ARITHMETIC = ("unary", "binary", "spread", "reduction")  # forms of ops that compute every element


class OpRole(Enum):
    """What rules and lowering see in an op; an op may have several."""

    REDUCTION = "many elements of a row or a column become one"
    SUM = "adds two values element by element"
    TERM = "adds or subtracts"
    PRODUCT = "multiplies element by element"
    QUOTIENT = "divides element by element"
    CAST = "changes the type and nothing else"
    SAME_ELEMENTS = "the same elements under another name, shape or place"
    SAME_PLACES = "the same elements, each at its place: shape and order stay"
    PART = "a box of its operand"
    KEEPS_VALUES = "every element of the result is one of the operand's, but for rounding"
    KEEPS_ZEROS = "a tile of zeros stays one"
    FILL = "a tile of one number"
    WRITES_INTO = "changes a part of its first operand, which it gives back"
    INHERITS_SPACE = "works where its operand lies: the cube core's own mover can do it"
    FROM_MAT = "takes its operand out of Mat, as a product does"
    COPY = "a second copy on chip, made by lowering"
    DUAL = "one of two products that share their left operand"
    SEND = "gives a tile to the other kind of core, made by lowering"
    RECEIVE = "takes a tile from the other kind of core, made by lowering"
    NO_NEW_VALUE = "gives back the tensor that it wrote to, saw another way or read an element of"
    NUMBER = "gives a number that is known at run time only"
    HOLD = "a pipe waits until nobody reads its tiles any more, made by lowering"
    BARRIER = "every block of the launch reaches it before any goes on"


@dataclass(frozen=True)
class OpSpec:
    """One op.

    name        as it is recorded and shown.
    planes      the kinds of work it is recorded as, the usual one first: `slice` loads from GM, but is a view of a
                tile. None at all: never recorded, the scalar unit or the orchestration computes it on the way.
    form        how it is called. Of `unary`, `binary`, `spread` (of a column or row over a tile) and `reduction` the
                function `pl.NAME` is made from this spec; of `custom` ones it is written by hand in tile/calls;
                `lowered` ones cannot be called by a program, lowering makes them.
    doc         one sentence.
    cost        where the device file has its cost: `op.KEY` (a vector instruction), `reduce.KEY` (a tile by its width),
                or for other planes the constant that rules its time. "" costs nothing.
    with_number the cost where one operand is a number, widening where the result's type is wider, alone where it has
                one operand only.
    like        why the cost is that of another op. It makes the cost a guess, however sure the other one is.
    numeric     what it computes, arrays in and arrays out; None where the function in tile/calls says it all.
    options     further parameters of a function that is made from this spec: name -> default, in their order after the
                operands. One that `numeric` has, too, is handed to it and recorded; scratch tiles and hints are not.
    spellings   what programs call it: a plain name is in `pl`, `pl.tile` and `pl.tensor`; one with a dot is there only
                (`system.syncall`; `pl.create_tensor` is in none of the three but `pl`). None given: its name.
    axis        of a spread: whether a column meets the rows or a row the columns; of a reduction: what becomes one.
    bits        of whole numbers only, whose bits it changes.
    gives       the type of its result where that is not its operand's.
    of_nothing  whether it has a value for an empty row: a sum does, a maximum does not.
    types       the types it takes, for the reference.
    scratch     needs room for another whole tile while it runs; `scratch_rows` of several operands: for so many rows.
    storage     where the result may lie. `free`: also in the place of an operand that is read for the last time;
                `separate` from its operands, for it still reads while it writes; `separate_if_wider`: where its
                elements are wider than the operand's; `operand`: it is the storage of its first operand.
    held        operands that it reads until its last element is written: they cannot give their place to the result.
    roles       what rules and lowering see in it.
    """

    name: str
    planes: tuple[Plane, ...]
    form: Form
    doc: str
    cost: str = ""
    with_number: str = ""
    widening: str = ""
    alone: str = ""
    like: str = ""
    numeric: Numeric | None = None
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    spellings: tuple[str, ...] = ()
    axis: Axis = ""
    bits: bool = False
    gives: str = ""
    of_nothing: bool = False
    types: str = "any"
    scratch: bool = False
    scratch_rows: int = 0
    storage: Storage = "free"
    held: tuple[int, ...] = ()
    roles: tuple[OpRole, ...] = ()

    def __post_init__(self) -> None:
        if not self.cost and not MAY_BE_FREE.issuperset(self.planes):
            raise NpuscopeError(
                f"the op {self.name} has no cost",
                remedy="Name a key of the device file: cost='op.vadd' (npuscope device lists them).",
            )
        if self.form in ("unary", "binary", "reduction") and self.numeric is None:
            raise NpuscopeError(f"the op {self.name} does not say what it computes", remedy="Give it numeric=.")
        if self.form in ("spread", "reduction") and not self.axis:
            raise NpuscopeError(f"the op {self.name} has no axis", remedy="Give it axis='rows' or axis='columns'.")

    @property
    def plane(self) -> Plane:
        """The kind of work it usually is."""
        return self.planes[0]

    @property
    def names(self) -> tuple[str, ...]:
        """What programs call it; an op that only lowering makes has no spelling."""
        return () if self.form == "lowered" else self.spellings or (self.name,)

    @cached_property
    def flops_per_element(self) -> int:
        """Of a vector op that computes; moving, converting, comparing and bits are no arithmetic."""
        computes = self.form in ARITHMETIC and not self.bits and not self.is_a(OpRole.KEEPS_VALUES)
        return int(computes and "vector" in self.planes)

    def is_a(self, *roles: OpRole) -> bool:
        """Whether it has one of the roles."""
        for role in roles:  # noqa: SIM110 (asked tens of thousands of times: a generator takes thrice as long)
            if role in self.roles:
                return True
        return False
