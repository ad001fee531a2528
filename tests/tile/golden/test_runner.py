from __future__ import annotations

import numpy as np
import pytest

from npuscope.base.errors import NpuscopeError
from npuscope.ops import dtypes
from npuscope.tile.golden import RunResult, ScalarSpec, TensorSpec, driven, run, run_jit
from npuscope.tile.run.arguments import Placeholder

pytestmark = pytest.mark.usefixtures("fake_runs")

SHAPE = (4, 8)


def scaled(wrote, x, factor, y) -> None:
    y[:] = x.astype(np.float32) * factor
    wrote("y", y)


def golden_scaled(values) -> None:
    values["y"][:] = values["x"] * values["factor"]


def specs(x=None) -> list:
    return [
        TensorSpec("x", SHAPE, np.float32, init_value=(lambda rng: rng.standard_normal(SHAPE)) if x is None else x),
        ScalarSpec("factor", np.float32, 0.1),
        TensorSpec("y", SHAPE, np.float32, is_output=True),
    ]


def test_a_right_program_passes(capsys) -> None:
    result = run_jit(fn=scaled, specs=specs(), golden_fn=golden_scaled, rtol=1e-6, atol=0)
    assert result.passed
    assert result.error is None
    assert str(result).startswith("PASS (")
    lines = [
        line.rpartition(" (")[0] if "done" in line or "PASS (" in line else line
        for line in capsys.readouterr().out.splitlines()
    ]
    assert lines == [
        "[RUN] generate inputs ...",
        "[RUN] generate inputs done",
        "[RUN] compute golden ...",
        "[RUN] compute golden done",
        "[RUN] runtime ...",
        "[RUN] runtime done",
        "[RUN] validate ...",
        "[RUN]   'y' PASS  shape=(4, 8) dtype=float32",
        "[RUN] validate done",
        "[RUN] PASS",
    ]


def test_a_wrong_program_fails_with_the_op_that_wrote_it() -> None:
    def off_by_one(wrote, x, factor, y) -> None:
        y[:] = x * np.float32(factor)
        wrote("y", y)
        y[2, 3] += 1
        wrote("y", y)

    result = run(off_by_one, specs(1.0), golden_scaled)
    assert not result.passed
    assert "[19] (2, 3) actual=1.1, expected=0.1, last written by task 1" in result.error
    assert str(result).startswith("FAIL: Output(s) does not match golden: ['y']")


def test_programs_and_goldens_see_scalars_as_the_dtype_holds_them() -> None:
    seen = []
    run(lambda wrote, s: seen.append(s), [ScalarSpec("s", dtypes.BF16, 0.1)], seen.append)
    assert seen == [{"s": 0.10009765625}, 0.10009765625]


def test_a_golden_may_bind_new_tensors() -> None:
    def golden(values) -> None:
        values["y"] = values["x"] * values["factor"]

    assert run_jit(scaled, specs(), golden).passed


def test_an_output_with_a_value_starts_with_it_on_both_sides() -> None:
    def add(wrote, acc) -> None:
        acc += 1
        wrote("acc", acc)

    def golden(values) -> None:
        values["acc"][:] = 3

    assert run_jit(add, [TensorSpec("acc", [2], np.int32, init_value=2, is_output=True)], golden).passed


def test_without_a_golden_nothing_is_compared(capsys) -> None:
    result = run_jit(scaled, specs())
    assert result.passed
    assert result.compared is False
    assert str(result).startswith("not checked: no golden_fn or golden_data (")
    assert capsys.readouterr().out.splitlines()[-1] == f"[RUN] {result}"


def test_a_golden_without_outputs_is_no_pass(capsys) -> None:
    only_inputs = [*specs()[:2], TensorSpec("y", SHAPE, np.float32)]
    result = run_jit(scaled, only_inputs, lambda values: None)
    assert result.compared is False
    assert str(result).startswith("not checked: no spec has is_output=True")
    assert "PASS" not in capsys.readouterr().out


def test_inputs_are_the_same_in_every_run_and_change_with_the_seed(monkeypatch) -> None:
    def inputs(**options) -> bytes:
        return run_jit(scaled, specs(), **options).run.arguments[0].tobytes()

    assert inputs() == inputs() == inputs(seed=0)
    assert inputs(seed=1) != inputs()
    monkeypatch.setenv("NPUSCOPE_SEED", "1")
    assert inputs() == inputs(seed=1)
    assert inputs(seed=0) != inputs()
    monkeypatch.setenv("NPUSCOPE_SEED", "one")
    with pytest.raises(NpuscopeError, match="NPUSCOPE_SEED is 'one'"):
        inputs()


def test_an_input_does_not_depend_on_the_others() -> None:
    alone = [TensorSpec("x", SHAPE, np.float32, init_value=lambda rng: rng.random(SHAPE))]
    pair = [TensorSpec("w", SHAPE, np.float32, init_value=lambda rng: rng.random(SHAPE)), *alone]
    first = run(lambda wrote, x: None, alone).run.arguments[0]
    second = run(lambda wrote, w, x: None, pair).run.arguments[1]
    assert np.array_equal(first, second)


def test_compile_only_records_shapes_with_real_integers_and_no_other_values(capsys) -> None:
    def never() -> np.ndarray:
        raise AssertionError("weights are not made to record shapes")

    given = [
        TensorSpec("weights", (1 << 14, 1 << 14), dtypes.BF16, init_value=never),
        TensorSpec("quantised", [2], np.int8, init_value=never),
        TensorSpec("lengths", [2], np.int32, init_value=np.array([3, 5])),
        ScalarSpec("n", np.int32, 7),
    ]
    result = run_jit(lambda wrote, *arguments: None, given, lambda values: never(), compile_only=True)
    assert result.passed
    weights, _, lengths, n = result.run.arguments
    assert weights == Placeholder((1 << 14, 1 << 14), dtypes.BF16)
    assert (lengths.make().tolist(), n) == ([3, 5], 7)
    assert result.run.recording.mode == "shapes"
    assert str(result).startswith("not checked: recorded without values")
    assert "PASS" not in capsys.readouterr().out


def test_configurations_are_accepted_and_what_is_unknown_is_noted(capsys) -> None:
    result = run_jit(
        scaled,
        specs(),
        golden_scaled,
        compile_cfg={"dump_passes": True, "fast": 1},
        runtime_cfg={"platform": "a2a3", "device_id": 0, "enable_chip_swimlane": True, "warp": 9},
        runtime_dir="build_output/old",
    )
    assert result.passed
    notes = [line for line in capsys.readouterr().out.splitlines() if "note:" in line]
    assert notes == [
        "[RUN]   note: compile_cfg has 'fast', which npuscope does not know; it has no effect",
        "[RUN]   note: runtime_cfg has 'warp', which npuscope does not know; it has no effect",
        "[RUN]   note: runtime_dir build_output/old is not used: nothing is compiled, the program runs from its source",
    ]


def test_what_contradicts_itself_is_a_failed_result() -> None:
    result = run_jit(scaled, specs(), compile_only=True, runtime_dir="somewhere")
    assert str(result) == "FAIL: runtime_dir is incompatible with compile_only"


def test_a_command_that_runs_a_script_sees_its_results_and_may_ask_for_shapes() -> None:
    results: list[RunResult] = []
    with driven(results.append, shapes=True):
        run_jit(scaled, specs(), golden_scaled)
    with driven(results.append):
        run_jit(scaled, specs(), golden_scaled)
        run_jit(scaled, specs(), lambda values: None)
    assert [r.run.recording.mode for r in results] == ["shapes", "values", "values"]
    assert [r.passed for r in results] == [True, True, False]
