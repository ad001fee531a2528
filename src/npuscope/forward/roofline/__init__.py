"""Every kernel of a trace against what the chip could do."""

from npuscope.forward.roofline.trace_limits import Roofline, roofline

__all__ = ["Roofline", "roofline"]
