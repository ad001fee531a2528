"""Stages of programs, each with something that a fix mends, written in the ways that people write it; and programs of
one or several of them."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

KEPT = {"pl", "np", "bfloat16", *keyword.kwlist}


@dataclass(frozen=True)
class Stage:
    """Constants of the file, tensors ("in BF16 a M K"), and the body's lines; names are its own."""

    constants: str
    tensors: tuple[str, ...]
    body: tuple[str, ...]
    comment: str = ""


def own_names(text: str, number: str) -> str:
    """Every name with the stage's number; attributes, options and the language keep theirs."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for n, token in reversed(list(enumerate(tokens))):
        before, after = (tokens[m].string if 0 <= m < len(tokens) else "" for m in (n - 1, n + 1))
        option = before in ("(", ",") and after == "="
        if token.type == tokenize.NAME and token.string not in KEPT and before != "." and not option:
            row, column = token.end
            lines[row - 1] = lines[row - 1][:column] + number + lines[row - 1][column:]
    return "".join(lines)


def program(*stages: Stage) -> str:
    """One kernel with all stages, and the call that runs it."""
    top, given, values, body = [], [], [], []
    for place, stage in enumerate(stages):
        number = str(place) if len(stages) > 1 else ""
        top += [f"# {re.sub('([A-Z]+)=', f'{chr(92)}g<1>{number}=', stage.comment)}"] if stage.comment else []
        top.append(own_names(stage.constants, number))
        for tensor in stage.tensors:
            way, dtype, name, rows, columns = tensor.split()
            shape = own_names(f"({rows}, {columns})", number)
            kind = f"pl.Tensor[[{shape[1:-1]}], pl.{dtype}]"
            given.append(f"    {name}{number}: {kind if way == 'in' else f'pl.Out[{kind}]'},")
            normal = f"rng.normal(size={shape}).astype({'bfloat16' if dtype == 'BF16' else 'np.float32'})"
            values.append(f"    {normal if way == 'in' else f'np.zeros({shape}, np.float32)'},")
        body += [f"    {line}" for line in own_names("\n".join(stage.body) + "\n", number).splitlines()]
    first = next(tensor.split()[2] for tensor in stages[0].tensors if tensor.startswith("out"))
    head = ["@pl.jit", "def program(", *given, "):", *body, f"    return {first}{'0' if len(stages) > 1 else ''}"]
    call = ["rng = np.random.default_rng(0)", "program(", *values, ")"]
    return "\n".join([*top, "", *head, "", "", *call]) + "\n"


def scope(random: Random, name: str = "", more: str = "") -> str:
    """A task, spelled as it is now or, where it needs no options, as it was."""
    hint = f', name_hint="{name}"' if name else ""
    now = f"with pl.at(level=pl.Level.CORE_GROUP{hint}{more}):"
    return now if hint or more else random.choice([now, "with pl.incore():"])


def indented(lines: list[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


PRODUCT = ("in BF16 a M K", "in BF16 b K N", "out FP32 c M N", "out FP32 d M N")
PRODUCTS = (*PRODUCT, "in BF16 w K N")
ROWS = ("in FP32 x ROWS COLUMNS", "in BF16 w COLUMNS COLUMNS", "out FP32 y ROWS COLUMNS")


def sizes(n: int = 64, k: int = 128, tile: int = 32, m: int = 16) -> str:
    return f"M = {m}\nN = {n}\nK = {k}\nTILE = {tile}\n"


def rows(count: int = 32) -> str:
    return f"ROWS = {count}\nCOLUMNS = 64\n"


def sums(random: Random) -> Stage:
    """One or two sums of products, from zeros or from a product, the product in the same statement or in its own."""
    names = random.sample(["x", "total", "other"], random.choice([1, 2]))
    by_step, from_product, named = (random.random() < share for share in (0.5, 0.3, 0.5))
    at, head = ("i * TILE", "pl.range({}K // TILE)") if by_step else ("i", "pl.range({}K, TILE)")
    left, body = "pl.slice(a, [M, TILE], [0, {}])", []
    for name in names:
        if from_product:
            first = f"{left.format(0)}, pl.slice(b, [TILE, N], [0, 0]), out_dtype=pl.FP32"
            body += [f"{name} = pl.matmul({first})  # the first"]
        else:
            body += ["# the sum"] * (random.random() < 0.5)
            body += [f"{name} = pl.full([M, N], dtype=pl.FP32, value=0.0){random.choice(['', '  # zeros'])}"]
    loop = [f"left = {left.format(at)}  # of a"] * named
    for name in names:
        right = f"pl.slice(b, [TILE, N], [{at}, 0])"
        dtype = random.choice(["", ", out_dtype=pl.FP32"])
        product = f"pl.matmul({'left' if named else left.format(at)}, {right}{dtype})"
        if random.random() < 0.3:
            loop += [f"part_{name} = {product}  # apart"]
            product = f"part_{name}"
        sides = [name, product]
        random.shuffle(sides)
        loop += [f"{name} = pl.add({', '.join(sides)})"]
    start = ("1, " if by_step else "TILE, ") if from_product else ("" if by_step else "0, ")
    turns = [f"for i in {head.format(start)}:{random.choice(['', '  # over K'])}", *indented(loop)]
    later = [f"{target} = pl.assemble({target}, {name}, [0, 0])" for name, target in zip(names, "cd", strict=False)]
    constants = sizes(random.choice([32, 64]), random.choice([64, 128]), random.choice([16, 32]))
    return Stage(constants, PRODUCT, (scope(random), *indented([*body, *turns, *later])))


def zeros(random: Random) -> Stage:
    """A tensor that is zeroed, chunk by chunk or at once, and then written whole, or once by an atomic add."""
    lines = []
    if random.random() < 0.5:
        lines += ["# zeros first", f"for i in pl.{random.choice(['range', 'parallel'])}(N // TILE):"]
        lines += [f"    {scope(random)}  # a task for each"]
        lines += ["        zero = pl.full([M, TILE], dtype=pl.FP32, value=0.0)"]
        lines += ["        c = pl.assemble(c, zero, [0, i * TILE])"]
        lines += ["        d = pl.assemble(d, zero, [0, i * TILE])  # d too"] if random.random() < 0.5 else []
    else:
        lines += [scope(random), "    zero = pl.full([M, N], dtype=pl.FP32, value=0.0)  # all of it"]
        lines += ["    c = pl.assemble(c, zero, [0, 0])"]
    atomic = random.choice(["", "", ", atomic=pl.AtomicType.Add"])
    lines += [scope(random), "    x = pl.matmul(a, b, out_dtype=pl.FP32)"]
    lines += [f"    c = pl.assemble(c, x, [0, 0]{atomic})", "    d = pl.assemble(d, x, [0, 0])"]
    return Stage(sizes(k=64), PRODUCT, tuple(lines))


def unpipelined(random: Random) -> Stage:
    head = random.choice(["pl.range(TILE, K, TILE)", "pl.range(TILE, K, TILE, )"])
    lines = [scope(random), "    x = pl.matmul(a[:, 0:TILE], b[0:TILE, :], out_dtype=pl.FP32)"]
    lines += [f"    for i in {head}:{random.choice(['', '  # over K'])}"]
    lines += ["        x = pl.matmul_acc(x, a[:, i : i + TILE], b[i : i + TILE, :])  # one tile"]
    lines += ["    c = pl.assemble(c, x, [0, 0])", "    d = pl.assemble(d, x, [0, 0])"]
    return Stage(sizes(random.choice([64, 128]), random.choice([128, 256])), PRODUCT, tuple(lines))


def too_deep(random: Random) -> Stage:
    """A pipeline whose buffers do not fit."""
    tile, stage = random.choice([(256, 4), (512, 2), (256, 5)])
    lines = [scope(random), "    x = pl.matmul(a[:, 0:TILE], b[0:TILE, :], out_dtype=pl.FP32)"]
    lines += [f"    for i in pl.pipeline(TILE, K, TILE, stage={stage}):  # ahead"]
    lines += ["        x = pl.matmul_acc(x, a[:, i : i + TILE], b[i : i + TILE, :])"]
    lines += ["    c = pl.assemble(c, x, [0, 0])", "    d = pl.assemble(d, x, [0, 0])"]
    return Stage(sizes(512, 2048, tile), PRODUCT, tuple(lines))


def projections(random: Random) -> Stage:
    """Two products of one input, in scopes of their own, as K and V are projected."""
    turns = random.choice(["pl.range(1, K // TILE)", "pl.range(1, K // TILE, 1)"])
    lines, opened = [], scope(random)
    for weight, name, target in (("b", "x", "c"), ("w", "y", "d")):
        lines += [opened + random.choice(["", f"  # {name}"])]
        lines += [f"    {name} = pl.matmul(pl.slice(a, [M, TILE], [0, 0]), pl.slice({weight}, [TILE, N], [0, 0]), "]
        lines[-1] += "out_dtype=pl.FP32)"
        lines += [f"    for i in {turns}:"]
        lines += ["        left = pl.slice(a, [M, TILE], [0, i * TILE])  # of both"]
        lines += [f"        {name} = pl.matmul_acc({name}, left, pl.slice({weight}, [TILE, N], [i * TILE, 0]))"]
        lines += [f"    {target} = pl.assemble({target}, {name}, [0, 0])"]
    return Stage(sizes(k=random.choice([128, 256, 512])), PRODUCTS, tuple(lines))


def handovers(random: Random) -> Stage:
    """A product, and what becomes of it in a scope of its own, in every turn of a loop."""
    opened = scope(random)
    inner = [opened, "    x = pl.matmul(a, pl.slice(b, [K, TILE], [0, i * TILE]), out_dtype=pl.FP32)  # scores"]
    if random.random() < 0.5:
        inner += ["half = pl.create_tensor([M, TILE], dtype=pl.FP32)"]
        inner += [opened, "    half = pl.assemble(half, pl.mul(x, 0.5), [0, 0])"]
        inner += [opened, "    c = pl.assemble(c, pl.exp(half), [0, i * TILE])"]
    else:
        inner += ["# then", opened, "    c = pl.assemble(c, pl.exp(x), [0, i * TILE])"]
    lines = [f"for i in pl.{random.choice(['range', 'parallel'])}(N // TILE):", *indented(inner)]
    return Stage(sizes(random.choice([128, 256]), 64), PRODUCT, tuple(lines))


def launches(random: Random) -> Stage:
    """Two launches of as many blocks, the second of what the first made in one tensor or in two."""
    both, named, step = random.random() < 0.5, random.random() < 0.5, random.choice([8, 16])
    at, then = "block * STEP", "n * STEP" if named else "block * STEP"
    lines = ["half = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)"]
    lines += ["top = pl.create_tensor([ROWS, 1], dtype=pl.FP32)  # of each row"] * both
    lines += ['for block in pl.spmd(ROWS // STEP, name_hint="first"):', f"    t = x[{at} : {at} + STEP, :]"]
    lines += [f"    half[{at} : {at} + STEP, :] = pl.mul(t, 0.5)"]
    lines += [f"    top[{at} : {at} + STEP, :] = pl.row_max(t)"] * both
    lines += ["# then", f'for {"n" if named else "block"} in pl.spmd(ROWS // STEP, name_hint="second"):']
    value = f"half[{then} : {then} + STEP, :]"
    value = f"pl.row_expand_mul({value}, top[{then} : {then} + STEP, :])" if both else f"pl.exp({value})"
    lines += [f"    y = pl.assemble(y, {value}, [{then}, 0])  # rows"]
    return Stage(rows(random.choice([64, 128])) + f"STEP = {step}\n", ROWS, tuple(lines))


def tasks(random: Random) -> Stage:
    """A loop whose turns are a task each."""
    way, kind = random.choice(["count", "step", "nest"]), random.choice(["range", "parallel"])
    if way == "nest":
        lines = ["for m in pl.parallel(0, M, 16):", "    for n in pl.parallel(0, N, TILE):  # columns"]
    elif way == "step":
        lines = [f"for n in pl.{kind}(0, N, TILE):"]
    else:
        lines = [f"for i in pl.{kind}(N // TILE):", "    n = i * TILE"]
    depth, at = (2, "m") if way == "nest" else (1, "0")
    inner = [scope(random), "    # one tile", f"    x = pl.matmul(a[{at} : {at} + 16, :], b[:, n : n + TILE])"]
    inner += [f"    c = pl.assemble(c, x, [{at}, n])"]
    m = random.choice([16, 32]) if way == "nest" else 16
    return Stage(sizes(1024, tile=random.choice([16, 32]), m=m), PRODUCT, (*lines, *indented(inner, depth)))


def serialised(random: Random, kind: str = "", counts: tuple[int, ...] = (64, 128, 256)) -> Stage:
    """Every turn writes its own rows of a tensor that it is given whole."""
    lines = ["state = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)"]
    lines += [scope(random, "fill"), "    state[:, :] = pl.add(x[:, :], 1.0)"]
    lines += [f"for i in pl.{kind or random.choice(['parallel', 'range'])}(ROWS // 16):  # turns"]
    opened = scope(random, "turn", random.choice(["", ", no_dep_args=[x]"]))
    lines += [f"    {opened}  # its rows", "        part = pl.slice(state, [16, COLUMNS], [i * 16, 0])"]
    lines += ["        state = pl.assemble(state, pl.add(part, 1.0), [i * 16, 0])"]
    lines += [scope(random, "end"), "    y[:, :] = pl.mul(state[:, :], 2.0)"]
    return Stage(rows(random.choice(counts)), ROWS, tuple(lines))


def in_sequence(random: Random) -> Stage:
    return serialised(random, "range", (256, 512))


def racing(random: Random) -> Stage:
    """A view of a scratch is read, another of the same memory overwritten: nobody makes the writer wait."""
    lines = ["scratch = pl.create_tensor([ROWS, COLUMNS], dtype=pl.FP32)  # shared"]
    lines += ["left = pl.slice(scratch, [ROWS, 32], [0, 0])", "flat = pl.reshape(scratch, [ROWS // 2, 128])"]
    lines += [scope(random, "fill")[:-1] + " as fill_id:", "    scratch[:, :] = pl.add(x[:, :], 1.0)"]
    opened = scope(random, random.choice(["reader", "first"]))
    lines += [opened[:-1] + " as reader_id:" if random.random() < 0.5 else opened]
    lines += ["    y[:, 0:32] = pl.mul(left[:, :], 2.0)  # read"]
    lines += [scope(random, "writer", random.choice(["", ", deps=[fill_id]"])), "    # written"]
    lines += ["    flat[0:8, :] = pl.full([8, 128], dtype=pl.FP32, value=-7.0)"]
    return Stage(rows(random.choice([32, 64])), ROWS, tuple(lines))


def shared_scratch(random: Random) -> Stage:
    """One scratch for all turns: each fills it anew, and waits until the turn before has read it."""
    store = random.choice(["half[:, :] = {}", "half = pl.assemble(half, {}, [0, 0])"])
    lines = ["half = pl.create_tensor([16, COLUMNS], dtype=pl.FP32)  # of all turns"]
    lines += [
        f"for i in pl.{random.choice(['parallel', 'range'])}(ROWS // 16):  # turns",
        f"    {scope(random, 'one')}",
    ]
    lines += [f"        {store.format('pl.mul(pl.slice(x, [16, COLUMNS], [i * 16, 0]), 0.5)')}"]
    lines += [f"    {scope(random, 'two')}  # then", "        y = pl.assemble(y, pl.exp(half[:, :]), [i * 16, 0])"]
    return Stage(rows(random.choice([64, 128])), ROWS, tuple(lines))


def turned(random: Random) -> Stage:
    """An operand that vector cores turn, in the product's statement or in its own."""
    right = random.choice(
        ["pl.transpose(w[:, :], 0, 1)", "pl.transpose(pl.slice(w, [COLUMNS, COLUMNS], [0, 0]), 0, 1)"]
    )
    lines = [scope(random), "    a = pl.cast(x[:, :], target_type=pl.BF16)  # the left one"]
    if random.random() < 0.5:
        lines += [f"    t = {right}  # apart"]
        right = "t"
    lines += [f"    z = pl.matmul(a, {right}, out_dtype=pl.FP32)  # turned", "    y[:, :] = z"]
    return Stage(rows(), ROWS, tuple(lines))


