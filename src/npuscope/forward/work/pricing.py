"""What a kernel call has to do: FLOPs and bytes from its type, shapes, data types and formats, and nothing guessed."""

from __future__ import annotations

from dataclasses import replace

from npuscope.chip.kernels import WorkRule, rule_of
from npuscope.forward.calls import Call
from npuscope.forward.work.amount import NotPriced, Work
from npuscope.forward.work.attention import attention, indexer, sparse_attention
from npuscope.forward.work.matmul import grouped, matmul, prolog
from npuscope.forward.work.moves import by_bytes

ROUTED = "message size not known: it depends on which experts the tokens chose"
BYTES_ONLY = "bytes of its tensors only: what it computes is not known"


def work_of(call: Call) -> Work:
    """The work of one call. What cannot be known is None, with the reason."""
    rule = rule_of(call.type)
    try:
        return _priced(call, rule)
    except NotPriced as why:
        return Work(rule.family, why_unknown=str(why))


def _priced(call: Call, rule: WorkRule) -> Work:
    match rule.work.by:
        case "matmul":
            return matmul(call, rule.family, rule.work.operands)
        case "grouped":
            return grouped(call, rule.family)
        case "prolog":
            return prolog(call, rule.family)
        case "attention":
            return attention(call, rule.family)
        case "sparse_attention":
            return sparse_attention(call, rule.family)
        case "indexer":
            return indexer(call, rule.family)
        case "collective" | "routed":
            return _message(call, rule)
        case "unpriced":
            raise NotPriced(rule.work.why)
        case "bytes":
            work = by_bytes(call, rule)
            return replace(work, note=BYTES_ONLY) if rule.work.floor else work


def _message(call: Call, rule: WorkRule) -> Work:
    """A collective: bytes each rank gives, and how many ranks take part, where somebody told."""
    size, ranks = call.given.get("bytes"), call.given.get("ranks")
    if size is None:
        raise NotPriced("message size not recorded" if rule.work.by == "collective" else ROUTED)
    if ranks is None:
        raise NotPriced("number of ranks not given")
    if size < 0 or ranks < 1:
        raise NotPriced("message size or number of ranks is not a count")
    return Work(rule.family, message_bytes=round(size), ranks=round(ranks))
