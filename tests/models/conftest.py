"""Tests import the programs of models/ as those import each other."""

from __future__ import annotations

import sys

from tile_programs import MODELS

if str(MODELS) not in sys.path:
    sys.path.insert(0, str(MODELS))
