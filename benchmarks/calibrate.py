"""Fits the constants of src/npuscope/chip/devices/a3.toml to public measurements and says how far to trust them.

    python benchmarks/calibrate.py           the fits and their errors
    python benchmarks/calibrate.py --write   also writes the constants into a3.toml
    python benchmarks/calibrate.py --check   exit code 1 where a3.toml does not hold what the fit gives, or where the
                                             matrix products miss their bound of 8 % under cross-validation
    python benchmarks/calibrate.py --docs    also writes docs/understand/trust_forward.md

Needs measured_kernels_by_shape.csv of the real captures (tests/real_data.py).
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fits import (
    SECTION_4,
    Errors,
    GemmFit,
    Line,
    Row,
    line_cross_validated,
    line_fit,
    line_seconds,
    section_4,
    table_rows,
)
from measure import table

from npuscope.chip.devices import Constant, Device, load
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.work import work_of

ROOT = Path(__file__).resolve().parents[1]
TOML = ROOT / "src/npuscope/chip/devices/a3.toml"
MARK = "# ---- calibrated costs, written by benchmarks/calibrate.py: do not edit below this line\n"
BOUND = 0.08
CLOSE = 0.01  # a constant this close to the fit's is the fit's
CSV = "measured_kernels_by_shape.csv (Horacehxw/msModeling, 2026-03)"
# means of captures whose spread is as large as they are
NOISE = {"Neg": "its standard deviation exceeds its mean"}
ATTENTION = "FusedInferAttentionScore"
CONTEXTS = (4096, 5600)  # tokens; the capture's own is not stated


@dataclass(frozen=True)
class Fitted:
    """A family's constants, the rows they come from, and the errors of the fit and of cross-validation."""

    constants: dict[str, Constant]
    rows: list[Row]
    fit: Errors | None = None
    by_shape: Errors | None = None
    by_group: Errors | None = None
    note: str = ""


def calibrate(device: Device) -> dict[str, Fitted]:
    """Every family: products, lines by kernel type, attention, collectives."""
    rows = table_rows() + section_4()
    by_type: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.mkn is None and row.call.type != ATTENTION and row.call.type not in NOISE:
            by_type[row.call.type].append(row)
    found = {"gemm": gemm([row for row in rows if row.mkn is not None], device)}
    found |= {kind: line(kind, group, device) for kind, group in by_type.items()}
    return found | attention(rows) | collectives()


def gemm(rows: list[Row], device: Device) -> Fitted:
    fit = GemmFit(rows, device)
    costs = fit.fit()
    where = f"fit over {len({row.shape for row in rows})} shapes of {CSV} and {SECTION_4}"
    units = {"fixed": "s", "fixed_int8": "s", "first": "B/s per core", "again": "B/s per core", "v3_gain": "times"}
    constants = {name: Constant(getattr(costs, name), unit, where, "fitted") for name, unit in units.items()}
    for kind in ("bf16", "int8"):
        for place, name in enumerate("mkn"):
            sizes = [row.mkn[place] for row in rows if row.mkn and row.int8 == (kind == "int8")]
            constants[f"{kind}_{name}_least"] = Constant(min(sizes), "elements", "smallest in the fit", "measured")
            constants[f"{kind}_{name}_most"] = Constant(max(sizes), "elements", "largest in the fit", "measured")
    return Fitted(
        constants,
        rows,
        Errors(fit.errors(costs)),
        fit.cross_validated(lambda row: row.shape),
        fit.cross_validated(weights_of),
    )


def line(kind: str, rows: list[Row], device: Device) -> Fitted:
    found = line_fit(rows, device)
    shapes = len({row.shape for row in rows})
    told = "one measured point" if shapes == 1 else f"fit over {shapes} shapes"
    where = f"{told} of {' and '.join(dict.fromkeys(_origin(row) for row in rows))}"
    confidence = "measured" if shapes == 1 else "fitted"
    units = {"fixed": "s", "spread": "s at all cores", "rate": "B/s"}
    constants = {
        name: Constant(value, unit, where, confidence)
        for name, unit in units.items()
        if (value := getattr(found, name)) is not None
    }
    sizes = [work_of(row.call).bytes or 0 for row in rows]
    constants["bytes_least"] = Constant(min(sizes), "B", "smallest in the fit", "measured")
    constants["bytes_most"] = Constant(max(sizes), "B", "largest in the fit", "measured")
    note = {1: "one point, not validated", 2: "two points, not validated"}.get(shapes, "")
    return Fitted(constants, rows, _errors(rows, found, device), line_cross_validated(rows, device), note=note)


