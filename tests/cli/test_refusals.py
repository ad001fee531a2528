"""What a user can mend is one sentence on stderr and exit code 2, and nothing is written: refusals of all commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from add_program import ADD
from builders import write_kernel_table
from command import npuscope
from noisy_runs import row, write_runs

from npuscope.trace.example import write_decode_run, write_decode_steps
from tests.report.memory_programs import written

CONFIG = Path(__file__).resolve().parents[1] / "data" / "configs" / "qwen3_32b.json"
QWEN3 = "--config config.json --batch 16 --context 4096 --tp 16"
MANY = " ".join(f"--set {name}={','.join(map(str, range(20)))}" for name in "ABCDEF")
NO_RESULT = "not a result of judge, rank, sweep or tune"
OWN_CHIP = 'name = "mine"\ntitle = "A chip of my own"\ninherits = "h100"\n'
# a command line => what its sentence says; files are those of `folder`
REFUSED = f"""
info => Missing argument
info --bogus => No such option: --bogus
info nowhere => nowhere
info cut.json => cut.json, record 1: 
info run -o x.xlsx => no format ends in .xlsx
doctor cut.json => cut.json, record 1: 
convert cut.json out.json => cut.json, record 1: 
convert run x --format sketch => sketch
convert a b.xlsx => .xlsx
frobnicate => No such command 'frobnicate'
reprot x => Did you mean `npuscope report`?
report => Missing argument
report --htlm x => No such option: --htlm
rank --top many x.py => '--top'

report run --kernels '(' => no regular expression
report run --kernels nothing_like_it => no kernel matches 'nothing_like_it'
report nowhere => nowhere
report run --html no_such_folder/r.html => no_such_folder
report run --areas nowhere.toml => nowhere.toml
report run --step 3 => no step 3
report run --html x --md x => is another output
report run/chip_swimlane_records.json --html run/chip_swimlane_records.json => is an input
report run --html good.html --md nowhere/y.md => no such folder
view nowhere => nowhere
compare run => at least two
compare run run --match ab => --match takes name=value
compare run run run --html x.html => for two captures
compare vs runs => before 'vs'
compare runs vs => after 'vs'
compare runs vs runs vs runs => one 'vs'
compare runs runs runs --steps => one 'vs'
compare runs vs nowhere => nowhere
compare runs vs runs --step 1 => --step
compare runs vs runs --kernels nothing => nothing
compare runs vs runs --match x=y => cannot be matched
compare --runtimes a.py b.py => one tile program
compare a.npu b.npu -- --small => a program's
whatif run --scale up_proj=fast => 'fast' is no number
whatif run --cores AIC=0 => cannot run anything
whatif run --cores AIC=1.5 => whole number
whatif run --cores AIC=nan => whole number
whatif run --merge up_proj => two kernels and more
whatif run --scale k=0.5 => no kernel matches 'k'
whatif run --merge qk_matmul+sv_matmul => wait for itself
whatif nothing.py => no such file
whatif run -- --small => a capture takes no arguments
whatif run --set A=1 => a capture takes no arguments
whatif model:basics/gemm --set TILE=256 => gemm Left buffer usage 131072 > 65536
whatif add.py --set NOTHING=1 => no option, constant, field or environment variable NOTHING
whatif add.py --device abacus => abacus
gate run --budget nowhere.toml => nowhere.toml
gate x => one of --budget and --history
gate x --history empty --budget b => one of --budget and --history
gate --history empty => no history
history => no history is named
history nowhere => nowhere
history empty => no history
history x --since HEAD => --simulate
history x --simulate empty a.py => --since
history empty/h --simulate empty a.py --since HEAD => git
history empty/h --simulate nowhere a.py --since HEAD => nowhere

