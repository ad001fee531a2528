"""Which passes are whole, and which are a draft's (multi-token prediction) beside the main model's.

The capture's first pass may lack its begin and its last one its end; every other head and tail is whole, so those
tell which kernels there must be. A much shorter pass with a head and a sampling of its own is a draft's where such
passes follow the main model's. Else it is another model's if it has layers of its own (a text encoder), or a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl

from npuscope.chip import kernels
from npuscope.explain.passes.cuts import Bounds, Landmarks, first_between, last_between
from npuscope.explain.passes.layers import A_FEW_MORE, Layer, usual_size
from npuscope.explain.passes.sequence import Flags, Stretches
from npuscope.explain.repetition import OUTLIER
from npuscope.table.formats import duration
from npuscope.trace.intervals import Ints
from npuscope.trace.names import slots

Range = tuple[int, int]
NOW_AND_THEN = 0.3  # of the stretches inside passes
EVEN = 0.8  # of them have a kernel of a side stream equally often
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

    # a capture cuts off what is outermost: where passes have marks, what lies beyond them tells
    marked = Landmarks.of(found)
    embedded = [first_between(marked.embedding, a - 1, b) for a, b in heads]
    sampled = [last_between(marked.sampling, a - 1, b) for a, b in tails]
    if like_first and all(embedded[i] is not None for i in like_first):
        outer = [(a, b if mark is None else mark + 1) for (a, b), mark in zip(heads, embedded, strict=True)]
        begun[0] = embedded[0] is not None and has_all(outer[0], [outer[i] for i in like_first])
    elif like_first:
        begun[0] = has_all(heads[0], [heads[i] for i in like_first])
    else:  # layers of its own: the mark of any pass, or at least something before them
        known = any(mark is not None for mark in embedded[1:])
        begun[0] = embedded[0] is not None or (not known and heads[0][1] - heads[0][0] > layers[0].lead)
    others = like_last or list(range(len(sizes) - 1))[:ENOUGH]
    if others and all(sampled[i] is not None for i in others):
        outer = [(a if mark is None else mark, b) for (a, b), mark in zip(tails, sampled, strict=True)]
        ended[-1] = sampled[-1] is not None and has_all(outer[-1], [outer[i] for i in others])
    elif like_last:
        ended[-1] = has_all(tails[-1], [tails[i] for i in like_last])
    else:
        ended[-1] = tails[-1][1] - tails[-1][0] > layers[-1].trail
    if len(sizes) == 1 and sizes[0] <= layers[0].attentions:  # one layer tells nothing: only marks do
        begun[0], ended[0] = embedded[0] is not None, sampled[0] is not None
    whole = begun & ended
    inside = np.arange(len(sizes)) % max(len(sizes) - 1, 1) > 0
    embeds = any(mark is not None for mark, size in zip(embedded, sizes, strict=True) if size == usual)
    own_ends = [s is not None and (e is not None or not embeds) for s, e in zip(sampled, embedded, strict=True)]
    short = (sizes <= usual // 2) & inside & np.array(own_ends, dtype=bool)
    draft = short & np.isin(sizes, sizes[short & np.maximum.accumulate(sizes == usual)])
    # at the edges of the capture a small pass may be the rest of a large one: its whole side tells
    drafts = np.flatnonzero(draft)[:ENOUGH]
    for edge, side in ((0, tails), (-1, heads)):
        like = [side[i] for i in drafts if sizes[i] == sizes[edge]]
        draft[edge] = any(np.array_equal(counts(side[edge]), counts(other)) for other in like)
    full = (
        ((sizes >= usual) & (sizes <= A_FEW_MORE * usual)) | draft | (inside & _of_other_models(sizes, groups, usual))
    )
    lacks = [
        [
            *([] if begun[place] else ["its begin is not in the capture"]),
            *([] if ended[place] else ["its end is not in the capture"]),
            *([] if full[place] else [f"{sizes[place]} of {usual} attentions"]),
        ]
        for place in range(len(sizes))
    ]
    return whole & full, draft, lacks


def _of_other_models(sizes: Ints, groups: list[int], usual: int) -> Flags:
    """Passes that share no kind of stretch with the main model's and have as many attentions as any like them."""
    main = {group for group, size in zip(groups, sizes.tolist(), strict=True) if size == usual}
    most = {group: max(n for n, of in zip(sizes.tolist(), groups, strict=True) if of == group) for group in set(groups)}
    own = [of not in main and n == most[of] and n > 1 for n, of in zip(sizes.tolist(), groups, strict=True)]
    return np.array(own, dtype=bool)


