"""`shapes` mode: a program is recorded without computing it, and what repeats is run once (architecture.md says why).

`Shapes` is the part of a run that this mode owns; nothing outside looks further into this room but what rewritten
programs and loops tell it (`turns`, `outside`).
"""

from npuscope.tile.shapes.mode import OneByOne, Shapes

__all__ = ["OneByOne", "Shapes"]