def unused(random: Random) -> Stage:
    load = random.choice(["pl.slice(x, [16, COLUMNS], [0, 0])", "pl.slice(x, [8, 32], [0, 0])"])
    lines = [scope(random), "    y[:, :] = pl.mul(x[:, :], 2.0)", f"    unused = {load}  # of no use"]
    return Stage(rows(), ROWS, tuple(lines))


def padded(random: Random) -> Stage:
    """Rows without data that nothing declares."""
    data = random.choice([4, 8])
    lines = ["q = pl.create_tensor([16, COLUMNS], dtype=pl.BF16)  # padded", scope(random, "fill")]
    lines += [f"    q = pl.assemble(q, pl.cast(x[0:{data}, :], target_type=pl.BF16), [0, 0])", scope(random, "product")]
    if random.random() < 0.5:
        lines += ["    tile = pl.slice(q, [16, COLUMNS], [0, 0])", "    z = pl.matmul(tile, w, out_dtype=pl.FP32)"]
    else:
        lines += ["    z = pl.matmul(q, w, out_dtype=pl.FP32)"]
    lines += [f"    y = pl.assemble(y, pl.slice(z, [{data}, COLUMNS], [0, 0]), [0, 0])  # those with data"]
    return Stage(rows(), ROWS, tuple(lines))


