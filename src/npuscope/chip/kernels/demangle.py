"""Names that compilers mangled (`_ZN…`), as people write them: aiter::add_rmsnorm_quant_kernel<__bf16, 64, false>.

Of the Itanium rules those are here that kernels use: nested names, templates, types, literals, packs, substitutions,
lambdas and what is local to a function. What a function takes and returns is read and left out. A name with anything
else in it stays as it was.
"""

# Why not a package: itanium_demangler 1.1 fails on bfloat16 (DF16b), lambdas and template values, 4 of the 6 mangled
# names in the captures at hand; cxxfilt 0.3.0 asks libstdc++, which reads DF16b as bool or not at all.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
LONGEST = 20_000  # characters of a name that is looked into
DEEPEST = 120  # types inside one another
_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
    "DF16b": "__bf16", "DF16_": "_Float16", "DF32_": "_Float32", "Dh": "half", "Dn": "decltype(nullptr)",
    "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
}  # fmt: skip
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}  # of whole numbers
_AROUND = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " __restrict"}
_DECIMAL, _BASE_36 = "0123456789", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@lru_cache(maxsize=65536)
def demangled(name: str) -> str:
    """The name as people write it, or the name itself where it is not mangled or not understood."""
    if not name.startswith("_Z") or len(name) > LONGEST:
        return name
    text, dot, clone = name.partition(".")  # compilers mark their clones with a suffix
    try:
        return _Parser(text).encoding(end="")[0] + dot + clone
    except (_NotUnderstood, IndexError, RecursionError):
        return name


def readable(names: Iterable[str]) -> dict[str, str]:
    """Mangled names -> the same as people write them; those stay out that would read as another name does."""
    names = set(names)
    plain = {name: demangled(name) for name in names}
    often = Counter(plain.values())
    return {name: words for name, words in plain.items() if words != name and often[words] == 1}


