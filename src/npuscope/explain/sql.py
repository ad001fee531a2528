"""SQL over a trace: its tables, and a query over them in a process of its own that can open nothing.

`run_query` is what surfaces call. A query reads tables and nothing else: its process gives up opening files and sockets
before the query begins, so a function such as read_csv finds nothing, and it has limits of time and memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import polars as pl
from polars.exceptions import ColumnNotFoundError, PolarsError

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import GIB, Failed, Limits
from npuscope.base.pool import Named, shared_pool
from npuscope.explain.choosing import split_ranks
from npuscope.explain.explanation import KERNELS, Explanation, explain
from npuscope.explain.repetition import STEPS
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, FLAG, LIST, MEAN_TIME, NUMBER, TEXT, TIME, Form
from npuscope.trace.clocks import check_one_clock
from npuscope.trace.core import Trace

LIMITS = Limits(seconds=30.0, bytes=2 * GIB)
MOST_ROWS = 1_000_000  # of an answer
BEGINNINGS = ("select", "with", "from", "values", "explain")
MOMENTS = re.compile(r"(?i)\b(start|dispatch|receive|finish|time)\b")  # columns that are no lengths of time
START, DUR = Column("start", TIME, "when it began"), Column("dur", TIME, "how long it took")
LANE = Column("lane", COUNT, "the row of `lanes` that it is on")
RANK = Column("rank", COUNT, "the rank, or the device of a capture of several; null where there is one")
KERNEL = Column("kernel", TEXT, "the kernel's name")
SLICES = Columns(
    "sql.slices",
    "Something that took time on a lane: a block of a task, a copy, a phase of the scheduler.",
    LANE,
    START,
    DUR,
    KERNEL,
    Column("kind", TEXT, "task, comm, copy (the device's work), schedule, host or derived (describes other rows)"),
    Column("depth", COUNT, "how many slices of the lane were open when it began"),
    Column("task", COUNT, "the task's number: what `edges` join"),
    Column("block", COUNT, "the block of the task"),
    Column("dispatch", TIME, "when the scheduler handed it out"),
    Column("finish", TIME, "when the scheduler saw its end"),
    Column("step", COUNT, "the step that it belongs to"),
    Column("duplicate_of", COUNT, "the task whose work the row lists a second time; null for a row that counts"),
    Column("unit", TEXT, "what its lane is: AIC, AIV, AICPU, stream, host, link"),
    RANK,
)
LANES = Columns(
    "sql.lanes",
    "A core, a stream or a thread.",
    Column("lane", COUNT, "its number"),
    Column("name", TEXT, "what the capture calls it"),
    Column("unit", TEXT, "AIC, AIV, AICPU, stream, host, link or counter"),
    Column("core", COUNT, "the core's number"),
    Column("device", COUNT, "the device's number"),
    RANK,
)
EDGES = Columns(
    "sql.edges",
    "A task that waits for another, or what a call launched.",
    Column("src", COUNT, "the task that comes first; null where the capture does not have it"),
    Column("dst", COUNT, "the task that waits for it"),
    Column("source", TEXT, "who says so: tensormap, creator, explicit or flow"),
)
COUNTERS = Columns(
    "sql.counters",
    "A sample of a counter.",
    Column("lane", COUNT, "the row of `lanes` that it is of; null for the whole device"),
    Column("name", TEXT, "the counter's name"),
    Column("time", TIME, "when"),
    Column("value", NUMBER, "its value until the next sample"),
)
GAPS = Columns(
    "sql.gaps",
    "A moment in which a lane was idle, with its reason.",
    LANE,
    START,
    DUR,
    Column("reason", TEXT, "why it was idle: dependency, FIN, dispatch, pickup, starved, edge (the glossary)"),
    Column("kernel", TEXT, "what ran next on the lane"),
    Column("blocker", TEXT, "the kernel that it waited for"),
    RANK,
)
PATH = Columns(
    "sql.path",
    "A piece of the chain of runs and waits that decides when the run ends, in order.",
    START,
    DUR,
    Column("part", TEXT, "run, or the reason for waiting"),
    KERNEL,
    LANE,
    Column("task", COUNT, "the task's number"),
    Column("link", TEXT, "why it began no earlier: dependency (its producer), core (was busy), none"),
    RANK,
)


class SqlTable(NamedTuple):
    """A table that queries see; `of` the trace, or of each rank that is explained alone."""

    columns: Columns
    of: Callable[[Trace], pl.DataFrame] | None = None
    each: Callable[[Explanation], pl.DataFrame] | None = None

    def frame(self, trace: Trace) -> pl.DataFrame:
        """Its rows; words are text, so that they compare with any."""
        if self.each is None:
            assert self.of is not None
            found = self.of(trace)
        else:
            parts = [(part.device if part.rank is None else part.rank, part.trace) for part in split_ranks(trace)]
            frames = [self.each(explain(part)).with_columns(rank=pl.lit(n, dtype=pl.Int32)) for n, part in parts]
            found = pl.concat(frames, how="vertical_relaxed")
        return found.with_columns(pl.col(name).cast(pl.String) for name in _words(found))


def _words(frame: pl.DataFrame) -> list[str]:
    return [name for name, dtype in frame.schema.items() if isinstance(dtype, pl.Enum | pl.Categorical)]


def _slices(trace: Trace) -> pl.DataFrame:
    """With what the lane says; a source's own columns of these names are `NAME_of_source`."""
    own = {name: f"{name}_of_source" for name in trace.slices.columns if name in ("unit", "rank")}
    return trace.slices.rename(own).join(
        trace.lanes.select("lane", "unit", "rank"), on="lane", how="left", maintain_order="left"
    )