def reloads(random: Random) -> Stage:
    """Every turn loads the same."""
    load = random.choice(["pl.slice(x, [{}, COLUMNS], [0, 0])", "pl.load(x, [0, 0], [{}, COLUMNS])"])
    named = random.random() < 0.5
    lines = [scope(random), "    z = pl.full([ROWS, COLUMNS], dtype=pl.FP32, value=0.0)"]
    lines += [f"    for i in pl.range({random.choice([4, 8])}):{random.choice(['', '  # turns'])}"]
    lines += ["        high = ROWS"] * named
    lines += [f"        r = {load.format('high' if named else 'ROWS')}  # the same"]
    lines += ["        z = pl.add(z, pl.mul(r, 2.0))", "    y = pl.assemble(y, z, [0, 0])"]
    return Stage(rows(), ROWS, tuple(lines))


def coarse(random: Random) -> Stage:
    """One task, or few blocks, that go over turns which share nothing."""
    by_step, subscript, blocks = (random.random() < 0.5 for _ in range(3))
    head, at = ("pl.range(0, 64, 16)", "i") if by_step else ("pl.range(4)", "i * 16")
    at = f"low + {at}" if blocks else at
    lines = [f"t = pl.slice(x, [16, COLUMNS], [{at}, 0])"]
    lines += [f"y[{at} : {at} + 16, :] = pl.exp(t)" if subscript else f"y = pl.assemble(y, pl.exp(t), [{at}, 0])"]
    turns = [f"for i in {head}:  # turns", *indented(lines)]
    if blocks:
        turns = ["for block in pl.spmd(ROWS // 64):", *indented(["low = block * 64", *turns])]
        return Stage(rows(128), ROWS, tuple(turns))
    return Stage(rows(64), ROWS, (scope(random), *indented(turns)))


