"""the page of columns: every column of every table, from its declaration.

The site has it (docs/generate.py).
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby

import npuscope
from npuscope.explain.diagnosis import CAUSES
from npuscope.table.columns import Column, Columns
from npuscope.table.parts import marked_down

PAGE = """# The columns of tables

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
        parts += [f"## `npuscope {command}`", *(_table(columns) for columns in tables)]
    causes = [f"| {cause.kind} | {cause.meaning} |" for cause in CAUSES.values()]
    return PAGE.format(tables="\n\n".join(parts), causes="\n".join(causes))


def declared() -> list[Columns]:
    """All columns that some module declares and JSON has, by place."""
    found = {columns.place: columns for columns in _in_modules() if columns.place}
    return [found[place] for place in sorted(found)]


def _in_modules() -> Iterator[Columns]:
    for module in pkgutil.walk_packages(npuscope.__path__, "npuscope."):
        if not module.name.endswith("__main__") and not module.name.startswith("npuscope.models."):  # programs to run
            values = vars(import_module(module.name)).values()
            yield from (value for value in values if isinstance(value, Columns))


def _table(columns: Columns) -> str:
    lines = [f"### `{columns.place}`", "", columns.about, "", "| key | type | heading | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(column) for column in columns)])


def _row(column: Column) -> str:
    heading = f"*(only JSON: {column.only})*" if column.only else marked_down(column.label)
    if column.wide and not column.only:
        heading += " *(wide)*"
    return f"| `{column.name}` | {column.form.json} | {heading} | {column.meaning} |"


if __name__ == "__main__":
    print(columns_page(), end="")
