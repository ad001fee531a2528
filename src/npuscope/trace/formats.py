"""The registry of formats: every reader and writer, npuscope's own and those of other packages.

A reader is a `Reader` (or, for another dialect of Chrome JSON, an `EventReader`) in a file of `trace/readers/`, or the
one that a package names in its entry points (docs/howto/extend.md); a writer the same, with `trace/writers/`. No list
names them: the file is enough.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from npuscope.base.errors import BadInput, CannotWrite, NpuscopeError, UnknownFormat
from npuscope.base.frozen import dataclass
from npuscope.base.plugins import READERS, WRITERS, Plugin, load_plugins
from npuscope.trace import source
from npuscope.trace.core import Counts, Trace

if TYPE_CHECKING:
    from npuscope.trace.event_table import EventTable

ROOT = "profiler-root"  # the reader of folders that hold captures


# what people ask of a capture, by the word that readers use for it in `tells`
QUESTIONS = {
    "kernels": "Which kernels take the time?",
    "cores": "Which cores are idle, and why?",
    "streams": "What overlaps on other streams?",
    "dependencies": "Who waited for whom?",
    "scheduling": "What does handing out tasks cost?",
    "launches": "Does the host launch too late?",
    "communication": "How much communication is exposed?",
    "ranks": "Which rank is late?",
    "steps": "How long is a step?",
    "shapes": "How far is a kernel from the chip's limits?",
    "counters": "How full are queues and memory?",
    "lines": "From which lines of the program?",
    "pipes": "What do the pipes of a core do?",
}


class Sample:
    """What a reader may look at to recognise a capture: its path, its first bytes, the names of its tables."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_folder = path, path.is_dir()

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB, unpacked; nothing of a folder."""
        return b"" if self.is_folder else source.head(self.path)

    @cached_property
    def text(self) -> bytes:
        """The head without what may stand before JSON."""
        return self.head.lstrip(b"\xef\xbb\xbf \t\r\n")

    @cached_property
    def tables(self) -> set[str]:
        """The tables of an SQLite database; none of anything else."""
        if not self.head.startswith(source.SQLITE):
            return set()
        from npuscope.trace.tables import read_sqlite

        return read_sqlite(self.path, lambda file: file.tables)


@dataclass(frozen=True)
class Format:
    """What every reader and writer says of itself."""

    name: str
    what: str  # one line for people
    files: tuple[str, ...] = field(default=(), kw_only=True)  # what its files are usually called, as patterns
    fallback: bool = field(default=False, kw_only=True)  # takes what may be of another format: asked after all others
    # of a reader: the QUESTIONS that such captures answer, each perhaps with the condition ("steps: where marked")
    tells: tuple[str, ...] = field(default=(), kw_only=True)

    def answers(self) -> dict[str, str]:
        """Question -> the condition, or "" where there is none."""
        return {question: condition for question, _, condition in (one.partition(": ") for one in self.tells)}


@dataclass(frozen=True)
class Reader(Format):
    """How captures of one format are recognised, by their content and cheaply, and read."""

    recognises: Callable[[Sample], bool]
    read: Callable[[Path], Trace]
    read_window: Callable[[Path, tuple[int, int]], Trace] | None = None  # where less than the whole need leave the disk


@dataclass(frozen=True)
class EventReader(Format):
    """How one dialect of Chrome JSON is recognised by its events, which are read once for all dialects."""

    recognises: Callable[[EventTable], bool]
    build: Callable[[EventTable], Trace]


@dataclass(frozen=True)
class Writer(Format):
    """How a trace is written, whole or not at all; `write` returns what the format has no room for."""

    write: Callable[[Trace, Path], Counts]
    endings: tuple[str, ...]  # of the names that ask for it; "" for a name without an ending


F = TypeVar("F", bound=Format)


@cache
def _modules(folder: str) -> list[str]:
    package = import_module(f"npuscope.trace.{folder}")
    return [f"{package.__name__}.{module.name}" for module in iter_modules(package.__path__)]


def _built_in(folder: str) -> Iterator[Format]:
    """What the modules of a folder beside this one register; each is imported only when it is its turn."""
    for module in _modules(folder):
        yield from (value for value in vars(import_module(module)).values() if isinstance(value, Format))


def plugin_readers() -> tuple[Plugin, ...]:
    """The readers of other packages."""
    return load_plugins(READERS, (Reader, EventReader))


def readers(kind: type[F]) -> Iterator[F]:
    """In the order in which they are asked: npuscope's own, those of other packages, then who takes anything."""
    fallbacks = []
    for reader in _built_in("readers"):
        if isinstance(reader, kind) and reader.fallback:
            fallbacks.append(reader)
        elif isinstance(reader, kind):
            yield reader
    yield from (plugin.value for plugin in plugin_readers() if isinstance(plugin.value, kind))
    yield from fallbacks


