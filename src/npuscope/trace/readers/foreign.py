"""Files of profilers that are not read: what they are, and how to get something that is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Foreign(NamedTuple):
    """What a file is, and what to do about it."""

    what: str
    remedy: str


XPLANE = Foreign("an XPlane of the XLA profiler", "Export it as JSON (trace_viewer's trace.json.gz) and read that.")
MAGICS = {
    b"PK\x03\x04": Foreign("a zip archive", "Unpack it and name what is inside."),
    b"PAR1": Foreign("a single Parquet file", "Name the npuscope folder it belongs to."),
    b"\x89HDF": Foreign("an HDF5 file", "If Nsight Systems wrote it, use `nsys export --type sqlite`."),
    b"\x0a": Foreign(
        "perhaps a Perfetto protobuf trace", "That is for viewers: for reports write the trace as .npu or JSON."
    ),
}
PLANES = (b"/host:", b"/device:", b"Task Environment")  # how names of XPlanes begin
# of files whose content does not tell
ENDINGS = {
    ".nsys-rep": Foreign("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.nsys-rep`."),
    ".qdrep": Foreign("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.qdrep`."),
    ".ncu-rep": Foreign("a report of Nsight Compute", "It has single kernels and no timeline: profile with nsys."),
    ".rpd": Foreign("a database of rocpd", "Use `rocprofv3 --output-format json`."),
}
RAW_FOLDER = Foreign(
    "raw data of msprof (PROF_*)", "Export it on a machine with CANN: `msprof --export=on --output=PROF_…`."
)


def foreign_file(path: Path, head: bytes) -> Foreign | None:
    """What a file that no reader knows is, if that can be told."""
    if path.suffix in ENDINGS:
        return ENDINGS[path.suffix]
    if head.startswith(b"\x0a") and any(plane in head for plane in PLANES):
        return XPLANE
    return next((foreign for magic, foreign in MAGICS.items() if head.startswith(magic)), None)


def foreign_folder(path: Path) -> Foreign | None:
    """What a folder without captures is, if that can be told."""
    inside = [path, *(child for child in path.iterdir() if child.is_dir())]
    return RAW_FOLDER if any(folder.name.startswith("PROF_") for folder in inside) else None
