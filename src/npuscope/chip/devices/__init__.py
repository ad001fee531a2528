"""What a chip is, read from a TOML file and checked: units, rates, memory, links, and calibrated costs.

Every constant has a value, a unit, a source and a confidence. A file may derive from another with `inherits`: it
names only what differs. All rates are per second and per device, all sizes in bytes, all times in seconds. A place
such as `timing.load_fixed`, `cube.bf16` or `op.vgather.row` is where a file has a constant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.toml_file import checked, decode_toml, read_toml

WHAT = "a device file (docs/howto/extend.md)"
PER_CYCLE = "FLOP/cycle/core"
Unit = Literal["cube", "vector"]
SMALLEST, LARGEST = 1e-12, 1e20
PLAUSIBLE = {"s": (SMALLEST, 1.0), "Hz": (1e6, 1e12), "cycles": (SMALLEST, 1e9), "B/s": (1e6, LARGEST)}
DIVISORS = (".rate", ".first", ".again", ".v3_gain")  # costs that divide
_RATES = (PER_CYCLE, "FLOP/s")
UNITS = {  # the ending of a constant's place -> its units
    "cores.cube": ("cores",),
    "cores.vector": ("cores",),
    "clock.core": ("Hz",),
    "memory.size": ("B",),
    "memory.l2": ("B",),
    ".align": ("B",),
    ".size": ("B",),
    "bandwidth": ("B/s",),
    "latency": ("s",),
    "ranks": ("ranks",),
    **{f"{unit}.{dtype}": _RATES for unit in ("cube", "vector") for dtype in ("bf16", "fp16", "fp32", "int8", "fp8")},
}


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with where it comes from and how sure it is."""

    value: float
    unit: str
    source: str
    confidence: Literal["measured", "documented", "fitted", "guessed"]


class Cores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cube: Constant
    vector: Constant


class Clock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    core: Constant


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: Constant
    bandwidth: Constant
    l2: Constant | None = None


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tier of links: `bandwidth` of one rank each way, to reach any of `ranks` ranks.

    In a full mesh the bandwidth is spread over links to each of the other ranks, so that fewer ranks have less.
    """

    name: str
    ranks: Constant
    bandwidth: Constant
    latency: Constant
    mesh: bool = False


class Space(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory of one core: usable bytes, and what the address of a tile must be a multiple of."""

    size: Constant
    align: Constant


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a core can do at all, by name; spaces are written as in the tile language, GM is global memory."""

    source: str
    moves: frozenset[str]  # "Mat->Left": moves that an instruction does
    ring_on_chip: bool  # cube and vector cores hand tiles over on chip, not through GM
    store_types: frozenset[str]  # an accumulator can be written to GM as these
    scaled_types: dict[str, frozenset[str]]  # accumulator -> types it can be written as, multiplied by a constant
    atomic_types: frozenset[str]  # GM can add these
    casts: dict[str, frozenset[str]]  # type -> types that one instruction converts it to


class OpCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of a vector instruction: head + slope per 256 bytes + tail; `row` per row where it goes row by row,
    `element` per element where the scalar unit does it one by one.
    """

    head: float
    slope: float
    tail: float
    source: str
    confidence: Literal["measured", "documented", "fitted", "guessed"]
    row: float = 0.0
    element: float = 0.0


OP_PARTS = {"head": "cycles", "slope": "cycles/256 B", "tail": "cycles", "row": "cycles/row", "element": "cycles"}


class ReduceCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of a reduction of a tile: slope per element + bias, both by the number of columns."""

    columns: tuple[float, ...]
    slope: tuple[float, ...]
    bias: tuple[float, ...]
    source: str
    confidence: Literal["measured", "documented", "fitted", "guessed"]


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chip. `link` goes from the innermost tier to the outermost; `family` has calibrated costs by kernel family.

    `space`, `rules`, `core` and `runtime` are there for chips whose tile programs can be checked: the memories of a
    core, what it can do, sizes and costs inside it, and limits and costs of the runtime that schedules tasks. `timing`,
    `op` and `reduce` are there for chips whose tile programs can be timed.
    """

    name: str
    title: str
    cores: Cores
    cube: dict[str, Constant]  # dtype -> dense rate
    vector: dict[str, Constant]
    memory: Memory
    clock: Clock | None = None
    link: tuple[Link, ...] = ()
    aliases: tuple[str, ...] = ()
    inherits: str | None = None
    family: dict[str, dict[str, Constant]] = {}
    space: dict[str, Space] = {}
    rules: Rules | None = None
    core: dict[str, Constant] = {}
    runtime: dict[str, Constant] = {}
    timing: dict[str, Constant] = {}
    op: dict[str, OpCost] = {}
    reduce: dict[str, ReduceCost] = {}
    scheduled_by: str = ""  # the runtime laid over it (chip/runtimes); without one it is as its file has it

    def peak(self, unit: Unit, dtype: str) -> float | None:
        """FLOP/s of the cube or the vector units for a dtype such as bf16; None where the file has none."""
        rate = (self.cube if unit == "cube" else self.vector).get(dtype)
        if rate is None:
            return None
        if rate.unit != PER_CYCLE:
            return rate.value
        cores = self.cores.cube if unit == "cube" else self.cores.vector
        return rate.value * cores.value * self.clock.core.value if self.clock else None

    @property
    def reached_bandwidth(self) -> float:
        """Bytes per second that all cores together get from HBM: fitted where programs can be timed, else what is
        documented (`bandwidth`)."""
        rate = self.timing.get("hbm_rate")
        return self.bandwidth if rate is None else rate.value

    @property
    def timed_by_guesses(self) -> bool:
        """Whether more than half of its constants of time are guesses: nobody has measured such a chip in public."""
        guessed = sum(constant.confidence == "guessed" for constant in self.timing.values())
        return 2 * guessed > len(self.timing)

    @property
    def bandwidth(self) -> float:
        """Peak bytes per second of the memory."""
        return self.memory.bandwidth.value


def load(name_or_path: str | Path) -> Device:
    """A device by one of its names, without regard to case, blanks and dashes, or by the path of a TOML file."""
    known = _aliases()
    found = known.get(bare(str(name_or_path)))
    if found is not None:
        return _built_in(found)
    path = Path(name_or_path)
    if path.suffix == ".toml" or path.is_file():
        return _device(_inherited(read_toml(path, dict[str, object], WHAT), path), path)
    raise NpuscopeError(
        f"no device '{name_or_path}'",
        remedy=f"Known are {', '.join(names())}; or give the path of a TOML file of your own (docs/howto/extend.md).",
    )


def names() -> list[str]:
    """The names of the devices that come with npuscope."""
    return sorted(set(_aliases().values()))


def is_known(name: str) -> bool:
    """True for any name of a device that comes with npuscope."""
    return bare(name) in _aliases()


def bare(name: str) -> str:
    """A device's name in small letters and digits only."""
    return "".join(c for c in name.lower() if c.isalnum())


class _Names(msgspec.Struct):
    """What a file calls its device; the rest is read when somebody asks for it."""

    name: str
    aliases: tuple[str, ...] = ()


@cache
def _aliases() -> Mapping[str, str]:
    """Bare name -> name, of every device that comes with npuscope."""
    found: dict[str, str] = {}
    for file in files("npuscope.chip.devices").iterdir():
        if file.name.endswith(".toml"):
            file_names = decode_toml(file.read_bytes(), _Names, WHAT, Path(file.name))
            found |= {bare(alias): file_names.name for alias in (file_names.name, *file_names.aliases)}
    return found


@cache
def _built_in(name: str) -> Device:
    return _device(_raw(name), Path(f"{name}.toml"))


def _raw(name: str) -> dict[str, object]:
    path = Path(f"{name}.toml")
    data = files("npuscope.chip.devices").joinpath(path.name).read_bytes()
    return _inherited(decode_toml(data, dict[str, object], WHAT, path), path)


