"""What a collective costs: its times, what bounds it, how it grows with size and ranks."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.table.columns import all_rows
from npuscope.table.formats import capacity, duration, estimate_text, many
from npuscope.table.parts import Chart, Heading, Notes, Part, Rows, Say, Spec, axis
from npuscope.time.ranks.collective import MOST_RANKS, CollectivePrice

WORDS = {
    "steps": "the steps of its kernel, one transfer after the other on each core",
    "barrier": "telling every rank and waiting for every rank",
    "issue rate": "how many transfers the cores of a rank get through together",
    "link": "the bandwidth of the link",
    "fixed": "entering the kernel and telling counts",
}
REMEDY = {
    "steps": "Larger elements move more in a step, more cores (--cores) do steps side by side.",
    "barrier": "Fewer and larger pieces meet less often: the composite form takes 16 KiB at a time.",
    "issue rate": "More cores do not help: larger pieces do.",
    "link": "Only fewer bytes help.",
    "": "Kernels that need fewer peers meet fewer.",
    "fixed": "It is what one call takes: put what several calls send into one.",
}


def collective(found: CollectivePrice, wide: bool = False) -> Iterator[Part]:
    """What `npuscope collective` prints."""
    one = found.asked
    size = "" if one.op == "barrier" else f", {capacity(one.bytes)}"
    on = f"{many(one.ranks, 'rank')} of {found.device}{size}, {many(one.cores, 'core')} each"
    time = estimate_text(found.times[found.metric])
    yield Heading(f"{one.op} ({one.form}) over {on}: {time} ({found.metric})", level=1)
    if found.parts is not None:
        parts = found.parts
        yield Say(f"It is bounded by {WORDS[parts.bound]}.", strong=True)
        yield Notes(
            [
                f"of its kernel: steps {duration(parts.steps)}, barriers {duration(parts.barriers)}, "
                f"the rest {duration(parts.fixed)}; at the rank's limit of transfers {duration(parts.issue)}, "
                f"at the link's bandwidth {duration(parts.link)}",
                REMEDY["" if one.op == "barrier" else parts.bound],
            ]
        )
    yield Rows(found.tables()["metrics"], wide=wide)
    yield Notes([_sure(found)])
    yield Rows(found.grid(), len(one.sizes), wide=wide)
    if len(one.sizes) > 1:
        yield Chart(_chart(found))


def _sure(found: CollectivePrice) -> str:
    one = found.asked
    known = {name: time.basis.rows for name, time in found.times.items() if time.basis.rows}
    if known:
        rows = ", ".join(f"{count} ({name})" for name, count in known.items())
        return f"how sure: published times, each predicted by a fit without it: {rows}; other intervals are guesses"
    what = f"of {one.op}"
    if one.op in MOST_RANKS:
        most = MOST_RANKS[one.op]
        what += f" over more than {most} ranks" if one.ranks > most else " on several cores that tells the kernel"
    return f"how sure: nobody has published a time {what}; the intervals are guesses"


def collective_data(found: CollectivePrice) -> dict[str, object]:
    """The contract of `npuscope collective --json` (docs/reference/json.md)."""
    one, parts = found.asked, found.parts
    kernel = {} if parts is None else {"bound": parts.bound, "parts_ns": {**vars(parts), "kernel": parts.kernel}}
    asked = {"op": one.op, "ranks": one.ranks, "bytes": one.bytes, "cores": one.cores, "form": one.form}
    return {**asked, "dtype": one.dtype, "device": found.device, **kernel, **all_rows(found.tables())}


def _point(ranks: int, size: int, time: int) -> str:
    return f"{capacity(size)} over {ranks} ranks: {duration(time)}"


def _chart(found: CollectivePrice) -> Spec:
    """A line per number of ranks."""
    series = []
    for ranks in found.sizes["ranks"].unique(maintain_order=True).to_list():
        rows = found.sizes.filter(ranks=ranks)
        points = [
            {"x": n, "y": time, "low": None, "high": None, "name": capacity(size), "text": [_point(ranks, size, time)]}
            for n, (size, time) in enumerate(rows.select("bytes", "time_ns").iter_rows())
        ]
        series.append({"name": f"{ranks} ranks", "points": points, "joined": True})
    return {
        "chart": "lines",
        "title": f"{found.asked.op}: {found.metric} by size",
        "x": {"title": "bytes", "labels": [capacity(size) for size in found.asked.sizes]},
        "y": axis("time", "ns", log=True),
        "series": series,
        "note": "",
    }
