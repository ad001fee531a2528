"""npuscope's own folder, as `npuscope.trace.readers.parquet` reads it."""

from __future__ import annotations

import json
from pathlib import Path

from npuscope.trace.core import Trace
from npuscope.trace.meta import Counts
from npuscope.trace.readers.parquet import MARK, VERSION, is_ours
from npuscope.trace.writers.atomic import whole_folder


def write(trace: Trace, path: Path) -> Counts:
    """Three Parquet tables and meta.json."""
    with whole_folder(path, is_ours) as folder:
        # small row groups with statistics, so that a window reads only what it needs
        trace.slices.write_parquet(folder / "slices.parquet", row_group_size=1 << 18, statistics=True)
        trace.lanes.write_parquet(folder / "lanes.parquet")
        trace.edges.write_parquet(folder / "edges.parquet")
        meta = {MARK: VERSION, **trace.meta.as_dict()}
        # the standard encoder: a capture's own notes may hold numbers beyond 64 bits
        (folder / "meta.json").write_text(json.dumps(meta, indent=2, default=str))
    return {}
