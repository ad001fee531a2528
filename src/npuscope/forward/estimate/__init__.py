"""The time a kernel call takes, from calibrated laws: how long, by which law, how sure."""

from npuscope.forward.estimate.call_time import CallTime, estimate

__all__ = ["CallTime", "estimate"]
