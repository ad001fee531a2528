"""Streams kept between runs beside the bodies that they are made of: by the body, the chip, and the lines it finds."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

import numpy as np

from npuscope.chip.devices.chip import Device
from npuscope.lower.kept_bodies import FILES, device_content
from npuscope.lower.program import PlannedBody
from npuscope.time.core.stream import Stream, stream_of


class KeptStreams:
    """Streams on one chip."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @cached_property
    def _chip(self) -> bytes:
        return device_content(self.device)

    def stream(self, body: PlannedBody, fresh: Mapping[int, int]) -> Stream:
        """As `stream_of` makes it."""
        known = body.known
        if known is None or not body.lowered.items:  # what does nothing has no line of its own
            return stream_of(body, self.device, fresh)
        key = sha256(repr(("stream", known.content, sorted(fresh.items()))).encode() + self._chip).hexdigest()
        kept = _read(FILES.read(key))
        if kept is not None:
            return replace(kept, sites=np.array(known.sites, np.int64)[kept.sites])
        made = stream_of(body, self.device, fresh)
        places = {site: n for n, site in enumerate(known.sites)}
        used = made.sites.tolist()
        if places.keys() >= set(used):  # what lowering made at a line of its own cannot be found again by the body's
            own = np.array([places[site] for site in used], np.int64)
            FILES.write(key, pickle.dumps(replace(made, sites=own), 5))
        return made


def _read(data: bytes | None) -> Stream | None:
    if data is None:
        return None
    try:
        found: Stream = pickle.loads(data)
    except Exception:  # a disk that has spoilt it: it is made anew
        return None
    return found