def _like(edge: int, others: range, groups: list[int], phases: list[str]) -> list[int]:
    """Passes to compare one with: of its group, and of its phase if there are any."""
    alike = [i for i in others if groups[i] == groups[edge]]
    same = [i for i in alike if phases[i] == phases[edge]]
    return (same or alike)[:ENOUGH]


def _regular(found: Stretches) -> Flags:
    """Which kernels run equally often in most layers, and not now and then: others prove nothing."""
    sequence = found.sequence
    regular = np.ones(len(sequence.names), dtype=bool)
    inside = ~found.boundary
    if not inside.any():
        return regular
    beside = set(sequence.symbol[sequence.lane != sequence.lane[found.anchors[0]]].tolist())
    for symbol in range(len(regular)):
        times = np.diff(np.searchsorted(np.flatnonzero(sequence.symbol == symbol), found.anchors))[inside]
        rare = 0 < np.mean(times > 0) < NOW_AND_THEN
        uneven = symbol in beside and np.max(np.bincount(times)) < EVEN * len(times)
        regular[symbol] = not rare and not uneven
    return regular


SHARE = 0.2  # of a typical pass of its kind
WAIT_TIMES, WAIT_SHARE = 10, 0.02  # a collective that takes so many times its usual, and that share of a pass more
FEWEST = 3  # passes of a kind from which on their pauses and totals can be compared


def disturbances(rows: pl.DataFrame, kinds: list[str], union_ns: Ints, pause: Ints) -> list[list[str]]:
    """For each pass what disturbed it, in sentences, from its kind (phase and size), device time and longest pause.

    `rows` has in_pass, kernel, shapes, dur, layer and is_comm of the device's rows.
    """
    kind = pl.Series("kind", kinds, dtype=pl.String)
    passes = pl.DataFrame({"kind": kind, "union": union_ns, "pause": pause}).with_row_index("at")
    passes = passes.with_columns(
        pl.col("union", "pause").median().over("kind").name.prefix("usual_"),
        pl.col("kind").str.split(" ").list.first().alias("phase"),
    )
    reasons: list[list[str]] = [[] for _ in kinds]
    for at, kernel, dur, usual in _slow_kernels(rows, passes).iter_rows():
        reasons[at].append(f"{kernel} took {duration(dur)}, usually {duration(usual)}")
    like = pl.len().over("kind") >= FEWEST
    paused = passes.filter(like & (pl.col("pause") - pl.col("usual_pause") > SHARE * pl.col("usual_union")))
    for at, longest, usual in paused.select("at", "pause", "usual_pause").iter_rows():
        reasons[at].append(f"nothing ran for {duration(longest)}, usually at most {duration(usual)}")
    slow = passes.filter(like & (pl.col("union") > OUTLIER * pl.col("usual_union")))
    for at, union, usual in slow.select("at", "union", "usual_union").iter_rows():
        if not reasons[at]:
            reasons[at].append(f"all in all {union / usual:.2f} times the usual {duration(usual)}")
    return reasons


