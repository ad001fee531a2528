"""Rows of a profiler's tables on their way to a Trace: sound times, sound samples, and lanes from their places."""

from __future__ import annotations

import polars as pl

from npuscope.trace.decimal_time import LARGEST_US, LONGEST_US
from npuscope.trace.meta import NEGATIVE, Ledger

_PLACE = {"place": pl.String, "unit": pl.String, "device": pl.Int32}
_SLICE = {"start": pl.Int64, "dur": pl.Int64, **dict.fromkeys(("kernel", "kind", "table"), pl.String)}
NO_SLICES = pl.DataFrame(schema={**_SLICE, **_PLACE})
NO_SAMPLES = pl.DataFrame(schema={**_PLACE, "name": pl.String, "time": pl.Int64, "value": pl.Float64})


def numbered(what: str, number: pl.Expr) -> pl.Expr:
    """The name of a lane, also where the database does not tell its number."""
    return pl.concat_str(pl.lit(f"{what} "), number.cast(pl.String).fill_null("not told"))


def sound_rows(rows: pl.DataFrame, start: str, end: str, ledger: Ledger) -> pl.DataFrame:
    """The rows with usable times, as `start` and `dur`."""
    usable = [pl.col(c).is_between(0, LARGEST_US * 1000) for c in (start, end)]
    length = pl.col(end) - pl.col(start)
    sound = rows.filter(*usable, length <= LONGEST_US * 1000)
    ledger.dropped["row without a usable time"] += rows.height - sound.height
    ledger.repaired[NEGATIVE] += sound.filter(length < 0).height
    timed = sound.with_columns(pl.col(start).alias("start"), length.clip(lower_bound=0).alias("dur"))
    return timed.drop({start, end} - {"start"})


def sound_samples(samples: pl.DataFrame, ledger: Ledger) -> pl.DataFrame:
    """By time; a number that is missing, or has no time, is left out and counted."""
    sound = samples.drop_nulls(["time", "value"])
    ledger.records += samples.height
    ledger.dropped["sample without a usable time or number"] += samples.height - sound.height
    return sound.with_columns(unit=pl.lit("counter")).sort("time", maintain_order=True)


def on_lanes(slices: pl.DataFrame, samples: pl.DataFrame = NO_SAMPLES) -> tuple[pl.DataFrame, ...]:
    """Slices and samples with the lane that their place is, and the lanes."""
    place = list(_PLACE)
    places = pl.concat([slices.select(place), samples.select(place)], how="vertical_relaxed")
    lanes = places.unique(maintain_order=True).with_row_index("lane")
    joined = (
        rows.join(lanes, on=place, nulls_equal=True, maintain_order="left").drop(place) for rows in (slices, samples)
    )
    return *joined, lanes.rename({"place": "name"})
