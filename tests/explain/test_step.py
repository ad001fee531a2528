"""A step's waterfall adds up to the step to the nanosecond, whatever the logs say; what is odd is counted and named."""

import json
import random
from pathlib import Path

import pytest
from adds_up import check_adds_up
from command import npuscope
from hypothesis import given
from hypothesis import strategies as st
from planted_ranks import US, log_of, span
from real_data import DATA
from tiers import examples

from npuscope.explain.step import StepWaterfall, explain_steps, steps_at
from npuscope.explain.step_parts import CAPTURING
from npuscope.trace.readers.host_log import HostLog
from npuscope.trace.readers.serving import ServingProfile


def event(name: str, begin_us: int, end_us: int, pid: int = 60, **args: int) -> dict[str, object]:
    return {"name": name, "cat": "x", "ph": "X", "ts": begin_us, "dur": end_us - begin_us, "pid": pid, "tid": 1,
            "args": args}  # fmt: skip


def served(folder: Path, begins_us: list[int], length_us: int, **output: int) -> Path:
    """Steps of a server: 20 us of scheduling, 10 of queueing, the worker's, 30 of output at the end."""
    engine, worker = [], []
    for number, begin in enumerate(begins_us):
        end = begin + length_us
        engine.append(event("scheduler.schedule", begin, begin + 20))
        engine.append(event("scheduler.queue_worker_step", begin + 22, begin + 32, scheduled=4))
        engine.append(event("scheduler.process_step_output", end - 30, end, 60, new_tokens=4, **output))
        worker.append(event("WorkerProcess.dispatch_decode", begin + 40, begin + 60, 61, step_id=number))
        worker.append(event("WorkerProcess.reclaim_decode", end - 60, end - 35, 61, step_id=number))
    (folder / "fragments").mkdir(parents=True)
    for pid, events in ((60, engine), (61, worker)):
        lines = "\n".join(json.dumps(one) for one in events)
        (folder / "fragments" / f"trace.{pid}.jsonl").write_text(f"{lines}\n")
    return folder


def parts_by_name(found: StepWaterfall) -> dict[str, int]:
    return {row["part"].strip(): row["slowest_ns"] for row in found.parts.iter_rows(named=True)}


def test_a_step_of_a_server_from_schedule_to_output(tmp_path: Path) -> None:
    found = steps_at(served(tmp_path, [1_000, 21_000, 41_000], 20_000))
    for step in found.served:
        check_adds_up(step.parts)
        assert step.parts[0].dur_ns == step.wall_ns == 20_000 * US
    named = parts_by_name(found)
    assert (named["schedule"], named["queue: command to the worker"], named["output"]) == (20 * US, 10 * US, 30 * US)
    assert named["worker"] == (20_000 - 40 - 35) * US
    assert found.per_token_ns == {"mean": 20_000 * US, "tail": 20_000 * US}


def test_steps_under_way_at_once_cost_the_distance_of_their_ends(tmp_path: Path) -> None:
    found = steps_at(served(tmp_path, [1_000, 11_000, 21_000, 31_000], 16_000))
    rows = found.steps.rows(named=True)
    assert [row["period_ns"] for row in rows] == [None, *[10_000 * US] * 3]
    assert [row["overlap_ns"] for row in rows] == [0, *[6_000 * US] * 3]
    assert found.per_token_ns == {"mean": 10_000 * US, "tail": 10_000 * US}


def test_a_step_that_yields_several_tokens_is_divided_by_those_accepted(tmp_path: Path) -> None:
    recorded = steps_at(served(tmp_path / "a", [0, 20_000], 20_000, accepted_tokens=10))  # of four requests
    assert recorded.per_token_ns == {"mean": 8_000 * US, "tail": 8_000 * US}
    done = npuscope("step", served(tmp_path / "b", [0, 20_000], 20_000), "--accepted", "2.5", "--json")
    assert json.loads(done.stdout)["per_token_ns"] == {"mean": 8_000 * US, "tail": 8_000 * US}


def test_the_chips_calls_lie_inside_the_servers_step(tmp_path: Path) -> None:
    root = served(tmp_path, [0, 20_000], 20_000)
    for pid, late in ((11, 0), (12, 600)):
        launched = (20_000 + 200 + late) * US
        (root / f"host.{pid}.log").write_text(log_of(pid, launched, 650 * US))
    found = steps_at(root)
    named = parts_by_name(found)
    assert "call on process 12, the last to end" in named
    assert named["bind arguments and runtime image"] == 40 * US
    for step in found.served:
        check_adds_up(step.parts)


def test_what_capturing_takes_is_kept_apart(tmp_path: Path) -> None:
    """The collector's lines come after the device: from the first of them until drained is not of the program."""
    launched, device = 10**9, 710 * US  # 650 us of scheduling and 60 around
    drained = launched + device + 100_000 * US
    early = f"[mono_ns={launched + 5 * US}][T0x1][WARN] copy_aicore_buffer: Core 2: skipped 1024\n"
    line = f"[mono_ns={drained - 99_000 * US}][T0x1][WARN] copy_aicore_buffer: Core 2: skipped 1024\n"
    path = tmp_path / "host.11.log"
    path.write_text(early + line + log_of(11, launched, 650 * US, drained_ns=100_000 * US))
    found = steps_at(path)
    named = parts_by_name(found)
    assert (named[CAPTURING], named["launch and drain"]) == (99_000 * US, 1_000 * US)
    assert found.capturing_ns == 99_000 * US
    check_adds_up(found.ranks[0].parts)


