"""Fields of an event's `args`, which stay JSON text until somebody asks."""

from __future__ import annotations

import msgspec
import polars as pl

from npuscope.trace.decimal_time import ns_from_us


def field(args: pl.Series, name: str) -> pl.Series:
    """One field of every row's JSON object, as text (a string without its quotes); null where it is absent."""
    if '"' in name or "\\" in name:  # Polars' JSON paths have no way to write these
        return pl.Series(name, [_field(text, name) for text in args], dtype=pl.String)
    return args.str.json_path_match(f'$["{name}"]').alias(name)


def _field(text: str | None, name: str) -> str | None:
    fields = None if text is None else msgspec.json.decode(text)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def whole_number(args: pl.Series, name: str) -> pl.Series:
    """One field as int64; null where it is absent or not a whole number."""
    return field(args, name).cast(pl.Int64, strict=False)


def microseconds(args: pl.Series, name: str) -> pl.Series:
    """One field that holds microseconds, as nanoseconds."""
    return field(args, name).to_frame().select(ns_from_us(pl.col(name)).alias(name))[name]
