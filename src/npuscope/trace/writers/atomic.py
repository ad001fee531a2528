"""Outputs appear whole or not at all: they are written beside their place and moved there when done."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from polars.exceptions import PolarsError

from npuscope.base.errors import CannotWrite


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, in place of one that keeps its mode; a path that ends in .gz or .zst is packed on the way."""
    try:
        path = path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError) as error:
        raise CannotWrite("a link that leads to itself", path=path) from error
    if path.exists() and not path.is_file():
        raise CannotWrite("is a folder" if path.is_dir() else "is no regular file", path=path)
    temporary = Path(_beside(path, _new_file))
    try:
        with temporary.open("wb") as raw, _packing(path, raw) as stream:
            yield stream
        temporary.chmod(stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(error.strerror or "cannot be written", path=path) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, is_ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to fill. An existing one is replaced only if it is empty or `is_ours`."""
    try:
        path = path.resolve()  # the way to it may lead through itself, and it moves
    except (OSError, RuntimeError) as error:
        raise CannotWrite("a link that leads to itself", path=path) from error
    if path.exists() and not (path.is_dir() and (is_ours(path) or not any(path.iterdir()))):
        raise CannotWrite("something else is there already", path=path, remedy="Name a new folder or remove it first.")
    temporary = Path(_beside(path, lambda folder, prefix: tempfile.mkdtemp(dir=folder, prefix=prefix)))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.exists():
            _replace(path, temporary)
        else:
            os.replace(temporary, path)
    except OSError as error:
        raise CannotWrite(error.strerror or "cannot be written", path=path) from error
    except PolarsError as error:  # which is how Polars reports a full disk
        raise CannotWrite(str(error).splitlines()[0], path=path) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(path: Path, new: Path) -> None:
    """A folder in the place of another, which comes back if that fails."""
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:20]}."))
    os.replace(path, aside / "old")
    try:
        os.replace(new, path)
    except OSError:
        os.replace(aside / "old", path)
        raise
    finally:
        shutil.rmtree(aside)


def _new_file(folder: Path, prefix: str) -> str:
    handle, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    os.close(handle)
    return name


def _beside(path: Path, make: Callable[[Path, str], str]) -> str:
    try:
        return make(path.parent, f".{path.name[:20]}.")
    except OSError as error:
        raise CannotWrite(error.strerror or "cannot be written", path=path) from error


@contextmanager
def _packing(path: Path, raw: BinaryIO) -> Iterator[BinaryIO]:
    if path.suffix == ".gz":
        from isal import igzip

        with igzip.IGzipFile(  # type: ignore[no-untyped-call]
            fileobj=raw, mode="wb", mtime=0, filename=""
        ) as packed:
            yield cast(BinaryIO, packed)
    elif path.suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed:
            yield cast(BinaryIO, packed)
    else:
        yield raw


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
