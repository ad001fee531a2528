"""Outputs against goldens: every output is judged, then one AssertionError names those that failed.

What a run is called with is checked before anything is made: what cannot mean what the user wants is said at once.
"""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from npuscope.tile.golden.comparators import (
    Comparator,
    Situation,
    Verdict,
    allclose,
    error_distribution,
    mapped_pool_ratio_allclose,
    ratio_allclose,
    ratio_reldiff,
    rowwise_ratio_reldiff,
    topk_pair_compare,
)
from npuscope.tile.golden.spec import (
    ScalarSpec,
    Spec,
    TensorSpec,
    UserTensor,
    array_of,
    check_number,
    described,
    misuse,
    misuse_of,
)
from npuscope.tile.run.arguments import Parameter
from npuscope.tile.run.execute import Finished
from npuscope.tile.values.signature import ScalarType, TensorType

__all__ = [
    "error_distribution",
    "mapped_pool_ratio_allclose",
    "ratio_allclose",
    "ratio_reldiff",
    "rowwise_ratio_reldiff",
    "topk_pair_compare",
    "validate_golden",
]


MOST_SHOWN = 12  # names of parameters in a sentence
CONTEXT = ("actual_outputs", "expected_outputs", "inputs", "rtol", "atol")


def validate_golden(
    outputs: Mapping[str, UserTensor],
    golden: Mapping[str, object],
    rtol: float = 1e-5,
    atol: float = 1e-5,
    compare_fn: Mapping[str, Callable[..., Verdict]] | None = None,
    inputs: Mapping[str, object] | None = None,
    run: Finished | None = None,
) -> None:
    """Print one line per output; raise AssertionError with the first mismatches of each that failed.

    An output is judged by its comparator in `compare_fn`, else by `allclose`. With the `run` that made them, a mismatch
    names the op that last wrote the element.
    """
    check_rules(rtol, atol, compare_fn, outputs)
    failures = {}
    for name, actual in outputs.items():
        situation = Situation(rtol, atol, outputs, golden, inputs or {}, partial(_written_by, run, name))
        compare = (compare_fn or {}).get(name)
        label = "" if compare is None else f" ({getattr(compare, '__name__', 'custom')})"
        if name in golden:
            ok, detail = _judged(actual, golden[name], name, compare, situation)
        else:
            ok, detail = False, f"    the golden has no '{name}', only {list(golden)}"
        about = f"shape={tuple(actual.shape)} dtype={actual.dtype}"
        print(f"[RUN]   '{name}' {'PASS' if ok else 'FAIL'}  {about}{label}", flush=True)
        if not ok:
            failures[name] = f"  '{name}' FAIL{label}  {about}\n{detail}"
    if failures:
        raise AssertionError("\n".join([f"Output(s) does not match golden: {list(failures)}", *failures.values()]))


def _judged(
    actual: UserTensor, expected: object, name: str, compare: Callable[..., Verdict] | None, situation: Situation
) -> Verdict:
    if compare is None or isinstance(compare, Comparator):
        judge = allclose if compare is None else compare.judge
        return judge(array_of(actual), array_of(expected), situation)
    verdict = compare(actual, expected, **{option: getattr(situation, option) for option in CONTEXT})
    try:
        ok, detail = verdict
        return bool(ok), str(detail)
    except (TypeError, ValueError):
        title = getattr(compare, "__name__", "custom")
        what = f"the comparator {title} of '{name}' returned {described(verdict)}, not (ok, message)"
        raise misuse_of(compare, what) from None


def _written_by(run: Finished | None, name: str, flat_index: int) -> str:
    writer = None if run is None else run.last_writer(name, flat_index)
    if writer is not None:
        return f", last written by {writer}"
    return ", never written" if run and run.recording.tasks else ""  # a host function's ranks write, not its tasks


def checked_specs(specs: object) -> list[Spec]:
    """The specs as a list; each a spec, no two of a name."""
    if not isinstance(specs, Iterable) or isinstance(specs, str | bytes | Mapping):
        raise misuse(f"specs must be a list of TensorSpec and ScalarSpec, not {described(specs)}")
    found: list[Spec] = []
    for spec in specs:
        if not isinstance(spec, TensorSpec | ScalarSpec):
            raise misuse(f"specs holds {described(spec)} at place {len(found)}", "It takes TensorSpec and ScalarSpec.")
        if spec.name in (other.name for other in found):
            raise misuse(f"two specs have the name '{spec.name}'", place=spec.place)
        found.append(spec)
    return found


def with_directions(program: object, specs: list[Spec]) -> list[Spec]:
    """The specs of a program that was checked, each with the direction of its parameter.

    Since September 2026 these say which are outputs; a spec that says so itself is one of before, and then all do.
    """
    if getattr(program, "kind", "") == "host":
        specs = _in_order(program, specs)
    wanted = _check_program(program, specs)
    for parameter, spec in zip(wanted or (), specs, strict=False):
        if isinstance(spec, TensorSpec):
            spec.direction = parameter.direction or "In"
    if any(isinstance(spec, TensorSpec) and spec.is_output for spec in specs):
        return specs
    found: list[Spec] = []
    for spec in specs:
        if isinstance(spec, TensorSpec) and spec.direction in ("Out", "InOut"):
            spec = copy.copy(spec)
            spec.is_output = True
        found.append(spec)
    return found


