"""Every kind of input, broken in thousands of ways: each command answers, or refuses it in a sentence.

    python benchmarks/mutate.py                        20,000 mutants
    python benchmarks/mutate.py --inputs 500 --seed 7  fewer, and others
    python benchmarks/mutate.py --only 1234            one of them, and what the command printed
    python benchmarks/mutate.py --of xplane,build      mutants of some inputs alone
    python benchmarks/mutate.py --log FILE             each answer in a file; the next run goes on after its last

A mutant is a small capture of one of the formats that `npuscope formats` lists, or a budget, a device file, a
history, a model's config, a predicted table, a notebook or a compiler's build folder, with one damage of one kind;
one command is asked about it, as a user would. A failure is an exit code that the command does not document, a
process that dies, words like "bug" or more than three lines on stderr, a control or bidirectional character on the
terminal, a file left behind or changed, more than --seconds of CPU or --megabytes of memory, and for one in eight
records that are neither slices nor accounted for. Commands run in forks of this process, which has all modules
loaded, a batch in each; every --apart'th also runs as a user would start it, and must answer the same. Exit code 1
where one failed.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import math
import os
import random
import re
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from assemblies import doubled, written
from builders import balanced
from small import SMALL
from warm_commands import load

import npuscope
from npuscope.cli import main as command_line
from npuscope.trace.example import write_decode_steps

BATCH = 100
ODD = (
    b"0", b"-1", b"1e999", b"NaN", b"-inf", b"null", b"true", b'""', b"[]", b"{}", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"-9223372036854775808", b"1" + b"0" * 400, b'"\\ud800"',
    b'"\\u0000"', b"\xff\xfe", b"\x00", b"4000000000001", "\u202e\u2066".encode(), b"\x1b[2J\x07", b'"\\u202e\\u001b"',
    b"0.0000000001", b"N/A", b",", b'"', b"\n", b"\r\n", b"[[[[", b"}", b"\xef\xbb\xbf",
)  # fmt: skip
STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, math.nan, -math.inf, 0.1, "", "x", "\x1b[2J\x07\n",
    "\u202eevil\u2066\u2028", "\ud800", "1" * 400, "1e999", [], {}, [1], {"a": 1}, "12", "N/A", 4_000_000_000_001,
)  # fmt: skip
CAPTURE_COMMANDS = (
    "READ", "READ", "READ",  # no command: read, and every record is accounted for
    "report BAD", "report BAD", "report BAD --json", "info BAD", "doctor BAD", "doctor BAD --json",
    "forward BAD --jobs 1", "roofline BAD", "whatif BAD", "compare BAD whole.csv", "compare whole.csv BAD",
    "compare whole.csv vs BAD",
    "gate BAD --budget budget.toml --baseline whole.csv", "gate whole.csv --budget budget.toml --baseline BAD",
    "convert BAD out.json", "convert BAD out.csv", "convert BAD out.npu", "convert BAD out.pftrace",
    "convert BAD out_tracr", "report BAD --html out.html --md out.md",
)  # fmt: skip
BUDGET = '[[limit]]\nmetric = "wall_us"\nmax = 6000\nmin = 1\n[[limit]]\nmetric = "wall_us"\nmax_increase = 0.05\n'
CONFIG = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000,
    "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip


CELLS = (
    "%matplotlib inline\nimport numpy as np\nimport pypto.language as pl\nN = 64",
    "@pl.jit\ndef twice(x: pl.Tensor[[N, 32], pl.FP32], y: pl.Out[pl.Tensor[[N, 32], pl.FP32]]):\n"
    '    with pl.at(level=pl.Level.CORE_GROUP, name_hint="twice"):\n        y[:] = pl.mul(x, 2.0)\n    return y',
    "y = np.zeros((N, 32), np.float32)\ntwice(np.ones((N, 32), np.float32), y)",
)


class TooLong(BaseException):
    """One command took more than its time; nothing of npuscope's may catch it."""


class Input(NamedTuple):
    """Something that commands read, and the commands."""

    path: Path
    commands: tuple[str, ...]


class Mutant(NamedTuple):
    """One damaged input in a folder of its own, and the command that is asked about it."""

    name: str
    kind: str
    words: list[str]
    target: Path


# ---- damage to bytes


def flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def remove(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    del data[begin : begin + chance.choice((1, 2, 16, 200))]


def repeat(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    piece = data[begin : begin + chance.choice((1, 8, 64, 1000))]
    data[begin:begin] = piece * chance.choice((1, 1, 50))


def insert(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    data[begin:begin] = chance.choice(ODD)


def odd_value(data: bytearray, chance: random.Random) -> None:
    """A number or a word of the text becomes an odd one."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?|\"[^\"]{0,30}\"", bytes(data[: 1 << 16])))
    if found:
        one = chance.choice(found)
        data[one.start() : one.end()] = chance.choice(ODD)


def noise(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    data[begin : begin + 8] = chance.randbytes(8)


def empty(data: bytearray, chance: random.Random) -> None:
    del data[chance.choice((0, 0, 1, 3)) :]


def heading_only(data: bytearray, chance: random.Random) -> None:
    """A table's first line; a document's keys with empty lists."""
    try:
        tree = json.loads(data)
    except ValueError:
        del data[data.find(b"\n") + 1 or len(data) // 2 :]
        return
    for inside in _holders(tree):
        for key, one in list(inside.items() if isinstance(inside, dict) else ()):
            if isinstance(one, list):
                inside[key] = []
    data[:] = b"[]" if isinstance(tree, list) else json.dumps(tree).encode()


def untouched(data: bytearray, chance: random.Random) -> None:
    """No damage, to see that what is damaged otherwise could be read."""


def packed(data: bytearray, chance: random.Random) -> None:
    """As gzip or zstd, with a bit flipped."""
    if chance.random() < 0.5:
        out = io.BytesIO()
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
            file.write(data)
        data[:] = out.getvalue()
    else:
        import zstandard

        data[:] = zstandard.ZstdCompressor().compress(bytes(data))
    flip(data, chance)


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, flip, cut, remove, repeat, insert, insert, odd_value, odd_value, odd_value, noise, empty, heading_only,
    packed, untouched,
)  # fmt: skip


# ---- well-formed still, but not what anybody expects


def misshapen(data: bytes, chance: random.Random) -> bytes:
    """Values of another kind, keys gone, rows twice, one level more or less."""
    if data.startswith(b"SQLite format 3"):
        return _changed_database(data, chance)
    try:
        tree = json.loads(data)
    except ValueError:
        return _changed_table(data, chance)
    for _ in range(chance.choice((1, 1, 2, 5))):
        holders = [one for one in _holders(tree) if one]
        if not holders:
            break
        inside = chance.choice(holders)
        key = chance.choice([*inside] if isinstance(inside, dict) else [*range(len(inside))])
        what = chance.randrange(7)
        if what == 0:
            del inside[key]
        elif what == 1 and isinstance(inside, list):
            inside.insert(key, deepcopy(inside[key]))
        elif what == 2 and isinstance(inside, dict):
            inside[chance.choice(("", "ts", "name", "\x1b[2J", "\u202e", key + "2"))] = inside.pop(key)
        elif what == 3:
            inside[key] = chance.choice(([inside[key]], {"x": inside[key]}, [[[inside[key]]]]))
        elif what == 4 and isinstance(inside[key], dict | list) and inside[key]:
            inside[key] = next(iter(inside[key].values() if isinstance(inside[key], dict) else inside[key]))
        else:
            inside[key] = deepcopy(chance.choice(STRANGE))
    return json.dumps(tree).encode()


def _changed_table(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    row = chance.randrange(len(lines))
    cells = lines[row].split(b",")
    place = chance.randrange(len(cells))
    what = chance.randrange(5)
    if what == 0:
        del cells[place]
    elif what == 1:
        cells.insert(place, cells[place])
    elif what == 2:
        lines.insert(row, lines[row])
    else:
        cells[place] = chance.choice(ODD)
    lines[row] = b",".join(cells)
    return b"\n".join(lines)


def _holders(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        yield tree
        for one in list(tree.values() if isinstance(tree, dict) else tree):
            yield from _holders(one)


def _changed_database(data: bytes, chance: random.Random) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "db"
        file.write_bytes(data)
        with closing(sqlite3.connect(file)) as db:
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            table = chance.choice(tables)
            column = chance.choice([row[1] for row in db.execute(f'pragma table_info("{table}")')])
            value = chance.choice([one for one in STRANGE if not isinstance(one, dict | list | int) or one in (0, -1)])
            where = f"where rowid % {chance.choice((1, 2, 5))} = 0"
            ways = [
                f'update "{table}" set "{column}" = ? {where}',
                f'delete from "{table}" {where}',
                f'drop table "{table}"',
                f'insert into "{table}" select * from "{table}"',
                f'alter table "{table}" rename column "{column}" to "odd"',
            ]
            done = chance.choice(ways)
            with suppress(sqlite3.Error, UnicodeEncodeError):
                db.execute(done, (value,) if "?" in done else ())
                db.commit()
        return file.read_bytes()


# ---- inputs


def inputs(scratch: Path) -> dict[str, Input]:
    """A small one of every kind, whole."""
    made = {name: Input(path, CAPTURE_COMMANDS) for name, path in captures(scratch).items()}
    runs = [{"commit": f"a{n}", "wall_ns": 100 + n, "kernels": {"gemm": 60, "add": 30 + n}} for n in range(4)]
    files = {
        "budget.toml": (BUDGET, ("gate whole.csv --budget BAD --baseline whole.csv",)),
        "chip.toml": (
            'inherits = "ascend910b1"\nname = "chip"\n',
            ("device show BAD", "roofline whole.csv --device BAD"),
        ),
        "config.json": (json.dumps(CONFIG), ("predict --config BAD --batch 2", "predict --config BAD --out out.csv")),
        "runs/runs.jsonl": ("".join(f"{json.dumps(run)}\n" for run in runs), ("history BAD", "gate --history BAD")),
        "predicted.csv": ("kernel,us\nMatMulV2,10\nAdd,3\n", ("align BAD whole.csv --step 3",)),
    }
    cells = [{"cell_type": "code", "metadata": {}, "source": source} for source in CELLS]
    notebook = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    files["notebook.ipynb"] = (notebook, ("run BAD", "check BAD", "memory BAD"))
    for name, (text, commands) in files.items():
        file = scratch / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        made[name] = Input(scratch / "files" / Path(name).parts[0], commands)
    (scratch / "compiled").mkdir()
    built = written(scratch / "compiled", double=doubled())
    return {**made, "build": Input(built, ("memory BAD", "check BAD", "memory BAD --kernel double --json"))}


def captures(scratch: Path) -> dict[str, Path]:
    """Made by a fork: where Polars has worked its threads hold locks, which forks would wait for."""
    listed = scratch / "captures.json"
    scratch.mkdir()
    child = os.fork()
    if not child:
        paths = {}
        for name, make in SMALL.items():
            (scratch / name).mkdir()
            paths[name] = str(make(scratch / name))
        listed.write_text(json.dumps(paths))
        os._exit(0)
    os.waitpid(child, 0)
    return {name: Path(path) for name, path in json.loads(listed.read_text()).items()}


EXITS = dict.fromkeys(("gate", "check", "memory"), (0, 1, 2))  # where 1 is an answer


def mutant(number: int, seed: int, all_inputs: dict[str, Input], here: Path) -> Mutant:
    """The numbered one, in the folder, which is new."""
    chance = random.Random(f"{seed} {number}")
    name = chance.choice([*all_inputs])
    source, commands = all_inputs[name]
    here.mkdir()
    write_decode_steps(here / "whole.csv")
    (here / "budget.toml").write_text(BUDGET)
    bad = here / "bad" / source.name
    bad.parent.mkdir()
    (shutil.copytree if source.is_dir() else shutil.copy)(source, bad)
    target = chance.choice([bad] if bad.is_file() else sorted(one for one in bad.rglob("*") if one.is_file()))
    if chance.random() < 0.4:
        kind = "misshapen"
        target.write_bytes(misshapen(target.read_bytes(), chance))
    else:
        damage = chance.choice(BYTES)
        kind, data = damage.__name__, bytearray(target.read_bytes())
        for _ in range(1 if damage is packed else chance.choice((1, 1, 1, 2, 4))):
            damage(data, chance)
        target.write_bytes(data)
    return Mutant(name, kind, chance.choice(commands).replace("BAD", f"bad/{source.name}").split(), target)


# ---- what a command does with one


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """CPU time, so that a busy machine makes no failures."""

    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def files_below(folder: Path) -> dict[str, int]:
    return {str(one.relative_to(folder)): one.stat().st_mtime_ns for one in folder.rglob("*") if one.is_file()}


class Ran(NamedTuple):
    """What a command did: its exit code, what it printed, what stopped it."""

    code: object
    out: str
    err: str
    stopped: tuple[str, ...] = ()


def run_here(mutant: Mutant, here: Path, seconds: float) -> Ran:
    """In this process, which writes into two files."""
    for number in (1, 2):
        os.ftruncate(number, 0)
        os.lseek(number, 0, os.SEEK_SET)
    code: object = 0
    stopped = []
    try:
        with limited(seconds):
            if mutant.words == ["READ"]:
                trace = npuscope.read(here / "bad" / next(os.scandir(here / "bad")).name)
                if not balanced(trace):
                    stopped.append("records that are neither slices nor accounted for")
            else:
                sys.argv = ["npuscope", *mutant.words]
                command_line()
    except SystemExit as end:
        code = end.code or 0
    except npuscope.NpuscopeError as error:
        print(f"npuscope: {error}", file=sys.stderr)
        code = 2
    except TooLong:
        stopped.append(f"more than {seconds:.0f} CPU s")
    except BaseException as error:
        stopped.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = (Path(f"/dev/fd/{number}").read_bytes().decode(errors="surrogateescape") for number in (1, 2))
    return Ran(code, out, err, tuple(stopped))


def run_apart(mutant: Mutant, here: Path, seconds: float) -> Ran:
    """As a user starts it."""
    command = ["prlimit", f"--cpu={seconds:.0f}", sys.executable, "-m", "npuscope", *mutant.words]
    ran = subprocess.run(command, cwd=here, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return Ran(ran.returncode, *(shown.decode(errors="surrogateescape") for shown in (ran.stdout, ran.stderr)))


def looked_at(
    mutant: Mutant, here: Path, temporary: Path, run: Callable[[Mutant, Path, float], Ran], seconds: float
) -> tuple[Ran, str, list[str]]:
    """What the command did; `read`, `refused` or `failed`, and everything that is wrong with it."""
    os.chdir(here)
    before = files_below(here)
    ran = run(mutant, here, seconds)
    code, out, err, _ = ran
    found = [*ran.stopped]
    if code not in EXITS.get(mutant.words[0], (0, 2)):
        found.append(f"exit code {code}")
    if mutant.kind == "untouched" and mutant.words == ["READ"] and code:
        found.append("refused, though nothing is wrong with it")
    if len(err.splitlines()) > 3 or re.search(r"\bbug\b|Traceback|panicked|Warning:", err):
        found.append(f"stderr: {err[:300]!r}")
    if code == 2 and not (err.startswith("npuscope: ") and not out):
        found.append(f"no refusal: {err[:200]!r} {out[:200]!r}")
    if unseen := {f"U+{ord(c):04X}" for c in out + err if c != "\n" and unicodedata.category(c)[0] in "C"} | {
        f"U+{ord(c):04X}" for c in out + err if unicodedata.category(c) in ("Zl", "Zp")
    }:
        found.append(f"on the terminal: {sorted(unseen)}")
    after = files_below(here)
    if code == 0:
        after = {name: at for name, at in after.items() if not name.startswith("out")}
    if after != before:
        found.append(f"files: {dict(before.items() ^ after.items())}")
    if left := os.listdir(temporary):
        found.append(f"left in the temporary folder: {left}")
        shutil.rmtree(temporary)
        temporary.mkdir()
    return ran, "failed" if found else "refused" if code == 2 else "read", found


def work(numbers: range, args: argparse.Namespace, all_inputs: dict[str, Input], scratch: Path, answers: int) -> None:
    """In a fork: the numbered mutants, one line of JSON for each."""
    temporary = scratch / "tmp"
    temporary.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    for number in (1, 2):
        file = os.open(scratch / f"shown{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
    for number in numbers:
        here = scratch / f"here{number}"
        with open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
            one = mutant(number, args.seed, all_inputs, here)
            which = f"{args.seed} {number} {one.name} {one.kind} `{' '.join(one.words)}` {one.target.name}"
            os.write(answers, f"{json.dumps({'began': which})}\n".encode())
            begun = time.process_time()
            ran, came, found = looked_at(one, here, temporary, run_here, args.seconds)
            apart = bool(args.apart) and number % args.apart == 0 and one.words != ["READ"]
            if apart:
                place = scratch / f"apart{number}"
                again = mutant(number, args.seed, all_inputs, place)
                other, came_apart, found_apart = looked_at(again, place, temporary, run_apart, args.seconds)
                if other[:3] != ran[:3] or came_apart != came:
                    came, found = "failed", [*found, f"otherwise apart: {other} {found_apart}, here {ran}"[:2000]]
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if most > args.megabytes:
            came, found = "failed", [*found, f"{most} MB of memory"]
        answer = {"number": number, "name": one.name, "kind": one.kind, "came": came, "found": found, "which": which,
                  "seconds": time.process_time() - begun, "apart": apart}  # fmt: skip
        os.write(answers, f"{json.dumps(answer)}\n".encode())
        if found and args.keep:
            shutil.copytree(here, args.keep / f"{args.seed}_{number}", dirs_exist_ok=True)
        os.chdir(scratch)
        shutil.rmtree(here)
        if most > args.megabytes:
            break  # the next ones in a new process
    os._exit(0)


def batch(
    numbers: range, args: argparse.Namespace, all_inputs: dict[str, Input], scratch: Path
) -> Iterator[dict[str, Any]]:
    """The answers of a fork; where it dies, that is the answer."""
    get, put = os.pipe()
    child = os.fork()
    if not child:
        os.close(get)
        try:
            work(numbers, args, all_inputs, scratch, put)
        except BaseException as error:
            (scratch / "shown2").write_text(repr(error))
        finally:
            os._exit(1)  # this process has nothing to clear away
    os.close(put)
    began = ""
    with open(get, "rb", buffering=0) as pipe:
        rest = b""
        while True:
            if not select.select([pipe], [], [], 3 * args.seconds)[0]:
                os.kill(child, signal.SIGKILL)
            piece = pipe.read(1 << 16)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in map(json.loads, lines):
                began = line.get("began", "")
                if not began:
                    yield line
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status and not began:
        raise SystemExit(f"this benchmark itself failed ({status}): {(scratch / 'shown2').read_text()[-800:]}")
    if began:
        _, number, name, kind, *_ = began.split()
        yield {"number": int(number), "name": name, "kind": kind, "came": "failed", "which": began, "seconds": 0.0,
               "apart": False, "found": [f"the process ended with {status}"]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="mutants; %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first; %(default)s")
    parser.add_argument("--only", type=int, help="the number of one")
    parser.add_argument("--of", help="names of inputs, by commas: their mutants alone, which have numbers of their own")
    parser.add_argument("--keep", type=Path, help="where inputs that fail are kept")
    parser.add_argument("--apart", type=int, default=50, help="one in so many also as a user starts it; %(default)s")
    parser.add_argument("--log", type=Path, help="a file of answers, a line each; begun after the last that it has")
    parser.add_argument("--megabytes", type=int, default=1500, help="of memory, a batch together; %(default)s")
    parser.add_argument("--seconds", type=float, default=20, help="CPU seconds for one; %(default)s")
    args = parser.parse_args()
    os.environ.pop("NPUSCOPE_DEBUG", None)
    load_all()
    begun = time.monotonic()
    answers = [json.loads(line) for line in args.log.read_text().splitlines()] if args.log and args.log.exists() else []
    if any(answer["seed"] != args.seed or answer["of"] != args.of for answer in answers):
        parser.error(f"{args.log} has answers of another seed or other inputs")
    first, last = (args.first, args.first + args.inputs) if args.only is None else (args.only, args.only + 1)
    first = answers[-1]["number"] + 1 if answers else first
    with tempfile.TemporaryDirectory() as folder, open(args.log or os.devnull, "a") as log:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        all_inputs = inputs(Path(folder, "whole"))
        if args.of:
            all_inputs = {name: all_inputs[name] for name in args.of.split(",")}
        while first < last:
            scratch = Path(folder, f"batch{first}")
            scratch.mkdir()
            for answer in batch(range(first, min(last, first + BATCH)), args, all_inputs, scratch):
                first = answer["number"] + 1
                answers.append(answer)
                print(json.dumps({"seed": args.seed, "of": args.of, **answer}), file=log, flush=True)
                if answer["found"]:
                    print(answer["which"], *answer["found"], sep="\n    ", flush=True)
                if args.only is not None:
                    print(
                        answer["which"],
                        *((scratch / f"shown{n}").read_text(errors="replace") for n in (1, 2)),
                        sep="\n",
                    )
            shutil.rmtree(scratch)
            print(f"{first:,} mutants, {failed(answers):,} failures", file=sys.stderr, flush=True)
    counts = Counter((answer[key], answer["came"]) for answer in answers for key in ("name", "kind"))
    for name in (*all_inputs, *sorted({damage.__name__ for damage in BYTES}), "misshapen"):
        print(f"{name:30}", ", ".join(f"{counts[name, came]:,} {came}" for came in ("read", "refused", "failed")))
    seconds = sum(answer["seconds"] for answer in answers)
    print(
        f"{failed(answers):,} failures of {len(answers):,} mutants, {sum(answer['apart'] for answer in answers):,} of "
        f"them also run apart; {seconds:.0f} CPU s, {time.monotonic() - begun:.0f} s"
    )
    sys.exit(failed(answers) > 0)


def failed(answers: list[dict[str, Any]]) -> int:
    return sum(bool(answer["found"]) for answer in answers)


def load_all() -> None:
    """All modules, without threads that a fork would lose."""
    from npuscope.base.fork_server import QUIET

    os.environ.update(QUIET)
    load()


if __name__ == "__main__":
    main()
