"""Pages of the reference that are made from declarations: columns, ops, rules, spellings, producers."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby

import npuscope
from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules
from npuscope.chip.devices import Device, load
from npuscope.explain.diagnosis import CAUSES
from npuscope.ops.spec import OpSpec
from npuscope.ops.table import FAMILIES
from npuscope.report.reference import TILE, calls, units_text
from npuscope.table.columns import Column, Columns
from npuscope.table.formats import NOTHING
from npuscope.table.parts import marked_down
from npuscope.tile.language.history import HISTORY, Spelling
from npuscope.time.core.costs import op_price
from npuscope.trace.formats import QUESTIONS, Format, readers

COLUMNS_PAGE = """# The columns of tables

A result's table has the same columns in text, Markdown, on pages and in JSON. Text has room for those that matter most;
`--wide` prints the others, too. What is only for programs says why. [json.md](../json.md) has the rest of JSON. This
page is made from the declarations in the code ([architecture.md](../../howto/extend.md) says how to add a column).

{tables}

## Causes

The `kind` of a cause, and the `bound` of a run, which is the kind of its first cause.

| kind | meaning |
|---|---|
{causes}
"""


def columns_page() -> str:
    """The whole page."""
    parts = []
    for command, tables in groupby(declared(), key=lambda columns: columns.place.partition(".")[0]):
        parts += [f"## `npuscope {command}`", *(_columns_table(columns) for columns in tables)]
    causes = [f"| {cause.kind} | {cause.meaning} |" for cause in CAUSES.values()]
    return COLUMNS_PAGE.format(tables="\n\n".join(parts), causes="\n".join(causes))


def declared() -> list[Columns]:
    """All columns that some module declares and JSON has, by place."""
    found = {columns.place: columns for columns in _in_modules() if columns.place}
    return [found[place] for place in sorted(found)]


def _in_modules() -> Iterator[Columns]:
    for module in pkgutil.walk_packages(npuscope.__path__, "npuscope."):
        if module.name.endswith("__main__") or module.name.startswith("npuscope.models."):  # programs to run
            continue
        try:
            values = vars(import_module(module.name)).values()
        except ModuleNotFoundError as error:
            if error.name != "torch":  # what works on torch's tensors is loaded where a script has them
                raise
            continue
        yield from (value for value in values if isinstance(value, Columns))


def _columns_table(columns: Columns) -> str:
    lines = [f"### `{columns.place}`", "", columns.about, "", "| key | type | heading | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_column_row(column) for column in columns)])


def _column_row(column: Column) -> str:
    heading = f"*(only JSON: {column.only})*" if column.only else marked_down(column.label)
    if column.wide and not column.only:
        heading += " *(wide)*"
    return f"| `{column.name}` | {column.form.json} | {heading} | {column.meaning} |"


SPELLINGS_PAGE = """# Programs of other months

PyPTO's language changed from month to month in 2026, mostly in spelling. A public program of any month since April runs
as it is. Where an old spelling decided which tasks run, or how long they take, npuscope does what the compiler of its
day did and says so in a note; what it does not do it refuses. `npuscope check` lists old spellings under
[retired-spelling](rules.md#retired-spelling). The table is `src/npuscope/tile/language/history.py`.

## Spellings that decide tasks or time

| spelling | removed | today | here |
|---|---|---|---|
{matter}

### Tasks drawn by the compiler

Inside `pl.auto_incore()`, or a `pl.at` with `pl.chunked_loop_optimizer` or `pl.auto_chunk`, the compiler drew the
tasks:

- A `pl.parallel(…, chunk=n)` loop became a task for every n turns, the last one perhaps shorter. Chunked loops inside
  such a task were plain loops. So were `pl.range(…, chunk=n)` loops anywhere: turns that run in order stayed in one
  task.
- Of all other statements each run of such that compute became a task, whole loops included. A statement that computes
  nothing stayed in orchestration and ended the run: arithmetic of whole numbers, and ops that only make, look at or
  arrange tensors (`create_tensor`, `slice`, `assemble`, `reshape`, `transpose`, `read`, `write`, `dim`). What one task
  computed and another used went through GM.
- A loop around chunked loops stayed in orchestration; its body was treated likewise.

Of the public programs whose number of tasks was published, it comes out the same for Qwen3-32B's first scope (161 and
37 tasks before and after a change), its decode layer (1,503 and 1,379; 266 in a later version) and Qwen3-14B's (1,128);
for a later version of the latter 557 come out where 732 were published.

## Spellings that are only names

| spelling | removed | today |
|---|---|---|
{names}
"""


def history_page() -> str:
    """The whole page."""
    return SPELLINGS_PAGE.format(
        matter="\n".join(f"| {_spelling_cells(one)} | {one.does} |" for one in HISTORY if one.matters),
        names="\n".join(f"| {_spelling_cells(one)} |" for one in HISTORY if not one.matters),
    )


def _spelling_cells(one: Spelling) -> str:
    return f"`{one.old}` | {one.until}, {one.change} | {one.now}"


RULES_PAGE = """# What `npuscope check` looks for