def _in_order(program: object, specs: list[Spec]) -> list[Spec]:
    """The specs in the order of the parameters: those of a host function are known by name."""
    names = [parameter.name for parameter in _parameters(program, len(specs)) or ()]
    there = {spec.name: spec for spec in specs}
    return [there[name] for name in names] if len(names) == len(specs) and there.keys() == set(names) else specs


def _check_program(program: object, specs: Sequence[Spec]) -> list[Parameter] | None:
    """Something that runs, whose parameters are those of the specs, in their order."""
    if not callable(program) or isinstance(program, type):
        what = f"the class {program.__name__}" if isinstance(program, type) else described(program)
        raise misuse(f"a run needs a @pl.jit function or a @pl.program class, not {what}")
    wanted = _parameters(program, len(specs))
    if wanted is None:
        return None
    title = f"{getattr(program, '__name__', 'the program')}()"
    names, given = [p.name for p in wanted], [spec.name for spec in specs]
    same = next((i for i, pair in enumerate(zip(names, given, strict=False)) if len(set(pair)) > 1), 0)
    lists = f"the parameters are {_listed(names, same)}, the specs {_listed(given, same)}"
    least = sum(p.default is inspect.Parameter.empty for p in wanted)
    if not least <= len(specs) <= len(names):
        raise misuse(f"{title} takes {len(names)} arguments and gets {len(specs)} specs: {lists}")
    for parameter, spec in zip(wanted, specs, strict=False):
        if spec.name != parameter.name and spec.name in names:
            raise misuse(
                f"the spec '{spec.name}' stands at the place of the parameter {parameter.name} of {title}: {lists}",
                "Specs are in the order of the parameters.",
            )
        if isinstance(spec, ScalarSpec) and isinstance(parameter.annotation, TensorType):
            raise misuse(f"{parameter.name} of {title} is a tensor, its spec a ScalarSpec", place=spec.place)
        if isinstance(spec, TensorSpec) and isinstance(parameter.annotation, ScalarType) and math.prod(spec.shape) != 1:
            raise misuse(f"{parameter.name} of {title} is a scalar, its spec a TensorSpec", place=spec.place)
    return wanted


def _parameters(program: object, given: int) -> list[Parameter] | None:
    """The parameters that the specs stand for, None where the program does not say; outputs may all be left out."""
    from npuscope.tile.language.functions import TileFunction, TileProgram

    function = program.entry if isinstance(program, TileProgram) else program
    if not isinstance(function, TileFunction):
        return None
    wanted = list(function.parameters)
    inputs = [p for p in wanted if p.direction != "Out"]
    return inputs if given == sum(p.default is inspect.Parameter.empty for p in inputs) else wanted


def _listed(names: list[str], same: int) -> str:
    """All names; of very many those from the first place that differs."""
    if len(names) <= MOST_SHOWN:
        return ", ".join(names) or "none"
    part = names[same : same + MOST_SHOWN]
    return ", ".join([*(["…"] if same else []), *part, *(["…"] if same + MOST_SHOWN < len(names) else [])])


def check_golden(golden_fn: object) -> None:
    if golden_fn is None:
        return
    if not callable(golden_fn):
        raise misuse(f"golden_fn must be a function, not {described(golden_fn)}")
    if not _takes(golden_fn, {}):
        raise misuse_of(golden_fn, f"{_title(golden_fn)} cannot be called with one argument, the values by name")


def check_rules(rtol: object, atol: object, compare_fn: object, outputs: Iterable[str]) -> None:
    """Tolerances, and comparators of outputs that there are."""
    check_number("rtol", rtol)
    check_number("atol", atol)
    if compare_fn is None:
        return
    if not isinstance(compare_fn, Mapping):
        raise misuse(f"compare_fn must be a dict of comparators by output, not {described(compare_fn)}")
    known = list(outputs)
    for name, compare in compare_fn.items():
        if name not in known:
            raise misuse(f"compare_fn has {name!r}, which is no output", f"Outputs: {', '.join(known) or 'none'}.")
        if not callable(compare):
            raise misuse(f"compare_fn of '{name}' must be a comparator, not {described(compare)}")
        if not isinstance(compare, Comparator) and not _takes(compare, None, None, **dict.fromkeys(CONTEXT)):
            wanted = f"(actual, expected, *, {', '.join(CONTEXT)})"
            raise misuse_of(compare, f"the comparator {_title(compare)} of '{name}' cannot be called with {wanted}")


def check_folders(golden_data: object, save_data: object, specs: Sequence[Spec]) -> None:
    """Folders, and names of specs that are names of files in them."""
    for option, value in (("golden_data", golden_data), ("save_data", save_data)):
        is_folder = isinstance(value, str | os.PathLike) and value != ""
        if value is not None and not is_folder and not (option == "save_data" and isinstance(value, bool)):
            raise misuse(f"{option} must be a folder, not {described(value)}")
    for spec in specs if golden_data is not None or save_data else ():
        if spec.name in ("", ".", "..") or not spec.name.isprintable() or any(c in spec.name for c in "/\\:"):
            raise misuse(f"the spec's name {spec.name!r} is no plain name of a file", place=spec.place)


def check_settings(**settings: object) -> None:
    for name, value in settings.items():
        if value is not None and not isinstance(value, Mapping):
            raise misuse(f"{name} must be a dict, not {described(value)}")


def _takes(function: Callable[..., object], *arguments: object, **named: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _title(function: Callable[..., object]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}()"