def thin(random: Random) -> Stage:
    """One task, or a few blocks, that add up products along all of K."""
    blocks, counted, subscript, named = (random.random() < 0.5 for _ in range(4))
    tile, low = ("N // 2", "n") if blocks else ("N", "0")
    at = "i * TILE" if counted else "i"
    left, right = "a[0:M, {0} : {0} + TILE]", f"pl.slice(b, [TILE, {tile}], [{{0}}, {low}])"
    lines = [f"x = pl.matmul({left.format(0)}, {right.format(0)}, out_dtype=pl.FP32)"]
    lines += [f"for i in pl.{'range(1, K // TILE)' if counted else 'pipeline(TILE, K, TILE, stage=2)'}:  # along K"]
    left, right = left.format(at), right.format(at)
    if named:
        lines += indented([f"left = {left}", f"right = {right}  # of b"])
        left, right = "left", "right"
    lines += [f"    x = pl.matmul_acc(x, {left}, {right})"]
    lines += [f"c[0:M, {low} : {low} + {tile}] = x" if subscript else f"c = pl.assemble(c, x, [0, {low}])  # once"]
    head = 'for block in pl.spmd(2, name_hint="thin"):' if blocks else scope(random, "thin")
    constants = sizes(random.choice([64, 128]), random.choice([512, 1024]), random.choice([16, 32]))
    return Stage(constants, PRODUCT, (head, *indented([*([f"n = block * ({tile})"] * blocks), *lines])))


