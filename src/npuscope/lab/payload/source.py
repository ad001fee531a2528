"""A program's files with what every line takes and what checks say of it, for the panel of that name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from npuscope.check.rule import Finding
from npuscope.check.rules.safety import RACE
from npuscope.explain.explanation import Explanation
from npuscope.lab.payload.files import program_files
from npuscope.table.formats import printable
from npuscope.tile.record.model import Recording
from npuscope.time.per_line import LineTimes, kinds_of, line_times
from npuscope.time.run import Simulated

MOST_LINES = 20_000  # of a file
ABOUT = (
    "A line's time is how long blocks took because of it. Inside a block, one instruction after another decides when "
    "it ends; each moment belongs to the one that was being waited for. Lines add up to the core time of all blocks.",
    "On the path: the same, of the blocks on the critical path alone. With the waits of the path, lines add up to the "
    "wall.",
    "Pipes busy: how long pipes worked for the line, whether or not anybody waited for it.",
)


def source(
    simulated: Simulated,
    explained: Explanation,
    findings: Sequence[Finding] = (),
    files: Sequence[str] = (),
) -> dict[str, object]:
    """`files` took part without a recorded line, such as one of constants; the first is the one that was opened."""
    recording = simulated.prepared.program.recording
    times = line_times(simulated, explained)
    names = program_files(recording)
    for file in (*(one.file for one in findings), *files):
        names.setdefault(file, file.rpartition("/")[2] if file.rpartition("/")[2] not in names.values() else file)
    order = dict.fromkeys([*files[:1], *names])
    return {
        "files": [_file(path, names[path]) for path in order],
        "lines": _lines(times, simulated, names),
        "findings": [_finding(one, names) for one in sorted(findings, key=_importance)],
        "core_ns": times.core_ns,
        "path_ns": times.path_ns,
        "wall_ns": explained.path.window_ns,
        "about": list(ABOUT),
    }


def _file(path: str, name: str) -> dict[str, object]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # made while the program ran, or gone since
        return {"name": name, "text": None, "left_out": 0}
    lines = text.splitlines()
    shown = [printable(line.expandtabs(4)) for line in lines[:MOST_LINES]]
    return {"name": name, "text": shown, "left_out": len(lines) - len(shown)}


def _lines(times: LineTimes, simulated: Simulated, names: Mapping[str, str]) -> list[dict[str, object]]:
    """A row per line that something was spent on; several sites of one line are one."""
    recording = simulated.prepared.program.recording
    bodies = bodies_of_lines(simulated)
    kernels = _kernels(recording)
    together: dict[tuple[str, int], dict[str, object]] = {}
    columns = ("core_ns", "path_ns", "busy_ns", "submit_ns", "bytes", "flops")
    most: dict[tuple[str, int], float] = {}
    for row in times.rows.iter_rows(named=True):
        key = (row["file"], row["line"])
        line = together.setdefault(
            key, {"file": names[key[0]], "line": key[1], **dict.fromkeys(columns, 0), "place": row["place"]}
        )
        for name in columns:
            line[name] += row[name]
        if row["core_ns"] > most.get(key, 0.0):
            most[key] = row["core_ns"]
            line["place"] = row["place"]
    for key, line in together.items():
        line["core_share"] = _share(line["core_ns"], times.core_ns)
        line["path_share"] = _share(line["path_ns"], times.path_ns)
        line["bodies"] = sorted(bodies.get(key, ()))
        line["kernels"] = sorted(kernels.get(key, ()))
    return sorted(together.values(), key=lambda line: (str(line["file"]), line["line"]))


def _share(part: object, whole: float) -> float:
    return float(part) / whole if whole else 0.0  # type: ignore[arg-type]


def bodies_of_lines(simulated: Simulated) -> dict[tuple[str, int], set[int]]:
    """File and line -> kinds of blocks (as timelines number them) that have an instruction of that line."""
    recording = simulated.prepared.program.recording
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for kind in kinds_of(simulated):
        for number in set(kind.lane.site.tolist()):
            site = recording.sites[number]
            found[site.file, site.line].add(kind.body)
    return found


def _kernels(recording: Recording) -> dict[tuple[str, int], set[str]]:
    """File and line -> the kernels that are submitted there."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for task in recording.tasks:
        site = recording.sites[task.site]
        found[site.file, site.line].add(task.kernel)
    return found


def _importance(one: Finding) -> tuple[bool, bool, float]:
    """Races first, then errors, then what saves most."""
    return one.id != RACE.id, one.severity != "error", -(one.saves_ns or 0)


def _finding(one: Finding, names: Mapping[str, str]) -> dict[str, object]:
    same = ("id", "severity", "line", "message", "remedy", "change", "kernel", "count")
    return {
        **{name: getattr(one, name) for name in same},
        "file": names[one.file],
        "worth_ns": one.saves_ns,
        "tried": one.price.tried if one.price else "",
        "also": [{"file": names.get(file, file.rpartition("/")[2]), "line": line} for file, line in one.also],
    }
