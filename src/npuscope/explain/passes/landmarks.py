"""Sampling and embedding kernels of a capture, as far as they are not a layer's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuscope.chip.kernels import landmark_of
from npuscope.explain.passes.boundaries import Stretches, in_most
from npuscope.trace.intervals import Ints


@dataclass(frozen=True)
class Landmarks:
    """Rows of the sequence that tell where a pass begins or ends."""

    sampling: Ints
    maybe: Ints
    embedding: Ints

    @staticmethod
    def of(found: Stretches) -> Landmarks:
        sequence = found.sequence
        of_layers = {
            symbol
            for symbol, name in enumerate(sequence.names)
            if landmark_of(name) in ("embedding", "sampling_or_layer")
            and in_most(sequence.symbol == symbol, found.anchors)
        }
        rare = ~np.isin(sequence.symbol, list(of_layers))
        return Landmarks(
            np.flatnonzero(sequence.landmarks("sampling")),
            np.flatnonzero(sequence.landmarks("sampling_or_layer") & rare),
            np.flatnonzero(sequence.landmarks("embedding") & rare),
        )

    def between(self, low: int, high: int) -> tuple[int, int]:
        """After the last sampling in rows (low, high), up to and including the first embedding behind it."""
        sampled = last_between(self.sampling, low, high)
        if sampled is None:
            sampled = last_between(self.maybe, low, first_between(self.embedding, low, high) or high)
        lowest = low + 1 if sampled is None else sampled + 1
        return lowest, first_between(self.embedding, lowest - 1, high) or high

    def tail(self, found: Stretches, place: int) -> int:
        """The last sampling of a pass, or else its last anchor."""
        next_pass = np.append(found.starts[1:], len(found.anchors))
        anchor = int(found.anchors[next_pass[place] - 1])
        end = int(found.anchors[next_pass[place]]) if place + 1 < len(found.starts) else len(found.sequence)
        sampled = last_between(self.sampling, anchor, end)
        return anchor if sampled is None else sampled


def last_between(places: Ints, low: int, high: int) -> int | None:
    """The last of some places in (low, high)."""
    place = int(np.searchsorted(places, high)) - 1
    return int(places[place]) if place >= 0 and places[place] > low else None


def first_between(places: Ints, low: int, high: int) -> int | None:
    """The first of some places in (low, high)."""
    place = int(np.searchsorted(places, low, side="right"))
    return int(places[place]) if place < len(places) and places[place] < high else None
