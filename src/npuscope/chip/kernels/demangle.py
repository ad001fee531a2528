"""Names that compilers mangled (`_ZN…`), as people write them: aiter::add_rmsnorm_quant_kernel<__bf16, 64, false>.

Of the Itanium rules those are here that kernels use: nested names, templates, types, literals, packs, substitutions,
lambdas and what is local to a function. What a function takes and returns is read and left out. A name with anything
else in it stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

LONGEST = 20_000  # characters of a name that is looked into
DEEPEST = 120  # types inside one another
_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_LONG_BUILTIN = {
    "DF16b": "__bf16", "DF16_": "_Float16", "DF32_": "_Float32", "Dh": "half", "Dn": "decltype(nullptr)",
    "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t",
}  # fmt: skip
_STANDARD = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}
_SUFFIX = {"j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}  # of whole numbers
_AROUND = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile", "r": " __restrict"}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@lru_cache(maxsize=65536)
def demangled(name: str) -> str:
    """The name as people write it, or the name itself where it is not mangled or not understood."""
    if not name.startswith("_Z") or len(name) > LONGEST:
        return name
    text, dot, clone = name.partition(".")  # compilers mark their clones with a suffix
    try:
        parser = _Parser(text)
        parser.place = 2
        told, _ = parser.encoding(end="")
    except (_NotUnderstood, IndexError, RecursionError):
        return name
    return told + dot + clone


def readable(names: Iterable[str]) -> dict[str, str]:
    """Mangled names -> the same as people write them; those stay out that would read as another name does."""
    names = set(names)
    told = {name: demangled(name) for name in names}
    often = Counter(told.values())
    return {name: words for name, words in told.items() if words != name and often[words] == 1}


class _NotUnderstood(Exception):
    """Something that this does not read."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, 0, 0
        self.known: list[str] = []  # what S_, S0_, … stand for
        self.given: list[str] = []  # what T_, T0_, … stand for

    def at(self, start: str) -> bool:
        return self.text.startswith(start, self.place)

    def take(self, start: str) -> bool:
        found = self.at(start)
        self.place += len(start) if found else 0
        return found

    def expect(self, start: str) -> None:
        if not self.take(start):
            raise _NotUnderstood

    def learn(self, told: str) -> str:
        self.known.append(told)
        return told

    def encoding(self, end: str = "E") -> tuple[str, list[str]]:
        """A function with its types until `end`, or data: the name, and what it takes."""
        outer, self.given = self.given, []
        told, is_template = self.name()
        takes = []
        while self.place < len(self.text) and not (end and self.at(end)):
            takes.append(self.type())
        self.given = outer
        return told, takes[1:] if is_template else takes  # a template tells first what it returns

    def name(self) -> tuple[str, bool]:
        """A name, and whether it ends in template arguments."""
        if self.take("N"):
            while self.text[self.place] in "rVK":
                self.place += 1
            return self.nested()
        if self.take("Z"):
            return self.local()
        if self.at("S") and not self.at("St"):
            told = self.substitution()
        else:
            told = self.unqualified() if not self.take("St") else f"std::{self.unqualified()}"
            if self.at("I"):
                self.learn(told)
        return (told + self.arguments(), True) if self.at("I") else (told, False)

    def nested(self) -> tuple[str, bool]:
        """Parts until E; what stands before the last part can be meant again, and so can a template without its
        arguments."""
        told, is_template = "", False
        while not self.take("E"):
            if self.at("I"):
                if not told:
                    raise _NotUnderstood
                told, is_template = told + self.arguments(), True
            elif self.at("S"):
                if told:
                    raise _NotUnderstood
                told = self.substitution()
                continue
            elif self.at("T") and not told:
                told, is_template = self.parameter(), False
            else:
                part = self.unqualified()
                told, is_template = f"{told}::{part}" if told else part, False
            if not self.at("E"):
                self.learn(told)
        return told, is_template

    def local(self) -> tuple[str, bool]:
        """What is local to a function."""
        function, takes = self.encoding()
        self.expect("E")
        around = f"{function}({_listed(takes)})"
        if self.take("s"):
            told, is_template = f"{around}::string literal", False
        else:
            inner, is_template = self.name()
            told = f"{around}::{inner}"
        if self.take("_"):  # which of several of one name
            while self.text[self.place : self.place + 1].isdigit():
                self.place += 1
        return told, is_template

    def unqualified(self) -> str:
        self.take("L")  # of this file only
        if self.take("Ul"):
            takes = []
            while not self.take("E"):
                takes.append(self.type())
            return f"{{lambda({_listed(takes)})#{self.number() + 1}}}"
        if self.take("Ut"):
            return f"{{unnamed type#{self.number() + 1}}}"
        if self.take("cl"):
            return "operator()"
        size = ""
        while self.text[self.place].isdigit():
            size += self.text[self.place]
            self.place += 1
        word = self.text[self.place : self.place + int(size)] if size else ""
        if not word or len(word) != int(size):
            raise _NotUnderstood
        self.place += len(word)
        return "(anonymous namespace)" if word.startswith("_GLOBAL__N_") else word

    def number(self, digits: str = "0123456789") -> int:
        """The number of `_`, `0_`, `1_`, …: 0, 1, 2, …"""
        told = ""
        while not self.take("_"):
            told += self.text[self.place]
            self.place += 1
        if any(letter not in digits for letter in told):
            raise _NotUnderstood
        value = 0
        for letter in told:
            value = value * len(digits) + digits.index(letter)
        return value + 1 if told else 0

    def substitution(self) -> str:
        """What was told before; a class of the standard library has no number."""
        for word, meaning in _STANDARD.items():
            if self.take(word):
                return meaning
        self.expect("S")
        return self.known[self.number(_DIGITS)]

    def parameter(self) -> str:
        """What a template was given."""
        self.expect("T")
        place = self.number()
        return self.given[place] if place < len(self.given) else f"T{place}"

    def arguments(self) -> str:
        """The arguments of a template; those of a function are what its types mean with T_."""
        self.expect("I")
        told = []
        while not self.take("E"):
            told.append(self.argument())
        self.given = told
        listed = _listed(told)
        return f"<{listed} >" if listed.endswith(">") else f"<{listed}>"

    def argument(self) -> str:
        if self.take("L"):
            return self.literal()
        if self.take("J"):
            pack = []
            while not self.take("E"):
                pack.append(self.argument())
            return _listed(pack)
        if self.take("Tn"):  # the type of a value, then the value
            self.type()
            return self.argument()
        if self.take("X"):
            self.expect("adL_Z")
            told = f"&{self.encoding()[0]}"
            self.expect("E")
            self.expect("E")
            return told
        return self.type()

    def literal(self) -> str:
        if self.take("_Z"):
            told, _ = self.encoding()
            self.expect("E")
            return told
        letter = self.text[self.place]
        type = self.type()
        end = self.text.index("E", self.place) if "E" in self.text[self.place :] else -1
        value = self.text[self.place : end]
        self.place = end + 1
        if end < 0 or not value.removeprefix("n").isdigit():
            raise _NotUnderstood
        if type == "bool":
            return "true" if value == "1" else "false"
        value = value.replace("n", "-")
        return value + _SUFFIX.get(letter, "") if letter in "ijlmxy" else f"({type}){value}"

    def type(self) -> str:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _NotUnderstood
        told = self._type()
        self.depth -= 1
        return told

    def _type(self) -> str:
        for word, meaning in _LONG_BUILTIN.items():
            if self.take(word):
                return meaning
        letter = self.text[self.place]
        if letter in _BUILTIN:
            self.place += 1
            return _BUILTIN[letter]
        if letter in _AROUND:
            self.place += 1
            inner, sign = self.type(), _AROUND[letter]
            return self.learn(inner.replace("(*)", f"(*{sign})", 1) if "(*)" in inner else _with_sign(inner, sign))
        if self.take("Dp"):  # a pack, opened
            return self.learn(self.type())
        if self.take("F"):
            types = []
            while not self.take("E"):
                types.append(self.type())
            return self.learn(f"{types[0]} ({_listed(types[1:])})")
        if self.take("A"):
            size = self.text[self.place : self.text.index("_", self.place)] if "_" in self.text[self.place :] else ""
            if not size.isdigit():
                raise _NotUnderstood
            self.place += len(size) + 1
            return self.learn(f"{self.type()} [{size}]")
        if letter == "T":
            told = self.learn(self.parameter())
            return self.learn(told + self.arguments_of_type()) if self.at("I") else told
        if letter == "S" and not self.at("St"):
            told = self.substitution()
            return self.learn(told + self.arguments_of_type()) if self.at("I") else told
        if letter == "u":
            self.place += 1
            return self.learn(self.unqualified())
        given = self.given
        told, _ = self.name()
        self.given = given  # a class's arguments are not the function's
        return self.learn(told)

    def arguments_of_type(self) -> str:
        given = self.given
        told = self.arguments()
        self.given = given
        return told


def _with_sign(inner: str, sign: str) -> str:
    """A pointer or a reference to a type; to a function it stands inside."""
    place = inner.find(" (") if inner.endswith(")") else -1
    return f"{inner[:place]} ({sign}){inner[place + 1 :]}" if place >= 0 else f"{inner}{sign}"


def _listed(types: list[str]) -> str:
    """What a function takes or a template is given; nothing where it takes nothing."""
    return "" if types == ["void"] else ", ".join(told for told in types if told)