def gm_sums(random: Random, ways: tuple[str, ...] = ("read", "inline", "subscript", "atomic")) -> Stage:
    """Products of turns added up in a tensor: read, added and stored again, or by atomic adds."""
    lines = [scope(random, "zeros"), "    c[:, :] = pl.full([M, N], dtype=pl.FP32, value=0.0)"]
    way = random.choice(ways)
    kind = "parallel" if way == "atomic" and random.random() < 0.5 else "range"
    lines += [f"for i in pl.{kind}(0, K, TILE):  # over K", f"    {scope(random, 'turn')}"]
    inner = ["p = pl.matmul(a[:, i : i + TILE], b[i : i + TILE, :], out_dtype=pl.FP32)"]
    if way == "read":
        inner += ["old = pl.slice(c, [M, N], [0, 0])  # as it is", "c = pl.assemble(c, pl.add(old, p), [0, 0])"]
    elif way == "inline":
        inner += ["c = pl.assemble(c, pl.add(pl.slice(c, [M, N], [0, 0]), p), [0, 0])  # again"]
    elif way == "subscript":
        inner += ["c[:, :] = pl.add(c[:, :], p)"]
    else:
        inner += ["c = pl.assemble(c, p, [0, 0], atomic=pl.AtomicType.Add)  # added"]
    return Stage(sizes(k=random.choice([128, 256])), PRODUCT, (*lines, *indented(inner, 2)))


