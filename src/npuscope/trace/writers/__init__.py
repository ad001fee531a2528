"""`write`: a Trace to a file or folder, in the format the name ends in. One module per format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npuscope.base.errors import CannotWrite
from npuscope.trace.core import Counts, Trace

FORMATS = {
    "perfetto": "Perfetto protobuf, for ui.perfetto.dev (.pftrace)",
    "chrome": "Chrome/Perfetto JSON (.json)",
    "kernel_details": "Ascend's kernel table (.csv)",
    "tracr": "TraCR bundle (a folder whose name ends in tracr)",
    "parquet": "npuscope's own folder (.npu, or a name without an ending)",
}
_BY_ENDING = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".json": "chrome",
    ".csv": "kernel_details",
    ".npu": "parquet",
}


def write(trace: Trace, path: str | Path, format: str | None = None) -> Counts:
    """Write `trace` to `path`, whole or not at all; returns what the format has no room for (reason -> count).

    The format comes from the ending (`.pftrace`, `.json`, `.csv`, each also with `.gz` or `.zst`; a name
    that ends in `tracr` is a bundle, one without an ending or with `.npu` an npuscope folder) unless
    `format` names it.
    """
    from npuscope.trace.writers import chrome, kernel_details, parquet, perfetto, tracr

    writers: dict[str, Callable[[Trace, Path], Counts]] = {
        "perfetto": perfetto.write,
        "chrome": chrome.write,
        "kernel_details": kernel_details.write,
        "tracr": tracr.write,
        "parquet": parquet.write,
    }
    return writers[check_target(path, format)](trace, Path(path))


def check_target(path: str | Path, format: str | None = None) -> str:
    """The format to write to `path`; raises CannotWrite for a name or an ending that no format has."""
    if format is None:
        return format_of(Path(path))
    if format not in FORMATS:
        raise CannotWrite(f"no format is called {format}", path=path, remedy=f"Known: {', '.join(FORMATS)}.")
    return format


def format_of(path: Path) -> str:
    """The format a path asks for by its name."""
    suffixes = [s for s in path.suffixes if s not in (".gz", ".zst")]
    if suffixes and suffixes[-1] in _BY_ENDING:
        return _BY_ENDING[suffixes[-1]]
    if path.suffix in (".gz", ".zst") and not suffixes:
        raise CannotWrite(f"{path.suffix} packs a file, but of which format", path=path, remedy="Try .json.gz.")
    if path.name.endswith("tracr"):
        return "tracr"
    if not suffixes:
        return "parquet"
    endings = ", ".join(_BY_ENDING)
    raise CannotWrite(f"no format ends in {suffixes[-1]}", path=path, remedy=f"Use one of {endings}, or name a format.")
