"""The events of a Chrome/Perfetto/Kineto JSON file, decoded a few megabytes at a time.

The file is a list of events, or an object with the list under `traceEvents`. Pieces are cut between two
events and decoded as a list of their own. Where to cut is a guess (the last `}, {` of the piece), and the
decoder proves it: a piece cut inside an event, a string or a nested list does not decode, and then the
exact place is looked for bracket by bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from npuscope.base.errors import BadInput
from npuscope.trace import source

_LONGEST_GAP = 1 << 10  # blanks between two events; more only costs a longer search
_BETWEEN = re.compile(rb"\}\s{0,500},\s{0,500}\{")
_BETWEEN_EVENTS = b" \t\r\n,"
_OPENING = re.compile(rb"\s*:\s*\[")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]|"', re.DOTALL)  # possessive: a long string costs no memory
_LONGEST_EVENT = 16 << 20
_LONGEST_HEADER = 16 << 20


# those of Chrome's format, listed so that the decoder makes no text anew for each event, an eighth of its time
Phase = Literal[
    "X", "s", "t", "f", "B", "E", "i", "M", "C", "b", "e", "n", "S", "T", "p", "F", "I", "R", "N", "O", "D", "P", "V",
    "v", "c", "(", ")", "",
]  # fmt: skip


class Event(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The usual fields. Other fields, phases or types take the slower road through `decode_odd`."""

    ph: Phase = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    id: int | str | None = None
    bp: str | None = None
    s: str | None = None
    args: msgspec.Raw = msgspec.Raw()  # the object's own text; empty when the event has none
    other: bytes | None = None  # JSON text of fields beside the usual ones; set by decode_odd


class ExactNumber(str):
    """A JSON number kept as its own text, where a float64 could not hold it."""


class _ExactEvent(Event, gc=False, forbid_unknown_fields=True):
    """As Event, with times as text, for files whose times a float64 cannot hold."""

    ts: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]
    dur: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


_decode = msgspec.json.Decoder(list[Event]).decode
_decode_exact = msgspec.json.Decoder(list[_ExactEvent]).decode
_decode_fields = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_decode_any = msgspec.json.Decoder().decode