Every kind of finding has an id that stays: `--select` and `--ignore` take it (or `prefix*`), `# npuscope: ignore[ID]`
at the end of a statement or on the line above silences it there, `npuscope check --explain ID` prints its section.
[Check a program](../../howto/check.md) says how findings are shown, ranked and used in CI.

*error*: it will not work. *warning*: wrong numbers, or a large waste. *hint*: a waste worth knowing; rules that weigh a
cost hint where it is a small part of the program. In the examples `CORE` is `pl.Level.CORE_GROUP`.

| id | severity | finds |
|---|---|---|
{table}

{sections}
"""


def producers_page() -> str:
    """What each producer's capture can tell: rows are questions, columns producers, cells the readers' own words."""
    those = [reader for reader in readers(Format) if reader.tells]
    rows = [
        f"| {text} | " + " | ".join(_answer(reader, key) for reader in those) + " |" for key, text in QUESTIONS.items()
    ]
    head = "| question | " + " | ".join(f"`{reader.name}`" for reader in those) + " |"
    listed = "\n".join(f"- `{reader.name}`: {reader.what}" for reader in those)
    return PRODUCERS_PAGE.format(listed=listed, table="\n".join([head, "|---" * (len(those) + 1) + "|", *rows]))


def _answer(reader: Format, question: str) -> str:
    answers = reader.answers()
    return "–" if question not in answers else answers[question] or "yes"


def rules_page() -> str:
    """The whole page."""
    table = "\n".join(f"| [{rule.id}](#{rule.id}) | {rule.severity} | {rule.title} |" for rule in all_rules())
    return RULES_PAGE.format(table=table, sections="\n\n".join(_rule_section(rule) for rule in all_rules()))


def _rule_section(rule: Rule) -> str:
    example = rule.example
    costs = f"\n\nCost: {example.costs}." if example.costs else ""
    return (
        f"## {rule.id}\n\n*{rule.severity}*: {rule.title}. {rule.why}\n\n"
        f"```python\n{example.before}\n```\n\nbetter\n\n```python\n{example.after}\n```{costs}"
    )


PRODUCERS_PAGE = """# What each producer's capture can tell

Made from what the readers say of themselves. A cell is the condition under which a capture of this kind answers the
question; "–" where none does. Ranks are compared where a folder holds a capture of each.

{table}

{listed}
"""

BAR = "\\|"  # within a cell

OPS_PAGE = """# The ops of the tile language

Every op that programs can call, and the few that only the compiler makes. A plain name is in `pl`, in `pl.tile` and in
`pl.tensor`; where it is elsewhere the name says so. Made from `src/npuscope/ops/`, where each op is declared once;
`npuscope ops NAME` prints more about one: its signature, what it needs on chip, where its cost comes from.

*cycles* are those of one instruction on a tile of {tile} on an idle core of the {device} ({clock} cycles are a
microsecond): of a product of two such tiles, of a transfer of one such tile. *sure* is how its cost is known: measured,
documented, fitted, or guessed. A cost taken over from another op is a guess, however sure the other one is.
`npuscope simulate` says how much of a run rests on guesses.

{sections}
"""


def ops_page() -> str:
    """The whole page."""
    device = load("ascend910b1")
    assert device.clock is not None
    sections = "\n\n".join(_ops_section(title, specs, device) for title, specs in FAMILIES.items())
    return OPS_PAGE.format(
        tile=TILE, device=device.name, clock=f"{device.clock.core.value / 1e6:,.0f}", sections=sections
    )


def _ops_section(title: str, specs: Sequence[OpSpec], device: Device) -> str:
    cells = [
        (_spelled(spec), spec.doc, units_text(spec.planes), spec.types, *_cost_cells(spec, device)) for spec in specs
    ]
    rows = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in cells]
    head = "| op | what it does | unit | types | cycles | sure |\n|---|---|---|---|---:|---|"
    return f"## {title}\n\n" + "\n".join([head, *rows])


def _spelled(spec: OpSpec) -> str:
    """How it is called, a line for each function, with other names of the same function behind."""
    lines = []
    for given, names in calls(spec).items():
        also = f", also {', '.join(f'`{name}`' for name in names[1:])}" if len(names) > 1 else ""
        lines.append(f"`{names[0]}({given})`{also}")
    return "<br>".join(lines) or f"`{spec.name}`, made by lowering"


def _cost_cells(spec: OpSpec, device: Device) -> tuple[str, str]:
    cost = op_price(spec, device)
    return (NOTHING, NOTHING) if cost is None else (f"{cost.cycles:,.0f}", cost.confidence)