class _NotUnderstood(Exception):
    """Something that this does not read."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, len("_Z"), 0
        self.known: list[str] = []  # what S_, S0_, … stand for
        self.given: list[str] = []  # what T_, T0_, … stand for

    def at(self, start: str) -> bool:
        return self.text.startswith(start, self.place)

    def take(self, start: str) -> bool:
        if not self.at(start):
            return False
        self.place += len(start)
        return True

    def take_any(self, words: Iterable[str]) -> str:
        """The first of the words that stands here; nothing if none does."""
        return next((word for word in words if self.take(word)), "")

    def expect(self, start: str) -> None:
        if not self.take(start):
            raise _NotUnderstood

    def match(self, pattern: str) -> str:
        """What fits the pattern here, which may be nothing."""
        found = re.compile(pattern).match(self.text, self.place)
        self.place = found.end() if found else self.place
        return found[0] if found else ""

    def until_end(self, part: Callable[[], T]) -> list[T]:
        """Parts up to the E that closes them."""
        parts = []
        while not self.take("E"):
            parts.append(part())
        return parts

    def learn(self, text: str) -> str:
        self.known.append(text)
        return text

    def encoding(self, end: str = "E") -> tuple[str, list[str]]:
        """A function with its types until `end`, or data: the name, and what it takes."""
        outer, self.given = self.given, []
        name, is_template = self.name()
        takes = []
        while self.place < len(self.text) and not (end and self.at(end)):
            takes.append(self.type())
        self.given = outer
        return name, takes[1:] if is_template else takes  # a template says first what it returns

    def name(self) -> tuple[str, bool]:
        """A name, and whether it ends in template arguments."""
        if self.take("N"):
            self.match("[rVK]*")
            return self.nested()
        if self.take("Z"):
            return self.local()
        if self.at("S") and not self.at("St"):
            name = self.substitution()
        else:
            name = self.unqualified() if not self.take("St") else f"std::{self.unqualified()}"
            if self.at("I"):
                self.learn(name)
        return (name + self.arguments(), True) if self.at("I") else (name, False)

    def nested(self) -> tuple[str, bool]:
        """Parts until E; a substitution can stand for what is before the last part, and for a template without its
        arguments."""
        name, is_template = "", False
        while not self.take("E"):
            if self.at("S"):
                if name:
                    raise _NotUnderstood
                name = self.substitution()
                continue
            if self.at("I"):
                if not name:
                    raise _NotUnderstood
                name, is_template = name + self.arguments(), True
            elif self.at("T") and not name:
                name, is_template = self.parameter(), False
            else:
                part = self.unqualified()
                name, is_template = f"{name}::{part}" if name else part, False
            if not self.at("E"):
                self.learn(name)
        return name, is_template

    def local(self) -> tuple[str, bool]:
        """What is local to a function."""
        function, takes = self.encoding()
        self.expect("E")
        inner, is_template = ("string literal", False) if self.take("s") else self.name()
        self.match("_[0-9]*")  # which of several of one name
        return f"{function}({_listed(takes)})::{inner}", is_template

    def unqualified(self) -> str:
        self.take("L")  # of this file only
        if self.take("Ul"):
            takes = self.until_end(self.type)
            return f"{{lambda({_listed(takes)})#{self.number() + 1}}}"
        if self.take("Ut"):
            return f"{{unnamed type#{self.number() + 1}}}"
        if self.take("cl"):
            return "operator()"
        size = int(self.match("[0-9]+") or 0)
        word = self.text[self.place : self.place + size]
        if not word or len(word) != size:
            raise _NotUnderstood
        self.place += size
        return "(anonymous namespace)" if word.startswith("_GLOBAL__N_") else word

    def number(self, digits: str = _DECIMAL) -> int:
        """The number of `_`, `0_`, `1_`, …: 0, 1, 2, …"""
        text = self.match(f"[{digits}]*")
        self.expect("_")
        return int(text, len(digits)) + 1 if text else 0

    def substitution(self) -> str:
        """What stood before; a class of the standard library has no number."""
        if word := self.take_any(_STANDARD):
            return _STANDARD[word]
        self.expect("S")
        return self.known[self.number(_BASE_36)]

    def parameter(self) -> str:
        """What a template was given."""
        self.expect("T")
        place = self.number()
        return self.given[place] if place < len(self.given) else f"T{place}"

    def arguments(self) -> str:
        """The arguments of a template; those of a function are what its types mean with T_."""
        self.expect("I")
        self.given = self.until_end(self.argument)
        listed = _listed(self.given)
        return f"<{listed} >" if listed.endswith(">") else f"<{listed}>"

    def argument(self) -> str:
        if self.take("L"):
            return self.literal()
        if self.take("J"):
            return _listed(self.until_end(self.argument))
        if self.take("Tn"):  # the type of a value, then the value
            self.type()
            return self.argument()
        if self.take("X"):
            self.expect("adL_Z")
            function, _ = self.encoding()
            self.expect("EE")
            return f"&{function}"
        return self.type()

    def literal(self) -> str:
        if self.take("_Z"):
            name, _ = self.encoding()
            self.expect("E")
            return name
        letter = self.text[self.place]
        type = self.type()
        value = self.match("n?[0-9]+").replace("n", "-")
        self.expect("E")
        if not value:
            raise _NotUnderstood
        if type == "bool":
            return "true" if value == "1" else "false"
        return value + _SUFFIX[letter] if letter in _SUFFIX else f"({type}){value}"

    def type(self) -> str:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _NotUnderstood
        text = self._type()
        self.depth -= 1
        return text

    def _type(self) -> str:
        if word := self.take_any(_BUILTIN):
            return _BUILTIN[word]
        if letter := self.take_any(_AROUND):
            inner, sign = self.type(), _AROUND[letter]
            return self.learn(inner.replace("(*)", f"(*{sign})", 1) if "(*)" in inner else _with_sign(inner, sign))
        if self.take("Dp"):  # a pack, opened
            return self.learn(self.type())
        if self.take("F"):
            returns, *takes = self.until_end(self.type) or [""]
            return self.learn(f"{returns} ({_listed(takes)})")
        if self.take("A"):
            size = self.match("[0-9]+")
            self.expect("_")
            return self.learn(f"{self.type()} [{size}]")
        if self.take("u"):
            return self.learn(self.unqualified())
        given = self.given  # a class's arguments are not the function's
        if self.at("T") or (self.at("S") and not self.at("St")):
            name = self.learn(self.parameter()) if self.at("T") else self.substitution()
            name = self.learn(name + self.arguments()) if self.at("I") else name
        else:
            name = self.learn(self.name()[0])
        self.given = given
        return name


def _with_sign(inner: str, sign: str) -> str:
    """A pointer or a reference to a type; to a function it stands inside."""
    place = inner.find(" (") if inner.endswith(")") else -1
    return f"{inner[:place]} ({sign}){inner[place + 1 :]}" if place >= 0 else f"{inner}{sign}"


def _listed(types: list[str]) -> str:
    """What a function takes or a template is given; nothing where it takes nothing."""
    return "" if types == ["void"] else ", ".join(type for type in types if type)
