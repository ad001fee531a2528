"""How values read: names that fit, times in microseconds, shares in per cent; and the forms a column can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, floor, log10

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


def sentence_start(words: str) -> str:
    """Words that begin a sentence."""
    return words[:1].upper() + words[1:]


def microseconds(ns: float | None) -> str:
    """Nanoseconds as microseconds with three decimals; a dash for none."""
    return NOTHING if ns is None or ns != ns else f"{ns / 1000:,.3f}"


def duration(ns: float | None) -> str:
    """Nanoseconds as people say them: three digits and the unit that fits ("12.3 µs"); a dash for none."""
    if ns is None or ns != ns:
        return NOTHING
    value, unit = float(ns), "ns"
    for larger in ("µs", "ms", "s"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{significant(value)} {unit}"


def significant(value: float) -> str:
    """A number with three significant digits and without zeros that say nothing; whole above a thousand."""
    if value == 0:
        return "0"
    digits = max(2 - floor(log10(abs(float(f"{value:.2e}")))), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float | None) -> str:
    return NOTHING if share is None or share != share else f"{share:.1%}"


def times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}x"


def levels(shares: Iterable[float]) -> str:
    """Shares of one as a row of bars, a character each; what is not nothing can be seen."""
    most = len(LEVELS) - 1
    return "".join(LEVELS[min(max(ceil(share * most - 0.01), 0), most)] for share in shares)


@dataclass(frozen=True)
class Form:
    """How the cells of a column read. `name` is what page/table.js calls it, `json` the type that JSON has."""

    name: str
    json: str
    show: Callable[[object], str]  # of a value that is there
    unit: str = ""  # in the heading
    right: bool = True  # numbers stand to the right


def _number(show: Callable[[float], str]) -> Callable[[object], str]:
    return lambda value: show(value) if isinstance(value, int | float) else str(value)


def _plain(value: float) -> str:
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def _listed(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


TEXT = Form("text", "string", str, right=False)
COUNT = Form("count", "int", _number(lambda value: f"{value:,.0f}"))
NUMBER = Form("number", "number", _number(_plain))
PLAIN = replace(NUMBER, show=_number(lambda value: f"{value:,.3f}".rstrip("0").rstrip(".")))
TIME = Form("ns", "int, ns", _number(microseconds), "µs")
MEAN_TIME = replace(TIME, json="number, ns")
BYTES = replace(COUNT, unit="B", json="int, bytes")
SHARE = Form("share", "number, share of 1", _number(percent))
CHANGE = Form("change", "number, share of 1", _number(lambda value: f"{value:+.1%}"))
RATIO = Form("ratio", "number", _number(times))
FLAG = Form("flag", "bool", lambda value: "yes" if value else "no", right=False)
LIST = Form("list", "list of strings", _listed, right=False)
VALUE = replace(TEXT, right=True)
