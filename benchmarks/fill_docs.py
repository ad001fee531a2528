"""Runs the commands that pages show and puts what they print now in place of what stood there.

    python benchmarks/fill_docs.py docs/howto/choose.md docs/stories/*.md
    python benchmarks/fill_docs.py docs/stories/*.md --but '--full'     (commands with these words stay as they are)

Of a block with `...` the lines that differ from the new ones in numbers alone are shown anew, in the order in which
they are printed; of others all lines. Told: shown lines that are printed no more, and sentences that still have a
number that stood in a block and does not any more. Exit code 1 where there are such.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sessions import FENCE, file_name, left_out, own_programs, prepare, printed, sessions

CLOSE = 0.8  # of a line's words, where a bound or a reason has changed
NUMBER = re.compile(r"[\d,]*\d(?:\.\d+)?")


def shape(line: str) -> str:
    """A line without its numbers and without how wide its columns are."""
    return " ".join(NUMBER.sub("0", line).replace("–", "0").replace("-0", "0").replace("+0", "0").split())


def refilled(shown: list[str], now: list[str]) -> tuple[list[str], list[str]]:
    """The lines to show in place of those shown, and the shown lines that are printed no more."""
    if not any(line.strip() == "..." for line in shown):
        return now, []
    free = list(range(len(now)))
    kept: dict[int, str] = {}
    gone: list[str] = []
    wanted = [line for line in shown if not left_out(line)]
    for close in (1.0, CLOSE):
        gone = []
        for line in wanted:
            cut = line.endswith(" ...")  # the line's end is left out
            at = _match(shape(line.removesuffix(" ...")), {n: shape(now[n]) for n in free}, cut, close)
            if at is None:
                gone.append(line)
            else:
                free.remove(at)
                kept[at] = " ".join(now[at].split(" ")[: len(line.split(" ")) - 1]) + " ..." if cut else now[at]
        wanted = gone
    lines: list[str] = []
    before = -1
    for at in sorted(kept):
        skipped = now[before + 1 : at]
        lines += ["..."] if any(skipped) else skipped
        lines.append(kept[at])
        before = at
    return [*lines, *(["..."] if any(now[before + 1 :]) else [])], gone


def _match(wanted: str, free: dict[int, str], cut: bool, close: float) -> int | None:
    """The line of that shape, or the one whose words are most like it."""
    if close == 1.0:
        return next((n for n, one in free.items() if one == wanted or (cut and one.startswith(wanted))), None)
    like = {n: SequenceMatcher(None, wanted.split(), one.split()).ratio() for n, one in free.items()}
    best = max(like, key=lambda n: like[n], default=None)
    return best if best is not None and like[best] >= close else None


def fill(page: Path, here: Path, but: list[str]) -> list[str]:
    """Writes the page anew; what a person should look at."""
    text = page.read_text()
    own_programs(text, here)
    told: list[str] = []
    old: list[str] = []
    new: list[str] = []

    def block(match: re.Match[str]) -> str:
        language, body = match.groups()
        if language == "python" and page.parent.name == "stories" and file_name(body) is None:
            subprocess.run([sys.executable, "-c", body], cwd=here, check=True)
        if language not in ("", "console") or not body.startswith("$ npuscope "):
            return match[0]
        lines = []
        for command, shown in sessions(body):
            filled = shown
            if not any(words in command for words in but):
                print(f"{page.name}: {command}", file=sys.stderr, flush=True)
                now = printed(command, here)
                failed = [line for line in now if line.startswith("npuscope: ")]
                if failed and not any(line.startswith("npuscope: ") for line in shown):
                    told.append(f"{page}: {command}: {failed[0]}")
                    now = shown
                filled, gone = refilled(shown, now)
                told.extend(f"{page}: printed no more: {line}" for line in gone)
                # an empty line between two commands is the page's
                filled += [""] if shown and not shown[-1] and filled and filled[-1] else []
            old.extend(shown)
            new.extend(filled)
            lines += [f"$ npuscope {command}", *filled]
        return "\n".join([f"```{language}", *lines, "```"])

    filled = FENCE.sub(block, text)
    gone = _numbers(old) - _numbers(new)
    for number, line in enumerate(FENCE.sub(lambda block: "\n" * block[0].count("\n"), filled).splitlines(), 1):
        if stale := sorted(_long(line) & gone):
            told.append(f"{page}:{number}: still says {', '.join(stale)}")
    page.write_text(filled)
    return told


def _numbers(lines: list[str]) -> set[str]:
    """Numbers of three digits and more, also as a sentence would round them."""
    found = {float(number.replace(",", "")) for line in lines for number in _long(line)}
    return {f"{number:,.{digits}f}" for number in found for digits in range(4)}


def _long(line: str) -> set[str]:
    return {number for number in NUMBER.findall(line) if len(re.sub(r"\D", "", number)) >= 3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--but", action="append", default=[], metavar="WORDS")
    asked = parser.parse_args()
    told = []
    with tempfile.TemporaryDirectory() as folder:
        here = prepare(Path(folder))
        for page in asked.pages:
            told += fill(page, here, asked.but)
    print("\n".join(told))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
