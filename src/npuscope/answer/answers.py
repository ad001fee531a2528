"""Answers kept between runs, by the content of everything that decided them.

A file per program and what was asked of it; in it an answer for each state of what the program took from around it.
They are JSON and nothing runs when they are read, but who can write to the folder can make us say anything, so it is
ours alone or not used. Answers that chance or a limit decided (time, memory, a crash) are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from npuscope.answer.answer import Answer
from npuscope.answer.variant import Variant
from npuscope.base.kept_files import KeptFiles
from npuscope.base.surroundings import Surroundings

LASTING = frozenset({"good", "wrong", "race", "unfit"})
FILES = KeptFiles("answers", 64 << 20)
STATES = 8  # answers in a file, the newest


@dataclass(frozen=True)
class KeptAnswer:
    """An answer and what it rests on: a line of `judge --results`, and an entry of the user's cache."""

    key: str
    answer: Answer
    seen: Surroundings
    golden: bool

    @property
    def is_whole(self) -> bool:
        return bool(self.key and self.answer.candidate)

    def as_dict(self) -> dict[str, object]:
        return {"key": self.key, "answer": self.answer.as_dict(), "seen": asdict(self.seen), "golden": self.golden}


def kept_answer(variant: Variant, answer: Answer, seen: Sequence[Surroundings], golden: bool) -> KeptAnswer:
    """`seen`: of each run of the program."""
    files = sorted({file for one in seen for file in one.modules})
    names = sorted({name for one in seen for name in one.variables})
    around = Surroundings(tuple(files), tuple(names))
    return KeptAnswer(_key(variant, around, golden), answer, around, golden)


def _key(variant: Variant, seen: Surroundings, golden: bool) -> str:
    return f"{variant.key(seen)}{'' if golden else '-shapes'}"


def among(known: Sequence[KeptAnswer], variant: Variant, golden: bool) -> Answer | None:
    """The answer that still holds, under the variant's name. With a golden is more than without."""
    for one in reversed(known):
        if (one.golden or not golden) and one.key == _key(variant, one.seen, one.golden):
            return replace(one.answer, candidate=variant.name, cached=True, versus=None)
    return None


def _held(variant: Variant) -> list[KeptAnswer]:
    import msgspec

    try:
        return msgspec.json.decode(FILES.read(variant.told) or b"[]", type=list[KeptAnswer])
    except (msgspec.MsgspecError, UnicodeDecodeError):  # of another version
        return []


def found(variant: Variant, golden: bool) -> Answer | None:
    return among(_held(variant), variant, golden)


def keep(variant: Variant, one: KeptAnswer) -> None:
    """For the next time."""
    if one.answer.verdict in LASTING:
        others = [other for other in _held(variant) if other.key != one.key]
        states = [other.as_dict() for other in [*others, one][-STATES:]]
        FILES.write(variant.told, json.dumps(states).encode())
