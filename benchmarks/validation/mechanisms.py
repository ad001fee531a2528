"""What each mechanism of the model is worth: its constants, what it brought nearer, and the score without it."""

from __future__ import annotations

from collections.abc import Mapping

from published_changes.score import scores
from validation.evidence import Ablated, Evidence
from validation.markdown import percent, table
from validation.score_table import LARGE

from npuscope.chip.devices import Device

COLUMNS = {
    "direction": "direction right",
    "median": "median error",
    "median_large": f"{LARGE}: median error",
    "within_15": "within 15 %",
}
HEAD = ("mechanism", "constants", "brings nearer", "takes further away", *COLUMNS.values())
Scored = Mapping[str, float | None]


def mechanisms_part(known: Evidence) -> list[str]:
    head = "Each is a part of the model with constants of its own in `src/npuscope/chip/devices/ascend910b1.toml`."
    if known.ablation is None:
        told = ["What each mechanism is worth was not run: there is no `predicted/ablation.json`.", ""]
    else:
        whole = next((one.without for one in known.ablation if not one.constants), _whole(known))
        rows = [("the whole model", "", "", "", *(percent(whole[name]) for name in COLUMNS))]
        rows += [_line(one, whole, known.device) for one in known.ablation if one.constants]
        told = [
            "The last columns are the score of all published changes without it, the other constants as they are; "
            "in bold where that is better than with it.",
            "",
            *table(HEAD, rows),
            "",
        ]
    return [head, *told, "Constants that were fitted:", "", *fitted(known.device)]


def _whole(known: Evidence) -> Scored:
    found = scores(known.changes)
    whole = found["all"]
    values = (whole.direction, whole.median_error, found[LARGE].median_error, whole.within_15)
    return dict(zip(COLUMNS, values, strict=True))


def _line(one: Ablated, whole: Scored, device: Device) -> tuple[str, ...]:
    constants = ", ".join(_constant(name, device) for name in one.constants)
    scored = (_scored(name, one.without[name], whole[name]) for name in COLUMNS)
    return (f"without {one.mechanism}", constants, ", ".join(one.fixed), ", ".join(one.cost), *scored)


def _scored(name: str, without: float | None, now: float | None) -> str:
    if without is None or now is None or percent(without) == percent(now):
        return percent(without)
    better = without < now if name.startswith("median") else without > now
    return f"**{percent(without)}**" if better else percent(without)


def _constant(name: str, device: Device) -> str:
    """A constant of the device file with its value: `timing.x`, or a part of what an op costs, `op.x.row`."""
    group, _, rest = name.partition(".")
    key, _, part = rest.partition(".")
    if group == "timing" and key in device.timing:
        return f"`{key}` {device.timing[key].value:.3g} {device.timing[key].unit}"
    if group == "op" and key in device.op and part:
        return f"`{rest}` {getattr(device.op[key], part):.3g} cycles"
    return f"`{name}`"


def fitted(device: Device) -> list[str]:
    """Constants that somebody fitted, with what their file says of them."""
    rows = [
        (f"`{name}`", f"{one.value:.3g} {one.unit}", one.source)
        for name, one in device.timing.items()
        if one.confidence == "fitted"
    ]
    for name, op in device.op.items():
        if op.confidence == "fitted":
            parts = ", ".join(f"{part} {getattr(op, part):g}" for part in ("head", "slope", "tail", "row"))
            rows.append((f"`{name}`", f"{parts} cycles", op.source))
    return table(("constant", "value", "source"), rows)
