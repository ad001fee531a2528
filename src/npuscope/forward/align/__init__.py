"""A predicted forward pass beside a measured one, kernel by kernel."""

from npuscope.forward.align.alignment import Alignment, align

__all__ = ["Alignment", "align"]
