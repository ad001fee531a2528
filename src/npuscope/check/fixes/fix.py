"""What a fix is: how the source of a finding is rewritten as a person would, or why it is not.

A fix is declared in a family of this folder; lying there makes it run. It is pure: from a file's tree and the findings
in it to new text. Whether the new program runs, is right, fits, is safe and is faster is tried elsewhere
(`answer/fixes.py`), before anybody is offered it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from npuscope.base.frozen import dataclass
from npuscope.check.fixes.patch import Mended
from npuscope.check.rule import Finding

if TYPE_CHECKING:
    from npuscope.check.fixes.tree import Source


class NewText(NamedTuple):
    """A file as it would be: `title` says what was done in a few words. Several of one finding exclude one another."""

    text: str
    title: str
    mends: tuple[Finding, ...]
    reorders: bool = False


class Unmended(NamedTuple):
    """Why a finding has no patch, in a sentence."""

    finding: Finding
    why: str


Rewrite = Callable[["Source", Sequence[Finding]], Iterator[NewText | Unmended]]


@dataclass(frozen=True)
class Fix:
    """`rules`: whose findings it mends; "*" for what no rule finds, asked of each file of the program.

    `rewrite` is given the findings of one file and yields what could be done of each. `about`: performance is to be
    predicted faster, quality only to cost nothing.
    """

    id: str
    title: str
    rules: tuple[str, ...]
    rewrite: Rewrite
    about: str = "performance"


def fix(id: str, title: str, rules: tuple[str, ...], about: str = "performance") -> Callable[[Rewrite], Fix]:
    """Makes a fix of the function that it stands above."""
    return lambda rewrite: Fix(id, title, rules, rewrite, about)


def mended(findings: Sequence[Finding]) -> tuple[Mended, ...]:
    return tuple(dict.fromkeys(Mended(one.id, one.file, one.line) for one in findings))
