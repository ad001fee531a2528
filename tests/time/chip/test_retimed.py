"""Other constants of [timing] without recording, planning or sorting blocks again: the same as from the beginning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from other_chips import CHIP, LAYER, other, program_on

from npuscope.time.chip.prepare import Prepared, prepare, retimed

CONSTANTS = [name for name, constant in CHIP.timing.items() if constant.unit != "flag"]


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_changed_constant_has_the_effect_it_has_from_the_beginning(name: str) -> None:
    device = other(**{name: 1.4})
    anew, again = prepare(program_on(device, LAYER, "--small")), retimed(known(), device)
    assert again.machine == anew.machine
    there: Any
    here: Any
    for field, there, here in zip(anew.job._fields, anew.job, again.job, strict=True):
        pairs: Any = zip(there, here, strict=True) if field == "rings" else [(there, here)]
        assert all(np.array_equal(a, b) for a, b in pairs), field
    assert again.program.device is device
    assert np.array_equal(again.classes.parts(), anew.classes.parts())


def known() -> Prepared:
    return prepare(program_on(CHIP, LAYER, "--small"))
