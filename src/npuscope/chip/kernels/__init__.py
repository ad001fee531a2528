"""What a kernel's name means, in one table (kernels.toml, which explains its keys): family and work, area, kind, …

Each question has its own answer: an entry that knows the whole name decides, else the first that finds something in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import polars as pl

from npuscope.base.toml_file import decode_toml
from npuscope.chip.kernels.demangle import demangled

T = TypeVar("T")
By = Literal[
    "matmul", "grouped", "prolog", "attention", "sparse_attention", "indexer",
    "bytes", "collective", "routed", "unpriced",
]  # fmt: skip
Kind = Literal["task", "comm", "copy"]
Area = Literal["QKV", "attention", "out_proj", "MLP", "norm", "sampling", "comm"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
Landmark = Literal["attention", "attention_backward", "embedding", "sampling", "sampling_or_layer", "none"]
Phase = Literal["prefill", "decode", "training", "unknown"]
Law = Literal["products", "attention"]
PATH = Path("npuscope/chip/kernels/kernels.toml")
OTHER = "other"  # area of names that no entry places
LONGEST = 4_000  # characters that are looked at: template arguments may go on for more


class Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How FLOPs and bytes follow from a call's tensors."""

    by: By
    ops: float = 0
    operands: tuple[int, int] = (0, 1)
    pools: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    table: bool = False
    reads: Literal["output"] | None = None
    output: float | None = None
    floor: bool = False
    in_floats: bool = False
    why: str = ""


class WorkRule(msgspec.Struct, frozen=True):
    """The family of a kernel with its work."""

    family: str
    work: Formula


class KernelEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the table says of the names that an entry knows."""

    names: dict[str, tuple[str, ...]] = {}
    whole: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    spelt: tuple[str, ...] = ()
    family: str | None = None
    work: Formula | None = None
    align: str | None = None
    area: Area | None = None
    kind: Kind | None = None
    collective: Collective | None = None
    landmark: Landmark | None = None
    phase: Phase | None = None
    law: Law | None = None

    @property
    def rule(self) -> WorkRule | None:
        return WorkRule(self.family, self.work) if self.family is not None and self.work is not None else None

    @property
    def whole_names(self) -> tuple[str, ...]:
        """Every pattern for whole names."""
        return (*(pattern for patterns in self.names.values() for pattern in patterns), *self.whole)


class KernelGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that count as one."""

    name: str
    begins: tuple[str, ...]


class KernelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    kernel: tuple[KernelEntry, ...]
    group: tuple[KernelGroup, ...] = ()


# of a kernel that no entry knows: the bytes of its tensors are a floor, and nothing else is known
UNKNOWN = WorkRule("unknown", Formula("bytes", floor=True))


@cache
def kernel_table() -> KernelTable:
    """The table that comes with npuscope, checked by a test: compiling every pattern takes as long as the rest."""
    return decode_toml(shipped_table(), KernelTable, "a table of kernels", PATH)


def shipped_table() -> bytes:
    """The text of the table that comes with npuscope."""
    return files("npuscope.chip.kernels").joinpath(PATH.name).read_bytes()


class NamedAnswer(NamedTuple, Generic[T]):
    """An answer, with the patterns of the names that have it."""

    answer: T
    whole: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    spelt: tuple[str, ...] = ()


def _question(answers: Callable[[KernelEntry], Iterable[NamedAnswer[T]]], otherwise: T) -> Callable[[str], T]:
    """What the table says of a name. The table is read when a question is first asked.

    Small letters are searched for in small letters: patterns that ignore case take five times as long to compile.
    """

    @cache
    def patterns() -> list[tuple[T, str, re.Pattern[str]]]:
        given = [answer for entry in kernel_table().kernel for answer in answers(entry)]
        whole = [(one.answer, "whole", one.whole) for one in given]
        found = [(one.answer, *some) for one in given for some in (("found", one.found), ("spelt", one.spelt))]
        return [(answer, how, re.compile(_any_of(some))) for answer, how, some in (*whole, *found) if some]

    @lru_cache(maxsize=65536)
    def judge(name: str) -> T:
        name = demangled(name)
        spelt = name[:LONGEST]
        texts = {"whole": plain(name), "found": spelt.lower(), "spelt": spelt}
        for answer, how, pattern in patterns():
            if pattern.fullmatch(texts[how]) if how == "whole" else pattern.search(texts[how]):
                return answer
        return otherwise

    return judge