class EventStream:
    """Iterates over batches of a file's events; `header` has the file's other fields once it is exhausted.

    `exact(piece)` decodes a batch's text again with its times as text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: dict[str, Any] = {}
        self.closed = True  # False when the list of events never ends, which Chrome allows for a bare list
        self.records = 0
        self.mended_characters = 0  # bytes that were not UTF-8

    def __iter__(self) -> Iterator[tuple[list[Event], bytes]]:
        pieces = source.chunks(self.path)
        prefix, rest = self._find_events(pieces)
        rest = rest.lstrip(_BETWEEN_EVENTS)
        ended, searched, patience = False, 0, 0
        for piece in pieces:
            if len(rest) > _LONGEST_EVENT:
                raise BadInput("an event of more than 16 MB", path=self.path, record=self.records + 1)
            rest = rest + piece if rest else piece.lstrip(_BETWEEN_EVENTS)  # a copy of megabytes less, piece by piece
            if len(rest) < patience:
                continue
            cut = _last_boundary(rest, searched)
            if cut < 0:
                searched = max(0, len(rest) - _LONGEST_GAP)
                continue
            searched = 0
            text = b"".join((b"[", memoryview(rest)[:cut], b"]"))
            events = self._try_decode(text)
            if events is not None:
                rest = rest[cut:].lstrip(_BETWEEN_EVENTS)
            else:
                text, rest, ended = self._exact_cut(rest)
                rest = rest if ended else rest.lstrip(_BETWEEN_EVENTS)
                events = self._decode(text)
                # one event larger than all that was read: look again when there is twice as much
                patience = 0 if events or ended else 2 * len(rest)
            yield from self._batch(events, text)
            if ended:
                break
        if not ended:
            text, rest, ended = self._exact_cut(rest, last=True)
            yield from self._batch(self._decode(text), text)
        self.closed = ended
        self._read_header(prefix, rest + b"".join(pieces), ended)

    def exact(self, text: bytes) -> list[Event]:
        """The batch again, with `ts` and `dur` as the file's own text."""
        try:
            events: list[Any] = _decode_exact(text)
        except (msgspec.ValidationError, UnicodeDecodeError):
            return decode_odd(text.decode(errors="replace").encode())
        for event in events:
            event.ts, event.dur = _number_text(event.ts), _number_text(event.dur)
        return events

    def _batch(self, events: list[Event], text: bytes) -> Iterator[tuple[list[Event], bytes]]:
        self.records += len(events)
        if events:
            yield events, text

    def _find_events(self, pieces: Iterator[bytes]) -> tuple[bytes, bytes]:
        """The text before the events (an unclosed object, or nothing for a bare list) and what is read beyond."""
        text, at, depth = b"", 0, 0
        for piece in pieces:
            text = (text + piece).lstrip(b"\xef\xbb\xbf \t\r\n") if at == 0 else text + piece
            if text.startswith(b"["):
                return b"", text[1:]
            if not text.startswith(b"{") or len(text) > _LONGEST_HEADER:
                break
            # token by token to the key at the top level; what may go on in the next piece waits for it
            for token in _TOKEN.finditer(text, at):
                mark = token.group()
                if mark == b'"':
                    break
                if depth == 1 and mark == b'"traceEvents"':
                    if opening := _OPENING.match(text, token.end()):
                        return text[: token.start()], text[opening.end() :]
                    if token.end() + _LONGEST_GAP > len(text):
                        break
                depth += (mark in b"[{") - (mark in b"]}")
                at = token.end()
        if not text.strip():
            raise BadInput("the file is empty", path=self.path)
        raise BadInput("no list of trace events in this JSON file", path=self.path, remedy="Is it a trace?")

    def _exact_cut(self, text: bytes, last: bool = False) -> tuple[bytes, bytes, bool]:
        """Whole events as a list, the text after them, and whether the list of events ended."""
        depth, end = 0, 0
        for token in _TOKEN.finditer(text):
            mark = token.group()
            if mark == b'"':
                break  # a string whose end is not here yet: braces beyond it mean nothing
            if mark in b"[{":
                depth += 1
            elif mark in b"]}" and depth == 0:
                return b"[" + text[: token.start()] + b"]", text[token.end() :], True
            elif mark in b"]}":
                depth -= 1
                end = token.end() if depth == 0 else end
        if last and text[end:].strip(_BETWEEN_EVENTS):
            whole = len(self._decode(b"[" + text[:end] + b"]"))
            raise BadInput(
                "the JSON ends in the middle of an event: the file is truncated",
                path=self.path,
                record=self.records + whole + 1,
                remedy="Copy or export it again.",
            )
        return b"[" + text[:end] + b"]", text[end:], False

    def _try_decode(self, text: bytes) -> list[Event] | None:
        """The events of a piece, or None if it was not cut between two events."""
        try:
            return self._decode_any_way(text)
        except (msgspec.DecodeError, RecursionError):
            return None

    def _decode(self, text: bytes) -> list[Event]:
        try:
            return self._decode_any_way(text)
        except (msgspec.DecodeError, RecursionError) as error:
            what = f"not readable as JSON trace events ({str(error).splitlines()[0]})"
            raise BadInput(what, path=self.path, record=self._bad(text)) from error

    def _decode_any_way(self, text: bytes) -> list[Event]:
        """Fast where the events are usual, field by field where not, with mended text where it is not UTF-8."""
        try:
            return _decode(text)
        except msgspec.ValidationError:
            pass
        except UnicodeDecodeError:
            return self._decode_mended(text)
        try:
            return decode_odd(text)
        except UnicodeDecodeError:
            return self._decode_mended(text)

    def _decode_mended(self, text: bytes) -> list[Event]:
        mended = text.decode(errors="replace").encode()
        events = decode_odd(mended)
        self.mended_characters += mended.count(b"\xef\xbf\xbd") - text.count(b"\xef\xbf\xbd")
        return events

    def _bad(self, text: bytes) -> int:
        """The number of the first record that does not decode."""
        good, begin, depth = 0, 1, 0
        for token in _TOKEN.finditer(text, 1):
            mark = token.group()
            depth += (mark in b"[{") - (mark in b"]}")
            if depth == 0 and mark == b"}":
                if not _is_json(text[begin : token.end()].lstrip(_BETWEEN_EVENTS)):
                    break
                good, begin = good + 1, token.end()
        return self.records + good + 1

    def _read_header(self, prefix: bytes, tail: bytes, ended: bool) -> None:
        if not prefix:
            if ended and tail.strip():
                raise BadInput("text after the end of the list of events", path=self.path)
            return
        if not ended:
            raise BadInput(
                "the list of events never ends: the file is truncated",
                path=self.path,
                record=self.records + 1,
            )
        try:
            self.header = _decode_any((prefix + b'"":0' + tail).decode(errors="replace"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadInput(f"damaged JSON after the events ({error})", path=self.path) from error
        self.header.pop("", None)
        if "traceEvents" in self.header:
            raise BadInput("two lists of events in one file", path=self.path)


def decode_odd(text: bytes) -> list[Event]:
    """Events with unusual fields or types; what is not an object becomes an event without a phase."""
    try:
        rows = _decode_fields(text)
    except msgspec.ValidationError:
        rows = [row if isinstance(row, dict) else {} for row in _decode_any(text)]
        rows = [{k: msgspec.Raw(msgspec.json.encode(v)) for k, v in row.items()} for row in rows]
    return [_odd_event(row) for row in rows]


def _odd_event(fields: dict[str, msgspec.Raw]) -> Event:
    event = Event()
    for name in ("ph", "name", "cat", "bp", "s"):
        if name in fields:
            setattr(event, name, _text(fields.pop(name)))
    if "id2" in fields:  # a scoped id of an asynchronous event: {"local": …} or {"global": …}
        fields["id"] = msgspec.Raw(msgspec.json.encode(bytes(fields["id2"]).decode(errors="replace")))
    for name in ("pid", "tid", "id"):
        if name in fields:
            value = _decode_any(fields.pop(name))
            plain = isinstance(value, int | str) and not isinstance(value, bool)
            setattr(event, name, value if plain or value is None else str(value))
    event.pid, event.tid = (0 if value is None else value for value in (event.pid, event.tid))
    for name in ("ts", "dur"):
        if name in fields:
            setattr(event, name, _number_text(fields.pop(name)))
    event.args = fields.pop("args", msgspec.Raw())
    if fields:
        event.other = msgspec.json.encode(fields)
    return event


def _text(raw: msgspec.Raw) -> str:
    value = _decode_any(raw)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _number_text(raw: msgspec.Raw) -> str | None:
    """The number's text: a plain `str` where the file has it in quotes, else an ExactNumber."""
    text = bytes(raw).strip()
    if text.startswith(b'"'):
        return text.strip(b'"').decode()
    return None if text in (b"", b"null") else ExactNumber(text.decode())


def _last_boundary(text: bytes, searched: int) -> int:
    """Where the last event of the text that is followed by another one seems to end; -1 if nowhere.

    The first `searched` bytes are known to hold no such place.
    """
    size = 1 << 12
    while True:
        begin = max(searched, len(text) - size)
        last = -1
        for match in _BETWEEN.finditer(text, begin):
            last = match.start() + 1
        if last >= 0 or begin == searched:
            return last
        size *= 8


def _is_json(text: bytes) -> bool:
    try:
        _decode_any(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
