"""Waits between tasks: one that is missing written as `deps=`, one that nobody needs taken out, and rings of the
runtime made large enough.

deps             a race: the earlier task gets a name, the later one waits for it
no-dep           tasks that are given a whole tensor and touch different parts of it: `no_dep_args=`
private-scratch  a scratch that every turn of a loop fills anew is made in the turn, so that no turn waits for another
ring             a ring that is too small for a scope or to submit ahead: the number in the script's runtime_cfg
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from npuscope.check.fixes import tree
from npuscope.check.fixes.fix import NewText, Unmended, fix
from npuscope.check.fixes.scopes import body_of, is_created
from npuscope.check.fixes.tree import Edit, Source
from npuscope.check.rule import Finding
from npuscope.ops.transfers import ASSEMBLE, STORE

LAUNCHES = ("at", "incore", "spmd")
TURNS = ("range", "parallel")
GIVEN_WHOLE = re.compile(r"(?:the whole of |they are given |counts as read \()([\w, ]+?)(?: whole|,? which|\)|$)")


def _launch_at(source: Source, line: int) -> cst.With | None:
    """The task that a line is in: `with pl.at(…)`, or a `with pl.spmd(…)`."""
    around = source.around_line(line)
    return next((one for one in around if isinstance(one, cst.With) and _call(one) is not None), None)


def _call(launch: cst.With) -> cst.Call | None:
    item = launch.items[0].item if len(launch.items) == 1 else None
    return item if isinstance(item, cst.Call) and tree.called(item) in LAUNCHES else None


@fix("deps", "waits that are missing", ("race",))
def _deps(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        later, *others = (_launch_at(source, line) for line in source.lines_of(finding))
        earlier = others[0] if others else None
        if later is None or earlier is None or later is earlier:
            yield Unmended(finding, "its two accesses are not in two tasks that stand as `with pl.at(…)` in one file")
            continue
        if source.line(earlier) > source.line(later):
            yield Unmended(finding, "the task to wait for is of an earlier turn, which has no name here")
            continue
        if source.block_of(earlier) not in (source.block_of(later), *source.around(later)):
            yield Unmended(finding, "the earlier task is in a loop of its own: its ids must be gathered")
            continue
        name = _task_name(earlier) or _fresh(source, earlier)
        call = _call(later)
        assert call is not None
        given = tree.keywords(call).get("deps")
        if given is not None and not isinstance(given.value, cst.List):
            yield Unmended(finding, "its deps= is no list that could take one more")
            continue
        old = [] if given is None else [source.code(one.value) for one in given.value.elements]  # type: ignore[attr-defined]
        nodes: dict[cst.CSTNode, cst.CSTNode] = {
            later.items[0]: later.items[0].with_changes(item=_with(call, "deps", f"[{', '.join([*old, name])}]"))
        }
        if _task_name(earlier) is None:
            its = _call(earlier)
            assert its is not None
            named = cst.AsName(cst.Name(name), cst.SimpleWhitespace(" "), cst.SimpleWhitespace(" "))
            nodes[earlier.items[0]] = earlier.items[0].with_changes(item=_as_at(its), asname=named)
        yield NewText(source.edited([], nodes), f"wait for {name}", (finding,))


def _task_name(launch: cst.With) -> str | None:
    name = launch.items[0].asname
    return name.name.value if name is not None and isinstance(name.name, cst.Name) else None


def _fresh(source: Source, launch: cst.With) -> str:
    """A name for a task's id that the file does not have: after its hint."""
    call = _call(launch)
    hint = tree.keywords(call).get("name_hint") if call is not None else None
    text = hint.value.evaluated_value if hint is not None and isinstance(hint.value, cst.SimpleString) else "task"
    return tree.fresh(re.sub(r"\W", "_", str(text)) + "_tid", tree.names_in(source.module))


def _as_at(call: cst.Call) -> cst.Call:
    """`pl.incore()` as `pl.at(level=…)`, which takes options."""
    if tree.called(call) != "incore":
        return call
    level = tree.expression(f"{tree.module_of(call)}Level.CORE_GROUP")
    return tree.call_with(tree.renamed(call, "at"), [], {"level": level})


