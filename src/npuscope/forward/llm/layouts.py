"""How a pass is spread over ranks: what routing makes of the busiest rank, and what other layouts would take.

Tokens choose experts, so ranks have different work, and all wait for the busiest. A routing says how much more that one
has than the mean: nothing more (uniform), a factor, or what counts per expert give where rank r has the r-th part of
them. The kernels of a pass are then those of the busiest rank.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.devices import Device
from npuscope.forward.estimate import fused_exchange, is_fused
from npuscope.forward.llm.config import ModelConfig, pass_settings
from npuscope.forward.llm.prediction import PassPrediction, predict
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, FLAG, NUMBER, RATIO, SHARE, TIME

MOST_TIMES = 1000.0  # the mean
EXCHANGE = ("dispatch", "combine", "experts gather")
LAYOUTS = Columns(
    "predict.layouts",
    "A layout of the same model, with as many tokens in each data-parallel group.",
    Column("ep", COUNT, "ranks that experts are spread over"),
    Column("tp", COUNT, "tensor-parallel ranks of a group"),
    Column("dp", COUNT, "groups"),
    Column("total_ns", TIME, "the pass on the busiest rank", title="pass"),
    Column("hot", RATIO, "work of the busiest rank's experts, over the mean", title="busiest"),
    Column("hot_ns", TIME, "what that costs: the pass without it is so much shorter", title="costs"),
    Column("exchange_ns", TIME, "tokens to experts and back, within a fused kernel too", title="exchange"),
    Column("hidden_ns", TIME, "of it what the shared experts' kernels could hide, run beside it", title="could hide"),
    Column("experts", SHARE, "of the pass in kernels of routed experts"),
    Column("tokens_per_s", NUMBER, "of one rank", title="tokens/s of a rank"),
    Column("fits", FLAG, "whether weights and cache fit a rank's memory"),
)


@dataclass(frozen=True)
class Routing:
    """How tokens spread over experts: a factor, or counts of each expert."""

    factor: float = 1.0
    counts: tuple[float, ...] = ()

    def busiest(self, ranks: int) -> float:
        """The work of the busiest of so many ranks over the mean."""
        if not self.counts:
            if 1 < ranks < self.factor:
                raise NpuscopeError(
                    f"--routing {self.factor:g}: of {ranks} ranks one has at most {ranks} times the mean"
                )
            return self.factor if ranks > 1 else 1.0
        if len(self.counts) % ranks:
            raise NpuscopeError(f"{len(self.counts)} counts of experts cannot be spread over {ranks} ranks")
        each = len(self.counts) // ranks
        sums = [sum(self.counts[at : at + each]) for at in range(0, len(self.counts), each)]
        return max(sums) / (sum(sums) / ranks)


def read_routing(text: str, experts: int | None) -> Routing:
    """`uniform`, a factor such as 1.5, or a file with a count per expert."""
    if text == "uniform":
        return Routing()
    if experts is None:
        raise NpuscopeError(f"--routing {text} for a model without experts")
    try:
        factor = float(text)
    except ValueError:
        return _read_counts(text, experts)
    if not 1 <= factor <= MOST_TIMES:
        raise NpuscopeError(f"--routing {text}: the busiest rank has from 1 to {MOST_TIMES:g} times the mean")
    return Routing(factor)


def _read_counts(path: str, experts: int) -> Routing:
    if not Path(path).is_file():
        raise BadInput("no such file", path=path, remedy="--routing takes uniform, a factor, or a file of counts.")
    try:
        text = Path(path).read_text()
        words = json.loads(text) if text.lstrip().startswith("[") else text.replace(",", " ").split()
        counts = tuple(float(word) for word in words)
    except (ValueError, TypeError) as error:
        raise BadInput(f"no numbers: {error}", path=path, remedy="Give a count per expert, in order.") from error
    if len(counts) != experts:
        raise BadInput(f"{len(counts)} counts for {experts} experts", path=path)
    if not all(0 <= count < math.inf for count in counts) or not any(counts):
        raise BadInput("counts are numbers from 0 on, and not all of them 0", path=path)
    return Routing(counts=counts)


@dataclass(frozen=True, repr=False)
class Layouts(Tabular):
    """Passes of one model, spread differently; of each the same with an even routing."""

    passes: tuple[tuple[PassPrediction, PassPrediction], ...]

    def tables(self) -> dict[str, Table]:
        return {"layouts": LAYOUTS.table(_row(busiest, even) for busiest, even in self.passes)}


def _row(one: PassPrediction, even: PassPrediction) -> dict[str, object]:
    run, shared = one.run, _time(one, ("shared",))
    fused = (fused_exchange(kernel.call, one.device).ns or 0.0 for kernel in one.kernels if is_fused(kernel.call))
    exchange = _time(one, EXCHANGE) + round(2 * sum(fused))
    experts = _time(one, ("experts",))
    return {
        "ep": run.ep,
        "tp": run.tp,
        "dp": run.dp,
        "total_ns": one.total_ns,
        "hot": run.busiest,
        "hot_ns": one.total_ns - even.total_ns,
        "exchange_ns": exchange,
        "hidden_ns": min(exchange, shared),
        "experts": experts / one.total_ns if one.total_ns else 0.0,
        "tokens_per_s": run.tokens * run.dp / (run.tp * run.dp) / one.total_ns * 1e9 if one.total_ns else 0.0,
        "fits": one.memory.fits,
    }


def _time(one: PassPrediction, roles: Sequence[str]) -> int:
    """Of kernels whose role begins so."""
    pairs = zip(one.kernels, one.estimates, strict=True)
    return sum(estimate.ns or 0 for kernel, estimate in pairs if kernel.role.startswith(tuple(roles)))


def spread(one: PassPrediction, routing: Routing) -> PassPrediction:
    """The pass on the busiest rank."""
    return predict(one.model, replace(one.run, busiest=routing.busiest(one.run.ep)), one.device)


def layouts(
    model: ModelConfig, even: PassPrediction, routing: Routing, wanted: Sequence[int], device: Device
) -> Layouts:
    """The same pass with experts over so many ranks each: with the same tp, and groups to make up the ranks."""
    if model.experts is None:
        raise NpuscopeError("--layouts of a model without experts")
    found, run = [], even.run
    for ranks in wanted:
        if ranks % run.tp:
            raise NpuscopeError(f"--layouts {ranks}: tp {run.tp} does not divide it")
        sizes = {"batch": run.batch, "tokens": run.tokens, "context": run.context, "tp": run.tp}
        other = pass_settings(model, run.phase, **sizes, dp=ranks // run.tp, ep=ranks, quant=run.quant)
        plain = predict(model, other, device)
        found.append((spread(plain, routing), plain))
    return Layouts(tuple(found))