def attention(rows: list[Row]) -> dict[str, Fitted]:
    """The long decode has no context stated: the rate is that of the middle of what it can have been."""
    mine = [row for row in rows if row.call.type == ATTENTION]
    short = next(row for row in mine if "non paged" in row.text)
    long = next(row for row in mine if row.us > 60)
    latent = min((row for row in mine if "MLA" in row.text), key=lambda row: row.us)
    sizes = [decode_attention_bytes(context) for context in CONTEXTS]
    rate = sum(sizes) / 2 / ((long.us - short.us) * 1e-6)
    told = f"{long.us} µs at a context of {CONTEXTS[0]} to {CONTEXTS[1]} (not stated), less the fixed cost: ±16 %"
    ends = {
        "rate": Constant(rate, "B/s", f"{CSV}: {told}", "guessed"),
        "bytes_least": Constant(sizes[0], "B", "the shortest context it can have had", "guessed"),
        "bytes_most": Constant(sizes[1], "B", "the longest context it can have had", "guessed"),
    }
    fixed = Constant(short.us * 1e-6, "s", f"16 tokens without a cache: {CSV}", "measured")
    fixed_latent = Constant(latent.us * 1e-6, "s", f"six short sequences, context not stated: {CSV}", "guessed")
    none = Constant(0.0, "B", "never inside: the rate is that of grouped-query attention", "guessed")
    return {
        "attention": Fitted({"fixed": fixed, **ends}, [short, long], note="two points, context not stated"),
        "attention_latent": Fitted(
            {"fixed": fixed_latent, **ends, "bytes_least": none, "bytes_most": none},
            [latent],
            note="one point, context not stated",
        ),
    }


def decode_attention_bytes(context: int) -> int:
    """Qwen3-32B at TP16, batch 16: one key-value head of 128 per rank."""
    q, pool, lengths = CallTensor((16, 4, 128)), CallTensor((12308, 128, 128)), CallTensor((16,), "INT64")
    call = Call(ATTENTION, (q, pool, pool, None, None, lengths, lengths), (q,), {"context": float(context)})
    return work_of(call).bytes or 0


def collectives() -> dict[str, Fitted]:
    """Points and lines of measured.md, as they stand there."""
    fits = {"all_gather": (86.9e-6, 214.6e9, "within 5.2 %"), "reduce_scatter": (103.2e-6, 171.4e9, "within 2.3 %")}
    found = {}
    for name, (fixed, rate, quality) in fits.items():
        where = f"measured.md §5, fixed + 15·S/rate, S bytes of a rank: {quality}"
        sizes = where if name == "all_gather" else "sizes not stated, taken as those of all_gather"
        constants = {
            "fixed": Constant(fixed, "s", where, "fitted"),
            "rate": Constant(rate, "B/s", where, "fitted"),
            "ranks": Constant(16, "ranks", where, "measured"),
            "bytes_least": Constant(1.3e6, "B", sizes, "measured"),
            "bytes_most": Constant(42e6, "B", sizes, "measured"),
        }
        found[name] = Fitted(constants, [], note=f"fit of the source, {quality}")
    where = f"stable median of hcom_allReduce_, {SECTION_4}; the mean with waits for other ranks is 79.9 µs"
    point = {
        "time": Constant(20.2e-6, "s", where, "measured"),
        "bytes": Constant(163840, "B", where, "measured"),
        "ranks": Constant(16, "ranks", where, "measured"),
    }
    return {**found, "all_reduce": Fitted(point, [], note="one point, not validated")}


def toml(found: dict[str, Fitted]) -> str:
    """The constants as they stand in a device file."""
    lines = [MARK]
    for family, fitted in found.items():
        lines.append(f"\n[family.{family}]\n")
        for name, c in fitted.constants.items():
            number = f"{c.value:.0f}" if c.value == round(c.value) else f"{c.value:.4g}"
            fields = f'value = {number}, unit = "{c.unit}", confidence = "{c.confidence}", source = "{c.source}"'
            lines.append(f"{name} = {{ {fields} }}\n")
    return "".join(lines)


