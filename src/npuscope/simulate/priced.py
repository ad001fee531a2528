"""What findings are worth: each taken away alone and all together, and the program simulated again.

A finding that cannot be expressed as a change has no price: then nobody names microseconds for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npuscope import progress
from npuscope.check.findings import Finding, Waste
from npuscope.simulate.run import Simulated, run
from npuscope.simulate.without_finding import Owners, without
from npuscope.tile.record.names import short_name


@dataclass(frozen=True)
class Price:
    """The wall without a finding, and with half of it, in nanoseconds; None where it cannot be tried, `how` says why.

    `half_ns` is None, too, where half of it means nothing.
    """

    finding: Finding
    how: str
    wall_ns: int | None = None
    half_ns: int | None = None

    @property
    def name(self) -> str:
        """many-tasks layer.py:261 gate_proj"""
        one = self.finding
        return f"{one.id} {one.file.rpartition('/')[2]}:{one.line} {short_name(one.kernel)}".strip()


@dataclass(frozen=True)
class Prices:
    """Of one program as it is: `wall_ns`. A gain below zero is a change that makes it slower."""

    wall_ns: int
    each: tuple[Price, ...]

    def gain_ns(self, price: Price) -> int | None:
        return None if price.wall_ns is None else self.wall_ns - price.wall_ns

    def by_finding(self) -> Mapping[Finding, int | None]:
        """What taking a finding away saves."""
        return {price.finding: self.gain_ns(price) for price in self.each}


def prices_of(base: Simulated, findings: Sequence[Finding], halves: bool = False) -> Prices:
    """Every finding alone; with `halves` also at half its cost."""
    owner = Owners(base.prepared)
    found = []
    for done, finding in enumerate(findings):
        progress.report("simulating findings", done, len(findings))
        how, changed = without(finding, owner)
        if changed is None:
            found.append(Price(finding, how))
            continue
        part = _halved(finding) if halves else None
        half = None if part is None else run(base.prepared, without(part, owner)[1]).wall_ns
        found.append(Price(finding, how, run(base.prepared, changed).wall_ns, half))
    return Prices(base.wall_ns, tuple(found))


def _halved(finding: Finding) -> Finding | None:
    """The finding at half its cost; None where it costs tasks or waits, half of which would be which?"""
    cost = finding.waste
    if cost.tasks or cost.waits:
        return None
    return replace(finding, waste=Waste(bytes=cost.bytes // 2, flops=cost.flops // 2))