def _slow_kernels(rows: pl.DataFrame, passes: pl.DataFrame) -> pl.DataFrame:
    limit = int(WAIT_SHARE * np.min(passes["usual_union"].to_numpy(), initial=np.inf)) if passes.height else 0
    if not (rows["dur"] > limit).any():  # nothing is long enough, whatever is usual for it
        return pl.DataFrame(schema={"at": pl.UInt32, "kernel": pl.String, "dur": pl.Int64, "usual": pl.Float64})
    suspects = rows.filter(pl.col("dur") > limit).select("kernel").unique()
    # collectives all stay: the only one of its name may be held against them
    wanted = pl.col("is_comm") | pl.col("kernel").is_in(suspects["kernel"].implode())
    rows = rows.filter(wanted).with_columns(pl.col("in_pass").cast(pl.UInt32).alias("at"))
    nth = pl.int_range(pl.len()).over("at", "layer", "kernel")
    rows = rows.with_columns(nth.alias("nth"), pl.col("layer").clip(upper_bound=0).alias("part"))
    rows = rows.join(passes, on="at").with_columns(usual=_usual())
    excess = pl.col("dur") - pl.col("usual")
    waited = pl.col("is_comm") & (pl.col("dur") > WAIT_TIMES * pl.col("usual"))
    held_up = (excess > SHARE * pl.col("usual_union")) | (waited & (excess > WAIT_SHARE * pl.col("usual_union")))
    return rows.filter(held_up).sort("dur", descending=True).select("at", "kernel", "dur", "usual")


def _usual() -> pl.Expr:
    """The median at the same position; of the kernel in like passes, or of collectives of the phase, where too few."""
    dur, usual = pl.col("dur"), pl.lit(None, dtype=pl.Float64)
    for keys in (["kind", "kernel", "shapes", "part", "nth"], ["kind", "kernel", "shapes"]):
        usual = pl.coalesce(usual, pl.when(pl.len().over(keys) >= FEWEST).then(dur.median().over(keys)))
    return pl.coalesce(usual, pl.when("is_comm").then(dur.median().over("phase", "is_comm")), dur)


PHASES = ("prefill", "decode", "mixed", "draft", "training", "unknown")
PER_SEQUENCE = 8  # tokens of one sequence in a decode step with speculation, at most
ALONE = 256  # tokens above which a pass whose sequences are not told is a prefill
SEQUENCES = 5  # the input slot of FusedInferAttentionScore with the sequences' lengths


class Phase(NamedTuple):
    """`name` is prefill, decode, training or unknown; tokens of the pass and sequences in it where shapes tell."""

    name: str
    tokens: int | None = None
    sequences: int | None = None

    @property
    def scale(self) -> str:
        """Passes whose kernels may be held against one another: of one phase, with tokens of one order."""
        order = self.tokens.bit_length() if self.tokens and self.tokens > ALONE else 0
        return f"{self.name}-{order}"


@lru_cache(maxsize=4096)
def phase_of(kernel: str, shapes: str | None) -> Phase:
    """The phase that one attention kernel tells."""
    query, key, sequences = _tensors(shapes)
    tokens = _tokens(query)
    if query and len(query) == 4:
        sequences = query[0]
    made_for = kernels.phase_of(kernel)
    if made_for in ("training", "unknown"):
        return Phase(made_for, tokens, sequences)
    if made_for == "prefill":
        return Phase("prefill", tokens, sequences)
    if tokens is None:
        return Phase(made_for or "unknown")
    if sequences:
        name = "prefill" if tokens > PER_SEQUENCE * sequences or _not_paged(query, key) else "decode"
    else:
        name = "prefill" if tokens > ALONE else "decode"
    return Phase(name, tokens, sequences)


def _tensors(shapes: str | None) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Query, key, and the number of sequences."""
    found = slots(shapes or "")
    found += [()] * (SEQUENCES + 1 - len(found))
    lengths = found[SEQUENCES]
    return found[0], found[1], lengths[0] if len(lengths) == 1 else None


def _tokens(query: Sequence[int]) -> int | None:
    if len(query) == 4:  # batch, then heads and tokens in either order: the head dimension comes last
        return query[0] * min(query[1], query[2])
    return query[0] if len(query) in (2, 3) else None


def _not_paged(query: Sequence[int], key: Sequence[int]) -> bool:
    return len(key) == len(query) == 3 and key[0] == query[0] and query[0] > 1
