"""Fields of an event's `args`, which stay JSON text until somebody asks."""

from __future__ import annotations

import polars as pl


def field(args: pl.Series, name: str) -> pl.Series:
    """One field of every row's JSON object, as text (a string without its quotes); null where it is absent."""
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    return args.str.json_path_match(f'$["{quoted}"]').alias(name)


def whole_number(args: pl.Series, name: str) -> pl.Series:
    """One field as int64; null where it is absent or not a whole number."""
    return field(args, name).cast(pl.Int64, strict=False)


def microseconds(args: pl.Series, name: str) -> pl.Series:
    """One field that holds microseconds, as nanoseconds."""
    return (field(args, name).cast(pl.Float64, strict=False) * 1000).round(0).cast(pl.Int64, strict=False).alias(name)
