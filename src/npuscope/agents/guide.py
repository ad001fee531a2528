"""What a writer of kernels must know, in one text: made from the table of ops, the rules and the device file."""

# ruff: noqa: E501  (prose of a page)

from __future__ import annotations

from functools import cache

from npuscope.answer.answer import MEANING
from npuscope.check.rules import own_rules
from npuscope.chip.devices import Device, list_constants, load
from npuscope.models import FOLDER
from npuscope.ops import table
from npuscope.report.reference import first_call, units_text
from npuscope.time.bound import KIND_OF

MOST_WORDS = 6000
REMEDY = {  # by the kind of cause that limits a run
    "bandwidth": "move fewer bytes, in longer rows",
    "core": "compute less per block, or fill more cores",
    "dispatch": "fewer, larger tasks; blocks of one launch instead of tasks",
    "dependency": "shorter chains, more that runs side by side",
    "tail": "as many blocks as cores or a multiple, and even ones",
}
EXAMPLE = FOLDER / "basics" / "gemm.py"
SPACES = {
    "Vec": "tiles of the vector core",
    "Mat": "tiles on their way to the cube, from global memory",
    "Left": "left operands of a product",
    "Right": "right operands of a product",
    "Acc": "sums of the cube, FP32 or INT32",
    "Bias": "a row that is added to a product",
}
LANGUAGE = """# Writing tile kernels

## The language

A program is Python. `import npuscope.tile as pl` (on hardware: `import pypto.language as pl`). Two planes:

- **Orchestration**: the body of a function marked `@pl.jit`. It makes tensors (`pl.create_tensor`) and launches tasks. Its parameters are
  annotated: `x: pl.Tensor[[512, 1024], pl.BF16]`, results as `pl.Out[...]`, changed ones as `pl.InOut[...]`.
- **Regions**: inside a task, on one core. They load tiles, compute and store.

How tasks come about:

- `with pl.at(level=pl.Level.CORE_GROUP, name_hint="name"):` is one task.
- `for i in pl.parallel(0, N, STEP):` around it makes a task per turn; turns may run side by side.
- `for block in pl.spmd(BLOCKS, name_hint="name"):` is ONE task of many blocks: cheap to hand out. Prefer it to many equal tasks.
- `for i in pl.range(...)` is sequential: a tensor written under it counts as read and written, so turns wait for each other.

Inside a region:

- load: `tile = x[r : r + 64, c : c + 128]` or `pl.slice(x, [64, 128], [r, c])`; store: `y[r : r + 64, c : c + 128] = tile` or `pl.assemble(y, tile, [r, c])`.
- loops over K: `for k in pl.pipeline(K0, K, STEP, stage=2):` keeps two turns in flight, so that loading and computing overlap. `pl.range` does not.
- a product: `acc = pl.matmul(a, b)` starts a sum, `acc = pl.matmul_acc(acc, a, b)` adds to it. Sums stay in Acc and are FP32 (INT32 for INT8).
- rows: `pl.row_max(t)`, `pl.row_sum(t)` give a column `[rows, 1]`; `pl.row_expand_mul(t, column)` spreads it again.
- types: `pl.cast(t, target_type=pl.BF16, mode="rint")`.
- numbers out of memory: `n = pl.cast(pl.read(lengths, [row]), pl.INDEX)`, for offsets and ends of loops.
- tiles that are partly filled: `pl.slice(x, [64, 128], [r, 0], valid_shape=[rows, 128])`. Stores write the valid part only;
  `pl.fillpad(t, pad_value=pl.PadValue.min)` gives the rest a value, which a maximum or a sum over it needs.
- a name that a loop carries keeps its shape and type from turn to turn.
- products and vector ops may stand in one region: the compiler hands tiles over between the cube core and its vector cores.
  `optimizations=[pl.split(pl.SplitMode.UP_DOWN)]` gives each of the two vector cores half of the rows.
- a sum over several tasks: zero the result in a task of its own, then `pl.assemble(y, acc, [r, c], atomic=pl.AtomicType.Add)`.

Dependencies: the runtime makes a reader wait for earlier writers of the same *whole* tensor, and writers for writers. It makes NO writer wait for
readers. `with pl.at(...) as first:` names a task, and `deps=[first]` of a later `pl.at` or `pl.spmd` waits for it: needed where a task overwrites what
another one still reads. Slice a tensor before the region to depend on the slice alone.

A whole program, with the golden reference that says what is right:

```python
"""


