"""Which passes are whole, and which are a draft's (multi-token prediction) beside the main model's.

The capture's first pass may lack its begin and its last one its end; every other head and tail is whole, so those
tell which kernels there must be. A pass inside the capture with few attentions is a draft; one that lacks a few lost
them.
"""

from __future__ import annotations

import numpy as np

from npuscope.forward.passes.boundaries import Stretches
from npuscope.forward.passes.cuts import Bounds
from npuscope.forward.passes.landmarks import Landmarks, last_between
from npuscope.forward.passes.layers import Layer, usual_size
from npuscope.forward.passes.sequence import Flags
from npuscope.trace.intervals import Ints

Range = tuple[int, int]
ENOUGH = 32  # other passes tell as much as all


def complete_and_draft(
    found: Stretches, bounds: Bounds, layers: list[Layer], groups: list[int], phases: list[str]
) -> tuple[Flags, Flags, list[list[str]]]:
    """For each pass whether it is whole, whether it is a draft's, and what it lacks, in sentences."""
    sizes = found.sizes
    usual = usual_size(sizes)
    begun = np.ones(len(sizes), dtype=bool)
    ended = np.ones(len(sizes), dtype=bool)
    regular = _regular(found)
    heads = [(int(a), int(b)) for a, b in zip(bounds.begin, bounds.first, strict=True)]
    tails = [(int(a), int(b)) for a, b in zip(bounds.last + 1, bounds.end, strict=True)]
    like_first = _like(0, range(1, len(sizes)), groups, phases)
    like_last = _like(len(sizes) - 1, range(len(sizes) - 1), groups, phases)

    def counts(rows: Range) -> Ints:
        return np.bincount(found.sequence.symbol[slice(*rows)], minlength=len(regular))[regular]

    def has_all(rows: Range, others: list[Range]) -> bool:
        """True when rows hold every kernel that all others hold."""
        return bool(np.all(counts(rows) >= np.min(np.stack([counts(other) for other in others]), axis=0)))

    marked = Landmarks.of(found)
    sampled = [(marked.tail(found, place) + 1, tail[1]) for place, tail in enumerate(tails)]
    embedded = [last_between(marked.embedding, a - 1, b) is not None for a, b in heads]
    if like_first:
        begun[0] = has_all(heads[0], [heads[i] for i in like_first])
    else:  # layers of its own: what any pass has before them, or at least something
        begun[0] = embedded[0] or (not any(embedded[1:]) and heads[0][1] - heads[0][0] > layers[0].lead)
    if like_last:
        ended[-1] = has_all(tails[-1], [tails[i] for i in like_last])
    else:
        rest = sampled[:-1][:ENOUGH]
        ended[-1] = tails[-1][1] - tails[-1][0] > layers[-1].trail and (not rest or has_all(sampled[-1], rest))
    if len(sizes) == 1 and sizes[0] <= layers[0].attentions:  # one layer tells nothing: only marks do
        begun[0], ended[0] = embedded[0], sampled[0][0] > bounds.last[0] + 1
    whole = begun & ended
    draft = (sizes <= usual // 2) & (np.arange(len(sizes)) % max(len(sizes) - 1, 1) > 0)
    # at the edges of the capture a small pass may be the rest of a large one: its whole side tells
    drafts = np.flatnonzero(draft)[:ENOUGH]
    for edge, side in ((0, tails), (-1, heads)):
        like = [side[i] for i in drafts if sizes[i] == sizes[edge]]
        draft[edge] = any(np.array_equal(counts(side[edge]), counts(other)) for other in like)
    full = (sizes == usual) | draft
    lacks = [
        [
            *([] if begun[place] else ["its begin is not in the capture"]),
            *([] if ended[place] else ["its end is not in the capture"]),
            *([] if full[place] else [f"{sizes[place]} of {usual} attentions"]),
        ]
        for place in range(len(sizes))
    ]
    return whole & full, draft, lacks


def _like(edge: int, others: range, groups: list[int], phases: list[str]) -> list[int]:
    """Passes to compare one with: of its group, and of its phase if there are any."""
    alike = [i for i in others if groups[i] == groups[edge]]
    same = [i for i in alike if phases[i] == phases[edge]]
    return (same or alike)[:ENOUGH]


def _regular(found: Stretches) -> Flags:
    """Which kernels run equally often in equal stretches; others come and go and prove nothing."""
    sequence = found.sequence
    regular = np.ones(len(sequence.names), dtype=bool)
    if not len(found.kind):
        return regular
    usual = found.kind == np.bincount(found.kind).argmax()
    beside = np.flatnonzero(sequence.lane != sequence.lane[found.anchors[0]])
    for symbol in np.unique(sequence.symbol[beside]).tolist():
        places = np.flatnonzero(sequence.symbol == symbol)
        times = np.diff(np.searchsorted(places, found.anchors))[usual]
        regular[symbol] = np.all(times == times[0])
    return regular
