"""Captures of every format, broken in thousands of ways: each is read or refused in one sentence.

    python benchmarks/mutate.py                              20,000 mutated inputs, 10,000 bit flips of packed ones
    python benchmarks/mutate.py --inputs 500 --flips 500     fewer
    python benchmarks/mutate.py --seed 7 --keep FOLDER       others; what fails is kept there

What counts as a failure: an exception that is not npuscope's own (the command line would call it a bug), records that
are neither slices nor accounted for, analyses that fail on what was read, more than --megabytes of memory, or more than
--seconds for one input. Exit code 1 where there is one.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from builders import balanced
from small import SMALL

import npuscope
from npuscope.explain.choosing import split_ranks
from npuscope.explain.doctor import symptoms_of
from npuscope.explain.explanation import explain
from npuscope.explain.summary import summarise

ODD = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b'""', b"[]", b"{}", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"-9223372036854775808", b"1" + b"0" * 400, b'"\\ud800"',
    b'"\\u0000"', b"\xff\xfe", b"\x00", b"4000000000001",
    b"0.0000000001", b"N/A", b",", b'"', b"\n", b"\r\n", b"[[[[", b"}", b"\xef\xbb\xbf",
)  # fmt: skip

STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, 0.1, "", "x", "\x1b[2J", "\ud800", "1" * 400, [], {},
    [1], {"a": 1}, "12", "N/A", 4_000_000_000_001,
)  # fmt: skip


class TooLong(Exception):
    """One input took more than its time."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes, of the kinds that crashes, disks and careless tools make."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        MUTATIONS[chance.randrange(len(MUTATIONS))](changed, chance)
    return bytes(changed)


def meddled(data: bytes, chance: random.Random) -> bytes:
    """Well-formed still, but not what anybody expects: values of another kind, keys gone, rows told twice."""
    if data.startswith(b"SQLite format 3"):
        return _meddled_database(data, chance)
    try:
        tree = json.loads(data)
    except ValueError:
        lines = data.split(b"\n")
        row = chance.randrange(len(lines))
        cells = lines[row].split(b",")
        cells[chance.randrange(len(cells))] = chance.choice(ODD)
        lines[row] = b",".join(cells)
        return b"\n".join(lines)
    for _ in range(chance.choice((1, 1, 2, 5))):
        holders = [one for one in _holders(tree) if one]
        if not holders:
            break
        inside = chance.choice(holders)
        key = chance.choice([*inside] if isinstance(inside, dict) else [*range(len(inside))])
        what = chance.randrange(5)
        if what == 0:
            del inside[key]
        elif what == 1 and isinstance(inside, list):
            inside.insert(key, inside[key])
        elif what == 2 and isinstance(inside, dict):
            inside[chance.choice(("", "ts", "name", "\x1b[2J", key + "2"))] = inside.pop(key)
        else:
            inside[key] = chance.choice(STRANGE)
    return json.dumps(tree).encode()


def _holders(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict | list):
        yield tree
        for one in tree.values() if isinstance(tree, dict) else tree:
            yield from _holders(one)


def _meddled_database(data: bytes, chance: random.Random) -> bytes:
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


def flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _remove(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    del data[begin : begin + chance.choice((1, 2, 16, 200))]


def _repeat(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    piece = data[begin : begin + chance.choice((1, 8, 64, 1000))]
    data[begin:begin] = piece * chance.choice((1, 1, 50))


def _insert(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    data[begin:begin] = chance.choice(ODD)


def _odd_value(data: bytearray, chance: random.Random) -> None:
    """A number or a word of the text becomes an odd one."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?|\"[^\"]{0,30}\"", bytes(data[: 1 << 16])))
    if found:
        one = chance.choice(found)
        data[one.start() : one.end()] = chance.choice(ODD)


def _noise(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) + 1)
    data[begin : begin + 8] = chance.randbytes(8)


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip, flip, _cut, _remove, _repeat, _insert, _odd_value, _odd_value, _odd_value, _noise,
)  # fmt: skip


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """CPU time, so that a busy machine makes no failures."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {seconds:.0f} CPU s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def verdict(path: Path, seconds: float) -> str:
    """`read`, `refused`, or what went wrong."""
    try:
        with limited(seconds):
            trace = npuscope.read(path)
            if not balanced(trace):
                return "unbalanced"
            for part in split_ranks(trace):
                explain(part.trace)
            symptoms_of(trace), summarise(trace)
    except npuscope.NpuscopeError as error:
        told = str(error)
        return "refused" if told and "\n" not in told else "a refusal of several lines"
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how Polars fails
            raise
        return f"PanicException: {str(error)[:200]}"
    return "read"


def files_of(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def packed(data: bytes, how: str) -> bytes:
    if how == "gzip":
        out = io.BytesIO()
        with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as file:
            file.write(data)
        return out.getvalue()
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000, help="mutated inputs; %(default)s")
    parser.add_argument("--flips", type=int, default=10_000, help="bit flips of packed inputs; %(default)s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where inputs that fail are kept")
    parser.add_argument("--megabytes", type=int, default=1500, help="of memory, all inputs together; %(default)s")
    parser.add_argument("--seconds", type=float, default=20, help="CPU seconds for one input; %(default)s")
    args = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        seeds = {}
        for name, make in SMALL.items():
            (scratch / name).mkdir()
            seeds[name] = make(scratch / name)
        single = [name for name, path in seeds.items() if path.is_file()]
        for number in range(args.inputs + args.flips):
            if number % 1000 == 0:
                print(f"{number:,} inputs, {len(failures):,} failures", file=sys.stderr, flush=True)
            chance = random.Random(f"{args.seed} {number}")
            is_packed = number >= args.inputs
            name = chance.choice(single if is_packed else [*seeds])
            path = scratch / "now" / seeds[name].name
            shutil.rmtree(scratch / "now", ignore_errors=True)
            (scratch / "now").mkdir()
            copy = shutil.copytree if seeds[name].is_dir() else shutil.copy
            copy(seeds[name], path)
            target = chance.choice(files_of(path))
            data = target.read_bytes()
            if is_packed:
                data = bytearray(packed(data, chance.choice(("gzip", "zstd"))))
                flip(data, chance)
            else:
                data = (meddled if chance.random() < 0.5 else mutated)(data, chance)
            target.write_bytes(data)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            came = verdict(path, args.seconds)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if most > before and most > args.megabytes * 1024:
                came = f"{most // 1024} MB of memory"
            counts[name, came if came in ("read", "refused") else "FAILED"] += 1
            if came not in ("read", "refused"):
                failures.append(f"{args.seed} {number} {name}: {came}")
                print(failures[-1], flush=True)
                if args.keep:
                    shutil.copytree(scratch / "now", args.keep / f"{args.seed}_{number}", dirs_exist_ok=True)
    for name in SMALL:
        told = ", ".join(f"{counts[name, what]:,} {what}" for what in ("read", "refused", "FAILED"))
        print(f"{name:30} {told}")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{len(failures):,} failures in {args.inputs:,} + {args.flips:,} inputs; at most {most:,} MB, "
          f"{time.process_time() - begun:.0f} CPU s")  # fmt: skip
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
