"""What a script took from around it when it ran: files that it imported or read, and environment variables.

Who keeps a result asks later whether these are still what they were. Not seen: which files there are in a folder, and
whether a file exists that was not opened.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

EVERY = "*"  # as a variable: the script looked through all of them
READ_WHOLE = 16 * 2**20  # bytes; of a larger file size and time of change stand for its content


@dataclass(frozen=True)
class Surroundings:
    """Names only: `fingerprint` tells what they hold now. `modules` are files, as seen from the script's folder."""

    modules: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def fingerprint(self, folder: Path) -> str:
        """Equal as long as every file and variable holds what it held."""
        told = hashlib.sha256()
        for name in self.modules:
            told.update(f"{name}\0".encode() + _content(folder / name) + b"\0")
        every = sorted(os.environ.items()) if EVERY in self.variables else ()
        told.update(repr(([(name, os.environ.get(name)) for name in self.variables], every)).encode())
        return told.hexdigest()


def _content(file: Path) -> bytes:
    try:
        if not file.is_file():
            return b""
        found = file.stat()
        if found.st_size > READ_WHOLE:
            return f"{found.st_size} {found.st_mtime_ns}".encode()
        return file.read_bytes()
    except OSError:
        return b""
