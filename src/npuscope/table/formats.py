"""How values read to people: names that fit, three digits, the unit that fits; and the forms a column can have.

The one place that turns a number into text. JSON has all digits in the smallest unit. `lab/page/format.js` follows the
same rules under the same names; tests/table/numbers.json has cases for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

from npuscope.base.frozen import dataclass
from npuscope.base.interval import Interval

WIDEST = 56  # characters of a text cell
LEVELS = " ▁▂▃▄▅▆▇█"
NOTHING = "–"


def printable(text: str) -> str:
    """Names come from captures: what would move a terminal's cursor is shown, not obeyed."""
    return "".join(c if c.isprintable() else "�" for c in text)


def short(text: str, width: int = WIDEST) -> str:
    """A name that fits a table: what does not fit is left out of its middle, since many names begin alike."""
    if len(text) <= width:
        return printable(text)
    end = (width - 1) // 2
    return printable(f"{text[: width - 1 - end]}…{text[len(text) - end :]}")


def short_but_distinct(texts: Sequence[str], width: int = WIDEST) -> list[str]:
    """Names that fit a table and stay different: those that `short` would make alike show where they begin to differ,
    and a number where even that is too long."""
    cut = [short(text, width) for text in texts]
    alike: dict[str, list[str]] = {}
    for text, name in zip(texts, cut, strict=True):
        if text not in (group := alike.setdefault(name, [])):
            group.append(text)
    shown: dict[str, str] = {}
    for group in (group for group in alike.values() if len(group) > 1):
        head = width // 4
        first, last = min(group), max(group)
        same = next(n for n, pair in enumerate(zip(first + " ", last + " ", strict=False)) if pair[0] != pair[1])
        begin = max(same - 2, head)
        for text in group:
            rest = text[begin : begin + width - head - 2]
            shown[text] = printable(f"{text[:head]}…{rest}" + ("…" if begin + len(rest) < len(text) else ""))
        if len({shown[text] for text in group}) < len(group):
            shown |= {text: f"{shown[text][: width - 5]} #{n}" for n, text in enumerate(group, 1)}
    return [shown.get(text, name) for text, name in zip(texts, cut, strict=True)]


def sentence_start(words: str) -> str:
    """Words that begin a sentence."""
    return words[:1].upper() + words[1:]