def _inherited(raw: dict[str, object], path: Path, children: tuple[Path, ...] = ()) -> dict[str, object]:
    """The file laid over what it inherits from, table by table; lists are replaced whole.

    A parent is a known device, or a TOML file whose path is relative to the file's own folder.
    """
    parent = raw.get("inherits")
    if parent is None:
        return raw
    if str(parent).endswith(".toml"):
        file, children = path.parent / str(parent), (*children, path.resolve())
        if file.resolve() in children:
            raise BadInput(f"inherits '{parent}', which inherits from it", path=path)
        above = _inherited(read_toml(file, dict[str, object], WHAT), file, children)
        return _laid_over({**above, "aliases": []}, raw)
    name = _aliases().get(bare(str(parent)))
    if name is None or name == path.stem == raw.get("name"):
        raise BadInput(f"inherits '{parent}', which is not a known device", path=path, remedy=f"Known: {names()}.")
    return _laid_over({**_raw(name), "aliases": []}, raw)


def _laid_over(below: dict[str, object], above: dict[str, object]) -> dict[str, object]:
    merged = {**below}
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and "value" not in value:
            merged[key] = _laid_over(old, value)
        else:
            merged[key] = value
    return merged


def _device(raw: dict[str, object], path: Path) -> Device:
    device = checked(lambda: msgspec.convert(raw, Device), WHAT, path)
    for place, constant in constants(device):
        if not math.isfinite(constant.value) or constant.value < 0:
            raise BadInput(f"{place} is {constant.value}, not a number from 0 up", path=path)
        may_be_zero = (
            place.endswith("latency")
            or (place.startswith("timing.") and not place.endswith(("_rate", "idle_loop")))
            or (place.startswith("family.") and not place.endswith(DIVISORS))
        )
        if constant.value == 0 and not may_be_zero:
            raise BadInput(f"{place} is zero", path=path)
        least, most = PLAUSIBLE.get(constant.unit, (SMALLEST, LARGEST))
        if constant.value and not least < constant.value < most:
            raise BadInput(f"{place} is {constant.value:g}, which no chip has", path=path)
        expected = next((units for ending, units in UNITS.items() if place.endswith(ending)), None)
        if expected is not None and constant.unit not in expected and not place.startswith("family."):
            raise BadInput(f"{place} is in '{constant.unit}'", path=path, remedy=f"Give it in {' or '.join(expected)}.")
        if not constant.source.strip():
            raise BadInput(f"{place} has no source", path=path, remedy="Every constant says where it comes from.")
        if constant.unit == PER_CYCLE and device.clock is None:
            raise BadInput(f"{place} is per cycle, but the file has no [clock]", path=path)
    for name, curve in device.reduce.items():
        counts = {len(curve.columns), len(curve.slope), len(curve.bias)}
        if counts == {0} or len(counts) > 1 or list(curve.columns) != sorted(set(curve.columns)):
            raise BadInput(
                f"reduce.{name} needs widths from narrow to wide, with a slope and a bias for each", path=path
            )
    for place in ("cube", "vector"):
        if (cores := getattr(device.cores, place).value) != int(cores):
            raise BadInput(f"cores.{place} is {cores:g}, not a whole number", path=path)
    sizes = [link.ranks.value for link in device.link]
    if sizes != sorted(set(sizes)):
        raise BadInput("its links do not go from the innermost tier to the outermost", path=path)
    return device


