"""Which values lie in one storage: sets that are joined, each known by its earliest value."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.lower.model import Value


class Storages:
    """Joins values; `applied` gives them with their storage."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = tuple(values)
        self._parent = [value.storage for value in values]

    def of(self, value: int) -> int:
        root = value
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[value] != root:
            self._parent[value], value = root, self._parent[value]
        return root

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.of(one), self.of(other)))
        self._parent[second] = first

    def applied(self) -> tuple[Value, ...]:
        return tuple(value._replace(storage=self.of(value.id)) for value in self._values)
