"""Types: casts and products not on this chip (illegal-cast, illegal-product), casts in several passes (cast-chain) or
rounded unlike torch (rounding-mode)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import prod

from npuscope.check.dataflow import Flow, StepPlace, flows_of, places, shown
from npuscope.check.memory_use import Problem, problems
from npuscope.check.rule import Example, Finding, Waste, rule
from npuscope.lower.program import PlannedBody, Program
from npuscope.lower.source import read
from npuscope.ops.cube import MATMUL_MX, MATMUL_MX_ACC, MATMUL_MX_BIAS
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.elementwise import CAST
from npuscope.ops.rounding import cast_chain
from npuscope.ops.spec import OpRole
from npuscope.tile.record.model import Op, Site
from npuscope.tile.record.walk import Step


def _casts(body: PlannedBody, program: Program) -> Iterator[Problem]:
    lowered = body.lowered
    assert program.device.rules is not None
    casts = program.device.rules.casts
    for one in lowered.instructions:
        if not one.spec.is_a(OpRole.CAST) or one.plane != "vector" or one.result is None or not one.reads:
            continue
        name, source = lowered.values[one.reads[0]].name, lowered.values[one.reads[0]].dtype
        target = lowered.values[one.result].dtype
        if source != target and not cast_chain(source.lower(), target.lower(), casts):
            message = f"{name}: the chip has no cast from {source} to {target}, and no chain of casts"
            yield one.site, message, _cast_fix(source, target, casts)


def _cast_fix(source: str, target: str, casts: Mapping[str, frozenset[str]]) -> str:
    """Over the type of the same width that can be cast, by its bits; else the types that can."""
    size = BY_NAME[source].bytes
    alike = [name for name, kind in BY_NAME.items() if not kind.is_float and name != source and kind.bytes == size]
    for name in alike:
        if name == target or cast_chain(name.lower(), target.lower(), casts):
            cast = "" if name == target else f", then pl.cast that to {target}"
            read = f"Read its bits as {name} with pl.reinterpret_view(x, pl.{name}){cast}"
            return f"{read}: right for values below 2^{8 * size - 1}."
    ways = sorted(name.upper() for name in casts if cast_chain(name, target.lower(), casts))
    if not ways:
        return f"Nothing can be cast to {target}."
    return f"Make it of another type: {', '.join(ways)} can be cast to {target}."


@rule(
    "illegal-cast",
    "error",
    "a cast between types that the chip does not have",
    "The vector unit casts between few pairs of types; the compiler joins them to chains, and where there is none it "
    "refuses the kernel. Unsigned 32-bit numbers, as sorting takes them, cannot be cast at all.",
    Example(
        "x = pl.cast(index, pl.FP32)  # index is UINT32",
        "x = pl.cast(pl.reinterpret_view(index, pl.INT32), pl.FP32)",
    ),
    about="chip",
)
def illegal_cast(program: Program) -> Iterator[Finding]:
    return problems(illegal_cast, program, _casts)


def _products(body: PlannedBody, program: Program) -> Iterator[Problem]:
    """Products of a kind that the chip has no memory for: its scales lie beside the cube."""
    if "LeftScale" in program.device.space:
        return
    for one in body.lowered.instructions:
        if one.spec in (MATMUL_MX, MATMUL_MX_ACC, MATMUL_MX_BIAS):
            message = f"pl.{one.name} on {program.device.name}, which has no products with scales"
            yield one.site, message, "It is for a5: --device 950dt."


@rule(
    "illegal-product",
    "error",
    "a product with scales on a chip that has none",
    "MX products multiply FP8 operands and a power of two for each 32 of them, which lie in memories beside the cube "
    "that only a5 has.",
    Example(
        "c = pl.matmul_mx(a, a_scale, b, b_scale)  # on 910B",
        "c = pl.matmul(pl.cast(a, pl.BF16), pl.cast(b, pl.BF16))",
    ),
    about="chip",
)
def illegal_product(program: Program) -> Iterator[Finding]:
    return problems(illegal_product, program, _products)


@rule(
    "cast-chain",
    "hint",
    "a cast in several passes",
    "Each hop of a cast chain is a pass of the vector core over the whole tile, and may round again.",
    Example(
        "q = pl.cast(x, target_type=pl.INT8)  # BF16 to INT8: three passes",
        "q = pl.cast(x32, target_type=pl.INT8)  # from the FP32 it was made of: two",
        "elements that pass once more",
    ),
)
def chain_of_casts(program: Program) -> Iterator[Finding]:
    rules = program.device.rules
    if rules is None:
        return
    for place in places(program):
        if not place.step.op.spec.is_a(OpRole.CAST) or place.step.op.plane != "vector" or _drains(place):
            continue
        for source in {maker.result.dtype for maker in place.flow.makers(place.step, 0)}:
            hops = cast_chain(source.lower(), place.step.result.dtype.lower(), rules.casts)
            if len(hops) > 1 and source != place.step.result.dtype:
                way = " -> ".join((source, *hops)).upper()
                yield chain_of_casts.at(
                    place.site,
                    f"casts {source} to {shown(place.step.result)}, which takes {len(hops)} passes: {way}",
                    f"Cast once from what the value was before, or stay in {hops[0].upper()}.",
                    kernel=place.kernel,
                    waste=Waste(flops=(len(hops) - 1) * prod(place.step.result.shape) * place.runs),
                    count=place.runs,
                )


def _drains(place: StepPlace) -> bool:
    """Whether the cast is done on the way from the accumulator to GM, at no cost."""
    made = {maker.op.plane for maker in place.flow.makers(place.step, 0)}
    used = {use.op.plane for use in place.flow.uses(place.step)}
    return made <= {"cube"} and used == {"store"}


@rule(
    "rounding-mode",
    "hint",
    "casts round ties another way than torch",
    "pl.cast rounds ties away from zero unless told otherwise, torch and NumPy round them to even. bf16 sums and "
    "products are short, so ties are common: a last bit here and there, and a step of a quantised value, differ "
    "from the reference.",
    Example(
        "y = pl.cast(x, target_type=pl.BF16)",
        'y = pl.cast(x, target_type=pl.BF16, mode="rint")',
    ),
    about="quality",
)
def rounding_mode(program: Program) -> Iterator[Finding]:
    casts: dict[str, dict[int, str]] = defaultdict(dict)  # file -> line -> types
    for flow in flows_of(program):
        for op, source, target in _rounding(flow):
            site = program.site(op.site)
            if _mode_left_out(site):
                casts[site.file][site.line] = f"{source} to {target}"
    for file, lines in casts.items():
        first, *others = sorted(lines)
        types = ", ".join(sorted(set(lines.values())))
        many = f"casts on {len(lines)} lines" if others else "a cast"
        yield rounding_mode.at(
            Site(file, first, ""),
            f"{many} ({types}) in the default mode: ties round away from zero, in torch and NumPy to even",
            'Give mode="rint" where results must match a torch reference to the last bit.',
            change=_with_mode(file, first),
            count=len(lines),
            also=[Site(file, line, "") for line in others],
        )


def _rounding(flow: Flow) -> Iterator[tuple[Op, str, str]]:
    """Casts in the default mode that drop bits, with the types from and to."""
    rounded = [s for s in flow.steps if s.op.spec.is_a(OpRole.CAST) and ("mode", "round") in s.op.attributes]
    for step in (step for step in rounded if _from_data(flow, step)):
        for maker in flow.makers(step, 0):
            if maker.op.result is not None and _loses(maker.op.result.dtype, step.result.dtype):
                yield step.op, maker.op.result.dtype, step.result.dtype


def _from_data(flow: Flow, step: Step) -> bool:
    """Whether floating-point numbers out of global memory go into a value."""
    reached = (flow.steps[number].op for number in flow.behind([step.number]))
    return any(op.accesses and op.result is not None and BY_NAME[op.result.dtype].is_float for op in reached)


def _loses(source: str, target: str) -> bool:
    """Whether values of one type need rounding to become the other."""
    if source not in BY_NAME or target not in BY_NAME:
        return False
    one, other = BY_NAME[source], BY_NAME[target]
    if not one.is_float:
        return other.is_float and other.bytes < 4 and one.bytes >= 2
    return other.is_int or (other.is_float and other is not one and other.bytes <= one.bytes)


def _mode_left_out(site: Site) -> bool:
    source = read(site.file)
    calls = [] if source is None else list(source.calls_at(site.line, CAST))
    return any(len(call.args) < 3 and all(k.arg != "mode" for k in call.keywords) for call in calls)


def _with_mode(file: str, line: int) -> str:
    """The line with the mode given, where it holds one cast, whole."""
    source = read(file)
    calls = [] if source is None else list(source.calls_at(line, CAST))
    if source is None or len(calls) != 1 or calls[0].lineno != calls[0].end_lineno:
        return ""
    return source.replaced(calls[0], f'{source.segment(calls[0])[:-1]}, mode="rint")')
