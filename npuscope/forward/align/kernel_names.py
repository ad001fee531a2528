"""Kernel names of one thing over frameworks: MatMulV3, aten.mm.default and aclnnMatmul_…_MatMulV2 are one family.

The table is `kernel_names.toml`. A name it does not know is a family of its own, under the name without version
and instance number; pairs given by the user come before the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import msgspec

from npuscope.errors import BadInput, NpuscopeError
from npuscope.trace.toml_file import decode_toml

_TEMPLATE = re.compile(r"(?<=.)[<(\[].*", re.DOTALL)
_OVERLOADS = {"default", "Tensor", "Scalar", "out", "int", "dim", "dim_IntList", "Tensor_out", "Tensor_mode", "self"}
_INSTANCE = re.compile(r"(_+\d+)+_*$|_+$")
_VERSION = re.compile(r"v\d+$")
_TAILS = ("_mix_aic", "_mix_aiv", "kernel", "Kernel", "_nd", "Nd", "AiCore", "Aicore", "Custom")


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Plain names that any pattern fits as a whole."""

    name: str
    patterns: list[str]


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that count as one."""

    name: str
    begins: list[str]


class Anchors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Families of which each layer has one."""

    families: list[str]


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    family: list[Family]
    anchors: Anchors
    group: list[Group]


@lru_cache
def known_names() -> Names:
    """The table that comes with npuscope."""
    path = Path("kernel_names.toml")
    data = files("npuscope.forward.align").joinpath(path.name).read_bytes()
    return decode_toml(data, Names, "a table of kernel names", path)


@lru_cache
def _rules() -> tuple[tuple[str, re.Pattern[str]], ...]:
    try:
        return tuple((f.name, re.compile("|".join(f"(?:{p})" for p in f.patterns))) for f in known_names().family)
    except re.error as error:
        raise BadInput(f"a pattern that is no regular expression ({error})", path="kernel_names.toml") from error


def stem(name: str) -> str:
    """A name without namespace, overload, template arguments, instance number and version; its case is kept."""
    bare = _TEMPLATE.sub("", name.replace("(anonymous namespace)::", "").removeprefix("void ")).strip()
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


def plain(name: str) -> str:
    """The stem in small letters and digits, which the table's patterns are held against."""
    letters = re.sub(r"[^a-z0-9]", "", stem(name).lower())
    return _VERSION.sub("", letters) or letters or name


@lru_cache(maxsize=65536)
def known_family(name: str) -> str | None:
    """The table's family of a name."""
    letters = plain(name)
    return next((family for family, pattern in _rules() if pattern.fullmatch(letters)), None)


def families_of(names: Iterable[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Each name's family. Names no rule knows meet by their plain form and show the stem that sorts first."""
    distinct = sorted({*names, *others})
    shown: dict[str, str] = {}
    for name in distinct:
        shown.setdefault(plain(name), stem(name))
    return {name: known_family(name) or shown[plain(name)] for name in distinct}


def mapped(families: Mapping[str, str], predicted: Iterable[str], measured: Iterable[str],
           pairs: Mapping[str, str]) -> dict[str, str]:  # fmt: skip
    """The families of predicted names, where the user's pairs (predicted name or family = measured one) come first."""
    asked = dict.fromkeys(predicted)
    there = {*measured} | {families[name] for name in measured}
    given: dict[str, str] = {}
    for ours, theirs in pairs.items():
        found = [name for name in asked if ours in (name, families[name])]
        if not found or theirs not in there:
            side, name = ("prediction", ours) if not found else ("measured pass", theirs)
            raise NpuscopeError(f"--map: '{name}' is no kernel of the {side}", remedy="It takes predicted=measured.")
        given |= dict.fromkeys(found, families.get(theirs, theirs))
    return {name: given.get(name, families[name]) for name in asked}