@cache
def guide(device: str = "ascend910b1") -> str:
    """The text, in under MOST_WORDS words."""
    chip = load(device)
    return (
        LANGUAGE + EXAMPLE.read_text(encoding="utf-8").rstrip() + "\n```\n\n" + _chip(chip) + _fast(chip) + _rules()
        + _verdicts() + _ops()
    )  # fmt: skip


def _chip(chip: Device) -> str:
    constants = {row.place: row for row in list_constants(chip)}
    lines = [f"## The chip: {chip.title}\n"]
    if "cores.cube" in constants:
        lines.append(
            f"- {constants['cores.cube'].value:.0f} cube cores (AIC) and {constants['cores.vector'].value:.0f} vector cores (AIV), two beside each cube core."
        )
    for name, about in SPACES.items():
        if (row := constants.get(f"space.{name}.size")) is not None:
            lines.append(f"- {name}: {row.value:,.0f} bytes; {about}.")
    reached, sheet = (f"{rate / 1e12:.3g}" for rate in (chip.reached_bandwidth, chip.bandwidth))
    lines.append(
        f"- global memory (GM): {reached} TB/s for all cores together (the data sheet says {sheet}). A line is 512 bytes."
    )
    lines.append(
        "- A memory holds all tiles that are alive at once; `row_sum` and other reductions of rows take another tile of their operand's size while they run.\n"
        "- Tiles of the cube are multiples of 16 in each direction. `pl.pipeline(stage=n)` needs room for n turns' tiles.\n"
        "- A product's operands go GM → Mat → Left/Right, its sum Acc → GM, or through the ring to Vec. There is no way from Acc to Acc, "
        "and none from Vec to Left or Right but through Mat.\n"
    )
    return "\n".join(lines) + "\n"


def _fast(chip: Device) -> str:
    cost, worth = (chip.runtime.get(name) for name in ("task_cost", "useful_task"))
    task = f" costs a scheduler thread {1e6 * cost.value:.3g} µs" if cost else " costs microseconds"
    least = f" A task should run for {1e6 * worth.value:.0f} µs or more." if worth else ""
    return f"""## What is fast and what is slow

- **Few launches.** Handing out a task and seeing it done{task}. Blocks of one `pl.spmd` cost a fraction of that.{least}
- **As many blocks as cores, or a multiple.** 25 blocks on 24 cores take twice as long as 24.
- **Load ahead.** Every loop that loads and computes wants `pl.pipeline(stage=2)`.
- **Wide rows.** A row of a tile below 512 bytes wastes the line it comes with. Rows 16 KiB apart clash.
- **Keep sums on chip.** `matmul_acc` instead of `pl.add(acc, pl.matmul(...))`; never accumulate in GM.
- **Few hand-overs.** A tile that goes from cube to vector core, or back, arrives more than a microsecond later. Do more per hand-over.
- **Load once.** Two products of the same rows belong into one region.
- **No false waits.** Slice before the region, or opt out with `no_dep_args`, where tasks touch different parts of one tensor.

"""


def _rules() -> str:
    rows = [f"- `{rule.id}` ({rule.severity}): {rule.title}. {rule.why}" for rule in own_rules()]
    return (
        "## What check finds\n\n`npuscope check --explain ID` shows each with an example.\n\n"
        + "\n".join(rows)
        + "\n\n"
    )


def _verdicts() -> str:
    rows = [f"- `{verdict}`: {meaning}." for verdict, meaning in MEANING.items()]
    return (
        "## How to read a verdict\n\n`npuscope judge FILE --json` answers in a second:\n\n" + "\n".join(rows) + "\n\n"
        "`time` is predicted: four in five measured times lie between `low_ns` and `high_ns`. Trust a ratio more than a time: with `--baseline` "
        "the answer is faster, slower or undecided, with a probability. *Undecided* means: keep the simpler one, or measure. `bound` says what "
        f"limits the run: {'; '.join(f'**{name}**: {REMEDY[name]}' for name in dict.fromkeys(KIND_OF.values()))}. `findings` are what is worth mending, the one worth "
        "most first, each with its line, its fix and `gain_ns`, what the run would take less without it.\n\n"
    )


def _ops() -> str:
    parts = ["## Ops\n\nUnit in brackets. `npuscope ops NAME` has other spellings, types and cost.\n"]
    for family, specs in table.FAMILIES.items():
        parts.append(f"**{family}**\n")
        parts += [f"- `{first_call(spec)}` [{units_text(spec.planes)}]: {spec.doc}" for spec in specs if spec.names]
        parts.append("")
    return "\n".join(parts).rstrip()