def constants(device: Device) -> list[tuple[str, Constant]]:
    """Every constant of a device with its place in the file, such as cube.bf16."""
    tables: list[tuple[str, Mapping[str, Constant]]] = [
        ("cores", _parts(device.cores, "cube", "vector")),
        ("memory", _parts(device.memory, "size", "bandwidth")),
        ("clock", {"core": device.clock.core} if device.clock else {}),
        ("memory", {"l2": device.memory.l2} if device.memory.l2 else {}),
        ("cube", device.cube),
        ("vector", device.vector),
        *((f"link.{one.name}", _parts(one, "ranks", "bandwidth", "latency")) for one in device.link),
        *((f"space.{name}", _parts(space, "size", "align")) for name, space in device.space.items()),
        ("core", device.core),
        ("runtime", device.runtime),
        ("timing", device.timing),
        *((f"family.{family}", costs) for family, costs in device.family.items()),
    ]
    return [(f"{table}.{name}", constant) for table, parts in tables for name, constant in parts.items()]


def _parts(whole: msgspec.Struct, *names: str) -> dict[str, Constant]:
    return {name: getattr(whole, name) for name in names}


def with_values(device: Device, values: Mapping[str, float]) -> Device:
    """The device with other values at some places of its file."""
    for place, value in values.items():
        table, key, *part = place.split(".")
        costs = dict(getattr(device, table))
        costs[key] = msgspec.structs.replace(costs[key], **{part[0] if part else "value": value})
        device = msgspec.structs.replace(device, **{table: costs})
    return device


def value_at(device: Device, place: str) -> float:
    table, key, *part = place.split(".")
    return float(getattr(getattr(device, table)[key], part[0] if part else "value"))


def inheriting_file(name: str, title: str, inherits: str, timing: Mapping[str, Constant]) -> str:
    """The TOML of a device that differs in constants of [timing]. `inherits`: a known device, or a file's path."""

    def text(words: str) -> str:  # a basic string of TOML, which has the escapes of JSON
        return json.dumps(words, ensure_ascii=False).replace("\x7f", "\\u007f")

    lines = [f"name = {text(name)}", f"title = {text(title)}", f"inherits = {text(inherits)}", "", "[timing]"]
    for place, c in timing.items():
        known = f'unit = {text(c.unit)}, confidence = "{c.confidence}", source = {text(c.source)}'
        lines.append(f"{place} = {{ value = {c.value!r}, {known} }}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class ConstantRow:
    """A constant as a row of a table; costs of ops and reductions have a row per coefficient."""

    place: str
    value: float
    unit: str
    confidence: str
    source: str


@dataclass(frozen=True)
class ConstantDifference:
    """A place where two chips differ in value or unit; None where one has no such number."""

    place: str
    a: ConstantRow | None
    b: ConstantRow | None


def list_constants(device: Device, prefix: str = "") -> list[ConstantRow]:
    """All numbers in the order of the file's tables, or those whose place begins so."""
    rows = [ConstantRow(place, c.value, c.unit, c.confidence, c.source) for place, c in constants(device)]
    for name, cost in device.op.items():
        for part, unit in OP_PARTS.items():
            if getattr(cost, part) or part in ("head", "slope", "tail"):
                rows.append(ConstantRow(f"op.{name}.{part}", getattr(cost, part), unit, cost.confidence, cost.source))
    for name, curve in device.reduce.items():
        for n, columns in enumerate(curve.columns):
            place, known = f"reduce.{name}.{columns:g}", (curve.confidence, curve.source)
            rows.append(ConstantRow(f"{place}.slope", curve.slope[n], "cycles/element", *known))
            rows.append(ConstantRow(f"{place}.bias", curve.bias[n], "cycles", *known))
    return [row for row in rows if row.place.startswith(prefix)]


def differences(a: Device, b: Device) -> list[ConstantDifference]:
    """In the order of `a`, then what only `b` has."""
    mine, theirs = ({row.place: row for row in list_constants(device)} for device in (a, b))
    pairs = [(place, mine.get(place), theirs.get(place)) for place in dict.fromkeys([*mine, *theirs])]
    return [ConstantDifference(place, *pair) for place, *pair in pairs if _key(pair[0]) != _key(pair[1])]


def _key(row: ConstantRow | None) -> tuple[float, str] | None:
    return None if row is None else (row.value, row.unit)
