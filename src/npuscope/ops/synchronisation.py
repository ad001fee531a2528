"""Ops that only order work: barriers between blocks, signals between ranks."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane, Role

# fmt: off

_SYNC: tuple[Plane, ...] = ("sync",)

SYNCALL = OpSpec(
    "syncall", _SYNC, "own", "Every block of the launch reaches it before any goes on.", cost="timing.barrier",
    spellings=("system.syncall",), roles=(Role.BARRIER,),
)
NOTIFY = OpSpec(
    "notify", _SYNC, "own", "Changes a counter in a peer's window.", cost="timing.scalar_access",
    spellings=("pld.system.notify",),
)
WAIT = OpSpec(
    "wait", _SYNC, "own", "Goes on when a counter of this rank's window has come so far.", cost="timing.scalar_read",
    spellings=("pld.system.wait", "pld.system.defer_wait"),
)

ALL = (SYNCALL, NOTIFY, WAIT)
