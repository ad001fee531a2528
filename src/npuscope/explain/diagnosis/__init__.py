"""What a run suffers from, as a ranked list of causes. Every file here declares causes: no list names them."""

from importlib import import_module
from pkgutil import iter_modules

from npuscope.base.interval import Gain
from npuscope.explain.diagnosis.cause import CAUSES, Cause, Diagnosis, Span, Together

__all__ = ["CAUSES", "Cause", "Diagnosis", "Gain", "Span", "Together"]


def load_causes() -> None:
    """Import every file of this folder, which declares what it has."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")


load_causes()