forward steps.csv --select 9 --out x => no pass 9
forward steps.csv --window half --out x => no window 'half'
forward steps.csv --engine slurm => no engine 'slurm'
forward steps.csv --select all --out x.csv => holds one pass, and 3 are selected
forward steps.csv --select prefill => no pass is prefill
forward steps.csv --perfetto x.txt => x.txt
forward steps.csv --anchor '*' => is no regular expression
forward steps.csv --profiler-root elsewhere => name a capture or a profiler root, once
roofline two.csv => does not tell its device
roofline steps.csv --device b200 => no device 'b200'. Known are a3
roofline steps.csv --device broken.toml => not a device file
roofline steps.csv --device no.toml => no.toml
roofline steps.csv --device a3 --ranks 0 => ranks is 0
roofline steps.csv --device a3 --context nan => context is nan
roofline steps.csv --device a3 --step 99 => no step 99
roofline steps.csv --device a3 --html steps.csv => is an input
roofline steps.csv --device a3 --set TILE=64 => a capture takes no arguments
roofline model:basics/gemm --context 4096 => it tells its sizes
align model.csv two.csv => it holds 2 steps: 1, 2. Choose one forward pass with --step N.
align model.csv two.csv --step 9 => no step 9. It has 1, 2.
align model.csv two.csv --step 1 --kernel-column nope => no column 'nope'. It has kernel, latency_us.
align model.csv two.csv --step 1 --map x => --map takes name=value
align model.csv two.csv --step 1 --map nothing=SwiGlu => 'nothing' is no kernel of the prediction
align model.csv two.csv --step 1 --md two.csv => is an input
align model.csv two.csv --step 1 --process one => no processes
align none two.csv => none
predict --config nowhere.json => nowhere.json
predict --config empty => empty
predict --config mamba.json => architecture 'MambaForCausalLM' is not known
predict {QWEN3} --tp 7 => tp 7 does not divide the 64 attention heads
predict {QWEN3} --device abacus => no device 'abacus'
predict {QWEN3} --phase prefill => Give --tokens
predict {QWEN3} --out pass.xlsx => no format ends in .xlsx
predict {QWEN3} --out config.json => is an input
predict {QWEN3} --out nowhere/pass.csv => no such folder
tpot nothing.py => no such file
tpot qwen3-14b --tokens 0 => --tokens is 0
tpot qwen3-14b -- --small --max-seq 128 => refuses --small --max-seq 128 --batch 16 --context 4097
tpot qwen3-14b --device abacus => abacus
tpot qwen3-14b-a8w8 -- --layers 1 --mlp-tn 512 => Mat buffer usage 589824 > 524288
device show 910b9 => no device '910b9'
device show 910b1 tming => no constant of ascend910b1 begins with 'tming'. It has: cores, memory
device compare 910b1 nowhere.toml => nowhere.toml
ops rowmax => no op 'rowmax'. The nearest is row_max.

