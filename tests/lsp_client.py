"""An editor for tests: the official client library around a real `npuscope lsp`, driven without async words."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

T = TypeVar("T")
PATIENCE_S = 100.0


class Editor:
    """Opens, edits and saves files; `problems` has what the server said last of each."""

    def __init__(self, **options: object) -> None:
        self.problems: dict[str, list[lsp.Diagnostic]] = {}
        self.messages: list[str] = []
        self.shown: list[str] = []
        self.versions: dict[str, int] = {}
        self._heard = threading.Condition()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._do(self._start(options))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _start(self, options: dict[str, object]) -> None:
        self.client = client = LanguageClient("tests", "1")

        @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def heard(given: lsp.PublishDiagnosticsParams) -> None:
            with self._heard:
                self.problems[given.uri] = list(given.diagnostics)
                self._heard.notify_all()

        @client.feature(lsp.WINDOW_SHOW_MESSAGE)
        def message(given: lsp.ShowMessageParams) -> None:
            with self._heard:
                self.messages.append(given.message)
                self._heard.notify_all()

        @client.feature(lsp.WINDOW_SHOW_DOCUMENT)
        def show(given: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
            self.shown.append(given.uri)
            return lsp.ShowDocumentResult(True)

        client.feature(lsp.WORKSPACE_CODE_LENS_REFRESH)(lambda _: None)
        client.feature(lsp.WORKSPACE_INLAY_HINT_REFRESH)(lambda _: None)
        await client.start_io(sys.executable, "-m", "npuscope", "lsp")
        await client.initialize_async(
            lsp.InitializeParams(lsp.ClientCapabilities(), initialization_options=options or None)
        )
        client.initialized(lsp.InitializedParams())

    def tell(self, act: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(act)

    def ask(self, method: str, given: object) -> Any:
        return self._do(getattr(self.client, f"{method}_async")(given))

    def wait(self, until: Callable[[], T]) -> T:
        """What `until` gives, as soon as it is true; it may ask the server itself."""
        end = time.monotonic() + PATIENCE_S
        while not (found := until()):
            assert time.monotonic() < end, f"{self.problems}\n{self.messages}"
            with self._heard:
                self._heard.wait(0.2)
        return found

    def open(self, file: Path) -> str:
        uri = file.as_uri()
        self.versions[uri] = 1
        item = lsp.TextDocumentItem(uri, lsp.LanguageKind.Python, 1, file.read_text())
        self.tell(lambda: self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item)))
        return uri

    def type(self, file: Path, text: str) -> None:
        """Changes the text in the editor only."""
        uri = file.as_uri()
        self.versions[uri] += 1
        which = lsp.VersionedTextDocumentIdentifier(version=self.versions[uri], uri=uri)
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        self.tell(lambda: self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(which, [change])))

    def save(self, file: Path, text: str) -> None:
        self.type(file, text)
        file.write_text(text)
        which = lsp.TextDocumentIdentifier(file.as_uri())
        self.tell(lambda: self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(which)))

    def close(self, file: Path) -> None:
        which = lsp.TextDocumentIdentifier(file.as_uri())
        self.tell(lambda: self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(which)))

    def codes(self, file: Path) -> dict[str, int]:
        """Code -> line, counted from 1, of what the server says of a file."""
        return {str(one.code): one.range.start.line + 1 for one in self.problems.get(file.as_uri(), [])}

    def lenses(self, file: Path) -> list[str]:
        found = self.ask("text_document_code_lens", lsp.CodeLensParams(lsp.TextDocumentIdentifier(file.as_uri())))
        return [one.command.title for one in found]

    def hints(self, file: Path) -> dict[int, str]:
        everything = lsp.Range(lsp.Position(0, 0), lsp.Position(10_000, 0))
        which = lsp.TextDocumentIdentifier(file.as_uri())
        found = self.ask("text_document_inlay_hint", lsp.InlayHintParams(which, everything))
        return {one.position.line + 1: one.label for one in found}

    def hover(self, file: Path, text: str, part: str) -> str:
        """At the first `part` in the first line that has `text`."""
        line, column = place(file.read_text(), text, part)
        which = lsp.TextDocumentIdentifier(file.as_uri())
        found = self.ask("text_document_hover", lsp.HoverParams(which, lsp.Position(line, column)))
        return "" if found is None else found.contents.value

    def actions(self, file: Path) -> list[lsp.CodeAction]:
        """For all that is said of a file."""
        said = self.problems[file.as_uri()]
        everything = lsp.Range(lsp.Position(0, 0), lsp.Position(10_000, 0))
        which = lsp.TextDocumentIdentifier(file.as_uri())
        asked = lsp.CodeActionParams(which, everything, lsp.CodeActionContext(said))
        return list(self.ask("text_document_code_action", asked) or [])

    def end(self) -> None:
        self.ask("shutdown", None)
        self.tell(lambda: self.client.exit(None))
        self._loop.call_soon_threadsafe(self._loop.stop)


def place(text: str, line_with: str, part: str) -> tuple[int, int]:
    """Line and column, both counted from 0."""
    number, line = next((n, line) for n, line in enumerate(text.splitlines()) if line_with in line)
    return number, line.index(part, line.index(line_with))


def applied(text: str, edits: list[lsp.TextEdit]) -> str:
    """A text with edits of whole lines."""
    lines = text.splitlines(keepends=True)
    for one in sorted(edits, key=lambda one: one.range.start.line, reverse=True):
        start, end = one.range.start, one.range.end
        before = "".join(lines[: start.line]) + "".join(lines[start.line : start.line + 1])[: start.character]
        after = "".join(lines[end.line : end.line + 1])[end.character :] + "".join(lines[end.line + 1 :])
        lines = (before + one.new_text + after).splitlines(keepends=True)
    return "".join(lines)
