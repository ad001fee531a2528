"""Writes a run down: tasks, blocks, ops, GM accesses. Knows nothing of values.

Ops are interned: equal ops (name, place, operands' origins, shapes, accesses) are one number, a loop of equal
iterations is one number, so a block's structure is a short tuple and equal blocks are found by comparing tuples.
"""

from __future__ import annotations

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.tile.record import sites
from npuscope.tile.record.drafts import BlockDraft, BodyKey, Launch, LoopKey, OpKey, TaskDraft
from npuscope.tile.record.frames import Frame, Rolled
from npuscope.tile.record.model import Alias, Buffer, Form, HostRead, Mode, Scope, Turn

MOST_TASKS = 1 << 20  # a few kilobytes each; 40 layers of a decode step have 17,000


class Recorder:
    """One run's record, built up call by call."""

    def __init__(self, program: str, mode: Mode) -> None:
        self.program, self.mode = program, mode
        self.buffers: list[Buffer] = []
        self.tasks: list[TaskDraft] = []
        self.aliases: list[Alias] = []
        self.host_reads: list[HostRead] = []
        self.findings: dict[tuple[str, int, str], tuple[int, int]] = {}  # how often, and bytes
        self.said = 0  # findings, each time one came up
        self.notes: list[str] = []
        self.turns: list[Turn] = []
        self.scopes: list[Scope] = []
        self.auto_scope = True
        self.layers: list[str] = []
        self._scope_count = 0
        self._numbers: dict[OpKey | LoopKey, int] = {}
        self._keys: list[OpKey | LoopKey] = []
        self._arguments: dict[int, list[int]] = {}  # of an op or loop: the argument of each access

    # --- tasks and blocks

    def open_task(self, kernel: str, blocks: int, form: Form, launch: Launch) -> TaskDraft:
        launch.turns, launch.scopes = tuple(self.turns), tuple(self.scopes)
        launch.layer = self.layers[-1] if self.layers else ""
        site = sites.here()
        if len(self.tasks) >= MOST_TASKS:
            place = sites.site(site)
            about = f"more than {MOST_TASKS:,} tasks: npuscope records no more of one run"
            raise NpuscopeError(about, path=place.file, line=place.line)
        task = TaskDraft(len(self.tasks), kernel, site, blocks, form, launch)
        self.tasks.append(task)
        if len(self.tasks) % 32 == 0:
            progress.report(f"{self.program}: tasks", len(self.tasks), 0)
        return task

    def open_scope(self, manual: bool) -> None:
        self.scopes.append(Scope(self._scope_count, manual, len(self.turns)))
        self._scope_count += 1

    def close_block(self, block: BlockDraft, count: int) -> None:
        """Ends a block that stood for `count` blocks, `block.first` and those after it."""
        block.root.open = False
        key = (tuple(block.prologue), tuple(block.root.items))
        numbers, rolled = block.task.groups.setdefault(key, ([], Rolled(key[1])))
        numbers.extend(range(block.first, block.first + count))
        rolled.counts.append(count)
        rolled.offsets.append(block.prologue_offsets + block.root.offsets)

    # --- ops

    def number(self, key: OpKey | LoopKey) -> int:
        """The number of an op or loop with this structure."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return found

    def key(self, number: int) -> OpKey | LoopKey:
        """What `number` counted."""
        return self._keys[number]

    def arguments_of(self, body: BodyKey) -> list[int]:
        """The argument of each access of a block, in the order of its offsets."""
        return [number for part in body for item in part for number in self._arguments_of(item)]

    def _arguments_of(self, item: int) -> list[int]:
        found = self._arguments.get(item)
        if found is None:
            key = self._keys[item]
            if key[0] == "loop":
                found = [number for _, items in key[4] for item in items for number in self._arguments_of(item)]
            else:
                found = [access[0] for access in key[6]]
            self._arguments[item] = found
        return found

    def close_loop(self, frame: Frame, block: BlockDraft) -> None:
        """Ends a loop: it becomes one item of its parent."""
        frame.open = False
        parent = frame.parent
        assert parent is not None
        assert frame.loop is not None
        block.frame = parent
        segments = tuple([(sum(rolled.counts), rolled.items) for rolled in frame.rolled if rolled.items])
        for rolled in frame.rolled:
            parent.offsets.extend(rolled.along(frame.depth))
        parent.items.append(self.number(("loop", *frame.loop, segments)))

    # --- what the user should know

    def finding(self, kind: str, message: str, site: int | None = None, bytes: int = 0) -> None:
        key = (kind, sites.here() if site is None else site, message)
        self.said += 1
        count, so_far = self.findings.get(key, (0, 0))
        self.findings[key] = (count + 1, so_far + bytes)
