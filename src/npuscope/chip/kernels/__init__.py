"""What a kernel's name means, in one table (kernels.toml), read by readers, analyses, rooflines and alignment alike."""

from npuscope.chip.kernels.demangle import demangled, readable
from npuscope.chip.kernels.meaning import (
    aligned_name,
    area_of,
    collective_of,
    is_comm,
    kind_of,
    landmark_of,
    law_of,
    phase_of,
    rule_of,
)
from npuscope.chip.kernels.table import Landmark, Rule

__all__ = [
    "Landmark",
    "Rule",
    "aligned_name",
    "area_of",
    "collective_of",
    "demangled",
    "is_comm",
    "kind_of",
    "landmark_of",
    "law_of",
    "phase_of",
    "readable",
    "rule_of",
]
