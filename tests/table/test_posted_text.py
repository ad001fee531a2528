"""Names come from captures and programs: what is posted to a tracker shows them, and nothing acts on them."""

import re

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import TEXT, printable
from npuscope.table.parts import Heading, Notes, Part, Rows, Say, as_markdown

PLAIN = {"paragraph", "heading", "strong", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td"}
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
UNSEEN = "\u200b"
# as GitHub, GitLab and Gitee find them in what is shown
ACTION = re.compile(r"(?i)@\w|[#!]\w|\bGH-\d|\b(https?|ftp)://\S|\bmailto:\S|\bwww\.\w|:[\w+-]+:")
WORDS = st.lists(
    st.sampled_from(
        [*"@#!_*`~[]()<>|\\$&:-+=.>1 \t\n'\"/x", "@name", "#12", "!34", "GH-7", "https://x.io/a", "www.x.io", "a@b.io",
         "<b>", "<!--", "&lt;", "&#64;", "```", "---", "    ", "1. ", "- ", "> ", "# ", "__", "**", ":tada:",
         "aten::mm", "[a](b)", "![a](b)", "mailto:a@b", "- [ ] ", "|", "é", "𝒳", "\u202e", "\x1b[31m", "a_name",
         "_x_"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


def tokens(markdown: str) -> list[Token]:
    return [inner for token in READER.parse(markdown) for inner in (token, *(token.children or ()))]


def shown(markdown: str) -> str:
    """The text that a reader sees, without what marks it up."""
    return "".join(token.content for token in tokens(markdown) if token.type in ("text", "text_special"))


def as_seen(words: str) -> str:
    return " ".join(words.replace(UNSEEN, "").split())


def is_plain(markdown: str) -> bool:
    kinds = {re.sub("_(open|close)$", "", token.type) for token in tokens(markdown)}
    return kinds <= PLAIN | {"text", "text_special", "inline"}


def table_of(words: str) -> Table:
    return Table(
        Columns(
            "t",
            "",
            Column("name", TEXT, ""),
        ),
        pl.DataFrame({"name": [words]}),
    )


@pytest.mark.parametrize("make", [Heading, Say, lambda words: Say(words, strong=True), lambda words: Notes([words])])
@given(words=WORDS)
@example("@octocat fixes #12, see https://evil.example/?a=b and <img src=x onerror=alert(1)>")
@example("a#")
@example("_private_ __dunder__ snake_case *x* ~~y~~ `code` $z$")
def test_what_is_posted_reads_as_it_was_and_nothing_acts_on_it(make: type[Say], words: str) -> None:
    part: Part = make(words)
    posted = as_markdown([part])
    assert as_seen(shown(posted)) == as_seen(printable(words))
    assert is_plain(posted)
    assert not ACTION.search(shown(posted))


@given(WORDS)
def test_a_cell_stays_one_cell(words: str) -> None:
    posted = as_markdown([Rows(table_of(words))])
    assert [token.type for token in tokens(posted)].count("td_open") == 1
    cell = shown(posted.replace("| name |", "|  |"))
    assert as_seen(cell) == as_seen(printable(words))[:200] or "…" in cell
    assert is_plain(posted)
    assert not ACTION.search(cell)


def test_ordinary_words_stay_as_people_write_them() -> None:
    for words in ("fa_update_aic takes 12.5 µs (38.1 %), x1.25", "MatMul/1024,4096;4096 -> AIC", "12.5 % more"):
        assert as_markdown([Say(words)]) == f"{words}\n"
