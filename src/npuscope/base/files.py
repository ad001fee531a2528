"""Files of our own: what is kept between runs, in folders that are ours alone, and files for one process at a time.

Whoever can write to a folder of machine code or pickles, or put another in its place, can make us run what he likes: it
is ours alone or not used. Windows keeps the folders of a user's profile from other users by itself and tells no owner
here, so there only they are used.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock, get_ident
from typing import IO, Any, TypeVar

import npuscope

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T")
OFF = "NPUSCOPE_NO_CACHE"  # set: nothing is kept, and nothing that was kept is used
MOST = 128 << 20  # bytes of a kind
SELDOM = "00"  # how the key of one file in 256 begins: to look through a folder takes longer than to write a file
FOLDERS: dict[str, Path | None] = {}  # by kind; None where nothing can be kept
_FAR = 1 << 40  # Windows locks bytes, which nobody else can then read: one far behind the end of every file


@cache
def source_digest() -> str:
    """npuscope as it is here, be it a checkout between two versions: its source and its data."""
    own = Path(npuscope.__file__).parent
    files = sorted(path for kind in ("*.py", "*.toml", "*.csv") for path in own.rglob(kind))
    return sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def cached(kind: str, key: str, make: Callable[[], T], valid: Callable[[T], bool] = lambda value: True) -> T:
    """What `make` gives, taken from an earlier run where that is kept under the key and is `valid`.

    The key is a hash of everything that decides the value, npuscope's version included: what is out of date is never
    found again, and as the oldest it goes first. A full disk keeps nothing, and stops nobody.
    """
    if _folder(kind) is None:
        return make()
    value: T | None = kept(kind, key)
    if value is not None and valid(value):
        return value
    value = make()
    keep(kind, key, value)
    return value


def kept(kind: str, key: str) -> Any:
    """What an earlier run kept under a key; None where it is not there, or a disk has spoilt it."""
    folder = _folder(kind)
    with contextlib.suppress(Exception):
        return None if folder is None else pickle.loads(Path(folder, key).read_bytes())
    return None


def keep(kind: str, key: str, value: object) -> None:
    """Keeps a value for later runs; a full disk keeps nothing, and stops nobody."""
    folder = _folder(kind)
    if folder is None:
        return
    with contextlib.suppress(OSError):
        part = f"{folder}/{key}.{os.getpid()}-{get_ident()}"
        Path(part).write_bytes(pickle.dumps(value, 5))
        os.replace(part, f"{folder}/{key}")
        if key.startswith(SELDOM):
            _prune(folder)


def _folder(kind: str) -> Path | None:
    if kind not in FOLDERS:
        FOLDERS[kind] = None if os.environ.get(OFF) else first_private([user_caches() / "npuscope" / kind])
    return FOLDERS[kind]


def _prune(folder: Path) -> None:
    """Of too many bytes the oldest half goes."""
    with os.scandir(folder) as found:
        files = [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in found]
    size = sum(bytes for _, bytes, _ in files)
    for _, bytes, path in sorted(files) if size > MOST else ():
        with contextlib.suppress(OSError):  # another process was quicker
            os.unlink(path)
        size -= bytes
        if size <= MOST // 2:
            break


def first_private(places: Iterable[Path]) -> Path | None:
    """The first of these folders that is ours alone and can be written, made if need be; None if there is none."""
    return next((place for place in places if own(place)), None)


def own(place: Path) -> bool:
    """Makes a folder where it is missing; whether it belongs to us, only we can write to it, and so can we."""
    try:
        if sys.platform == "win32":
            if not place.resolve().is_relative_to(Path.home().resolve()):
                return False
            place.mkdir(parents=True, exist_ok=True)
            return os.access(place, os.W_OK)
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


def user_caches() -> Path:
    """Where this user keeps caches: as the environment says, else in the temporary folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if os.environ.get("HOME"):
        return Path(os.environ["HOME"]) / ".cache"
    return Path(tempfile.gettempdir()) / f"npuscope-{os.geteuid()}"


def take(file: IO[Any]) -> bool:
    """Takes an open file for this process, until it ends, however; False where another has it."""
    try:
        if sys.platform == "win32":
            was = file.tell()
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(was)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as POSIX says it, and as Windows does
        return False
    return True


def remove_tree(folder: str) -> None:
    """A folder with all in it, as far as it lets itself be removed."""
    shutil.rmtree(folder, ignore_errors=True)


_redirecting = Lock()


@contextlib.contextmanager
def quiet_failure() -> Iterator[None]:
    """What native code writes to stderr in here, such as a panic of Polars, is dropped when this fails.

    One thread at a time: two that exchange the one descriptor of a process would put back each other's. What other
    threads write meanwhile comes later, and is lost with a failure.
    """
    with _redirecting, contextlib.ExitStack() as end:
        try:
            shown = os.dup(2)
        except OSError:  # there is no stderr
            yield
            return
        end.callback(os.close, shown)
        written = end.enter_context(tempfile.TemporaryFile())
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(shown, 2)
        written.seek(0)
        for piece in written:
            os.write(2, piece)
