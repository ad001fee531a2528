"""What a file says that is no longer so: spellings that were removed, comments and docstrings that name old values, a
normalisation without its root. They save no time: they are offered where they cost none and numbers stay right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.base.unsaved import lines_of
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.tree import Source, called, expression, module_of, statement
from npuscope.check.rule import Finding


@fix("spellings", "spellings that were removed", ("retired-spelling",), about="quality")
def _spellings(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """Every `pl.incore()` of the file at once: half of them would be a file in two dialects."""
    ours = tuple(one for one in findings if "pl.incore()" in one.message)
    old = [one for one in source.nodes if isinstance(one, cst.Call) and called(one) == "incore" and not one.args]
    if ours and old:
        new: dict[cst.CSTNode, cst.CSTNode] = {
            one: expression(f"{module_of(one)}at(level={module_of(one)}Level.CORE_GROUP)") for one in old
        }
        yield NewText(source.edited([], new), "pl.at in place of pl.incore", ours)


@fix("rsqrt", "a normalisation with its root", ("variance-not-rsqrt",), about="quality")
def _by_the_remedy(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """The line as the rule says it should be."""
    for finding in findings:
        old = source.statement_at(finding.line)
        if not finding.change or not isinstance(old, cst.SimpleStatementLine) or len(old.body) != 1:
            yield Unmended(finding, "no single line says it")
            continue
        try:
            new = statement(finding.change)
        except cst.ParserSyntaxError:
            yield Unmended(finding, "no single line says it")
            continue
        assert isinstance(new, cst.SimpleStatementLine)
        yield NewText(source.edited([], {old.body[0]: new.body[0]}), "take the root of the mean of squares", (finding,))


@fix("stale-value", "comments that name old values", ("stale-value",), about="quality")
def _stale(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    """`TILE=4` in a docstring or comment where the constant is 16 by now: the number that the text says."""
    for finding in findings:
        lines = lines_of(source.text)
        line = lines[finding.line - 1]
        match = re.search(r"(\w+) is (\d+), not (\d+)", finding.message)
        if match is None:
            continue
        name, now, said = match.groups()
        changed = re.sub(rf"\b({name}\s*=\s*){said}\b", rf"\g<1>{now}", line)
        lines[finding.line - 1] = changed
        yield NewText("".join(lines), f"{name} is {now} by now", (finding,))


@fix("ignore-name", "comments that silence nothing", ("unknown-ignore",), about="quality")
def _ignores(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        wrong = re.search(r"no rule '([^']*)'", finding.message)
        right = re.search(r"Write ([\w-]+)\.", finding.remedy)
        if wrong is None or right is None:
            yield Unmended(finding, "no rule has a name like it")
            continue
        lines = lines_of(source.text)
        lines[finding.line - 1] = lines[finding.line - 1].replace(wrong[1], right[1])
        yield NewText("".join(lines), f"the comment names {right[1]}", (finding,))
