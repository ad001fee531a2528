"""What findings are worth: each taken away alone, all that save time together, and the program simulated again.

A finding that cannot be expressed as a change has no price: then nobody names microseconds for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npuscope.base import progress
from npuscope.check.findings import Finding, Waste
from npuscope.tile.record.model import short_name
from npuscope.time.run import Simulated, run
from npuscope.time.without_finding import ITSELF, NO_PRICE, Owners, Removal, removal_of, without


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
    """Of one program as it is: `wall_ns`. A gain below zero is a change that makes it slower.

    `together_ns` is the wall without all findings that save time, None where they are fewer than two, cannot go
    together, or save nothing together: work that one moves may stand in another's way.
    """

    wall_ns: int
    each: tuple[Price, ...]
    together_ns: int | None = None

    def gain_ns(self, price: Price) -> int | None:
        return None if price.wall_ns is None else self.wall_ns - price.wall_ns

    def savers(self) -> list[Price]:
        """Those without which the run is shorter."""
        return [price for price in self.each if (self.gain_ns(price) or 0) > 0]

    def by_finding(self) -> Mapping[Finding, int | None]:
        """What taking a finding away saves."""
        return {price.finding: self.gain_ns(price) for price in self.each}


def prices_of(base: Simulated, findings: Sequence[Finding], halves: bool = False) -> Prices:
    """Every finding alone, and all that save time together; with `halves` also each at half its cost."""
    owner = Owners(base.prepared)
    removals = [removal_of(finding, owner) for finding in findings]

    def wall(*taken: Removal | None) -> int | None:
        """Without all of these; None where there is nothing to take away, or a task would wait for itself."""
        job = without(filter(None, taken), owner) if any(taken) else None
        return None if job is None else run(base.prepared, job).wall_ns

    found = []
    for done, (finding, removal) in enumerate(zip(findings, removals, strict=True)):
        progress.report("simulating findings", done, len(findings))
        alone = wall(removal)
        part = _halved(finding) if halves and alone is not None else None
        half = None if part is None else wall(removal_of(part, owner))
        how = "; ".join(removal.how) if removal else NO_PRICE
        found.append(Price(finding, how if alone is not None or removal is None else how + ITSELF, alone, half))
    prices = Prices(base.wall_ns, tuple(found))
    savers = prices.savers()
    if len(savers) < 2:
        return prices
    together = wall(*(removal for price, removal in zip(found, removals, strict=True) if price in savers))
    return prices if together is None or together >= base.wall_ns else replace(prices, together_ns=together)


def _halved(finding: Finding) -> Finding | None:
    """The finding at half its cost; None where it costs tasks or waits, half of which would be which?"""
    cost = finding.waste
    if cost.tasks or cost.waits:
        return None
    return replace(finding, waste=Waste(bytes=cost.bytes // 2, flops=cost.flops // 2))