def _with(call: cst.Call, option: str, text: str) -> cst.Call:
    """The call with one option more, or with another value of it."""
    call = _as_at(call)
    named = {**tree.options(call, option), option: tree.expression(text)}
    return tree.call_with(call, tree.values(call), named)


@fix("no-dep", "waits that nobody needs", ("serialised-parallel", "false-serialisation", "sequential-independent"))
def _no_dep(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        match = GIVEN_WHOLE.search(finding.message)
        names = re.split(r", | and ", match[1]) if match is not None else []
        names = [name for name in names if name.isidentifier()]
        at = source.statement_at(finding.line)
        launches = [at] if isinstance(at, cst.With) else body_of(at) if isinstance(at, cst.For) else []
        scopes = [one for one in launches if isinstance(one, cst.With) and _call(one) is not None]
        nodes: dict[cst.CSTNode, cst.CSTNode] = {}
        for scope in scopes:
            call = _call(scope)
            ours = [name for name in names if name in tree.names_in(scope)]
            if call is None or not ours:
                continue
            before = tree.keywords(call).get("no_dep_args")  # of other tensors, or a call that gave none
            given = [] if before is None else [f"*{source.code(before.value)}"]
            if before is not None and isinstance(before.value, cst.List):
                given = [source.code(one.value) for one in before.value.elements]
            args = f"[{', '.join([*given, *ours])}]"
            nodes[scope.items[0]] = scope.items[0].with_changes(item=_with(call, "no_dep_args", args))
        if nodes:
            yield NewText(source.edited([], nodes), f"no waits for other parts of {', '.join(names)}", (finding,))
        else:
            yield Unmended(finding, "its tasks are launched where no_dep_args= cannot stand")


@fix("private-scratch", "a scratch that all turns share", ("*",))
def _private(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for one in source.statements:
        found = tree.assigned(one)
        if found is None or not is_created(one):
            continue
        name, (siblings, at) = found[0], source.siblings(one)
        users = [other for other in siblings[at + 1 :] if name in tree.names_in(other)]
        if len(users) != 1 or not isinstance(loop := users[0], cst.For) or tree.called(loop.iter) not in TURNS:
            continue
        launches = [
            inner for inner in tree.walk(loop) if isinstance(inner, cst.Call) and tree.called(inner) in LAUNCHES
        ]
        if not launches or tree.names_in(found[1]) & tree.bound_in(loop) or not _filled_first(loop, name):
            continue
        new = loop.with_changes(leading_lines=(), body=loop.body.with_changes(body=[tree.bare(one), *loop.body.body]))
        title = f"{name} of its own for every turn over {', '.join(sorted(tree.names_in(loop.target)))}"
        yield NewText(source.edited([Edit((one,)), Edit((loop,), (new,))]), title, ())


def _filled_first(loop: cst.For, name: str) -> bool:
    """Whether a turn stores to a tensor before it reads it."""
    uses = (
        one for one in tree.walk(loop.body) if isinstance(one, cst.SimpleStatementLine) and name in tree.names_in(one)
    )
    found = tree.stored(next(uses, None), (*ASSEMBLE.names, *STORE.names))
    return found is not None and found[0] == name and name not in found[1]


LARGER = (4, 16)  # times the slots of a ring that is full before all is submitted


@fix("ring", "rings that are too small", ("ring-deadlock", "ring-room"))
def _ring(source: Source, findings: Sequence[Finding]) -> Iterator[NewText | Unmended]:
    for finding in findings:
        match = re.search(r"(ring_\w+)", finding.remedy)
        needed = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", finding.message)]
        if match is None or not needed:
            yield Unmended(finding, "no number of the run would make room")
            continue
        entries = [
            one
            for one in source.nodes
            if isinstance(one, cst.DictElement)
            and isinstance(one.key, cst.SimpleString)
            and one.key.evaluated_value == match[1]
        ]
        if not entries:
            yield Unmended(finding, f"the file gives no {match[1]} in a runtime_cfg that could be larger")
            continue
        now = max(needed)
        sizes = [now * times for times in LARGER] if finding.id == "ring-room" else [1 << (now - 1).bit_length()]
        for size in sizes:
            new: dict[cst.CSTNode, cst.CSTNode] = {one.value: cst.Integer(str(size)) for one in entries}
            yield NewText(source.edited([], new), f"{match[1]} = {size:,}", (finding,))
