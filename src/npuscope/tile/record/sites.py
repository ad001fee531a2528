"""Which line of the user's source an op stands on.

`frame.f_lineno` walks the line table, which is slow in long functions, so a place is known by (code object,
instruction) and resolved to file and line once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType

from npuscope.models import FOLDER
from npuscope.tile.record.model import Site

_HERE = str(Path(__file__).resolve().parents[2])  # npuscope itself
_OURS_BY_PLACE = (_HERE, contextlib.__file__, "<frozen", "<string>")  # a `with` of ours is left through contextlib
_MODELS = str(FOLDER)  # programs to run as the user's own, also where they are installed with npuscope
# Where Python and what is installed beside it live: never the user's own code.
_INSTALLED = {place for place in sys.path if place.endswith(("site-packages", "dist-packages"))}  # also of other users
# what `pip install --target` filled, too
_TARGETS = [Path(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
_INSTALLED |= {f"{place}{os.sep}" for place in _TARGETS if next(place.glob("*.dist-info"), None)}
LIBRARY = ("<frozen", *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, *_INSTALLED)
_SITES: list[Site] = []
_BY_PLACE: dict[tuple[int, int], int] = {}
_BY_SITE: dict[Site, int] = {}
_OURS: dict[int, bool] = {}
_KEPT: list[CodeType] = []  # a freed code object's id would be given to another


def is_ours(file: str) -> bool:
    """Whether a file is npuscope's or Python's, not the user's."""
    return file.startswith(_OURS_BY_PLACE) and not file.startswith(_MODELS)


def is_users(file: str) -> bool:
    """Whether a file or folder is neither npuscope's nor installed."""
    if file.startswith(_MODELS):
        return True
    return bool(file) and not is_ours(file) and not is_installed(file)


def is_installed(place: str) -> bool:
    """Whether a file or folder is Python's own or of a package that was installed, here or in another environment."""
    return place.startswith(LIBRARY) or not {"site-packages", "dist-packages"}.isdisjoint(Path(place).parts)


def _is_ours(code: CodeType) -> bool:
    _KEPT.append(code)
    ours = _OURS[id(code)] = is_ours(code.co_filename)
    return ours


def here(above: int = 1) -> int:
    """The number of the innermost place in user code that led here; so many callers are known to be npuscope's."""
    frame = sys._getframe(above)
    while True:
        code = frame.f_code
        ours = _OURS.get(id(code))
        if not (_is_ours(code) if ours is None else ours):
            break
        if frame.f_back is None:
            return number(Site("<none>", 0, ""))
        frame = frame.f_back
    place = (id(code), frame.f_lasti)
    found = _BY_PLACE.get(place)
    if found is None:
        name = code.co_qualname.removeprefix("__npuscope_outer.<locals>.").split("__npuscope_body")[0]
        name = name.split(".<locals>.__npuscope")[0]
        found = _BY_PLACE[place] = number(Site(code.co_filename, frame.f_lineno or 0, name))
    return found


def number(site: Site) -> int:
    """The number of a place, the same each time."""
    found = _BY_SITE.get(site)
    if found is None:
        found = _BY_SITE[site] = len(_SITES)
        _SITES.append(site)
    return found


def site(number: int) -> Site:
    return _SITES[number]