def ordered_sums(random: Random) -> Stage:
    return gm_sums(random, ("read", "inline"))


def drawn(random: Random) -> Stage:
    """Tasks that the compiler drew."""
    named = random.random() < 0.5
    lines = ["with pl.auto_incore():  # drawn"]
    lines += ["    twice = pl.mul(x, 2.0)"] * named
    lines += [f"    for i in pl.parallel(0, ROWS, 16, chunk={random.choice([1, 2, 4])}):"]
    lines += [f"        y[i : i + 16, :] = pl.add({'twice' if named else 'x'}[i : i + 16, :], 1.0)  # rows"]
    return Stage(rows(random.choice([64, 128])), ROWS, tuple(lines))


def old_words(random: Random) -> Stage:
    """A scope as it was spelled, a value in a comment, an ignore that names no rule."""
    lines = ["with pl.incore():  # old", "    y[:, :] = pl.mul(x[:, :], 2.0)  # npuscope: ignore[short-rows]"]
    return Stage(rows() + "TILE = 32\n", ROWS, tuple(lines), f"a program of TILE={random.choice([16, 64])} columns")


def no_root(random: Random) -> Stage:
    """Rows scaled by their mean of squares."""
    lines = [scope(random), "    t = x[0:16, :]", "    squares = pl.row_sum(pl.mul(t, t))"]
    lines += ["    mean = pl.add(pl.mul(squares, 1.0 / COLUMNS), 1e-6)  # and eps"]
    lines += [f"    y[0:16, :] = pl.{random.choice(['row_expand_mul', 'row_expand_div'])}(t, mean)  # scaled"]
    return Stage(rows(), ROWS, tuple(lines))


PLANTED: dict[str, Callable[[Random], Stage]] = {
    "matmul-acc": sums,
    "no-zeros": zeros,
    "pipeline": unpipelined,
    "shallower": too_deep,
    "fuse-scopes": handovers,
    "fuse-scopes of projections": projections,
    "fuse-scopes of launches": launches,
    "spmd": tasks,
    "loop-in-scope": in_sequence,
    "parallel": in_sequence,
    "no-dep": serialised,
    "deps": racing,
    "private-scratch": shared_scratch,
    "transposed": turned,
    "unused-load": unused,
    "valid-rows": padded,
    "hoist": reloads,
    "finer": coarse,
    "split-k": thin,
    "sum-on-chip": gm_sums,
    "atomic": ordered_sums,
    "drawn-tasks": drawn,
    "spellings": old_words,
    "stale-value": old_words,
    "ignore-name": old_words,
    "rsqrt": no_root,
    "tile-size": tasks,
}
