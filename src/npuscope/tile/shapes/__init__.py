"""`shapes` mode: a program is recorded without computing it, and what repeats is run once (architecture.md says why).

`Shapes` is the part of a run that this mode owns. Besides, only loops and rewritten programs look in here.
"""

from npuscope.tile.shapes.mode import RestartWithoutLanes, Shapes

__all__ = ["RestartWithoutLanes", "Shapes"]
