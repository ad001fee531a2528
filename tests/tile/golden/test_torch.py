"""The same harness for scripts that use torch. Needs torch; npuscope does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuscope.tile.golden import ScalarSpec, TensorSpec, ratio_allclose, ratio_reldiff, run_jit
from npuscope.tile.golden.comparators import close
from npuscope.tile.golden.spec import array_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("fake_runs")


def scaled(wrote, x, factor, y) -> None:
    y[:] = (x.astype(np.float32) * factor).astype(y.dtype)
    wrote("y", y)


def golden(values) -> None:
    assert isinstance(values["x"], torch.Tensor)
    values["y"][:] = (values["x"].float() * values["factor"]).to(values["y"].dtype)


def specs(dtype=torch.bfloat16, init=torch.randn) -> list:
    return [
        TensorSpec("x", [4, 8], dtype, init_value=init),
        ScalarSpec("factor", torch.float32, 0.1),
        TensorSpec("y", [4, 8], dtype, is_output=True),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_right_program_passes(dtype, capsys) -> None:
    assert run_jit(scaled, specs(dtype), golden, rtol=0, atol=0).passed
    assert f"'y' PASS  shape=(4, 8) dtype={dtype}" in capsys.readouterr().out


def test_a_wrong_one_fails() -> None:
    assert not run_jit(scaled, specs(), lambda values: values["y"].fill_(9)).passed


@pytest.mark.parametrize(
    "init", [torch.randn, lambda: torch.randn(8, 4).T, lambda: torch.rand(4, 8, dtype=torch.float64)]
)
def test_inputs_are_the_same_in_every_run(init) -> None:
    torch.manual_seed(2**40)  # as if torch had seeded itself
    first, second = (run_jit(scaled, specs(init=init)).run.arguments[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()
    assert run_jit(scaled, specs(init=init), seed=3).run.arguments[0].tobytes() != first.tobytes()


def test_a_script_that_seeds_torch_keeps_its_stream() -> None:
    torch.manual_seed(7)
    expected = torch.randn([4, 8], dtype=torch.bfloat16)
    torch.manual_seed(7)
    made = run_jit(scaled, specs()).run.arguments[0]
    assert made.tobytes() == array_of(expected).tobytes()
    torch.manual_seed(7)
    assert run_jit(scaled, specs(), seed=0).run.arguments[0].tobytes() != made.tobytes()


@pytest.mark.parametrize("by_script", [True, False])
def test_integers_are_the_same_with_and_without_the_floats_before_them(by_script) -> None:
    shapes = False
    given = [
        TensorSpec("x", [4], torch.float32, init_value=torch.randn),
        TensorSpec("lengths", [4], torch.int32, init_value=lambda: torch.randint(0, 1000, (4,))),
        TensorSpec("w", [4], torch.float32, init_value=lambda: 1 / 0 if shapes else torch.zeros(4)),
    ]
    seen = []
    for shapes in (False, True):
        torch.manual_seed(5 if by_script else 2**40)
        result = run_jit(lambda wrote, *arguments: None, given, compile_only=shapes)
        lengths = result.run.arguments[1]
        seen.append((lengths.make() if shapes else lengths).tolist())
    assert seen[0] == seen[1]


def test_data_is_saved_as_torch_saves_and_read_by_either(tmp_path) -> None:
    assert run_jit(scaled, specs(), golden, save_data=tmp_path / "case").passed
    x = torch.load(tmp_path / "case" / "in" / "x.pt", weights_only=True)
    assert x.dtype is torch.bfloat16
    assert run_jit(scaled, specs(), golden_data=tmp_path / "case", rtol=0, atol=0).passed
    as_numpy = [
        TensorSpec(s.name, s.shape, s.storage, is_output=s.is_output) if isinstance(s, TensorSpec) else s
        for s in specs()
    ]
    assert run_jit(scaled, as_numpy, golden_data=tmp_path / "case", rtol=0, atol=0).passed


def test_a_golden_of_another_dtype_is_taken_only_if_it_was_saved_so(tmp_path) -> None:
    def wide(values) -> None:
        golden(values)
        values["y"] = values["y"].float()

    assert run_jit(scaled, specs(), wide, save_data=tmp_path / "case").passed
    assert run_jit(scaled, specs(), golden_data=tmp_path / "case").passed
    (tmp_path / "case" / "out" / "dtypes.json").unlink()
    result = run_jit(scaled, specs(), golden_data=tmp_path / "case")
    assert "holds float32, the spec of 'y' says torch.bfloat16" in result.error


def test_complex_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="no real numbers"):
        run_jit(scaled, specs(init=lambda: torch.ones(4, 8) * 1j), golden)
    with pytest.raises(ValueError, match=r"the golden leaves .* no numbers"):
        run_jit(scaled, specs(), lambda values: values.update(y=torch.ones(4, 8) * 1j))


def test_files_that_hold_no_tensor_are_refused(tmp_path) -> None:
    run_jit(scaled, specs(), golden, save_data=tmp_path / "case")
    torch.save({"a": 1}, tmp_path / "case" / "in" / "x.pt")
    assert "holds a dict" in run_jit(scaled, specs(), golden_data=tmp_path / "case").error
    (tmp_path / "case" / "in" / "x.pt").write_bytes(b"nothing")
    assert "no tensor saved by torch" in run_jit(scaled, specs(), golden_data=tmp_path / "case").error


def test_comparators_agree_with_torch() -> None:
    torch.manual_seed(1)
    expected = torch.randn(2000)
    for noise in (1e-6, 1e-3, 1e-1):
        actual = expected + noise * torch.randn(2000)
        for rtol, atol in ((1e-5, 1e-5), (1e-3, 0.0), (0.0, 1e-1)):
            theirs = torch.isclose(actual, expected, rtol=rtol, atol=atol)
            assert np.array_equal(close(array_of(actual), array_of(expected), rtol, atol), theirs.numpy())
            bad = int((~theirs).sum())
            context: dict[str, Any]
            context = {"actual_outputs": {}, "expected_outputs": {}, "inputs": {}, "rtol": rtol, "atol": atol}
            assert ratio_allclose(max_error_ratio=min(1.0, bad / 2000))(actual, expected, **context)[0]
            assert ratio_reldiff(10.0, 0.0)(actual.bfloat16(), expected.bfloat16(), **context)[0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.int64])
@pytest.mark.parametrize("value", [None, 0, 3, -0.0])
def test_a_tensor_filled_with_a_number_is_of_its_dtype_and_may_be_written(dtype, value) -> None:
    made: Any = TensorSpec("w", [2, 3], dtype, init_value=value).create_tensor()
    assert made.dtype == dtype
    assert made.tolist() == [[value or 0] * 3] * 2
    made[0] = 7
    assert made.tolist() == [[7] * 3, [value or 0] * 3]
