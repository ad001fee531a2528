"""The language server: `npuscope lsp` speaks the protocol of editors on its standard input and output.

While one types, only the text is looked at. At a save (and when it is opened) a program runs in a process of its own; a
newer save ends the work on the older. A file that a program imports counts as a save of that program. Only what imports
the language is run, and nothing where the option `run` is off. Fixes are tried when everything else is known, and
offered only then.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote, urlparse

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from npuscope import __version__
from npuscope.answer.fixes import Mending, Tried, survey_of, trial_prices, tried
from npuscope.answer.judge import How
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.futures import early_answers, then
from npuscope.base.jobs import GIB, Failed, Limits
from npuscope.base.pool import Handle, Pool
from npuscope.base.unsaved import lines_of
from npuscope.check.rule import Finding, with_trials
from npuscope.editor import shown, text
from npuscope.editor.messages import LOOK, NO_RUN, Look, LookJob

WARM = ("npuscope.answer.prediction", "npuscope.editor.look")
WORKERS = 2
ANY_FILE = "*"
EXTENSION_HOSTS = ("Visual Studio Code", "Cursor", "VSCodium")  # where npuscope's extension shows the lab itself
LOOKED = "npuscope/looked"  # a notification of npuscope's own: what a status bar shows


@dataclass(frozen=True)
class Options:
    """Of the client: initializationOptions, or its settings under `npuscope`. `arguments` are a program's, by the end
    of its path, or for all under `*`."""

    device: str = ""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seconds: float = 60.0
    run: bool = True
    fixes: bool = True

    @classmethod
    def of(cls, given: object) -> tuple[Options, str]:
        """The options, and one sentence about those that cannot be taken."""
        if not isinstance(given, Mapping):
            return cls(), "" if given is None else "npuscope: the options are no object"
        kinds: dict[str, type | tuple[type, ...]] = {
            "device": str,
            "arguments": Mapping,
            "seconds": (int, float),
            "run": bool,
            "fixes": bool,
        }
        taken: dict[str, Any] = {
            name: value for name, value in given.items() if name in kinds and isinstance(value, kinds[name])
        }
        wrong = [name for name in given if name not in taken]
        return cls(**taken), f"npuscope: no such option, or not of its kind: {', '.join(wrong)}" if wrong else ""

    def request(self, file: str) -> Request:
        own = max((end for end in self.arguments if end != ANY_FILE and file.endswith(end)), key=len, default=ANY_FILE)
        return Request(file, tuple(map(str, self.arguments.get(own, ()))), device=self.device)


class Programs:
    """The programs that were looked at: what is known of each, what was known before, and the work under way."""

    def __init__(self, server: LanguageServer) -> None:
        self.server, self.options, self.shows_lab = server, Options(), False
        self.looks: dict[str, Look] = {}
        self._first: dict[str, Look] = {}  # errors and races of a save whose times are not known yet
        self.before: dict[str, Look] = {}  # the last that ran before the newest save
        self.fixes: dict[str, list[Tried]] = {}  # those tried of the newest save
        self._running: dict[str, Handle[Look]] = {}
        self._mending: dict[str, Event] = {}  # set: nobody waits for these fixes any more
        self._published: dict[str, set[str]] = {}  # by program the files that were spoken of
        self._pool: Pool | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="npuscope-lsp-")
        self._listening: asyncio.Task[None] | None = None
        self._labs: dict[str, tuple[asyncio.subprocess.Process, str]] = {}

    # ---- saves

    def save(self, file: str) -> None:
        """Looks at the program, or at those that a file belongs to."""
        if not self.options.run:
            return
        source = self.text_of(file)
        owners = [one for one, look in self.looks.items() if file in look.texts and one != file]
        if text.is_program(source) and (file in self.looks or not owners):
            self._begin(file)
        for owner in owners:
            self._begin(owner)

    def _begin(self, file: str) -> None:
        self.stop(file)
        known = self.looks.get(file)
        if known is not None and known.wall is not None and known.whole:
            self.before[file] = known
        before = self.before.get(file)
        wall, regime = (0.0, "") if before is None or before.wall is None else (before.wall.value, before.regime)
        job = LookJob(self.options.request(file), self._early_place(), wall, regime)
        handle = self.open_pool().ask(LOOK, job, Limits(self.options.seconds, 8 * GIB))
        self._running[file] = handle
        then(handle, lambda answer: self._done(file, handle, answer))

    def open_pool(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(WORKERS, WARM)
        return self._pool

    def _early_place(self) -> str:
        place = f"{self._folder.name}/early"
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen(place))
        return place

    async def _listen(self, place: str) -> None:
        async with early_answers(place, self._early):
            await asyncio.Event().wait()

    def _early(self, answer: object) -> None:
        if not isinstance(answer, Look) or answer.file not in self._running:
            return
        if answer.wall is not None:
            self._take(answer)
            return
        self._first[answer.file] = answer
        for file in answer.texts:
            self.publish(file)

    def _done(self, file: str, handle: Handle[Look], answer: Look | Failed) -> None:
        if self._running.get(file) is not handle:
            return  # a newer save has taken its place
        del self._running[file]
        if isinstance(answer, Failed):
            ended = Finding(NO_RUN, "error", file, 1, answer.message, "")
            answer = Look(file, True, {file: self.text_of(file)}, (ended,))
        self._take(answer)
        if self.options.fixes and answer.findings:
            self._try_fixes(file)

    def _try_fixes(self, file: str) -> None:
        """In a thread, which waits for processes; what was tried is offered at once."""
        loop, ended, request = asyncio.get_running_loop(), Event(), self.options.request(file)
        how = How(limits=Limits(self.options.seconds), jobs=1)

        def tried_one(one: Tried) -> None:
            if not ended.is_set():
                self.fixes.setdefault(file, []).append(one)

        def all_tried(mending: Mending) -> None:
            if not ended.is_set():  # what fixes gave is said in place of what they were estimated at
                look = self.looks[file]
                self._take(replace(look, findings=with_trials(look.findings, trial_prices(mending))))

        def work() -> None:
            try:
                survey, found = survey_of(request, how), []
                for one in tried(request, survey.patches, survey, how):
                    if ended.is_set():
                        return
                    found.append(one)
                    loop.call_soon_threadsafe(tried_one, one)
                loop.call_soon_threadsafe(all_tried, Mending(survey, tuple(found)))
            except (NpuscopeError, RuntimeError) as error:  # no LibCST, or the loop has ended
                self.server.window_log_message(lsp.LogMessageParams(lsp.MessageType.Info, f"no fixes: {error}"))

        self._mending[file] = ended
        Thread(target=work, daemon=True).start()

    def _take(self, look: Look) -> None:
        known, first = self.looks.get(look.file), self._first.pop(look.file, None)
        if not look.whole:  # its findings come soon: those of the save before stay until then
            kept = () if known is None else _without_errors(known)
            self.looks[look.file] = replace(look, findings=(*(() if first is None else first.findings), *kept))
        else:
            self.looks[look.file] = look
        for file in {*self._published.get(look.file, set()), *look.texts}:
            self.publish(file)
        self._published[look.file] = set(look.texts)
        said = {
            "uri": shown.uri_of(look.file),
            "time": shown.headline(look),
            "verdict": look.verdict,
            "whole": look.whole,
        }
        self.server.protocol.notify(LOOKED, said)
        self.server.workspace_code_lens_refresh(None)
        self.server.workspace_inlay_hint_refresh(None)

    def stop(self, file: str) -> None:
        """Ends the work on a program."""
        if (handle := self._running.pop(file, None)) is not None:
            handle.cancel()
        self._first.pop(file, None)
        self.fixes.pop(file, None)
        if (ended := self._mending.pop(file, None)) is not None:
            ended.set()

    def close(self, file: str) -> None:
        """The editor has closed it: its program is forgotten, and what was said of it."""
        self.stop(file)
        self.before.pop(file, None)
        if (look := self.looks.pop(file, None)) is not None:
            self._published.pop(file, None)
            for other in look.texts:
                self.publish(other)

    def end(self) -> None:
        for ended in self._mending.values():
            ended.set()
        for process, _ in self._labs.values():
            if process.returncode is None:
                process.terminate()
        if self._listening is not None:
            self._listening.cancel()
        if self._pool is not None:
            self._pool.close()
        self._folder.cleanup()

    # ---- what is shown

    def text_of(self, file: str) -> str:
        """As the editor has it, else as the file is."""
        return self.server.workspace.get_text_document(shown.uri_of(file)).source

    def look_of(self, file: str) -> Look | None:
        """The look that knows most of a file: its own, else the newest of a program that it belongs to."""
        own = self.looks.get(file)
        if own is not None:
            return own
        return next((look for look in reversed(self.looks.values()) if file in look.texts), None)

    def lines_of(self, file: str, look: Look) -> text.MovedLines:
        return text.moved(look.texts.get(file, ""), self.text_of(file))

    def publish(self, file: str) -> None:
        """Everything that there is to say of a file, by its text and by its programs."""
        source = self.text_of(file)
        found = list(text.while_typing(source, file)) if text.is_program(source) else []
        said = shown.diagnostics(found, source, lambda line: line)
        for look in (*self._first.values(), *self.looks.values()):
            older = look.file in self._first and look is not self._first[look.file]  # its errors are of the save before
            own = [one for one in (_without_errors(look) if older else look.findings) if one.file == file]
            said += shown.diagnostics(own, source, text.moved(look.texts.get(file, source), source).line)
        unique = {(one.code, one.message, one.range.start.line): one for one in said}
        self.server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(shown.uri_of(file), [*unique.values()])
        )

    async def lab(self, file: str) -> str:
        """The address of a lab that watches a program; started when it is first asked for."""
        process, url = self._labs.get(file, (None, ""))
        if process is None or process.returncode is not None:
            request = self.options.request(file)
            command = [sys.executable, "-m", "npuscope", "lab", file, "--no-browser", "--in-editor"]
            process = await asyncio.create_subprocess_exec(
                *command, *(["--device", request.device] if request.device else []), "--", *request.argv,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            line = (await process.stdout.readline()).decode(errors="replace").split()
            if len(line) < 2:
                raise NpuscopeError((await process.stderr.read()).decode(errors="replace").strip() or "the lab ended")
            url = line[1]
            self._labs[file] = (process, url)
        return url


def _without_errors(look: Look) -> tuple[Finding, ...]:
    return tuple(one for one in look.findings if one.severity != "error")


def path_of(uri: str) -> str:
    return str(Path(unquote(urlparse(uri).path)).resolve())


def make_server() -> LanguageServer:
    """The server with its features; `start_io` on it serves until the editor leaves."""
    server = LanguageServer("npuscope", __version__)
    programs = Programs(server)

    @server.feature(lsp.INITIALIZED)
    def initialized(_: lsp.InitializedParams) -> None:
        programs.open_pool()  # warm before the first save

    @server.feature(lsp.INITIALIZE)
    def initialize(given: lsp.InitializeParams) -> None:
        take_options(given.initialization_options)
        programs.shows_lab = given.client_info is not None and given.client_info.name.startswith(EXTENSION_HOSTS)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
    def configured(given: lsp.DidChangeConfigurationParams) -> None:
        own = given.settings.get("npuscope") if isinstance(given.settings, Mapping) else None
        if own is not None:
            take_options(own)

    def take_options(given: object) -> None:
        programs.options, wrong = Options.of(given)
        if wrong:
            server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Warning, wrong))

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(given: lsp.DidOpenTextDocumentParams) -> None:
        file = path_of(given.text_document.uri)
        programs.publish(file)
        if programs.look_of(file) is None:
            programs.save(file)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def saved(given: lsp.DidSaveTextDocumentParams) -> None:
        programs.save(path_of(given.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(given: lsp.DidChangeTextDocumentParams) -> None:
        programs.publish(path_of(given.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(given: lsp.DidCloseTextDocumentParams) -> None:
        programs.close(path_of(given.text_document.uri))

    @server.feature(lsp.SHUTDOWN)
    def ended(_: None) -> None:
        programs.end()

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(given: lsp.HoverParams) -> lsp.Hover | None:
        return _hover(programs, path_of(given.text_document.uri), given.position)

    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS, lsp.CodeLensOptions())
    def lens(given: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        file = path_of(given.text_document.uri)
        look = programs.look_of(file)
        if look is None:
            return []
        return list(shown.lenses(look, file, programs.text_of(file), programs.lines_of(file, look).line))

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def inlay(given: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        file = path_of(given.text_document.uri)
        look = programs.look_of(file)
        if look is None:
            return []
        at = programs.lines_of(file, look).line
        found = shown.hints(look, file, programs.text_of(file), at, programs.before.get(look.file))
        return [one for one in found if given.range.start.line <= one.position.line <= given.range.end.line]

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["."]))
    def complete(given: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        return _completions(programs, path_of(given.text_document.uri), given.position)

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature(given: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        return _signature(programs, path_of(given.text_document.uri), given.position)

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    def actions(given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        return _actions(programs, path_of(given.text_document.uri), given)

    @server.command(shown.OPEN_LAB)
    async def open_lab(uri: str) -> str | None:
        try:
            url = await programs.lab(path_of(uri))
        except NpuscopeError as error:
            server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, str(error)))
            return None
        if not programs.shows_lab:
            await server.window_show_document_async(lsp.ShowDocumentParams(url, external=True))
        return url

    return server


def _line(programs: Programs, file: str, line: int) -> str:
    return "".join(lines_of(programs.text_of(file))[line : line + 1])


def _hover(programs: Programs, file: str, position: lsp.Position) -> lsp.Hover | None:
    from npuscope.time.run import chip_to_time

    source, line = programs.text_of(file), _line(programs, file, position.line)
    word = text.word_at(line, position.character)
    name = text.language_name(word.text, text.aliases(source)) if word else None
    parts = [shown.hover_of_name(name, chip_to_time(programs.options.device))] if name else []
    look = programs.look_of(file)
    if look is not None:
        back = text.moved(source, look.texts.get(file, ""))
        if name is None and word is not None:
            made = text.assignments(source, word.text, position.line + 1)
            lines = [old for one in made if (old := back.line(one)) is not None]
            parts += [shown.hover_of_tiles(look.tiles, file, range(lines[0], lines[-1] + 1))] if lines else []
        if (here := back.line(position.line + 1)) is not None:
            parts.append(shown.hover_of_line(look, file, here))
    words = "\n\n".join(filter(None, parts))
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, words)) if words else None


def _completions(programs: Programs, file: str, position: lsp.Position) -> list[lsp.CompletionItem]:
    written = text.before_cursor(_line(programs, file, position.line), position.character)
    name = text.language_name(written, text.aliases(programs.text_of(file))) if "." in written else None
    if name is None and not written.endswith("."):
        return []
    start = "" if name is None else name
    if name is None and text.aliases(programs.text_of(file)).get(written[:-1]) != "":
        return []
    inner, _, _ = start.rpartition(".")
    found = []
    for one, value in text.language().items():
        head, _, last = one.rpartition(".")
        if head == inner and one.startswith(start):
            kind = lsp.CompletionItemKind.Function if callable(value) else lsp.CompletionItemKind.Constant
            about = (value.__doc__ or "").strip().partition("\n")[0] if callable(value) else ""
            found.append(lsp.CompletionItem(last, kind=kind, detail=about or None))
    return found


def _signature(programs: Programs, file: str, position: lsp.Position) -> lsp.SignatureHelp | None:
    source = programs.text_of(file)
    call = text.open_call(source, position.line, position.character)
    name = text.language_name(call[0], text.aliases(source)) if call else None
    how = text.signature_of(name) if name else None
    if call is None or how is None:
        return None
    parameters = [lsp.ParameterInformation(str(one)) for one in how.parameters.values()]
    about = (text.language()[name].__doc__ or "").strip() if name else ""
    shape = lsp.SignatureInformation(f"{call[0]}{how}", about, parameters)
    return lsp.SignatureHelp([shape], 0, min(call[1], max(len(parameters) - 1, 0)))


def _actions(programs: Programs, file: str, given: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """For each finding of the lines: its fixes, with what each saves or why it is not offered; and to silence it."""
    source, found = programs.text_of(file), list[lsp.CodeAction]()
    for one in given.context.diagnostics:
        if one.source != "npuscope" or one.code in (text.SYNTAX, text.NO_SUCH_NAME, NO_RUN, None):
            continue
        line = one.range.start.line + 1
        for fix in (fix for fixes in programs.fixes.values() for fix in fixes):
            mends = {(mended.id, mended.file, mended.line) for mended in fix.patch.mends}
            if fix.patch.before == source and (one.code, file, line) in mends:
                found.append(shown.fix_action(fix, given.text_document.uri, one))
        found.append(shown.ignore_action(source, given.text_document.uri, one))
    return found
