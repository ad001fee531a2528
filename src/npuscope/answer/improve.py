"""Searches fixes and settings of a program together: greedy first, then pairs; the judge decides at every step.

improved = improve(Request("/home/me/layer.py"), trials=100)
improved.taken, improved.best, improved.versus

One round lists what fixes make of the program as it is by then and tries each alone; the best is taken, and the others
are tried on top of it one after the other, the best first, as far as they change other lines. When nothing more is
offered, patches are taken that cost no time and leave cores less to do: zeros that nobody reads, a load that serves
two. Then pairs are tried that alone are not worth it or do not fit.

How sure: what was chosen looks better than it is. Where k of n are chosen by what was predicted, misses are up to n/k
times as frequent among the chosen as among all: at worst every large miss was chosen (Benjamini and Yekutieli 2005,
intervals of selected parameters; with one of n it is the union bound). That is about each of the chosen. The whole is
their product: what selection adds grows with k, misses of either sign only with its root. So misses that were met on
published changes count 1 + (n/k - 1) * sqrt(k) times (`counted`); with all taken nothing was selected.
benchmarks/selection.py tries it on worlds whose truth is known. That the program is like none that was measured counts
once, because it is the same program in all trials (`against(…, of=…)` in `time/uncertainty.py`). n and k count
different fixes: trials of one fix on one program miss alike, as rows of one commit do, which count as one where the
misses were learnt.

Every trial is kept by what decides it; `resume` takes those of an earlier search that was stopped, which then goes the
same way and on from there. Nothing is written to the program's files: `applied` does that, a whole file at a time.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from hashlib import sha256
from itertools import combinations
from pathlib import Path

from npuscope.answer.answer import Answer, Versus
from npuscope.answer.fixes import LEAST, RACING, SAME_TIME, Mending, Survey, Tried, relative_to, survey_of, tried
from npuscope.answer.judge import How, versus
from npuscope.answer.request import Request
from npuscope.base import progress
from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.base.files import keep, kept, source_digest
from npuscope.base.frozen import dataclass
from npuscope.base.unsaved import Texts, lines_of
from npuscope.check.fixes.patch import Patch
from npuscope.explain.many.files import git
from npuscope.table.formats import duration
from npuscope.trace.writers.atomic import whole_file

KIND = "improve"
MOST_PAIRS = 40
HOPELESS = ("its numbers", "it does not run", "it would be another problem")  # whatever else changes


@dataclass(frozen=True)
class Taken:
    """One patch that was taken, on the program as it was `before`."""

    tried: Tried
    before: Answer

    @property
    def patch(self) -> Patch:
        return self.tried.patch


@dataclass(frozen=True)
class Improved:
    """What a search found. `tried` has every trial with the predicted time that it stood against, in order.

    `compared` is the number of different fixes whose trials have a time, `chosen` that of those that were taken.
    """

    first: Answer
    best: Answer
    texts: Texts
    taken: tuple[Taken, ...]
    tried: tuple[tuple[Tried, int | None], ...]
    ended: str
    survey: Survey

    @property
    def compared(self) -> int:
        return _kinds(one.patch for one, _ in self.tried if one.wall_ns is not None)

    @property
    def chosen(self) -> int:
        return _kinds(one.patch for one in self.taken)

    @property
    def selected(self) -> float:
        """How often a miss counts, because few of many were taken."""
        return counted(self.compared, self.chosen)

    @property
    def versus(self) -> Versus | None:
        return versus(self.first, self.best, self.selected) if self.taken else None


def counted(of: int, taken: int) -> float:
    """How often a miss counts where so many were taken of so many that were compared."""
    taken = max(taken, 1)
    return 1 + max(of / taken - 1, 0.0) * math.sqrt(taken)


def _kinds(patches: Iterable[Patch]) -> int:
    """Different fixes that are to save time."""
    return len({fix for patch in patches if not patch.quality for fix in patch.fix.split("+")})


def improve(
    request: Request,
    trials: int = 100,
    how: How = How(),
    resume: bool = False,
    tell: Callable[[Taken], None] = lambda taken: None,
) -> Improved:
    """At most so many trials. Interrupted (Ctrl-C), it gives what it has found so far."""
    search = _Improving(request, trials, how, resume, tell)
    try:
        return search.run()
    except KeyboardInterrupt:
        return search.result("stopped: --resume goes on from here")


def best_together(request: Request, mending: Mending, how: How = How()) -> tuple[Taken, ...]:
    """The offered patches that help together: the best, then each of the others on top where it still is faster."""
    search = _Improving(request, len(mending.tried) + len(mending.offered), how, False, lambda taken: None)
    search.begin(mending.survey)
    search.take(mending.offered)
    return tuple(search.taken)


@dataclass
class _Improving:
    """How far a search is."""

    request: Request
    trials: int
    how: How
    resume: bool
    tell: Callable[[Taken], None]
    taken: list[Taken] = field(default_factory=list)
    tried: list[tuple[Tried, int | None]] = field(default_factory=list)
    known: set[tuple[int, str, bool]] = field(default_factory=set)  # patches that were tried, after how many steps

    def begin(self, survey: Survey) -> None:
        self.survey, self.first, self.now = survey, survey.answer, survey.answer
        self.texts = dict(self.request.texts)

    def run(self) -> Improved:
        self.begin(survey_of(self.request, self.how))
        if self.first.verdict in ("fails", "exited"):
            raise NpuscopeError(f"it does not run: {self.first.message}", path=self.request.file)
        while self.trials > len(self.tried):
            refused: list[Tried] = []
            offered: list[Tried] = []
            for one in self.trying(self.survey.patches):
                (offered if one.offered else refused).append(one)
            places = {patch.key: n for n, patch in enumerate(self.survey.patches)}  # not by which was done first
            offered.sort(key=lambda one: (one.wall_ns or 0, places[one.patch.key]))
            refused.sort(key=lambda one: places[one.patch.key])
            if not self.take(offered) and not self.take(self.spared(refused)) and not self.pairs(refused):
                return self.result("nothing more is offered")
            self.survey = replace(survey_of(self.at, self.how), answer=self.now)
        return self.result(f"the {self.trials} trials are used up; --trials takes more")

    def result(self, ended: str) -> Improved:
        texts = tuple(self.texts.items())
        return Improved(self.first, self.now, texts, tuple(self.taken), tuple(self.tried), ended, self.survey)

    @property
    def at(self) -> Request:
        return replace(self.request, texts=tuple(self.texts.items()))

    def trying(self, patches: Sequence[Patch]) -> Iterator[Tried]:
        """Patches on the program as it is now, as far as there are trials left; none twice."""
        hopeless = {_changes(one.patch) for one, _ in self.tried if one.why.startswith(HOPELESS)}
        new = [one for one in patches if self.asked(one) not in self.known and _changes(one) not in hopeless]
        new = new[: self.trials - len(self.tried)]
        self.known |= set(map(self.asked, new))
        keys = {one.key: self.key(one) for one in new}
        for one in list(new):
            found = kept(KIND, keys[one.key]) if self.resume else None
            if isinstance(found, Tried):
                new.remove(one)
                yield self.noted(found)
        for done in tried(self.at, new, replace(self.survey, answer=self.now), self.how) if new else ():
            keep(KIND, keys[done.patch.key], done)
            yield self.noted(done)

    def asked(self, patch: Patch) -> tuple[int, str, bool]:
        """What tells one trial from another; a step in one file may make a patch of another file worth it."""
        return len(self.taken), *_asked(patch)

    def noted(self, one: Tried) -> Tried:
        self.tried.append((one, self.now.wall_ns))
        progress.report("improving", len(self.tried), self.trials)
        return one

    def take(self, offered: Sequence[Tried]) -> bool:
        """Takes the first of these, and of the others those that still help on top."""
        start = len(self.taken)
        for one in offered:
            if len(self.taken) > start:
                patch = moved(one.patch, self.texts.get(one.patch.file, one.patch.before))
                again = None if patch is None else next(self.trying([patch]), None)
                if again is None or not again.offered:
                    continue
                one = again
            self.accept(one)
        return len(self.taken) > start

    def accept(self, one: Tried) -> None:
        assert one.answer is not None
        self.taken.append(Taken(one, self.now))
        self.texts[one.patch.file], self.now = one.patch.after, one.answer
        self.tell(self.taken[-1])

    def spared(self, refused: Sequence[Tried]) -> list[Tried]:
        """Patches that take as long as now with less work for the cores, tried as such; the least work first."""
        now = _core_ns(self.now)
        able = [
            one for one in refused if one.why == SAME_TIME and one.answer and _core_ns(one.answer) < (1 - LEAST) * now
        ]
        found = [one for one in self.trying([replace(one.patch, quality=True) for one in able]) if one.offered]
        return sorted(found, key=lambda one: (_core_ns(one.answer) if one.answer else 0, one.patch.key))

    def pairs(self, refused: Sequence[Tried]) -> bool:
        """Two patches at once that alone are not worth it, or do not fit; the first that is offered is taken."""
        able = [one for one in refused if not one.why.startswith((*HOPELESS, RACING))]
        able.sort(key=lambda one: one.wall_ns or self.now.wall_ns or 0)  # the nearest first
        both = list(self.joined([one.patch for one in able]))[:MOST_PAIRS]
        offered = [one for one in self.trying(both) if one.offered]
        if not offered:
            return False
        self.accept(min(offered, key=lambda one: one.wall_ns or 0))
        return True

    def joined(self, patches: Sequence[Patch]) -> Iterator[Patch]:
        for a, b in combinations(patches, 2):
            if a.file != b.file or (a.fix, a.mends) == (b.fix, b.mends):
                continue
            second = moved(b, a.after)
            if second is not None:
                title = f"{a.title}, and {b.title}"
                both = replace(second, fix=f"{a.fix}+{b.fix}", title=title, before=a.before, mends=a.mends + b.mends)
                yield replace(both, reorders=a.reorders or b.reorders, quality=a.quality and b.quality)

    def key(self, patch: Patch) -> str:
        """Of all that decides a trial; what else the program reads nobody knows."""
        from npuscope.tile.script.places import own_files

        files = [(str(one.path), one.path.read_bytes()) for one in own_files(Path(self.request.file))]
        rest = (source_digest(), self.at.key, _asked(patch), patch.file, self.how.golden, self.now.wall_ns, files)
        return sha256(repr(rest).encode()).hexdigest()[:32]


def _asked(patch: Patch) -> tuple[str, bool]:
    """What tells one trial from another."""
    return patch.key, patch.quality


def _changes(patch: Patch) -> tuple[str, ...]:
    """The fix and the lines that it replaces, wherever they stand by now."""
    lines = lines_of(patch.before)
    return (patch.fix, patch.title, *("".join(lines[one.first : one.last]) for one in patch.edits))


def _core_ns(answer: Answer) -> float:
    return sum(one.run_ns for one in answer.kernels)


def moved(patch: Patch, text: str) -> Patch | None:
    """The same edits on a text that changed elsewhere; None where they touch what changed, or no longer fit in."""
    if text == patch.before:
        return patch
    old, new = (lines_of(whole) for whole in (patch.before, text))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    lines = list(new)
    for edit in reversed(patch.edits):
        shift = next(
            (
                b.b - b.a
                for b in blocks
                if b.size and b.a <= edit.first and max(edit.last, edit.first + 1) <= b.a + b.size
            ),
            None,
        )
        if shift is None:
            return None
        lines[edit.first + shift : edit.last + shift] = [edit.text]
    after = "".join(lines)
    try:
        ast.parse(after)
    except SyntaxError:
        return None
    return replace(patch, before=text, after=after)


def applied(steps: Sequence[Taken], commit: bool = False) -> list[str]:
    """Writes the patches in their order, each whole; with `commit` each as a commit of its own. What was done."""
    done: list[str] = []
    for step in steps:
        patch = step.patch
        folder = Path(patch.file).parent
        if commit and git(folder, "rev-parse", "--show-toplevel") is None:
            raise NpuscopeError("is in no git repository", path=patch.file, remedy="Leave out --commit.")
        if commit and git(folder, "ls-files", "--error-unmatch", "--", patch.file) is None:
            raise NpuscopeError("is not in git yet", path=patch.file, remedy="Add and commit it first.")
        if commit and git(folder, "diff", "--quiet", "HEAD", "--", patch.file) is None:
            remedy = "Commit or stash them first."
            raise NpuscopeError("has changes that are not committed", path=patch.file, remedy=remedy)
        patch.write()
        saved = step.tried.saves_ns(step.before)
        gain = f", {duration(saved)} less (simulated)" if saved else ""
        done.append(f"wrote {patch.file}: {patch.title}{gain}")
        if commit:
            body = f"{patch.fix}: {patch.title}{gain}. Tried by npuscope."
            subject = f"{Path(patch.file).stem}: {patch.title}"[:72]
            if git(folder, "commit", "-q", "-m", subject, "-m", body, "--", patch.file) is None:
                raise NpuscopeError("git did not commit it", path=patch.file, remedy="It is written; commit it.")
            done[-1] = done[-1].replace("wrote", "committed", 1)
    return done


def written_patches(steps: Sequence[Taken], folder: Path, root: Path) -> list[str]:
    """A file for each step, as `git apply` takes them one after the other from `root`. What was written."""
    done = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.strerror or "cannot be made", path=folder) from error
    for number, step in enumerate(steps, 1):
        words = "-".join(re.findall(r"\w+", step.patch.title))[:50].lower()
        path = folder / f"{number:02}-{words}.patch"
        with whole_file(path) as stream:
            stream.write(step.patch.diff(relative_to(step.patch.file, root)).encode())
        done.append(f"wrote {path}")
    return done
