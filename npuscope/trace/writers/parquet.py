"""npuscope's own folder, as `npuscope.trace.readers.parquet` reads it."""

from __future__ import annotations

from pathlib import Path

import orjson

from npuscope.trace.core import Trace
from npuscope.trace.meta import Counts
from npuscope.trace.readers.parquet import MARK, VERSION, is_folder
from npuscope.trace.writers.atomic import whole_folder


def write(trace: Trace, path: Path) -> Counts:
    """Three Parquet tables and meta.json."""
    with whole_folder(path, is_folder) as folder:
        # small row groups with statistics, so that a window reads only what it needs
        trace.slices.write_parquet(folder / "slices.parquet", row_group_size=1 << 18, statistics=True)
        trace.lanes.write_parquet(folder / "lanes.parquet")
        trace.edges.write_parquet(folder / "edges.parquet")
        meta = {MARK: VERSION, **trace.meta.as_dict()}
        (folder / "meta.json").write_bytes(orjson.dumps(meta, option=orjson.OPT_INDENT_2, default=str))
    return {}