def reader_of(path: Path) -> Reader:
    """The reader for a path; raises UnknownFormat with what was found there instead."""
    if not path.exists():
        raise BadInput("no such file or folder", path=path)
    sample = Sample(path)
    reader = next((reader for reader in readers(Reader) if recognises(reader, sample, path)), None)
    if reader is None:
        raise _unknown(sample)
    return reader


def recognises(reader: Reader | EventReader, what: Sample | EventTable, path: Path) -> bool:
    """What the reader says; the failure of another package's is reported as that package's."""
    try:
        return reader.recognises(what)  # type: ignore[arg-type]
    except NpuscopeError:
        raise
    except Exception as error:
        plugin = next((plugin for plugin in plugin_readers() if plugin.value is reader), None)
        if plugin is None:
            raise
        failed = f"the reader '{plugin.name}' of {plugin.package} failed ({type(error).__name__}: {error})"
        raise NpuscopeError(failed, path=path, remedy="Report it there, or uninstall that package.") from error


def is_capture(path: Path) -> bool:
    """True when the path, by itself, is something to read; raises BadInput when it cannot be opened."""
    if not path.is_dir() and not path.is_file():
        return False
    sample = Sample(path)
    return any(recognises(reader, sample, path) for reader in readers(Reader) if reader.name != ROOT)


def read(path: str | Path, *, window: tuple[int, int] | None = None) -> Trace:
    """The capture at `path` (a file, or a folder where the format is one) as a Trace.

    gzip and zstd files are unpacked on the way. With `window`, two absolute times in nanoseconds, only
    the slices that overlap it are kept; from npuscope's own folders only those leave the disk, so that
    a folder larger than memory can be looked into. Raises `NpuscopeError` with file, line and remedy
    for anything that cannot be understood.
    """
    if not str(path):
        raise BadInput("no path given")
    path = Path(path)
    try:
        reader = reader_of(path)
        if window is not None and reader.read_window is not None:
            return reader.read_window(path, window)
        trace = reader.read(path)
    except OSError as error:
        raise BadInput(error.strerror or str(error), path=error.filename or path) from error
    return trace if window is None else trace.window(*window)


class NotRead(NamedTuple):
    """What a file of a profiler is that is not read, and what to do about it."""

    what: str
    remedy: str


_SNAPSHOT = NotRead(
    "a memory snapshot of PyTorch", "It has allocations and no kernels: open it at pytorch.org/memory_viz."
)
_SUMMARY = NotRead(
    "a summary of Ascend's profiler", "It has sums without a timeline: name the folder, or its kernel_details.csv."
)
# JSON that is no trace, by what stands in its first 64 KiB
_JSON = (
    (
        re.compile(rb'"schema"\s*:\s*"[^"]*chakra|\[pytorch\|profiler\|execution_|"workload_graph"\s*:', re.IGNORECASE),
        NotRead(
            "a Chakra execution trace", "It has operators, not times of a device: read the profile recorded with it."
        ),
    ),
    (
        re.compile(rb'^\[\s*\{\s*"(children|frame|metrics)"\s*:'),
        NotRead(
            "a profile of Proton",
            'It has sums without a timeline: start Proton with data="trace", or use torch.profiler.',
        ),
    ),
    (re.compile(rb'^\{[^\[]{0,200}"(segments|device_traces)"\s*:'), _SNAPSHOT),
    (re.compile(rb'"Communication (Time|Bandwidth) Info"\s*:'), _SUMMARY),
)
# the same for tables, by their first line
_TABLES = re.compile(rb"(Device_id,)?(Step,(Type,Index,)?Computing|OP Type,Core Type|Level,API Name)")
_MAGICS = {
    b"PK\x03\x04": NotRead("a zip archive", "Unpack it and name what is inside."),
    b"PAR1": NotRead("a single Parquet file", "Name the npuscope folder it belongs to."),
    b"\x89HDF": NotRead("an HDF5 file", "If Nsight Systems wrote it, use `nsys export --type sqlite`."),
    b"\x0a": NotRead(
        "perhaps a Perfetto protobuf trace", "That is for viewers: for reports write the trace as .npu or JSON."
    ),
}
# of files whose content does not say what they are
_ENDINGS = {
    ".nsys-rep": NotRead("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.nsys-rep`."),
    ".qdrep": NotRead("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.qdrep`."),
    ".ncu-rep": NotRead("a report of Nsight Compute", "It has single kernels and no timeline: profile with nsys."),
    ".et": NotRead("a Chakra execution trace", "It has operators, not times of a device: read the profile beside it."),
    ".hatchet": _JSON[1][1],
    ".rpd": NotRead("a database of rocpd", "Use `rocprofv3 --output-format json`."),
}


