"""What a look becomes in an editor: diagnostics, lenses, hints at the ends of lines, the words of a hover.

Lines that were edited since the save lose what was known of them; those around them keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import getdoc
from pathlib import Path

from lsprotocol import types as lsp

from npuscope.answer.fixes import Tried
from npuscope.base.errors import NpuscopeError
from npuscope.base.interval import Against, chance_text
from npuscope.base.unsaved import ODD, lines_of
from npuscope.check.columns import worth_text
from npuscope.check.rule import Finding
from npuscope.chip.devices import Device
from npuscope.editor import text as texts
from npuscope.editor.messages import Look, TileRoom
from npuscope.ops.table import find
from npuscope.report.reference import op_text
from npuscope.table.formats import (
    arithmetic,
    capacity,
    change,
    duration,
    estimate_text,
    many,
    percent,
    printable,
    rough_percent,
    traffic,
)

SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "hint": lsp.DiagnosticSeverity.Information,
}
OPEN_LAB = "npuscope.openLab"
LEAST_SHARE = 0.01  # of the time of all blocks: a line below it gets no hint
LEAST_CHANGE = 0.005  # of a line
SAME = 0.0005  # a ratio so near to 1 shows as none
MOST_TILES = 6  # in a hover
Lines = Callable[[int], int | None]  # a line of the saved text, counted from 1 -> the line now


def uri_of(file: str) -> str:
    return Path(file).as_uri()


def whole_line(text: list[str], line: int) -> lsp.Range:
    """A line, counted from 1, without its indentation; positions count UTF-16 units."""
    words = text[line - 1].rstrip() if 0 < line <= len(text) else ""
    indent = len(words) - len(words.lstrip())
    end = len(words.encode("utf-16-le", ODD)) // 2
    return lsp.Range(lsp.Position(max(line - 1, 0), indent), lsp.Position(max(line - 1, 0), max(end, indent)))


def diagnostics(findings: Iterable[Finding], text: str, at: Lines) -> list[lsp.Diagnostic]:
    """Of one file."""
    lines, found = lines_of(text), []
    for one in findings:
        line = at(one.line)
        if line is None:
            continue
        found.append(
            lsp.Diagnostic(
                whole_line(lines, line),
                printable(_message(one)),
                SEVERITIES[one.severity],
                code=one.id,
                source="npuscope",
                related_information=[
                    lsp.DiagnosticRelatedInformation(lsp.Location(uri_of(file), whole_line([], other)), "belongs to it")
                    for file, other in one.also
                ]
                or None,
            )
        )
    return found


def _message(one: Finding) -> str:
    saves = f" Mending it saves {worth_text(one)}." if (one.saves_ns or 0) > 0 else ""
    message = one.message if one.message.endswith((".", "!", "?")) else f"{one.message}."
    return f"{message}{saves} {one.remedy}".strip()


def headline(look: Look) -> str:
    """How long it takes, how sure that is, and how it compares with the save before."""
    return "no run: see the problems" if look.wall is None else f"{estimate_text(look.wall)}{_versus(look.versus)}"


def _versus(versus: Against | None) -> str:
    if versus is None:
        return ""
    by = versus.ratio.value - 1
    if abs(by) < SAME:
        return ", as the save before"
    chance = versus.faster if by < 0 else 1 - versus.faster
    return f", {change(by)} against the save before ({versus.verdict}, {rough_percent(chance)} sure)"


def lenses(look: Look, file: str, text: str, at: Lines) -> Iterator[lsp.CodeLens]:
    """Above the program its time, above each launch that of its kernel."""
    lines = lines_of(text)

    def lens(line: int, title: str) -> lsp.CodeLens:
        return lsp.CodeLens(
            whole_line(lines, line),
            lsp.Command(title=printable(title), command=OPEN_LAB, arguments=[uri_of(look.file)]),
        )

    if file == look.file:
        yield lens(1, f"Simulated: {headline(look)}")
        if look.verdict:
            yield lens(1, look.verdict)
    for kernel in look.kernels:
        line = at(kernel.place[1]) if kernel.place[0] == file else None
        if line is not None:
            size = f"{many(kernel.tasks, 'task')}, {many(kernel.blocks, 'block')}"
            yield lens(
                line, f"{kernel.kernel}: {duration(round(kernel.run_ns))} on all cores, {percent(kernel.share)}; {size}"
            )


def hints(look: Look, file: str, text: str, at: Lines, before: Look | None) -> Iterator[lsp.InlayHint]:
    """At the ends of lines: the time of its blocks, its share, and how that changed since the save before."""
    lines = lines_of(text)
    for (owner, old), cost in look.lines.items():
        line = at(old) if owner == file else None
        if line is None or cost.share < LEAST_SHARE:
            continue
        label = f"{duration(round(cost.core_ns))} {percent(cost.share)}{_since(look, before, file, old)}"
        yield lsp.InlayHint(whole_line(lines, line).end, label, padding_left=True, tooltip=cost.unit)


def _since(look: Look, before: Look | None, file: str, line: int) -> str:
    """Against the same line of the save before, found by how the text moved between the two."""
    if before is None or file not in before.texts or file not in look.texts:
        return ""
    back = texts.moved(look.texts[file], before.texts[file]).line(line)
    was = before.lines.get((file, back)) if back is not None else None
    now = look.lines[file, line]
    if was is None or not was.core_ns or abs(by := now.core_ns / was.core_ns - 1) < LEAST_CHANGE:
        return ""
    return f" ({change(by)})"


def hover_of_name(name: str, chip: Device) -> str:
    """What the language says of a name: unit, cost, how sure."""
    try:
        return f"```\n{op_text(find(name), chip)}\n```"
    except NpuscopeError:
        value = texts.language().get(name)
        if value is None:
            return ""
        how = texts.signature_of(name)
        about = getdoc(value) if callable(value) else ""
        return f"```\npl.{name}{how or ''}\n```\n{about or ''}".strip()


def hover_of_line(look: Look, file: str, line: int) -> str:
    """What a line takes, of the saved text."""
    cost = look.lines.get((file, line))
    if cost is None:
        return ""
    moved = f", {traffic(cost.bytes)} moved" if cost.bytes else ""
    work = f", {arithmetic(cost.flops)}" if cost.flops else ""
    return f"{duration(round(cost.core_ns))} of all blocks ({percent(cost.share)}), most on {cost.unit}{moved}{work}"


def hover_of_tiles(tiles: Mapping[tuple[str, int], tuple[TileRoom, ...]], file: str, lines: range) -> str:
    """Where the tiles that lines make lie, how large they are, and how long they live."""
    found = [tile for line in lines for tile in tiles.get((file, line), ())]
    rows = [
        f"- {tile.space}: {list(tile.shape)} {tile.dtype}, {capacity(tile.bytes)}"
        + (f" × {tile.copies} in flight" if tile.copies > 1 else "")
        + (f", lines {tile.first} to {tile.last}" if tile.last > tile.first else f", line {tile.first}")
        + f" ({tile.kernel})"
        for tile in found[:MOST_TILES]
    ]
    return "\n".join([*rows, *([f"- … and {len(found) - MOST_TILES} more"] if len(found) > MOST_TILES else [])])


def fix_action(fix: Tried, uri: str, finding: lsp.Diagnostic) -> lsp.CodeAction:
    """What a fix that was tried does to the file; one that is not offered says why."""
    action = lsp.CodeAction(printable(fix.patch.title), lsp.CodeActionKind.QuickFix, [finding])
    if not fix.offered:
        action.disabled = lsp.CodeActionDisabled(printable(fix.why))
        return action
    if fix.versus is not None:
        chance = chance_text(fix.versus.probability_faster, fix.versus.verdict)
        action.title += f" ({change(fix.versus.ratio - 1)}, {chance})"
    edits = [
        lsp.TextEdit(lsp.Range(lsp.Position(one.first, 0), lsp.Position(one.last, 0)), one.text)
        for one in fix.patch.edits
    ]
    action.edit = lsp.WorkspaceEdit(changes={uri: edits})
    return action


def ignore_action(text: str, uri: str, finding: lsp.Diagnostic) -> lsp.CodeAction:
    """A comment above the line, which silences the rule there."""
    start = lsp.Position(finding.range.start.line, 0)
    words = "".join(lines_of(text)[start.line : start.line + 1]).rstrip()
    indent = words[: len(words) - len(words.lstrip())]
    edit = lsp.TextEdit(lsp.Range(start, start), f"{indent}# npuscope: ignore[{finding.code}]\n")
    return lsp.CodeAction(
        f"Ignore {finding.code} here",
        lsp.CodeActionKind.QuickFix,
        [finding],
        edit=lsp.WorkspaceEdit(changes={uri: [edit]}),
    )
