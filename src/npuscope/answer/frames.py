"""Messages over a stream of bytes: a pickle each, behind its length. Both ends are ours and of one user."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from struct import Struct

_HEAD = Struct("<4sQ")
_MARK = b"npuj"  # so that bytes that somebody else wrote to a pipe are not taken for a length


class NotOurs(Exception):
    """The stream has bytes that no frame begins with."""


def framed(message: object) -> bytes:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(_MARK, len(body)) + body


class Frames:
    """Collects what arrives in pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The bodies of the messages that are whole now."""
        self._held += piece
        while len(self._held) >= _HEAD.size:
            mark, size = _HEAD.unpack_from(self._held)
            if mark != _MARK:
                raise NotOurs
            end = _HEAD.size + size
            if len(self._held) < end:
                return
            yield bytes(self._held[_HEAD.size : end])
            del self._held[:end]