check => no program to check
check none.py => no such file
check add.py --select rase => Did you mean race?
check add.py --device h100 => does not say what a core can hold
check add.py --device abacus => no device 'abacus'
check add.py --program 7 => no program 7 ran
check add.py --md add.py => is an input
check add.py --md x --sarif x => is another output
check add.py --apply => --fix
check add.py --fix --commit => --apply
check add.py --fix --all => --fix
check add.py --fix --replay => --fix
memory layer.py --device mine.toml => the file of mine does not say what a core can hold
memory layer.py --kernel nonesuch => no kernel 'nonesuch' ran. Those that did: gate, norm.
memory layer.py --program 7 => no program 7 ran. Those that did: 0 layer.
memory layer.py --dump - => --dump writes the steps of one kernel. Name it with --kernel.
memory layer.py --kernel gate --dump - --json => --dump - and --json both print
memory layer.py --html layer.py => is an input
memory layer.py --html both --kernel gate --dump both => is another output of this command
memory layer.py --ring-slots 0 => --ring-slots
memory empty => has no .pto file
check empty => has no .pto file
graph add.py --trace g.json => own folder only
graph add.py --deps add.py => is an input
graph add.py --dot d --deps d => is another output
simulate missing.py => no such file
simulate add.py --device h100 => does not say
simulate add.py -o run.xyz => no format ends in .xyz
simulate add.py --program 3 => no program 3 ran
simulate add.py --set ROWS => --set takes NAME=value
simulate add.py --set ROWS=64 --set ROWS=128 => --set names ROWS twice
simulate add.py --set LAYERS=2 --layers 2 => --set names LAYERS twice
simulate add.py -o nowhere/run.npu => no such folder
simulate add.py --pipes add --jitter 1 => not about the inside of a block
simulate add.py --runtime other => no runtime 'other'
simulate add.py --measured run.npu => --measured takes OLD.py=CAPTURE
simulate add.py --measured old.py= => --measured takes OLD.py=CAPTURE
simulate add.py --measured add.py=nowhere.npu => no such file or folder
simulate add.py --measured add.py=add.py => add.py
simulate add.py --measured add.py=run.npu --pipes add => --measured is about the run
sweep add.py --set ROW=1,2 => no option, constant, field or environment variable ROW
sweep add.py --set ROWS=1,,2 => --set takes NAME=value,value
sweep add.py --set ROWS=1 --set ROWS=2 => --set names ROWS twice
sweep none.py --set ROWS=1 => no such file
sweep add.py --set ROWS=16 --results add.py => is an input
sweep add.py --set ROWS=16 --results other.txt => {NO_RESULT}
sweep add.py --set ROWS=16 --results short.txt => {NO_RESULT}
sweep add.py --set ROWS=16 --results binary => {NO_RESULT}
sweep add.py --set ROWS=16 --results typed.jsonl => typed.jsonl, line 1: not a result
sweep add.py --set ROWS=16 --results . => holds an input
sweep add.py --set ROWS=16 --results none/r.jsonl => no such folder
sweep add.py --set ROWS=16 --results p.html --html p.html => is another output
sweep add.py => one program is nothing to rank
sweep add.py {MANY} => 64,000,000 variants, more
rank add.py => one program is nothing to rank
rank add.py ./add.py => a program is named twice
rank add.py none.py => no such file
rank add.py layer.py --engine cloud => no engine 'cloud'
tune add.py --front colour => --front takes memory or tasks, not 'colour'
tune add.py --engine boat => no engine 'boat'
tune add.py --set ROW=1,2 => ROWS
tune add.py --set ROWS => --set takes NAME=value,value
calibrate add.py run -o mine.txt => ends in .toml
calibrate add.py run -o 910b1.toml => no known device's name
calibrate add.py run -o no/mine.toml => no such folder
"""
ROWS = [line.split(" => ") for line in REFUSED.splitlines() if line]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures, programs and files of other kinds, which all stay as they are."""
    place: Path = tmp_path_factory.mktemp("refused")
    write_decode_run(place / "run")
    write_decode_steps(place / "steps.csv")
    write_runs(place / "runs", 1, count=2)
    write_kernel_table(place / "two.csv", [row("MatMulV2", 1000.0 * step, 40.0, step) for step in (1, 2)])
    (place / "empty").mkdir()
    written(place / "layer.py")
    texts = {
        "add.py": ADD, "cut.json": '{"traceEvents":[{"ph":"X","na', "config.json": CONFIG.read_text(),
        "mine.toml": OWN_CHIP, "mamba.json": json.dumps({"architectures": ["MambaForCausalLM"]}),
        "broken.toml": "name = 3",
        "model.csv": "kernel,latency_us\nMatMul,70\n", "other.txt": "hello\n", "short.txt": "hello", "binary": "\0\1\n",
        "typed.jsonl": '{"candidate":"ROWS=16","verdict":"good","key":[]}\n',
    }  # fmt: skip
    for name, text in texts.items():
        (place / name).write_text(text)
    return place


def held(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("line", "sentence"), ROWS, ids=[line for line, _ in ROWS])
def test_a_refusal_is_one_sentence_and_changes_nothing(line: str, sentence: str, folder: Path) -> None:
    before = held(folder)
    ran = npuscope(*shlex.split(line), folder=folder)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("npuscope: ")
    assert ran.stderr.count("\n") == 1
    assert sentence in ran.stderr
    assert "bug" not in ran.stderr
    assert held(folder) == before
