"""Fixes: a finding's source rewritten as a person would, comments and formatting kept. A family per file.

patches, unmended = patches_of(findings)   # pure: reads the files that findings name, writes and runs nothing
patches[0].title, patches[0].diff()        # a `Patch` (patch.py): file, before, after, edits for an editor
patches[0].write()                         # atomically, refused where the file changed meanwhile

What is offered was tried: `npuscope.answer.fixes` lists, tries and applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from npuscope.base.plugins import not_installed
from npuscope.base.unsaved import source_bytes
from npuscope.check.fixes.fix import Fix, NewText, Unmended, mended
from npuscope.check.fixes.patch import Patch, no_patches
from npuscope.check.rule import Finding


@cache
def all_fixes() -> tuple[Fix, ...]:
    """The fixes of this folder, by name."""
    try:
        modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "libcst":
            raise not_installed("LibCST is", "fix") from error
        raise
    found = {thing.id: thing for module in modules for thing in vars(module).values() if isinstance(thing, Fix)}
    return tuple(found[id] for id in sorted(found))


def patches_of(
    findings: Sequence[Finding], files: Iterable[str] = (), only: str = ""
) -> tuple[tuple[Patch, ...], tuple[Unmended, ...]]:
    """What fixes make of findings, equal patches once; and the findings that none of theirs can mend, each with why.

    `files` are looked at as well, for what no rule finds. `only` asks one fix.
    """
    fixes = [one for one in all_fixes() if only in (one.id, "")]
    from npuscope.check.fixes.tree import Source

    by_file: dict[str, list[Finding]] = {file: [] for file in files}
    for one in findings:
        by_file.setdefault(one.file, []).append(one)
    patches: dict[str, Patch] = {}
    refused: dict[Finding, str] = {}
    for file, those in by_file.items():
        try:
            text = source_bytes(file).decode()
            source = Source(file, text)
            _ = source.module
        except Exception as error:  # gone, no UTF-8, or not as LibCST reads Python
            refused |= dict.fromkeys(those, f"its source cannot be read ({type(error).__name__})")
            continue
        if why := no_patches(file, text):
            refused |= dict.fromkeys(those, why)
            continue
        for fix in fixes:
            everywhere = fix.rules == ("*",)
            chosen = [one for one in those if everywhere or one.id in fix.rules]
            for result in fix.rewrite(source, chosen) if chosen or everywhere else ():
                if isinstance(result, Unmended):
                    refused.setdefault(result.finding, result.why)
                elif result.text != text:
                    quality = fix.about == "quality"
                    mends = mended(result.mends)
                    patch = Patch(fix.id, result.title, file, text, result.text, mends, result.reorders, quality)
                    patches.setdefault(patch.key, patch)
    known = {one for patch in patches.values() for one in patch.mends}
    left = (one for one in findings if not set(mended([one])) & known)
    return tuple(patches.values()), tuple(Unmended(one, refused.get(one, "no fix rewrites this yet")) for one in left)


__all__ = ["Fix", "NewText", "Patch", "Unmended", "all_fixes", "patches_of"]
