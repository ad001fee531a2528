"""npuscope's own folder, as `npuscope.trace.readers.parquet` reads it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from npuscope.trace.core import Counts, Trace, account_of
from npuscope.trace.formats import Writer
from npuscope.trace.readers.parquet import MARK, TABLES, VERSION, content_of, is_ours
from npuscope.trace.writers.atomic import whole_folder


def write(trace: Trace, path: Path) -> Counts:
    """Four Parquet tables and meta.json, which has their rows, sizes and hashes."""
    tables = {name: getattr(trace, name) for name in TABLES}
    with whole_folder(path, is_ours) as folder:
        for name, table in tables.items():
            # small row groups with statistics, so that a window reads only what it needs
            table.write_parquet(folder / f"{name}.parquet", row_group_size=1 << 18, statistics=True)
        rows = {name: table.height for name, table in tables.items()}
        content = {f"{name}.parquet": msgspec.to_builtins(content_of(folder / f"{name}.parquet")) for name in tables}
        head = {MARK: VERSION, "rows": {**rows, **account_of(trace.meta)}, "content": content}
        # the standard encoder: a capture's own notes may hold numbers beyond 64 bits
        (folder / "meta.json").write_text(json.dumps({**head, **trace.meta.as_dict()}, indent=2, default=str))
    return {}


WRITER = Writer("parquet", "npuscope's own folder (.npu, or a name without an ending)", write, (".npu", ""))
