"""What each mechanism of the model is worth: its constants, what it brought near, and the score without it."""

from __future__ import annotations

from published_changes.score import scores
from validation.evidence import Ablated, Evidence
from validation.markdown import percent, table
from validation.score_table import LARGE

from npuscope.device.chip import Device

HEAD = ("mechanism", "constants", "what it fixed", "direction", "median error", f"where {LARGE}", "within 15 %")


def mechanisms_part(known: Evidence) -> list[str]:
    head = "Each is a part of the model with constants of its own in `npuscope/device/ascend910b1.toml`."
    if known.ablation is None:
        told = ["What each mechanism is worth was not run: there is no `predicted/ablation.json`.", ""]
    else:
        told = [
            "The last columns are the score of all published changes without it; in bold where it is better without.",
            "",
            *table(HEAD, [_now(known), *(_line(one, known) for one in known.ablation)]),
            "",
        ]
    return [head, *told, "Constants that were fitted:", "", *fitted(known.device)]


def fitted(device: Device) -> list[str]:
    rows = [
        (f"`{name}`", f"{one.value:.3g} {one.unit}", one.source)
        for name, one in device.timing.items()
        if one.confidence == "fitted"
    ]
    return table(("constant", "value", "fitted on"), rows)


def _now(known: Evidence) -> tuple[str, ...]:
    return ("**all of them**", "", "", *(percent(value) for value in _whole(known).values()))


def _whole(known: Evidence) -> dict[str, float]:
    found = scores(known.changes)
    whole = found["all"]
    return {
        "direction": whole.direction,
        "median": whole.median_error,
        "median_large": found[LARGE].median_error,
        "within_15": whole.within_15,
    }


def _line(one: Ablated, known: Evidence) -> tuple[str, ...]:
    shown = []
    for name, now in _whole(known).items():
        less_is_better = name.startswith("median")
        without = one.without[name]
        better = without < now if less_is_better else without > now
        changed = percent(without) != percent(now)
        shown.append(f"**{percent(without)}**" if better and changed else percent(without))
    return (
        f"without {one.mechanism}",
        ", ".join(_constant(name, known.device) for name in one.constants),
        *_fixed(one),
        *shown,
    )


def _fixed(one: Ablated) -> tuple[str]:
    return (", ".join(one.fixed) or "nothing among these rows",)


def _constant(name: str, device: Device) -> str:
    """`timing.x` with its value."""
    short = name.removeprefix("timing.")
    constant = device.timing.get(short)
    return f"`{short}`" + (f" {constant.value:.3g} {constant.unit}" if constant else "")
