"""The versions of a program: every save and every turned knob, oldest first; and its files, put back on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from npuscope.answer.answer import Trouble
from npuscope.base.errors import CannotWrite
from npuscope.base.frozen import dataclass
from npuscope.base.unsaved import Texts, source_bytes
from npuscope.lab.messages import VersionResult
from npuscope.trace.writers.atomic import whole_file

MOST = 60  # kept; of the older ones those with a name
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Version:
    """One of them. `made` is None while it is being made; `named` by the user, not by us."""

    id: str
    name: str
    at: float  # seconds since 1970
    settings: Mapping[str, str] = field(default_factory=dict)
    measured: bool = False
    named: bool = False
    saved: bool = True  # not a turned knob or a fix that is tried
    texts: Texts = ()  # that stand in for files
    made: VersionResult | None = None

    @property
    def trouble(self) -> Trouble | None:
        return self.made.trouble if self.made else None

    @property
    def has_run(self) -> bool:
        return self.made is not None and bool(self.made.run)

    @property
    def bytes(self) -> int:
        made = self.made
        if made is None:
            return 0
        return len(made.run) + len(made.panels) + len(made.trace) + sum(map(len, made.sources.values()))

    def as_dict(self) -> dict[str, object]:
        """For the page's list."""
        made = self.made
        return {
            "id": self.id,
            "name": self.name,
            "at": self.at,
            "settings": dict(self.settings),
            "measured": self.measured,
            "named": self.named,
            "saved": self.saved,
            "source": made.digest if made else "",
            "wall": made.wall if made else None,
            "verdict": made.verdict if made else "",
            "noticed": list(made.noticed) if made else [],
            "trouble": self.trouble.as_dict() if self.trouble else None,
            "cpu_s": made.cpu_s if made else None,
            "versus": made.versus if made else None,
            "has_run": self.has_run,
            "has_panels": made is not None and bool(made.panels),
            "has_source": made is not None and bool(made.sources) and not self.measured,
        }


class Versions:
    """All that are kept, by their number."""

    def __init__(self) -> None:
        self._kept: dict[str, Version] = {}
        self._count = 0

    def all(self) -> tuple[Version, ...]:
        return tuple(self._kept.values())

    def get(self, id: str) -> Version | None:
        return self._kept.get(id)

    def next_id(self) -> str:
        self._count += 1
        return str(self._count)

    def put(self, version: Version) -> None:
        """Adds it, or takes the place of the one with its number; then forgets what is too much."""
        self._kept[version.id] = version
        self._forget(version.id)

    def drop(self, id: str) -> None:
        """Forgets one that nobody waits for."""
        self._kept.pop(id, None)

    def rename(self, id: str, name: str) -> Version | None:
        version = self._kept.get(id)
        if version is not None:
            version = self._kept[id] = replace(version, name=name, named=True)
        return version

    def last_made(self) -> Version | None:
        """The newest with a run that is no capture."""
        able = [one for one in self._kept.values() if one.has_run and not one.measured]
        return able[-1] if able else None

    def newest_save(self) -> Version | None:
        """The newest save with a run: what a page opens with, and what the next version is held against."""
        return next(
            (one for one in reversed(self._kept.values()) if one.saved and one.has_run and not one.measured), None
        )

    def _forget(self, newest: str) -> None:
        while len(self._kept) > MOST or sum(one.bytes for one in self._kept.values()) > MOST_BYTES:
            latest = self.last_made()
            keep = {newest, latest.id if latest else ""}
            old = [one for one in self._kept.values() if not one.measured and one.id not in keep]
            if not old:
                return
            del self._kept[min(old, key=lambda one: (one.named, int(one.id))).id]


UNKNOWN = "\ufffd"  # stands for bytes that are no text


def text_of(file: str | Path) -> str:
    """What a file holds, with the ends of lines that it has; raises OSError."""
    return source_bytes(file).decode("utf-8", "replace")


def unreadable(file: str | Path) -> str:
    """In words, for a file that `text_of` cannot read."""
    path = Path(file)
    if path.is_dir():
        return f"{path.name} is a folder now"
    return f"{path.name} cannot be read" if path.exists() else f"{path.name} is gone"


def replaced(texts: Mapping[Path, str], is_known: Callable[[str, str], bool]) -> tuple[str, ...]:
    """Writes texts to files, each whole and with the mode that it had; those that differed.

    None is written where one of them holds a text that is not known, which would be lost.
    """
    differ = []
    for path, text in texts.items():
        if UNKNOWN in text:
            raise CannotWrite("has bytes that are no text, so it cannot be put back", path=path)
        try:
            before = text_of(path)
        except OSError:
            differ.append(path)  # writing it will say what is in the way
            continue
        if before != text:
            if not is_known(str(path), before):
                raise CannotWrite("has changed since it was last read, so it was left alone", path=path)
            differ.append(path)
    for path in differ:
        with whole_file(path) as out:
            out.write(texts[path].encode())
    return tuple(map(str, differ))