def not_a_trace(sample: Sample) -> NotRead | None:
    """What JSON or a pickle is that holds something else than a trace, where that can be said."""
    if sample.head.startswith(b"\x80") and (b"device_traces" in sample.head or b"segments" in sample.head):
        return _SNAPSHOT
    if _TABLES.match(sample.text):
        return _SUMMARY
    return next((known for pattern, known in _JSON if pattern.search(sample.text)), None)


def _unknown(sample: Sample) -> UnknownFormat:
    """The error for a file that no reader recognises: what it is instead, if that can be said."""
    path, head = sample.path, sample.head[:4096]
    remedy = "`npuscope formats` lists what is read."
    if not head:
        return UnknownFormat("the file is empty", path=path)
    if path.suffix == ".py":
        remedy = "For a tile program: `npuscope simulate`, `check`, `judge`, `rank` or `lab`."
        return UnknownFormat("a Python program, and this wants a capture", path=path, remedy=remedy)
    if head.startswith(source.SQLITE) and path.suffix not in _ENDINGS:
        what = "this SQLite file has no TASK, CANN_API or PYTORCH_API table of Ascend's, nor one of Nsight Systems'"
        if "StringTable" in sample.tables:
            what, remedy = "a database of nvprof, which is not read", "Profile with Nsight Systems instead."
        return UnknownFormat(what, path=path, remedy=remedy)
    known = _ENDINGS.get(path.suffix)
    known = known or not_a_trace(sample)
    known = known or next((known for magic, known in _MAGICS.items() if head.startswith(magic)), None)
    if known is not None:
        return UnknownFormat(f"{known.what}, which is not read", path=path, remedy=known.remedy)
    what, head = "binary data that is no capture npuscope knows", head[:64]
    if head.isascii() and b"\x00" not in head:
        first = head.splitlines()[0].decode(errors="replace")
        what = f"text that is no capture npuscope knows; it begins with '{first[:60]}'"
    return UnknownFormat(what, path=path, remedy=remedy)


@cache
def writers() -> dict[str, Writer]:
    """By name."""
    plugins = [plugin.value for plugin in load_plugins(WRITERS, Writer)]
    return {writer.name: writer for writer in (*_built_in("writers"), *plugins) if isinstance(writer, Writer)}


def write(trace: Trace, path: str | Path, format: str | None = None) -> Counts:
    """Write `trace` to `path`, whole or not at all; returns what the format has no room for (reason -> count).

    The format comes from the ending (`.pftrace`, `.json`, `.csv`, each also with `.gz` or `.zst`; a name
    that ends in `tracr` is a bundle, one without an ending or with `.npu` an npuscope folder) unless
    `format` names it.
    """
    return writers()[check_target(path, format)].write(trace, Path(path))


def check_target(path: str | Path, format: str | None = None) -> str:
    """The format to write to `path`; raises CannotWrite for a name or an ending that no format has."""
    path, known = Path(path), writers()
    if format is not None:
        if format not in known:
            raise CannotWrite(f"no format is called {format}", path=path, remedy=f"Known: {', '.join(known)}.")
        return format
    suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
    if path.suffix in (".gz", ".zst") and not suffixes:
        raise CannotWrite(f"{path.suffix} packs a file, but of which format", path=path, remedy="Try .json.gz.")
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    endings = {ending: writer.name for writer in known.values() for ending in writer.endings}
    asked = next((endings[ending] for ending in endings if ending and name.endswith(ending)), None)
    if asked is None and suffixes:
        usual = ", ".join(ending for ending in endings if ending.startswith("."))
        raise CannotWrite(
            f"no format ends in {suffixes[-1]}", path=path, remedy=f"Use one of {usual}, or name a format."
        )
    return asked or endings[""]
