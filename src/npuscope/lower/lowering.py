"""The passes in their order, from a recorded body to a memory plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import Lowered
from npuscope.lower.passes.build import build
from npuscope.lower.passes.carry import settle_carries
from npuscope.lower.passes.casts import expand_casts
from npuscope.lower.passes.l0_tiling import tile_products
from npuscope.lower.passes.measured import measure
from npuscope.lower.passes.placement import place
from npuscope.lower.passes.split import split_cores
from npuscope.lower.passes.stages import order_stages
from npuscope.lower.passes.streaming import stream
from npuscope.lower.verify import BrokenPass, verify
from npuscope.tile.record.model import Recording, Task


@dataclass(frozen=True, slots=True)
class LoweringOptions:
    """Settings of the compiler that a program does not say.

    `ring_slots`: depth of the ring between cores, None is the chip's own. `stream`: right operands of several products
    come one after the other; without it all are loaded where the program slices them.
    """

    ring_slots: int | None = None
    stream: bool = True


Pass = Callable[[Lowered, Device, LoweringOptions], Lowered]
PASSES: tuple[tuple[str, Pass], ...] = (
    ("carries", lambda lowered, device, options: settle_carries(lowered)),
    ("casts", lambda lowered, device, options: expand_casts(lowered, device)),
    ("placement", lambda lowered, device, options: place(lowered)),
    ("streaming", lambda lowered, device, options: stream(lowered, device) if options.stream else lowered),
    ("products", lambda lowered, device, options: tile_products(lowered, device)),
    ("split", lambda lowered, device, options: split_cores(lowered, device, options.ring_slots)),
    ("stages", lambda lowered, device, options: order_stages(lowered)),
    ("sizes", lambda lowered, device, options: measure(lowered, device)),
)


def passed(lowered: Lowered, device: Device, options: LoweringOptions = LoweringOptions()) -> Lowered:
    """A body after all passes."""
    made = lowered
    for _, run in PASSES:
        made = run(made, device, options)
    try:
        verify(PASSES[-1][0], made)
    except BrokenPass:  # after which?
        for name, run in PASSES:
            lowered = run(lowered, device, options)
            verify(name, lowered)
        raise
    return made


def after_each_pass(
    recording: Recording, task: Task, body: int, device: Device, options: LoweringOptions = LoweringOptions()
) -> Iterator[tuple[str, Lowered]]:
    """The body as recorded and after every pass, with the pass's name."""
    lowered = build(recording, task, body)
    yield "recorded", lowered
    for name, run in PASSES:
        lowered = run(lowered, device, options)
        yield name, lowered