def _lasting(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces from `start` to `end` with how long they are: `end` is a word of SQL."""
    return pieces.with_columns(end=pl.col("end") - pl.col("start")).rename({"end": "dur"})


TABLES: dict[str, SqlTable] = {
    "slices": SqlTable(SLICES, _slices),
    "lanes": SqlTable(LANES, lambda trace: trace.lanes),
    "edges": SqlTable(EDGES, lambda trace: trace.edges),
    "counters": SqlTable(COUNTERS, lambda trace: trace.counters),
    "kernels": SqlTable(KERNELS.plus(RANK, place="sql.kernels"), each=lambda e: e.tables()["kernels"].frame),
    "gaps": SqlTable(GAPS, each=lambda e: _lasting(e.bubbles.segments)),
    "path": SqlTable(PATH, each=lambda e: _lasting(e.path.segments.drop("row"))),
    "steps": SqlTable(STEPS.plus(RANK, place="sql.steps"), each=lambda e: e.steps.table),
}
SCHEMA = Columns(
    "sql.tables",
    "A column that a query can name.",
    Column("table", TEXT, "the table"),
    Column("column", TEXT, "its name in a query"),
    Column("type", TEXT, "its type and unit"),
    Column("meaning", TEXT, "what it has"),
)


def schema_of(trace: Trace | None = None) -> Table:
    """Every column of every table; of a capture with those that only its format has."""
    rows: list[tuple[str, str, str, str]] = []
    raw = (
        {"slices": trace.slices, "lanes": trace.lanes, "edges": trace.edges, "counters": trace.counters}
        if trace
        else {}
    )
    for name, table in TABLES.items():
        rows += [(name, one.key, one.form.json, one.meaning) for one in table.columns]
        more = raw[name].schema.items() if name in raw else ()
        rows += [(name, key, str(t), "as the capture has it") for key, t in more if key not in table.columns.keys]
    return SCHEMA.table(rows)


class SqlExample(NamedTuple):
    """A query that works on any capture, and the question that it answers."""

    question: str
    text: str


EXAMPLES = (
    SqlExample(
        "Which kernels take most core time?",
        "SELECT kernel, COUNT(*) AS slices, SUM(dur) AS core_ns FROM slices WHERE kind = 'task' "
        "GROUP BY kernel ORDER BY core_ns DESC LIMIT 10",
    ),
    SqlExample(
        "Which single slices are the longest, and where did they run?",
        "SELECT s.kernel, l.name AS lane, s.start, s.dur AS run_ns FROM slices s JOIN lanes l ON s.lane = l.lane "
        "WHERE s.kind IN ('task', 'comm', 'copy') ORDER BY run_ns DESC LIMIT 10",
    ),
    SqlExample(
        "Why were lanes idle?",
        "SELECT reason, COUNT(*) AS gaps, SUM(dur) AS idle_ns FROM gaps GROUP BY reason ORDER BY idle_ns DESC",
    ),
    SqlExample(
        "Who waited longest for whom?",
        "SELECT kernel, blocker, SUM(dur) AS idle_ns FROM gaps WHERE blocker IS NOT NULL "
        "GROUP BY kernel, blocker ORDER BY idle_ns DESC LIMIT 10",
    ),
    SqlExample(
        "What decides when the run ends?",
        "SELECT part, kernel, SUM(dur) AS path_ns FROM path GROUP BY part, kernel ORDER BY path_ns DESC LIMIT 10",
    ),
    SqlExample(
        "Which lanes work least?",
        "SELECT l.name, l.unit, SUM(s.dur) AS busy_ns FROM slices s JOIN lanes l ON s.lane = l.lane "
        "WHERE s.kind IN ('task', 'comm', 'copy') AND COALESCE(s.depth, 0) = 0 "
        "GROUP BY l.name, l.unit ORDER BY busy_ns LIMIT 10",
    ),
    SqlExample(
        "Which kernel's tasks are the most unlike one another?",
        "SELECT kernel, COUNT(*) AS n, MIN(dur) AS least_ns, MAX(dur) AS most_ns, STDDEV(dur) / AVG(dur) AS spread "
        "FROM slices WHERE kind = 'task' GROUP BY kernel HAVING COUNT(*) > 3 ORDER BY spread DESC LIMIT 10",
    ),
    SqlExample(
        "Which tasks have most successors?",
        "SELECT src AS task, COUNT(*) AS successors FROM edges GROUP BY src ORDER BY successors DESC LIMIT 10",
    ),
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class SqlAnswer(Tabular):
    """The rows of a query; where it has more than MOST_ROWS these are the first, and it is `cut`."""

    query: str
    rows: pl.DataFrame
    cut: bool = False

    in_json: ClassVar[tuple[str, ...]] = ("query", "cut")

    def tables(self) -> Mapping[str, Table]:
        forms = {name: _form(name, dtype, self.query) for name, dtype in self.rows.schema.items()}
        columns = (Column(name, form, "", "" if form.units else name) for name, form in forms.items())
        return {"rows": Table(Columns("", "", *tuple(columns)), self.rows)}

    def title(self) -> str:
        return self.query


def _form(name: str, dtype: pl.DataType, query: str) -> Form:
    """A time where the query itself names the column so: an aggregate has the name of what it counts."""
    if dtype.is_numeric():
        called = re.search(rf'(?i)\bas\s+"?{re.escape(name)}\b', query)
        if name.endswith("_ns") and called:
            return TIME if dtype.is_integer() else MEAN_TIME
        return COUNT if dtype.is_integer() else NUMBER
    return FLAG if dtype == pl.Boolean else LIST if isinstance(dtype, pl.List) else TEXT


def run_query(trace: Trace, text: str, limits: Limits = LIMITS) -> SqlAnswer:
    """What a query says of a trace, in a process of its own."""
    check_query(text)
    pool = shared_pool(1, ("npuscope.explain.sql",))
    answer = pool.ask(
        Named[tuple[Trace, str], SqlAnswer]("npuscope.explain.sql", "answer"), (trace, text), limits
    ).result()
    if not isinstance(answer, Failed):
        return answer
    raise answer.error or refusal(answer, limits)


def refusal(failed: Failed, limits: Limits) -> NpuscopeError:
    """Why a query has no answer, in one sentence."""
    remedy = "Filter before joining, join ON columns, or add LIMIT."
    if failed.kind == "time":
        return NpuscopeError(f"the query took more than {limits.seconds:g} s and was ended", remedy=remedy)
    if failed.kind in ("memory", "crashed"):  # the allocator's last word is a signal
        return NpuscopeError(f"the query took more than {limits.bytes / GIB:.3g} GiB and was ended", remedy=remedy)
    return NpuscopeError(f"the query has no answer: {failed.message}")


def check_query(text: str) -> None:
    """Refuses what is no question."""
    words = re.sub(r"(?s)/\*.*?\*/|--[^\n]*", " ", text).replace("(", " ").split()
    if not words or words[0].lower() not in BEGINNINGS:
        begin = f"not {words[0][:40]}" if words else "not nothing"
        raise NpuscopeError(
            f"a query begins with SELECT or WITH, {begin}", remedy="`npuscope sql --examples` has some."
        )


def answer(asked: tuple[Trace, str]) -> SqlAnswer:
    """What a query says of a trace. Afterwards this process can open no file: it belongs to the query."""
    trace, text = asked
    check_query(text)
    if MOMENTS.search(text):
        check_one_clock(trace)
    named = {name: table for name, table in TABLES.items() if re.search(rf"(?i)\b{name}\b", text)}
    context = pl.SQLContext(frames={name: table.frame(trace) for name, table in named.items()})
    _close_the_world()
    try:
        rows = context.execute(text, eager=False).head(MOST_ROWS + 1).collect()
    except PolarsError as error:
        raise _explained(error, text) from error
    except OSError as error:
        raise _outside() from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how Polars fails; it is no Exception
            raise
        raise _outside() from error
    rows = rows.with_columns(pl.col(name).cast(pl.String) for name in _words(rows))
    return SqlAnswer(text, rows.head(MOST_ROWS), rows.height > MOST_ROWS)


def _close_the_world() -> None:
    """No file and no socket can be opened from here on."""
    pl.SQLContext(frames={"t": pl.DataFrame({"a": [1]})}).execute(
        "SELECT a FROM t ORDER BY a", eager=True
    )  # its threads
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _outside() -> NpuscopeError:
    return NpuscopeError("a query reads the tables of its capture and no files", remedy="`--tables` lists them.")


def _explained(error: PolarsError, text: str) -> NpuscopeError:
    said = str(error)
    if "os error" in said or "object-store" in said:
        return _outside()
    if found := re.search(r"relation '(.*?)' was not found", said):
        return NpuscopeError(f"no table '{found[1]}'", remedy=f"Tables: {', '.join(TABLES)}.")
    if isinstance(error, ColumnNotFoundError) and (
        found := re.search(r'column "(.*?)"; valid columns: \[(.*)\]', said)
    ):
        return NpuscopeError(f"no column '{found[1]}'", remedy=f"Columns: {found[2].replace(chr(34), '')}.")
    first = next(_sentences(said), type(error).__name__)
    return NpuscopeError(f"the query cannot be run: {first}", remedy="`npuscope sql CAPTURE --tables` lists columns.")


def _sentences(said: str) -> Iterator[str]:
    """The lines of a message before those about its plan."""
    head = re.split(r"\n\s*(?:Resolved plan|This error occurred)", said)[0]
    yield from filter(None, [re.split(r"[:{]\s*\w+ \{", " ".join(head.split()))[0].strip()])
