"""What the lab knows and does while it is served: versions, the program that is watched, who listens.

One event loop, no threads of its own. Programs run in processes of a pool; a newer save ends the work on the older.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import orjson

from npuscope.answer.answer import Trouble
from npuscope.answer.fixes import Tried, mend, trial_prices
from npuscope.answer.judge import How
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.futures import awaited, early_answers, then
from npuscope.base.jobs import GIB, Failed, Limits
from npuscope.base.pool import Handle, Named, Pool
from npuscope.base.unsaved import Texts
from npuscope.check.rule import TrialPrice
from npuscope.lab import messages
from npuscope.lab.document import Payload, as_json
from npuscope.lab.messages import CaptureFile, Pair, Question, SaveBefore, VersionJob, VersionResult
from npuscope.lab.payload.files import fixes_payload
from npuscope.lab.versions import Version, Versions, replaced, text_of, unreadable

A = TypeVar("A")
B = TypeVar("B")
Event = dict[str, object]
WARM = ("npuscope.answer.prediction", "npuscope.lab.job")
LIMITS = Limits(seconds=60.0, bytes=8 * GIB)
FIRST_S = 600.0  # for the first run, which may have to compile the simulator
MOST_WAITING = 256  # events that a listener may fall behind before it must begin anew
WORKERS = 2


READ_CAPTURE: Named[CaptureFile, tuple[Version, ...]] = Named("npuscope.lab.later_panels", "read_capture")


class Session:
    """`captures` are versions that were measured, `pair` the two that a page opens beside each other; `subject` is None
    where only captures are shown."""

    def __init__(
        self,
        title: str,
        captures: Sequence[Version] = (),
        subject: Request | None = None,
        limits: Limits = LIMITS,
        shared: Mapping[str, Payload] = MappingProxyType({}),
        pair: tuple[str, str] | None = None,
    ) -> None:
        self.title, self.subject, self.limits, self.shared, self.pair = title, subject, limits, dict(shared), pair
        self.versions = Versions()
        for capture in captures:
            self.versions.put(capture)
        self.listeners: set[asyncio.Queue[Event | None]] = set()
        self.stopping = asyncio.Event()
        self.files_known = asyncio.Event()  # it is known what a version it is made from
        self.files: tuple[str, ...] = (str(Path(subject.file).resolve()),) if subject else ()
        self._pool: Pool | None = None
        self._running: dict[str, Handle[VersionResult]] = {}  # by version
        self._late: dict[str, VersionResult] = {}  # panels of versions whose timeline is not here yet
        self._saves = 0
        self._saved: str | None = None  # the version of the newest save, while it is being made
        self._asked: Mapping[str, str] = {}  # texts of the newest save
        self._known: Mapping[str, str] = {}  # texts of all files that are watched, as they were read last
        self.gone: Mapping[str, str] = {}  # files that cannot be read, and why
        self._folder = ""
        self._fixes: dict[str, dict[str, Tried]] = {}  # by version and key
        self._prices: dict[str, tuple[TrialPrice, ...]] = {}  # by version

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Session]:
        """Starts the processes and the first run."""
        with tempfile.TemporaryDirectory(prefix="npuscope-lab-") as folder:
            self._folder = folder
            self._pool = Pool(WORKERS, WARM)  # first: Windows has neither, and this one says so
            try:
                async with early_answers(f"{folder}/early", self._early):
                    if self.subject is not None:
                        self.save()
                    yield self
            finally:
                self.stop()
                pool, self._pool = self._pool, None
                await asyncio.to_thread(pool.close)

    # ---- versions

    def save(self) -> str:
        """The program as its files are now, as a new version."""
        assert self.subject is not None
        if self._saved is None or not self._end(self._saved):
            self._saves += 1
        self._asked = {}  # known when it is read: until then any change is one
        self._saved = self._begin(dict(self.subject.settings), f"save {self._saves}", "save")
        return self._saved

    def turn(self, settings: Mapping[str, str]) -> str:
        """The program with other settings, as a new version."""
        assert self.subject is not None
        merged = {**dict(self.subject.settings), **settings}
        name = ", ".join(f"{key}={value}" for key, value in settings.items())
        return self._begin(merged, name, "knob")

    def _begin(self, settings: Mapping[str, str], name: str, what: str, texts: Texts = ()) -> str:
        assert self._pool is not None
        id = self.versions.next_id()
        version = Version(id, name, time.time(), dict(settings), saved=what == "save", texts=texts)
        self.versions.put(version)
        job = VersionJob(id, name, self._request(version), f"{self._folder}/early", self._before())
        self.publish({"type": "working", "what": what, "version": version.as_dict()})
        limits = self.limits if self.versions.last_made() else self.limits._replace(seconds=FIRST_S)
        handle = self._pool.ask(messages.perform, job, limits)
        self._running[id] = handle
        then(handle, partial(self._done, id))
        return id

    def _before(self) -> SaveBefore | None:
        save = self.versions.newest_save()
        if save is None or save.made is None:
            return None
        made = save.made
        return SaveBefore(save.id, save.name, made.wall_ns, made.bound, made.sources, made.program)

    def _request(self, version: Version) -> Request:
        assert self.subject is not None
        tried = self._prices.get(version.id, ())
        return replace(self.subject, settings=tuple(version.settings.items()), texts=version.texts, tried=tried)

    def _end(self, id: str) -> bool:
        """Ends the work on a version that nobody waits for any more; whether it is forgotten: it had not run yet."""
        handle, version = self._running.pop(id, None), self.versions.get(id)
        if handle is not None:
            handle.cancel()
        if version is None or version.has_run:
            return False
        self.versions.drop(id)
        self.publish({"type": "dropped", "id": id})
        return True

    def _early(self, made: object) -> None:
        """A process has drawn its timeline."""
        if isinstance(made, VersionResult):
            self._made(made)

    def _done(self, id: str, result: VersionResult | Failed) -> None:
        if self._running.pop(id, None) is None:
            return  # dropped
        if self._saved == id:
            self._saved = None
        if isinstance(result, Failed):
            message = _words(result, self.limits)
            before = self.versions.get(id)
            if before is not None and before.has_run:  # the timeline is there, the rest is not
                self.publish({"type": "notice", "id": id, "message": f"its panels could not be made: {message}"})
                return
            self._made(VersionResult(id, trouble=Trouble(message)))
        elif result.trouble is not None:
            self._made(result)
        else:
            self._late[id] = result
            self._add_panels(id)

    def _made(self, made: VersionResult) -> None:
        version = self.versions.get(made.id)
        if version is None:
            return  # dropped
        version = replace(version, made=made)
        self.versions.put(version)
        if not version.texts:  # a fix that is tried is not what the files hold
            self._watch(made)
        kind = "version" if made.trouble is None else "error"
        self.publish({"type": kind, "version": version.as_dict()})
        self._add_panels(made.id)

    def _add_panels(self, id: str) -> None:
        """What came after the timeline, or before it: they take different ways here."""
        version = self.versions.get(id)
        if version is not None and version.made is not None and id in self._late:
            late = self._late.pop(id)
            made = replace(version.made, panels=late.panels, diagnosis=late.diagnosis)
            self.versions.put(replace(version, made=made))
            self.publish({"type": "panels", "id": id})

    def _watch(self, made: VersionResult) -> None:
        if made.sources:
            # one that does not run may not have come to all of its files: those from before are watched on
            self._known = {**self._known, **made.sources} if made.trouble else made.sources
            self.files = tuple(self._known)
            if self._saved is None or self._saved == made.id:
                self._asked = self._known
            self.files_known.set()

    def look(self, files: Iterable[str] | None = None) -> None:
        """At files that may have changed, gone or come back; at all of them, once the newest save has been read."""
        if files is None:
            files = self.files if self._asked else ()
        texts, gone = {}, dict(self.gone)
        for file in files:
            try:
                texts[file] = text_of(file)
                gone.pop(file, None)
            except OSError:
                gone[file] = unreadable(file)
        if gone != self.gone:
            self.gone = gone
            self.publish({"type": "files", "gone": list(gone.values())})
        if any(self._asked.get(file) != text for file, text in texts.items()):
            self.save()

    def write_back(self, id: str, over: str) -> tuple[str, ...]:
        """Writes the files of a version as they were; those that differ. The program's own files and no others.

        `over` is the save that the reader means to write over: files that hold something newer are left alone.
        """
        version = self.versions.get(id)
        if version is None or version.made is None or version.measured:
            return ()
        newest = [one for one in self.versions.all() if one.saved and not one.measured][-1]
        if newest.id != over:
            again = "See what has changed since, then write again."
            raise NpuscopeError(f"nothing was written: {newest.name} is newer than what you saw", remedy=again)
        seen = [one.made.sources for one in self.versions.all() if one.made]
        written = {Path(file): text for file, text in version.made.sources.items() if file.endswith(".py") and text}
        return replaced(written, lambda file, text: any(one.get(file) == text for one in seen))

    def edit(self, file: str, text: str, before: str) -> tuple[str, ...]:
        """Writes a text that a reader edited; `before` is what it was when the reader began. The program's own files
        and no others."""
        if file not in self.files or not file.endswith(".py"):
            raise NpuscopeError("this is no file of the program")
        return replaced({Path(file): text}, lambda _, found: found == before)

    async def write_settings(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """Writes values of settings into the program's files."""
        assert self.subject is not None
        texts = await self._answer(messages.written_in, messages.WrittenIn(self.subject.file, settings))
        if any(file not in self.files for file in texts):
            raise NpuscopeError("this is no file of the program")
        return replaced({Path(file): new for file, (_, new) in texts.items()}, lambda file, now: texts[file][0] == now)

    # ---- fixes

    async def fixes(self, id: str) -> bytes:
        """Tries the fixes of a version whose files are still as they were; what came of each."""
        version, made = self._ran(id)
        if version.measured:
            raise NpuscopeError("only a program that runs has fixes")
        if any(text_of(file) != text for file, text in made.sources.items()) or version.texts:
            raise NpuscopeError("the files have changed since this version: ask for the fixes of the newest")
        found = await asyncio.to_thread(mend, self._request(version), How(limits=self.limits, jobs=1))
        self._fixes[id] = {one.patch.key: one for one in found.tried}
        self._prices[id] = trial_prices(found)
        await self._reprice(version)
        return as_json(fixes_payload(found))

    async def _reprice(self, version: Version) -> None:
        """Findings and causes are worth what fixes gave, from now on."""
        try:
            found = await self._answer(messages.reprice, self._question(version.id, "reprice"))
        except NpuscopeError:  # its files have changed meanwhile
            return
        now = self.versions.get(version.id)
        if now is None or now.made is None or not now.made.panels:
            return
        whole, later = orjson.loads(now.made.panels), orjson.loads(found.panels)
        panels = orjson.dumps({"panels": whole["panels"] | later["panels"], "diagnosis": later["diagnosis"]})
        self.versions.put(replace(now, made=replace(now.made, panels=panels, diagnosis=found.diagnosis)))
        self.publish({"type": "panels", "id": version.id, "again": True})

    def _fix(self, id: str, key: str) -> Tried:
        found = self._fixes.get(id, {}).get(key)
        if found is None:
            raise NpuscopeError("this fix is not known any more", remedy="Ask for the fixes again.")
        return found

    def try_fix(self, id: str, key: str) -> str:
        """The program with a fix in place as a version of its own; no file is written."""
        patch, version = self._fix(id, key).patch, self.versions.get(id)
        assert version is not None
        return self._begin(version.settings, patch.title, "fix", ((patch.file, patch.after),))

    def apply_fix(self, id: str, key: str) -> tuple[str, ...]:
        """Writes a fix into its file, unless that has changed since it was tried."""
        patch = self._fix(id, key).patch
        return self.edit(patch.file, patch.after, patch.before)

    # ---- questions

    def _ran(self, id: str) -> tuple[Version, VersionResult]:
        version = self.versions.get(id)
        if version is None or version.made is None or not version.made.trace:
            raise NpuscopeError("the version must have run")
        return version, version.made

    async def compare(self, a: str, b: str) -> bytes:
        """The payload of the compare panel."""
        (one, made), (other, other_made) = self._ran(a), self._ran(b)
        both = _for_comparing(made), _for_comparing(other_made)
        return await self._answer(messages.compared, Pair((one.name, other.name), both))

    def _question(self, id: str, what: str, asked: Mapping[str, object] = MappingProxyType({})) -> Question:
        version, made = self._ran(id)
        request = None if version.measured else self._request(version)
        return Question(what, version.name, made.trace, dict(asked), request, made.sources, made.bound)

    async def ask(self, id: str, what: str, asked: Mapping[str, object]) -> bytes:
        """What a page asks of a run."""
        return await self._answer(messages.answered, self._question(id, what, asked))

    @asynccontextmanager
    async def incoming(self, name: str) -> AsyncIterator[Path]:
        """The place of a file that a page sends; gone afterwards. Readers go by the end of a name."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield Path(folder, Path(name).name or "capture")

    async def add_capture(self, path: Path) -> tuple[str, ...]:
        """Reads a capture; the numbers of its runs."""
        known = sum(one.measured for one in self.versions.all())
        found = await self._answer(READ_CAPTURE, CaptureFile(str(path), path.name, known))
        for version in found:
            self.versions.put(version)
            self.publish({"type": "version", "version": version.as_dict()})
        return tuple(version.id for version in found)

    async def perfetto(self, id: str) -> Path:
        """The file of a version's trace for the Perfetto UI."""
        file = Path(self._folder, f"{id}.pftrace")
        if not file.is_file():
            await self._answer(messages.written, messages.PerfettoFile(self._ran(id)[1].trace, str(file)))
        return file

    async def _answer(self, function: Callable[[A], B], argument: A) -> B:
        """What a process answers; raises why it does not."""
        assert self._pool is not None
        found = await awaited(self._pool.ask(function, argument, self.limits))
        if isinstance(found, Failed):
            raise found.error or NpuscopeError(found.message)
        return found

    # ---- who listens

    def hello(self) -> Event:
        """Where things stand, for a page that begins to listen or has lost touch."""
        versions = [version.as_dict() for version in self.versions.all()]
        working = [version.id for version in self.versions.all() if version.id in self._running and not version.has_run]
        return {"type": "hello", "versions": versions, "working": working, "away": list(self.gone.values())}

    def publish(self, event: Event) -> None:
        """To all who listen; one that has fallen far behind is let go and begins anew."""
        for queue in list(self.listeners):
            if queue.full():
                self.listeners.discard(queue)
                queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        """What happens from now on, first where things stand; ends when the server does."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(MOST_WAITING)
        self.listeners.add(queue)
        try:
            yield self.hello()
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self.listeners.discard(queue)

    def stop(self) -> None:
        """Tells everybody that the server ends."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.publish({"type": "gone"})
            for queue in list(self.listeners):
                if queue.full():
                    queue.get_nowait()
                queue.put_nowait(None)


def _for_comparing(made: VersionResult) -> VersionResult:
    """Without the pages' parts: they are large."""
    return replace(made, run=b"", panels=b"")


def _words(failed: Failed, limits: Limits) -> str:
    """Why a program has no run, for its author."""
    if failed.kind == "time":
        return f"the program did not end within {limits.seconds:g} s: is there an endless loop?"
    words = {
        "memory": "the program took more memory than is allowed here",
        "crashed": "the process that ran the program crashed",
        "lost": "the process that ran the program was ended",
        "exited": "the program ended the process that ran it",
    }
    if failed.kind not in words:
        return failed.message
    return words[failed.kind] + (f" ({failed.message})" if failed.kind == "crashed" else "")
