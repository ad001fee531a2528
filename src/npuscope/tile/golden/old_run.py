"""`golden.run` as scripts called it in spring 2026: `tensor_specs=` and a `RunConfig` (language/history.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from npuscope.tile.golden.misuse import misuse, told

PLACES = ("config", "golden_fn", "golden_data", "runtime_dir")  # of its parameters after the program and the specs
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run, which are parameters of `golden.run` today."""

    rtol: float = 1e-5
    atol: float = 1e-5
    compile_only: bool = False
    compile: Mapping[str, object] = field(default_factory=dict)
    runtime: Mapping[str, object] = field(default_factory=dict)

    def as_options(self) -> dict[str, object]:
        """The same as today's parameters."""
        return {
            "rtol": self.rtol,
            "atol": self.atol,
            "compile_only": self.compile_only,
            "compile_cfg": self.compile,
            "runtime_cfg": self.runtime,
        }


def of_any_month(run: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`golden.run` that also takes the parameters it had once."""

    @functools.wraps(run)
    def wrapped(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        if "tensor_specs" in options or "config" in options or any(isinstance(one, RunConfig) for one in args):
            named = {**dict(zip(PLACES, args[2:], strict=False)), **options}
            return run(*args[:2], **_with_todays_names(named))  # type: ignore[arg-type]
        return run(*args, **options)

    return wrapped


def _with_todays_names(options: dict[str, object]) -> dict[str, object]:
    if "tensor_specs" in options:
        if "specs" in options:
            raise misuse("golden.run is given specs= and tensor_specs=, which is its old name")
        options["specs"] = options.pop("tensor_specs")
    config = options.pop("config", None)
    if config is None:
        return options
    if not isinstance(config, RunConfig):
        raise misuse(f"golden.run: config= takes a RunConfig, not {told(config)}")
    twice = sorted(options.keys() & config.as_options().keys())
    if twice:
        raise misuse(f"golden.run is given {twice[0]}= beside config=, which says it too")
    return {**options, **config.as_options()}
