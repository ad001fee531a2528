"""Files kept between runs, each under the hash of everything that decided it, in folders that are ours alone.

A folder has what all versions of npuscope kept of one kind: the version is part of a key, so what is out of date is
never found again, and as the oldest it goes first.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import get_ident

import npuscope
from npuscope.base.own_folder import first_own, user_caches

OFF = "NPUSCOPE_NO_CACHE"  # set: nothing is kept, and nothing that was kept is used
SELDOM = "00"  # how the key of one file in 256 begins: to look through a folder takes longer than to write a file


@cache
def own_source() -> str:
    """npuscope as it is here, be it a checkout between two versions: its source and its data."""
    own = Path(npuscope.__file__).parent
    files = sorted(path for kind in ("*.py", "*.toml", "*.csv") for path in own.rglob(kind))
    return sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


class KeptFiles:
    """Files of one kind, at most so many bytes of them.

    `folder`: looked for when this is made, and not while a script is watched for what it asks its environment. None
    where nothing can be kept: no folder is ours alone, or the user wants none.
    """

    def __init__(self, kind: str, most: int) -> None:
        self._most = most
        self.folder = None if os.environ.get(OFF) else first_own([user_caches() / "npuscope" / kind])

    def read(self, key: str) -> bytes | None:
        if self.folder is None:
            return None
        try:
            with open(f"{self.folder}/{key}", "rb") as file:
                return file.read()
        except OSError:
            return None

    def write(self, key: str, data: bytes) -> None:
        """A full disk keeps nothing, and stops nobody."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            part = f"{self.folder}/{key}.{os.getpid()}-{get_ident()}"
            with open(part, "wb") as file:
                file.write(data)
            os.replace(part, f"{self.folder}/{key}")
            if key.startswith(SELDOM):
                self._prune(self.folder)

    def _prune(self, folder: Path) -> None:
        """Of too many bytes the oldest half goes."""
        with os.scandir(folder) as found:
            files = [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in found]
        size = sum(bytes for _, bytes, _ in files)
        if size <= self._most:
            return
        for _, bytes, path in sorted(files):
            with contextlib.suppress(OSError):  # another process was quicker
                os.unlink(path)
            size -= bytes
            if size <= self._most // 2:
                break
