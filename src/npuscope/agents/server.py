"""The server of the Model Context Protocol: the same answers as the commands', as tools over standard input and output.

Every call runs in a process of its own from a warm pool, so a program that loops or crashes costs its own answer, and
a call that the client cancels ends at once. Answers have a budget of bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import anyio
from anyio import from_thread, to_thread
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, ListRoots, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ListRootsResult
from pydantic import BaseModel, Field

from npuscope import __version__
from npuscope.agents import tools
from npuscope.agents.guide import guide as guide_text
from npuscope.agents.roots import check_allowed, folder_of
from npuscope.agents.tools import Asked
from npuscope.answer.answer import LEAST_BUDGET, within
from npuscope.answer.judge import WARM, How, judge_many
from npuscope.answer.request import files_of_chip
from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.jobs import Failed, Limits
from npuscope.base.pool import Pool
from npuscope.check.rule import TrialPrice
from npuscope.explain.sql import LIMITS, refusal
from npuscope.models import PREFIX, file_of

BUDGET = 8192  # bytes of an answer, unless the client says otherwise
INSTRUCTIONS = (
    "npuscope explains traces of NPUs and judges tile programs (PyPTO) without hardware. Read `guide` once. "
    "Then change the program and `judge` it: runs, right, fits, races, predicted time with its interval, and the "
    "findings worth most, each with line and remedy. `fixes` has patches that were tried, after which `findings` are "
    "worth what these gave; `improve` searches them. "
    "`baseline` says whether a change is faster, slower or undecided."
)

Budget = Annotated[int, Field(ge=LEAST_BUDGET, description="Most bytes of the answer; `cut` says what was left out.")]
Device = Annotated[
    str, Field(description="The chip: a name such as ascend910b1, or a TOML file; none: the program's own.")
]
Arguments = Annotated[list[str], Field(description="The program's own arguments.")]
Settings = Annotated[dict[str, str], Field(description="Options, constants or fields of the program to set.")]
Program = Annotated[str, Field(description="A tile program: a .py file, model:NAME, or a source of several lines.")]
Capture = Annotated[
    str,
    Field(description="A capture (file or folder) or a tile program (.py, model:NAME, or a source of several lines)."),
]


class Judged(BaseModel):
    """Answers in the order of the candidates; `good` of them are good."""

    good: int
    of: int
    answers: list[dict[str, Any]] = Field(
        description="Each: candidate, verdict (good, wrong, race, unfit, fails, exited, crashed, time, memory), "
        "message, "
        "right, wrong, reasons, races, time {wall_ns, low_ns, high_ns, coverage}, bound, findings, tasks, versus, cut."
    )
    cut: dict[str, str] = {}


class Explained(BaseModel):
    """Where the time went: the first cause is the verdict."""

    verdict: str
    bound: str
    wall_ns: int
    causes: list[dict[str, Any]] = Field(description="Each: kind, sentence, share, evidence, gain, remedy.")
    kernels: list[dict[str, Any]]
    waits: dict[str, Any] = Field(description="Idle core time by reason, in nanoseconds.")
    notes: list[str] = []
    cut: dict[str, str] = {}


class Compared(BaseModel):
    """B against A: totals, and the gap split into its causes."""

    verdict: str
    a: str
    b: str
    totals: dict[str, Any]
    waterfall: list[dict[str, Any]]
    kernels: list[dict[str, Any]]
    not_like_for_like: list[str]
    cut: dict[str, str] = {}


class GainsAnswer(BaseModel):
    """What each thing alone would buy, the largest first; gains do not add up."""

    verdict: str
    wall_ns: int
    gains: list[dict[str, Any]]
    cut: dict[str, str] = {}


class Found(BaseModel):
    """What `check` says: errors, which come first, and races keep a program from working, the rest is waste or risk."""

    findings: list[dict[str, Any]]
    races: list[dict[str, Any]] = []
    unpriced: list[str | None] = []
    cut: dict[str, str] = {}


class Fixed(BaseModel):
    """Patches, the one that saves most first; gains do not add up."""

    wall_ns: int | None = None
    fixes: list[dict[str, Any]] = Field(
        description="Each: fix, title, line, saves_ns, wall_ns, versus {ratio, low, high, probability_faster}, "
        "numbers (golden, bits, order), diff."
    )
    not_offered: list[dict[str, Any]] = Field(description="Tried and not offered, each with why.")
    unmended: list[dict[str, Any]] = Field(description="Findings that no fix rewrites, each with why.")
    cut: dict[str, str] = {}


class ImprovedAnswer(BaseModel):
    """What a search found; `versus` takes into account how many fixes were compared."""

    wall_ns: int | None = None
    best_ns: int | None = None
    versus: dict[str, Any] | None = None
    ended: str
    steps: list[dict[str, Any]] = Field(description="Each: fix, title, line, saves_ns, versus, numbers, diff.")
    trials: list[dict[str, Any]]
    cut: dict[str, str] = {}


def client_roots(context: Context[Any, Any]) -> ListRoots | None:
    """Asks a client that has roots for them."""
    capabilities = context.client_capabilities
    return ListRoots() if capabilities is not None and capabilities.roots is not None else None


Roots = Annotated[ListRootsResult | None, Resolve(client_roots)]


def server(roots: Sequence[str] = ()) -> MCPServer[Any]:
    """The server with its tools; `server().run()` serves standard input and output.

    It reads what lies below `roots`, without them below the working directory, and below the client's roots.
    """
    folders = [Path(root) for root in roots] or [Path.cwd()]
    made: MCPServer[Any] = MCPServer("npuscope", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    pool = Pool(modules=WARM)
    prices: dict[str, tuple[TrialPrice, ...]] = {}  # what fixes gave, by program: its findings are worth that since

    def asked_of(
        path: str, arguments: Sequence[str], settings: dict[str, str], device: str,
        step: int | None = None, rank: int | None = None,
    ) -> Asked:  # fmt: skip
        asked = Asked(path, tuple(arguments), settings, device, step, rank)
        return replace(asked, tried=prices.get(tools.key_of(asked), ())) if prices else asked

    def check(given: ListRootsResult | None, device: str, *paths: str | None) -> None:
        """Refuses paths outside of all roots; a device is a path where it looks like one."""
        named = [folder_of(str(root.uri)) for root in (given.roots if given is not None else [])]
        device_file = device if "/" in device or os.sep in device or device.endswith(".toml") else None
        try:
            asked = (path for path in (device_file, *paths) if path is not None)
            inherited = map(str, files_of_chip(device) if device_file else ())
            check_allowed(chain(asked, inherited), [*folders, *(folder for folder in named if folder is not None)])
        except NpuscopeError as error:
            raise ToolError(str(error)) from error

    async def answer_from(
        name: str, arguments: Sequence[Any], budget: int, limits: Limits = Limits(seconds=300.0)
    ) -> dict[str, Any]:
        handle = pool.ask(tools.run, (name, tuple(arguments)), limits)
        try:
            answer = await to_thread.run_sync(handle.result, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            handle.cancel()
            raise
        if isinstance(answer, Failed):
            raise ToolError(str(refusal(answer, limits)) if name == "sql" and answer.error is None else answer.message)
        return within(answer, budget)

    async def with_progress(context: Context[Any, Any], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What long work answers; the client hears how far it is, and ends it by cancelling."""
        stop, last_sent = Event(), -1

        def listener(what: str, done: int, total: int) -> None:
            """Hears twice a second how far it is; raising here ends the candidates that are under way."""
            nonlocal last_sent
            if stop.is_set():
                raise NpuscopeError("cancelled")
            if done > last_sent:  # the protocol wants progress that grows
                last_sent = done
                with suppress(RuntimeError):  # the client has left
                    from_thread.run(context.report_progress, float(done), float(total), what)

        def answered() -> dict[str, Any]:
            with progress.listen(listener):
                return work()

        try:
            return await to_thread.run_sync(answered, abandon_on_cancel=True)
        except NpuscopeError as error:
            raise ToolError(str(error)) from error
        except anyio.get_cancelled_exc_class():
            stop.set()
            raise

    @made.tool()
    async def judge(
        context: Context[Any, Any],
        given: Roots,
        programs: Annotated[list[str], Field(min_length=1, description="Files, or sources of several lines.")],
        arguments: Arguments = [],  # noqa: B006
        settings: Settings = {},  # noqa: B006
        baseline: Annotated[str | None, Field(description="A file or a source to compare with.")] = None,
        golden: Annotated[bool, Field(description="Also compute, and compare with the program's golden.")] = True,
        seconds: Annotated[float, Field(gt=0, description="Longest time of each candidate.")] = 120.0,
        device: Device = "",
        budget: Budget = BUDGET,
    ) -> Judged:
        """Does each tile program run, is it right, fit and safe, how long does it take, and what is worth changing."""
        check(given, device, baseline, *programs)

        def work() -> dict[str, Any]:
            how = How(golden, Limits(seconds=seconds))
            answers = judge_many(
                [_program(one) for one in programs], arguments, device=device, settings=settings,
                baseline=None if baseline is None else _program(baseline), how=how,
            )  # fmt: skip
            found = [answer.to_dict(max(budget // len(answers), LEAST_BUDGET)) for answer in answers]
            good = sum(one.verdict == "good" for one in answers)
            return within({"good": good, "of": len(answers), "answers": found}, budget)

        return Judged(**await with_progress(context, work))

    @made.tool()
    async def fixes(
        context: Context[Any, Any], given: Roots, path: Program, arguments: Arguments = [], settings: Settings = {},  # noqa: B006
        device: Device = "", budget: Budget = 2 * BUDGET,
    ) -> Fixed:  # fmt: skip
        """Patches for a tile program, each tried alone: it runs, its numbers agree, it fits, is safe and is predicted
        faster. Nothing is written: apply a diff yourself, or save the source."""
        check(given, device, path)
        asked = Asked(path, tuple(arguments), settings, device)

        def work() -> dict[str, Any]:
            key = tools.key_of(asked)  # before: the file may change meanwhile
            found, prices[key] = tools.fixes(asked)
            return within(found, budget)

        return Fixed(**await with_progress(context, work))

    @made.tool()
    async def improve(
        context: Context[Any, Any], given: Roots, path: Program, arguments: Arguments = [], settings: Settings = {},  # noqa: B006
        trials: Annotated[int, Field(ge=1, le=1000, description="Patches that are tried, at most.")] = 60,
        device: Device = "", budget: Budget = 4 * BUDGET,
    ) -> ImprovedAnswer:  # fmt: skip
        """Searches fixes and tile sizes of a program together, step by step; the diff of every step. Asked again, it
        goes on from the trials that it knows. Nothing is written."""
        check(given, device, path)
        asked = Asked(path, tuple(arguments), settings, device)
        return ImprovedAnswer(**await with_progress(context, lambda: within(tools.improved(asked, trials), budget)))

    @made.tool()
    async def explain(
        given: Roots, path: Capture, arguments: Arguments = [], settings: Settings = {}, step: int | None = None,  # noqa: B006
        rank: int | None = None, device: Device = "", budget: Budget = BUDGET,
    ) -> Explained:  # fmt: skip
        """Where the time of a capture or of a simulated program went: causes with evidence, worth and remedy."""
        check(given, device, path)
        asked = asked_of(path, arguments, settings, device, step, rank)
        return Explained(**await answer_from("explain", [asked], budget))

    @made.tool()
    async def compare(
        given: Roots, a: Capture, b: Capture,
        kernels: Annotated[str | None, Field(description="A regular expression.")] = None,
        arguments: Arguments = [], settings: Settings = {}, device: Device = "",  # noqa: B006
        budget: Budget = BUDGET,
    ) -> Compared:  # fmt: skip
        """How B differs from A, kernel by kernel and cause by cause: captures or programs, which are simulated."""
        check(given, device, a, b)
        both = [asked_of(path, arguments, settings, device) for path in (a, b)]
        return Compared(**await answer_from("compare", [*both, kernels], budget))

    @made.tool()
    async def what_if(
        given: Roots, path: Capture, arguments: Arguments = [], settings: Settings = {}, rank: int | None = None,  # noqa: B006
        device: Device = "", budget: Budget = BUDGET,
    ) -> GainsAnswer:  # fmt: skip
        """What would be gained if one kernel, one kind of wait or one finding cost half or nothing."""
        check(given, device, path)
        asked = asked_of(path, arguments, settings, device, rank=rank)
        return GainsAnswer(**await answer_from("what_if", [asked], budget))

    @made.tool()
    async def findings(
        given: Roots, path: Program, arguments: Arguments = [], settings: Settings = {},  # noqa: B006
        device: Device = "", budget: Budget = BUDGET,
    ) -> Found:  # fmt: skip
        """What is wrong with a tile program or wasted by it, each with its line, its fix and what it is worth."""
        check(given, device, path)
        return Found(**await answer_from("findings", [asked_of(path, arguments, settings, device)], budget))

    @made.tool()
    async def sql(
        given: Roots, path: Annotated[str, Field(description="A capture: a file or a folder.")],
        query: Annotated[str, Field(description="A SELECT; nothing lists tables, columns and examples.")] = "",
        rank: int | None = None, budget: Budget = BUDGET,
    ) -> dict[str, Any]:  # fmt: skip
        """Rows of an SQL query over a capture's tables (slices, lanes, edges, counters, kernels, gaps, path, steps)."""
        check(given, "", path)
        return await answer_from("sql", [path, query, rank], budget, LIMITS)

    @made.tool()
    async def op(
        given: Roots, name: Annotated[str | None, Field(description="An op, such as row_max; none lists all.")] = None,
        device: Device = "ascend910b1", budget: Budget = BUDGET,
    ) -> dict[str, Any]:  # fmt: skip
        """The reference of the tile language's ops: signature, unit, types, cost."""
        check(given, device)
        return await answer_from("op", [name, device], budget)

    @made.tool()
    async def chip(given: Roots, device: Device = "ascend910b1", budget: Budget = BUDGET) -> dict[str, Any]:
        """What a chip has: cores, sizes of its memories, peak rates."""
        check(given, device)
        return await answer_from("chip", [device], budget)

    @made.tool()
    async def rules(budget: Budget = 4 * BUDGET) -> dict[str, Any]:
        """Every rule that `findings` knows: what it finds, why it matters, before and after."""
        return await answer_from("rules", [], budget)

    @made.tool()
    def guide() -> str:
        """What a writer of kernels must know: the language, the chip's limits, what is fast and what is slow."""
        return guide_text()

    for tool in made._tool_manager.list_tools():  # the package has no public way to refuse what a tool does not take
        takes = tool.fn_metadata.arg_model
        takes.model_config["extra"] = "forbid"
        takes.model_rebuild(force=True)
        tool.parameters["additionalProperties"] = False
    return made


def _program(given: str) -> str:
    """A model's name as its file; a source and a file stay as they are."""
    return file_of(given) if given.startswith(PREFIX) else given
