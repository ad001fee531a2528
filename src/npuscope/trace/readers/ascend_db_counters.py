"""Samples in the Ascend profiler's database: which tables hold them, and what their columns are called here."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from npuscope.trace.decimal_time import LARGEST_US


class Sampled(NamedTuple):
    """A table of samples: a row has one of each value, named after `of`, the columns that tell which, and its unit."""

    of: str
    which: tuple[str, ...]
    values: dict[str, str]
    time: str = "timestampNs"
    text: tuple[str, ...] = ()  # which of the columns are ids into STRING_IDS


SAMPLED = {
    "HBM": Sampled("HBM", ("hbmId", "type"), {"bandwidth": "B/s"}, text=("type",)),
    "LLC": Sampled("LLC", ("llcId", "mode"), {"hitRate": "hit rate %", "throughput": "B/s"}, text=("mode",)),
    "NPU_MEM": Sampled("", ("type",), {"ddr": "DDR bytes", "hbm": "HBM bytes"}, text=("type",)),
    "AICORE_FREQ": Sampled("AI Core", (), {"freq": "MHz"}),
    "SOC_BANDWIDTH_LEVEL": Sampled("", (), {"l2BufferBwLevel": "L2 buffer level", "mataBwLevel": "Mata level"}),
    "ACC_PMU": Sampled(
        "accelerator",
        ("accId",),
        {
            "readBwLevel": "read bandwidth",
            "writeBwLevel": "write bandwidth",
            "readOstLevel": "reads outstanding",
            "writeOstLevel": "writes outstanding",
        },
    ),
    "NPU_MODULE_MEM": Sampled("module", ("moduleId",), {"totalReserved": "reserved bytes"}),
    "MEMORY_RECORD": Sampled(
        "",
        ("component",),
        {"totalAllocated": "allocated bytes", "totalReserved": "reserved bytes", "totalActive": "active bytes"},
        time="timestamp",
        text=("component",),
    ),
}


def columns_of(sampled: Sampled) -> list[str]:
    """The columns a table of samples must have."""
    return [sampled.time, "deviceId", *sampled.which, *sampled.values]


def samples_of(table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """place, device, name, time and value of every number; null where the database has none that fits."""
    sampled = SAMPLED[table]
    parts = []
    for column, unit in sampled.values.items():
        words = [pl.lit(sampled.of), *(pl.col(c).cast(pl.String).fill_null("") for c in sampled.which), pl.lit(unit)]
        time = pl.col(sampled.time)
        parts.append(
            rows.select(
                pl.lit(table).alias("place"),
                pl.col("deviceId").cast(pl.Int32, strict=False).alias("device"),
                pl.concat_str(words, separator=" ").str.strip_chars().alias("name"),
                pl.when(time.is_between(0, LARGEST_US * 1000)).then(time).alias("time"),
                pl.col(column).cast(pl.Float64, strict=False).alias("value"),
            )
        )
    return pl.concat(parts)
