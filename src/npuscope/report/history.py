"""A history as a report: what changed and which commit is to blame, then where every time stands now."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.many.history import COMMITS, WALL, History, Series
from npuscope.report.several import faster_or_slower
from npuscope.table.columns import Table
from npuscope.table.formats import duration, many, percent
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say, Spec, axis

CHANGES, SERIES, DRAWN = 15, 10, 8


def history(name: str, found: History, wide: bool = False) -> Iterator[Part]:
    """The history kept at `name`."""
    tables = found.tables()
    yield Heading(f"History: {name}", 1, In.POSTED)
    yield Say(headline(found), strong=True)
    yield Notes(_basis(found))
    yield Chart(_chart(found))
    if tables["changes"].frame.height:
        yield Heading("Changes", where=In.POSTED)
        yield Rows(tables["changes"], CHANGES, wide=wide)
    yield Heading("Since their last change", where=In.POSTED)
    yield Heading("since their last change:", where=In.TEXT)
    yield Rows(tables["series"], SERIES, wide=wide)
    broken = found.each_commit().filter(found.each_commit()["error"].is_not_null())
    if broken.height:
        yield Heading("Commits without a run", where=In.POSTED)
        yield Heading("commits without a run:", where=In.TEXT)
        yield Rows(Table(COMMITS, broken.drop("wall_ns", "runs")), SERIES)
    yield Heading("Commits", where=In.POSTED)
    yield Rows(tables["commits"], where=In.POSTED)


def headline(found: History) -> str:
    """The one sentence to read."""
    changes = found.changes()
    if changes.is_empty():
        return f"Nothing changed over {many(len(found.commits), 'commit')}{_ruled_out(found)}."
    wall = [one for one in found.series if one.name == WALL and one.changes]
    if wall:
        first, last = wall[0].stretches[0], wall[0].stretches[-1]
        commits = ", ".join(dict.fromkeys(found.commits[change.at].revision for change in wall[0].changes))
        moved = f"{duration(first.typical_ns)} → {duration(last.typical_ns)}"
        ratio = last.typical_ns / first.typical_ns
        return f"The wall time is {faster_or_slower(ratio)} than at first ({moved}), changed by {commits}."
    row = changes.to_dicts()[0]
    more = f", and {changes.height - 1} more" if changes.height > 1 else ""
    if row["ratio"] is None:
        return f"{row['series']} is {row['verdict']} since {row['commit']}{more}."
    blame = "" if not row["or_one_of"] else f" ({percent(row['sure'])} sure it is this commit)"
    return f"{row['series']} is {faster_or_slower(row['ratio'])} since {row['commit']}{blame}{more}."


def _ruled_out(found: History) -> str:
    if found.exact:
        return f" by more than {percent(found.threshold)}"
    return " that noise would not explain"


def _basis(found: History) -> list[str]:
    runs = sum(len(one.runs) for one in found.commits) or sum(len(one.times) for one in found.series)
    told = [f"{many(len(found.commits), 'commit')}, {many(runs, 'run')}, {len(found.series)} times followed"]
    if found.exact:
        told.append(f"all simulated, so without noise: every change above {percent(found.threshold)} is listed")
    else:
        told.append(
            f"corrected for following {len(found.series)} (Holm): 95 times in 100 no listed change is noise; "
            "a change needs two runs on either side to be seen"
        )
    if found.small:
        told.append(f"{many(found.small, 'kernel')} below 0.1 % of the time not followed")
    return told


def _chart(found: History) -> Spec:
    """Those that changed, then the largest, each as a multiple of its first typical time, with its noise band."""
    order = sorted(found.series, key=lambda one: (one.name != WALL, not one.changes))
    return {
        "chart": "lines",
        "title": "Times over commits, each against what it took at first",
        "x": {"title": "commit", "labels": [one.revision for one in found.commits]},
        "y": axis("times what it took at first", "number"),
        "series": [_line(one, found) for one in order[:DRAWN]],
        "note": "" if found.exact else "Bars are noise bands: 95 of 100 single runs lie in them until the next change.",
    }


def _line(one: Series, found: History) -> dict[str, object]:
    stretches = one.stretches
    first = stretches[0].typical_ns
    began = [change.at for change in one.changes]
    points = []
    for place, time in zip(one.at, one.times, strict=True):
        stretch = next(s for s in stretches if s.first <= place <= s.last)
        known = stretch.high_ns > stretch.low_ns
        commit = found.commits[place]
        told = [f"{one.name}: {duration(time)}", *filter(None, (commit.subject,))]
        told += [f"{one.name} changed with {commit.revision}"] if place in began else []
        points.append({
            "x": place, "y": time / first, "low": stretch.low_ns / first if known else None,
            "high": stretch.high_ns / first if known else None, "name": commit.revision, "told": told,
        })  # fmt: skip
    return {"name": one.name, "points": points, "joined": True}
