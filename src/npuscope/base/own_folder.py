"""Folders for what is kept between runs and runs when it is loaded: machine code, pickles. Ours alone, or not used.

Whoever can write to such a folder, or put another in its place, can make us run what he likes. Windows keeps the
folders of a user's profile from other users by itself and tells no owner here, so there only they are used.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path


def first_own(places: Iterable[Path]) -> Path | None:
    """The first of these folders that is ours alone and can be written, made if need be; None if there is none."""
    return next((place for place in places if own(place)), None)


def own(place: Path) -> bool:
    """Makes a folder where it is missing; whether it belongs to us, only we can write to it, and so can we."""
    if sys.platform == "win32":
        return _in_profile(place)
    try:
        place = place.resolve()
        if not all(_is_safe(folder) for folder in place.parents if folder.exists()):
            return False
        for missing in [folder for folder in reversed(place.parents) if not folder.exists()]:
            missing.mkdir(mode=0o755, exist_ok=True)  # not as the umask says, which may let others in
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except (OSError, RuntimeError):  # a place that refuses, a link that leads to itself
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return is_ours and os.access(place, os.W_OK | os.X_OK)


def _is_safe(folder: Path) -> bool:
    """Whether nobody but us and the system can put another folder in the place of one in this.

    In a sticky folder (/tmp) only owners can. A folder of our own group is safe: many systems give each user one.
    """
    if sys.platform == "win32":
        return True
    found = folder.stat()
    others = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid())
    return found.st_uid in (os.geteuid(), 0) and (not others or bool(found.st_mode & stat.S_ISVTX))


def _in_profile(place: Path) -> bool:
    """Whether a folder lies in the user's profile and can be made and written there (Windows)."""
    try:
        if not place.resolve().is_relative_to(Path.home().resolve()):
            return False
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False
    return os.access(place, os.W_OK)


def user_caches() -> Path:
    """Where this user keeps caches: as the environment says, else in the temporary folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if os.environ.get("HOME"):
        return Path(os.environ["HOME"]) / ".cache"
    return Path(tempfile.gettempdir()) / f"npuscope-{os.geteuid()}"
