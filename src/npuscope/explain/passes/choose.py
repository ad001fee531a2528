"""The one forward pass of a trace that somebody means: by its step, by its number, or because there is but one."""

from __future__ import annotations

from npuscope.base.errors import NpuscopeError
from npuscope.explain.passes.export import cut_out
from npuscope.explain.passes.found import NoPasses, Passes, passes
from npuscope.trace.core import Trace
from npuscope.trace.schema import is_work

MOST = 20  # numbers told


def numbered_pass(trace: Trace, number: int, path: str) -> Trace:
    """A pass by its number in `npuscope forward --list`."""
    found = passes(trace)
    if not 0 <= number < found.table.height:
        what = f"no forward pass {number}"
        raise NpuscopeError(what, path=path, remedy=f"`npuscope forward --list` has 0 to {found.table.height - 1}.")
    return cut_out(found, number)


def one_pass(trace: Trace, step: int | None, number: int | None, path: str, prefix: str = "--") -> Trace:
    """The pass chosen by step or number; without either the trace itself, if it does not hold several passes.

    `prefix` begins the options the user chooses with, for the errors.
    """
    if step is not None and number is not None:
        raise NpuscopeError(f"{prefix}step and {prefix}pass name a pass each", remedy="Give one of them.")
    if number is not None:
        return numbered_pass(trace, number, path)
    steps = trace.slices["step"].drop_nulls().unique().sort().to_list()
    if step is not None:
        check_steps(trace, [step], path)
        return trace.select(step=step)
    if len(steps) > 1:
        what = f"it holds {len(steps)} steps: {_listed(steps)}"
        raise NpuscopeError(what, path=path, remedy=f"Choose one forward pass with {prefix}step N.")
    found = _passes(trace)
    if found is not None and found.table.height > 1:
        what = f"it holds {found.table.height} forward passes"
        raise NpuscopeError(what, path=path, remedy=f"Choose one with {prefix}pass N; `npuscope forward` lists them.")
    return trace


def check_steps(trace: Trace, wanted: list[int], path: str) -> None:
    """Refuse steps that the trace does not mark."""
    known = trace.slices["step"].drop_nulls().unique().sort().to_list()
    for step in wanted:
        if step not in known:
            told = f"It has {_listed(known)}." if known else "It marks no steps."
            raise NpuscopeError(f"no step {step}", path=path, remedy=told)


def _passes(trace: Trace) -> Passes | None:
    """None where nothing tells passes apart: a table of kernels without order, a trace without layers."""
    if trace.slices.filter(is_work()).is_empty():
        return None
    try:
        return passes(trace)
    except NoPasses:
        return None


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:MOST])) + (f" and {len(steps) - MOST} more" if len(steps) > MOST else "")