def differences(device: Device, found: dict[str, Fitted]) -> list[str]:
    """What a3.toml holds otherwise than the fit."""
    told = []
    for family in sorted({*device.family, *found}):
        here = device.family.get(family, {})
        fit = found[family].constants if family in found else {}
        for name in sorted({*here, *fit}):
            a, b = here.get(name), fit.get(name)
            if a is None or b is None or abs(a.value - b.value) > CLOSE * max(abs(a.value), abs(b.value)):
                told.append(
                    f"{family}.{name} is {a.value if a else 'absent'}, the fit gives {b.value if b else 'none'}"
                )
    return told


def _errors(rows: list[Row], found: Line, device: Device) -> Errors:
    return Errors(line_seconds(rows, found, device) * 1e6 / [row.us for row in rows] - 1)


def _origin(row: Row) -> str:
    return SECTION_4 if row.source == SECTION_4 else CSV


def error_rows(found: dict[str, Fitted]) -> Iterable[list[object]]:
    """A line per family: how many rows and shapes, and the errors."""
    for family, fitted in found.items():
        shapes = len({row.shape for row in fitted.rows})
        cv = fitted.by_shape
        yield [
            family,
            len(fitted.rows) or "–",
            shapes or "–",
            f"{fitted.fit.mean:.1%}" if fitted.fit and shapes > 1 else "–",
            *([f"{cv.mean:.1%}", f"{cv.bias:+.1%}", f"{cv.worst:.1%}"] if cv else ["–"] * 3),
            fitted.note,
        ]


ERRORS = ["family", "rows", "shapes", "error of the fit", "error, shape left out", "bias", "worst", "note"]


def gemm_rows(fitted: Fitted, device: Device) -> list[list[object]]:
    """The bound's own numbers: over the table's rows alone, and with those of measured.md."""
    inside = [row.source != SECTION_4 for row in fitted.rows]
    alone = GemmFit([row for row in fitted.rows if row.source != SECTION_4], device)
    cases = (
        ("fit", fitted.fit, Errors(alone.errors(alone.fit()))),
        ("shape left out", fitted.by_shape, alone.cross_validated(lambda row: row.shape)),
        ("type, K, N left out", fitted.by_group, alone.cross_validated(weights_of)),
    )
    found: list[list[object]] = []
    for what, errors, own_fit in cases:
        assert errors is not None
        own = Errors(errors.values[inside])
        figures = [
            f"{own.mean:.1%}",
            f"{own.bias:+.1%}",
            f"{own.worst:.1%}",
            f"{errors.mean:.1%}",
            f"{own_fit.mean:.1%}",
        ]
        found.append([what, *figures])
    return found


def weights_of(row: Row) -> tuple[object, ...]:
    """Rows with the same kernel type and weights: the same K and N."""
    return (row.call.type, *(row.mkn or ())[1:])


GEMM = [
    "tested rows were", "mean error, 17 rows of the table", "bias", "worst", "mean with measured.md §4",
    "17 rows, fitted without §4",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--write", "--check", "--docs"):
        parser.add_argument(option, action="store_true")
    chosen = parser.parse_args()
    device = load(TOML)
    found = calibrate(device)
    table("Matrix products under cross-validation", GEMM, gemm_rows(found["gemm"], device))
    table("Every family", ERRORS, error_rows(found))
    if chosen.write:
        TOML.write_text(TOML.read_text().partition(MARK)[0].rstrip() + "\n\n" + toml(found))
    if chosen.docs:
        from validation_forward import write_docs

        write_docs(load(TOML), found)
    if chosen.check:
        told = differences(device, found)
        own = [row.source != SECTION_4 for row in found["gemm"].rows]
        for errors in (found["gemm"].by_shape, found["gemm"].by_group):
            if errors is None or Errors(errors.values[own]).mean > BOUND:
                told.append(f"matrix products miss the bound of {BOUND:.0%} under cross-validation")
        print("\n" + ("\n".join(told) if told else "a3.toml holds what the fit gives"))
        sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
