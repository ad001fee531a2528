"""Numbers with their nouns."""

from __future__ import annotations


def many(count: int, one: str, several: str = "") -> str:
    """`1 task`, `2 tasks`, `1,024 passes`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
