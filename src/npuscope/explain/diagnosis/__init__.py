"""What a run suffers from, as a ranked list of causes; one family of causes per module."""

from npuscope.explain.diagnosis.diagnose import diagnose
from npuscope.explain.diagnosis.shape import KINDS, Cause, Diagnosis, Gain, Span, Together

__all__ = ["KINDS", "Cause", "Diagnosis", "Gain", "Span", "Together", "diagnose"]
