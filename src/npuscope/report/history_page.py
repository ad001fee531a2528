"""the page of spellings: how programs of other months run.

The site has it (docs/generate.py).
"""

from __future__ import annotations

from npuscope.tile.language.history import HISTORY, Spelling

PAGE = """# Programs of other months

PyPTO's language changed from month to month in 2026, mostly in spelling. A public program of any month since April runs
as it is. Where an old spelling decided which tasks run, or how long they take, npuscope does what the compiler of its
day did and says so in a note; what it does not do it refuses. `npuscope check` lists old spellings under
[retired-spelling](rules.md#retired-spelling). The table is `src/npuscope/tile/language/history.py`.

## Spellings that decide tasks or time

| spelling | removed | today | here |
|---|---|---|---|
{matter}

### Tasks drawn by the compiler

Inside `pl.auto_incore()`, or a `pl.at` with `pl.chunked_loop_optimizer` or `pl.auto_chunk`, the compiler drew the
tasks:

- A `pl.parallel(…, chunk=n)` loop became a task for every n turns, the last one perhaps shorter. Chunked loops inside
  such a task were plain loops. So were `pl.range(…, chunk=n)` loops anywhere: turns that run in order stayed in one
  task.
- Of all other statements each run of such that compute became a task, whole loops included. A statement that computes
  nothing stayed in orchestration and ended the run: arithmetic of whole numbers, and ops that only make, look at or
  arrange tensors (`create_tensor`, `slice`, `assemble`, `reshape`, `transpose`, `read`, `write`, `dim`). What one task
  computed and another used went through GM.
- A loop around chunked loops stayed in orchestration; its body was treated likewise.

Of the public programs whose number of tasks was published, it comes out the same for Qwen3-32B's first scope (161 and
37 tasks before and after a change), its decode layer (1,503 and 1,379; 266 in a later version) and Qwen3-14B's (1,128);
for a later version of the latter 557 come out where 732 were published.

## Spellings that are only names

| spelling | removed | today |
|---|---|---|
{names}
"""


def history_page() -> str:
    """The whole page."""
    return PAGE.format(
        matter="\n".join(f"| {_cells(one)} | {one.does} |" for one in HISTORY if one.matters),
        names="\n".join(f"| {_cells(one)} |" for one in HISTORY if not one.matters),
    )


def _cells(one: Spelling) -> str:
    return f"`{one.old}` | {one.until}, {one.change} | {one.now}"


if __name__ == "__main__":
    print(history_page(), end="")