def test_a_bind_behind_another_call_on_the_device_saves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "host.11.log"
    first, second = 10**9, 10**9 + 400 * US
    path.write_text(log_of(11, first, 650 * US, run=7) + log_of(11, second, 650 * US, run=8, call=8))
    found = steps_at(path, run=8)
    row = found.runs.row(1, named=True)
    assert (row["period_ns"], row["overlap_ns"]) == (400 * US, (1_273 - 400) * US)
    bind = next(cause for cause in found.causes if cause.kind == "copies")
    assert bind.gain is not None
    assert bind.gain.high_ns < 42 * US  # 30 us of args are hidden, 12 us of copying back are not
    assert "while another call was on the device" in bind.sentence


def test_dispatches_of_one_run_are_one_step(tmp_path: Path) -> None:
    path = tmp_path / "host.11.log"
    path.write_text(log_of(11, 10**9, 100 * US) + log_of(11, 10**9 + 2_000 * US, 100 * US, call=8))
    (step,) = steps_at(path).calls
    assert step.wall_ns == (2_000 + 50 + 160 + 500 + 13) * US
    check_adds_up(step.parts)


@given(st.integers(0, 2**30))
@examples(120)
def test_no_log_makes_a_wrong_sum(seed: int) -> None:
    """Half lines, clocks that run backwards, wrong processes, lost and repeated records."""
    rng = random.Random(seed)
    lines = []
    for pid in range(11, 11 + rng.randrange(1, 4)):
        for call in range(rng.randrange(1, 4)):
            launched = 10**9 + call * rng.randrange(500, 3_000) * US
            text = log_of(pid, launched, rng.randrange(1, 700) * US, run=call + 1, call=call + 1)
            lines += text.splitlines()
    for _ in range(rng.randrange(0, 12)):
        at = rng.randrange(len(lines))
        how = rng.randrange(7)
        line = lines[at]
        if how == 0:
            lines[at] = line[: rng.randrange(len(line))]
        elif how == 1:
            lines[at] = line.replace("pid=11", "pid=12")
        elif how == 2:
            lines[at] = line.replace(" dur=", f" dur={rng.randrange(1, 9)}")
        elif how == 3:
            lines[at] = line.replace(" ts=", f" ts={rng.choice(['', '9'])}")
        elif how == 4:
            del lines[at]
        elif how == 5:
            lines.insert(at, line + lines[rng.randrange(len(lines))])
        else:
            lines.insert(at, span("chip.run.bind", 1, rng.randrange(10**10), rng.randrange(10**9), 11, "", 1))
        lines = lines or ["x"]
    log = HostLog()
    for line in lines:
        log.read_line(line)
    try:
        found = explain_steps(log)
    except Exception as error:
        assert "no call" in str(error)  # noqa: PT017
        return
    whole = {(call.pid, call.attribute("run_id") or call.number): call.whole for call in log.calls if call.whole}
    for step in found.calls:
        check_adds_up(step.parts)
    assert {one.run for one in found.calls} == {run for _, run in whole}
    shown = found.parts
    assert shown["slowest_ns"].min() >= 0  # type: ignore[operator]


@given(st.integers(0, 2**30))
@examples(60)
def test_no_profile_makes_a_wrong_sum(seed: int) -> None:
    rng = random.Random(seed)
    profile = ServingProfile()
    names = ["scheduler.schedule", "scheduler.queue_worker_step", "scheduler.process_step_output",
             "WorkerProcess.execute_step", "decode.worker_run", "decode"]  # fmt: skip
    for _ in range(rng.randrange(0, 60)):
        begin = rng.randrange(0, 10_000)
        profile._add(event(rng.choice(names), begin, begin + rng.randrange(0, 900)))
    if not profile.spans:
        return
    try:
        found = explain_steps(HostLog(), profile=profile)
    except Exception as error:
        assert "no call" in str(error)  # noqa: PT017
        return
    for step in found.served:
        check_adds_up(step.parts)
        assert step.parts[0].dur_ns == step.wall_ns
    ends = [step.end_ns for step in found.served]
    assert ends == sorted(ends)


@pytest.mark.skipif(not (DATA / "simpler_misc").is_dir(), reason="the real captures are not here")
def test_the_example_files_have_their_known_steps() -> None:
    found = steps_at(DATA / "simpler_misc" / "examples")
    assert [one.period_ns for one in found.served] == [None, 19_500 * US, 19_500 * US]
    call = steps_at(DATA / "simpler_misc" / "examples" / "host.70.log")
    assert parts_by_name(call)["between these"] == 56 * US


def test_spans_that_stick_out_are_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "host.11.log"
    text = log_of(11, 10**9, 650 * US)
    path.write_text(text + span("chip.run.claim_release", 1, 10**9 + 1_200 * US, 900 * US, 11) + "\n")
    done = json.loads(npuscope("step", path, "--json").stdout)
    assert done["cut_parts"] == 1
    assert "stick out" in npuscope("step", path).stdout
