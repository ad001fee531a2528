"""`# npuscope: ignore[ID1,ID2]` and `# npuscope: ignore` in the source: which findings a user does not want to see.

At the end of a statement it covers that statement (of a block its header); on a line of its own, the next one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from npuscope.lower.source import SourceFile, read

PATTERN = re.compile(r"npuscope:\s*ignore(?!\w)\s*(?:\[([^\]]*)\])?")


@dataclass(frozen=True)
class Ignore:
    """Rules (none: all of them) that are silenced on some lines of a file; `line` is the comment's own."""

    file: str
    line: int
    lines: range
    rules: frozenset[str]

    def covers(self, id: str, line: int) -> bool:
        return line in self.lines and (not self.rules or id in self.rules)


def ignores_in(file: str) -> tuple[Ignore, ...]:
    source = read(file)
    return () if source is None else _ignores(source)


def silenced(id: str, file: str, line: int) -> bool:
    """Whether a comment in the source asks not to hear of a rule at a line."""
    return any(ignore.covers(id, line) for ignore in ignores_in(file))


@lru_cache(maxsize=64)
def _ignores(source: SourceFile) -> tuple[Ignore, ...]:
    found = []
    for comment in source.comments:
        match = PATTERN.search(comment.text)
        if match is None:
            continue
        line = comment.line
        if comment.own_line and line not in source.statements:
            line = min((n for n in source.statements if n > line), default=line)
        lines = source.statements.get(line, range(line, line + 1))
        names = (name.strip() for name in (match[1] or "").split(","))
        found.append(Ignore(source.file, comment.line, lines, frozenset(filter(None, names))))
    return tuple(found)