def many(count: int, one: str, several: str = "") -> str:
    """A number with its noun: `1 task`, `2 tasks`, `1,024 passes`."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def moment(ns: int) -> str:
    """A place on a timeline, to be found again: microseconds with all digits."""
    return f"{ns / 1000:,.3f} µs"


class Unit(NamedTuple):
    """A unit and how many of the smallest unit of its kind it is."""

    name: str
    worth: float


TIMES = (Unit("ns", 1), Unit("µs", 1e3), Unit("ms", 1e6), Unit("s", 1e9))
TRAFFIC = (Unit("B", 1), Unit("kB", 1e3), Unit("MB", 1e6), Unit("GB", 1e9), Unit("TB", 1e12))  # as bandwidths
CAPACITY = (Unit("B", 1), Unit("KiB", 2**10), Unit("MiB", 2**20), Unit("GiB", 2**30))  # as memories are built
ARITHMETIC = (Unit("FLOP", 1), Unit("kFLOP", 1e3), Unit("MFLOP", 1e6), Unit("GFLOP", 1e9), Unit("TFLOP", 1e12))
ROUNDED = 999.5  # what three digits would show as 1,000


def fitting(largest: float, units: Sequence[Unit]) -> Unit:
    """The unit in which a number has one to three digits before its point, as far as units go."""
    return next((unit for unit in units if abs(largest) / unit.worth < ROUNDED), units[-1])


def quantity(value: float | None, units: Sequence[Unit]) -> str:
    """A number with three digits and the unit that fits; a dash for none."""
    if value is None or value != value:
        return NOTHING
    unit = fitting(value, units)
    return f"{significant(value / unit.worth)} {unit.name}"


def duration(ns: float | None) -> str:
    """Nanoseconds as people say them: three digits and the unit that fits ("12.3 µs"); a dash for none."""
    return quantity(ns, TIMES)


def change_of_time(ns: float) -> str:
    """A difference of times with its sign: "+392 µs"."""
    return f"{'+' if ns > 0 else ''}{duration(ns)}"


def traffic(count: float) -> str:
    """Bytes moved: "813 MB"."""
    return quantity(count, TRAFFIC)


def capacity(count: float) -> str:
    """Bytes of a memory: "184 KiB"."""
    return quantity(count, CAPACITY)


def arithmetic(count: float) -> str:
    """FLOPs: "12.5 GFLOP"."""
    return quantity(count, ARITHMETIC)


def significant(value: float) -> str:
    """A number with three significant digits and without zeros that say nothing; whole above a thousand."""
    text = figures(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def figures(value: float, most: int | None = None) -> str:
    """The same with its zeros, since numbers below one another have them; with at most so many decimals."""
    if value == 0:
        return "0"
    if not isfinite(value):
        return NOTHING if value != value else "∞" if value > 0 else "-∞"
    if not 1e-9 <= abs(value) < 1e15:
        return f"{value:.2e}"
    wanted = max(2 - floor(log10(abs(float(f"{value:.2e}")))), 0)
    digits = wanted if most is None else min(wanted, most)
    text = f"{value:,.{digits}f}"
    return text if text.strip("-0.") else f"<{10**-digits:.{digits}f}"


def percent(share: float | None) -> str:
    """A share of one with one decimal: "72.2%"."""
    if share is None or share != share:
        return NOTHING
    return f"{share:.1%}" if abs(share) < 9.9995 else f"{significant(100 * share)}%"


def rough_percent(share: float) -> str:
    """A share of one in a sentence: "43%", and "7.5%" below ten."""
    return f"{share:.0%}" if share >= 0.0995 else f"{share * 100:.2g}%"


def change(share: float | None) -> str:
    """A relative change with its sign: "+4.2%"."""
    return f"{'+' if share is not None and share >= 0 else ''}{percent(share)}"


def interval(low: float, high: float) -> str:
    """From one number to another: "0.737 to 1.52"."""
    return f"{figures(low)} to {figures(high)}"


def estimate_text(one: Interval) -> str:
    """Nanoseconds as 1.03 ms (80%: 0.737 to 1.52): one unit for the value and its interval."""
    unit = fitting(one.value, TIMES)
    shown = one.times(1 / unit.worth)
    return f"{significant(shown.value)} {unit.name} ({one.coverage * 100:.0f}%: {interval_text(shown)})"


def interval_text(one: Interval) -> str:
    return interval(one.low, one.high)


def times(ratio: float | None) -> str:
    """A ratio with three digits: "1.34x"."""
    return NOTHING if ratio is None else f"{ratio:.2f}x" if 1 <= abs(ratio) < 9.995 else f"{significant(ratio)}x"


def levels(shares: Iterable[float]) -> str:
    """Shares of one as a row of bars, a character each; what is not nothing can be seen."""
    most = len(LEVELS) - 1
    return "".join(LEVELS[min(max(ceil(share * most - 0.01), 0), most)] for share in shares)


@dataclass(frozen=True)
class Form:
    """How the cells of a column read. `name` is what page/table.js calls it, `json` the type that JSON has.

    A column of `units` has one of them, which its heading names: the one that fits its largest cell. `show` gets the
    value in that unit.
    """

    name: str
    json: str
    show: Callable[[object], str]  # of a value that is there
    units: tuple[Unit, ...] = ()
    right: bool = True  # numbers stand to the right
    words: Mapping[str, str] = field(
        default_factory=dict, compare=False
    )  # what people read for a word that programs rely on

    def unit_for(self, values: Iterable[object]) -> Unit | None:
        """The unit of a column with these cells."""
        return fitting(max(map(_largest, values), default=0.0), self.units) if self.units else None

    def with_unit(self, value: object) -> str:
        """A value outside of a table."""
        unit = self.unit_for([value])
        return self.show(value) if unit is None else f"{self.show(in_unit(value, unit))} {unit.name}"


def in_unit(value: object, unit: Unit | None) -> object:
    """A number, or each of several, in a unit."""
    if unit is None or isinstance(value, str | bool):
        return value
    if isinstance(value, list | tuple):
        return [in_unit(one, unit) for one in value]
    return value / unit.worth if isinstance(value, int | float) else value


def _largest(value: object) -> float:
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=0.0)
    return abs(value) if isinstance(value, int | float) and value == value else 0.0


def _number(show: Callable[[float], str]) -> Callable[[object], str]:
    return lambda value: show(value) if isinstance(value, int | float) else str(value)


def _plain(value: float) -> str:
    return significant(value) if isinstance(value, float) else f"{value:,}"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def worded(words: Mapping[str, str]) -> Form:
    """Words that programs rely on, and what people read for them."""
    return replace(TEXT, show=lambda value: words.get(str(value), str(value)), words=words)


MOST_DECIMALS = 4  # of a cell far below the largest of its column
_IN_COLUMN = _number(lambda value: figures(value, MOST_DECIMALS))

TEXT = Form("text", "string", str, right=False)
COUNT = Form("count", "int", _number(lambda value: f"{value:,.0f}"))
NUMBER = Form("number", "number", _number(_plain))
TIME = Form("ns", "int, ns", _IN_COLUMN, TIMES)
MEAN_TIME = replace(TIME, json="number, ns")
BYTES = Form("bytes", "int, bytes", _IN_COLUMN, TRAFFIC)
ROOM = replace(BYTES, units=CAPACITY)
FLOPS = Form("flops", "int", _IN_COLUMN, ARITHMETIC)
SHARE = Form("share", "number, share of 1", _number(percent))
CHANGE = Form("change", "number, share of 1", _number(change))
RATIO = Form("ratio", "number", _number(times))
FLAG = Form("flag", "bool", lambda value: "yes" if value else "no", right=False)
LIST = Form("list", "list of strings", _listed, right=False)
VALUE = replace(TEXT, right=True)