def _any_of(patterns: Iterable[str]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _for_all_names(field: str) -> Callable[[KernelEntry], Iterator[NamedAnswer[Any]]]:
    """The field of an entry, for all the names that the entry knows."""

    def answers(entry: KernelEntry) -> Iterator[NamedAnswer[Any]]:
        if (answer := getattr(entry, field)) is not None:
            yield NamedAnswer(answer, entry.whole_names, entry.found, entry.spelt)

    return answers


def _pairs(entry: KernelEntry) -> Iterator[NamedAnswer[str | None]]:
    yield from (NamedAnswer[str | None](name, patterns) for name, patterns in entry.names.items())
    if entry.align is not None:
        yield NamedAnswer[str | None](None if entry.align == "none" else entry.align, (), entry.found, entry.spelt)


# family and work of a kernel
rule_of: Callable[[str], WorkRule] = _question(_for_all_names("rule"), UNKNOWN)
# the area of the model that a kernel's name says
area_of: Callable[[str], str] = _question(_for_all_names("area"), OTHER)
# comm, copy or task, for captures that have nothing but the name
kind_of: Callable[[str], Kind] = _question(_for_all_names("kind"), "task")
# all_reduce of hcom_allReduce_, HcomAllReduce and ncclDevKernel_AllReduce_Sum_bf16 alike
collective_of: Callable[[str], Collective | None] = _question(_for_all_names("collective"), None)
# where in a forward pass a kernel stands, if its name says so
landmark_of: Callable[[str], Landmark] = _question(_for_all_names("landmark"), "none")
# the phase that an attention is made for, where its name says so
phase_of: Callable[[str], Phase | None] = _question(_for_all_names("phase"), None)
# the calibrated law that gives a kernel's time
law_of: Callable[[str], Law | None] = _question(_for_all_names("law"), None)
# the name under which kernels of one thing meet over frameworks
aligned_name: Callable[[str], str | None] = _question(_pairs, None)


def is_comm(names: pl.Series) -> pl.Series:
    """True for names of communication; false for null. A million names that differ in their numbers are judged once."""
    distinct = names.drop_nulls().unique()
    shapes = distinct.str.replace_all("[0-9]+", "0")
    comm = [shape for shape in shapes.unique() if kind_of(shape) == "comm"]
    return names.is_in(distinct.filter(shapes.is_in(comm)).implode()).fill_null(False)


# How ranks meet in a kernel: "all" ends for every rank at once, "wait" when those it waits for have notified it,
# "pairs" when those that it sends to and takes from are done, be it one rank or all of them, and "one-sided" lets some
# go earlier, so it says nothing of clocks and of who was late.
Exchange = Literal["all", "wait", "pairs", "one-sided"]
_EXCHANGES: tuple[tuple[re.Pattern[str], Exchange], ...] = (
    (re.compile(r"_(notify|signal|put|get|send|recv|push|pull|copy|start|stage|publish)(_\d+)?$"), "one-sided"),
    (re.compile(r"(^|_)wait(_all|_peers?|_for_\w+)?(_\d+)?$"), "wait"),
    (re.compile(r"all_?to_?all|all_?reduce|reduce_?scatter|all_?gather|barrier"), "all"),
    (
        re.compile(r"broadcast|^(i?send|i?recv|put|get|notify|remote_(load|store)|t?put|t?get|tnotify)(_|$)"),
        "one-sided",
    ),
    (re.compile(r"^h(com|ccl)_?(send|recv|receive|batch)|[nr]ccl.*(send|recv)"), "pairs"),
    (re.compile(r"^__builtin_|^h(com|ccl)_?(scatter|reduce)"), "one-sided"),
)


@lru_cache(maxsize=65536)
def exchange_of(name: str) -> Exchange | None:
    """How ranks meet in a kernel of a program over several, by its name; None where the name says nothing of it."""
    small = name[:LONGEST].lower()
    return next((kind for pattern, kind in _EXCHANGES if pattern.search(small)), None)


_TEMPLATE = re.compile(r"(?<=.)[<(\[].*", re.DOTALL)
_OVERLOADS = {"default", "Tensor", "Scalar", "out", "int", "dim", "dim_IntList", "Tensor_out", "Tensor_mode", "self"}
_INSTANCE = re.compile(r"(_+\d+)+_*$|_+$")
_MTIA = re.compile(r"-dtype_\w+(-\w+)*$")  # aten::add.out-dtype_Float-extraKey_1
_VERSION = re.compile(r"v\d+$")
_TAILS = ("_mix_aic", "_mix_aiv", "kernel", "Kernel", "_nd", "Nd", "AiCore", "Aicore", "Custom")


def stem(name: str) -> str:
    """A name without namespace, overload, template arguments, instance number and version; its case is kept."""
    bare = name[:LONGEST].replace("(anonymous namespace)::", "").removeprefix("void ")
    bare = _MTIA.sub("", _TEMPLATE.sub("", bare).strip())
    bare = bare.split("::")[-1] or name.strip()
    parts = [part for part in bare.split(".") if part]
    while len(parts) > 1 and parts[-1] in _OVERLOADS:
        parts.pop()
    bare = parts[-1] if parts else bare
    bare = _INSTANCE.sub("", bare) or bare
    if bare.startswith("aclnn") and "_" in bare:
        bare = bare.rpartition("_")[2]
    for _ in range(2):  # mla_preprocess_0_mix_aic: a tail, then a number
        for tail in _TAILS:
            if len(bare) > len(tail) and bare.endswith(tail):
                bare = bare[: -len(tail)]
        bare = _INSTANCE.sub("", bare) or bare
    return re.sub(r"_?[Vv]\d+$", "", bare) or bare


@lru_cache(maxsize=65536)
def plain(name: str) -> str:
    """The stem in small letters and digits, which the table's whole names are held against."""
    letters = re.sub(r"[^a-z0-9]", "", stem(name).lower())
    return _VERSION.sub("", letters) or letters or name
