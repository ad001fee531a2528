"""What a Chrome-style file holds that its reader has no meaning for: counted, so that nothing is lost in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from npuscope.trace.event_table import EventTable

# what any Chrome-style file may have beside its events
CHROME_HEADER = {
    "displayTimeUnit", "otherData", "metadata", "systemTraceEvents", "powerTraceAsString", "stackFrames", "samples",
    "controllerTraceDataKey", "traceName", "schemaVersion", "beginningOfTime",
}  # fmt: skip


def header_keys(table: EventTable, known: Iterable[str] = ()) -> None:
    """Keys beside the list of events; a list counts as its entries."""
    for key in table.header.keys() - CHROME_HEADER - set(known):
        value = table.header[key]
        table.ledger.count_unknown("header key", key, max(len(value), 1) if isinstance(value, list) else 1)


def categories(table: EventTable, known: Collection[str]) -> None:
    """Categories of slices, by how many slices have them; no category is none."""
    for number, slices in table.slices["category"].value_counts().iter_rows():
        if table.categories[number] and table.categories[number] not in known:
            table.ledger.count_unknown("category", table.categories[number], slices)


def processes(table: EventTable, known: Collection[str]) -> None:
    """Named processes, by how many slices and samples they hold."""
    names = table.lane_processes()
    held: Counter[str] = Counter()
    for rows in (table.slices, table.counters):
        if rows.height:
            for lane, entries in rows["lane"].value_counts().iter_rows():
                held[names[lane]] += entries
    for name in set(table.process_names.values()) - set(known):
        if held[name]:
            table.ledger.count_unknown("process", name, held[name])
