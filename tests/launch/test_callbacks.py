"""Callbacks of Python functions in a module: what is left out on request, and what is said without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from launch.callbacks import leave_out_callbacks
from launch.cli import main
from spmd.errors import RunError, UnsupportedError
from spmd.hlo.host_functions import Callback, HostFunctions
from spmd.literal import NDArray
from spmd.shape import TupleShape
from spmd.verifier.verifier import verify
from tests.runtime.gpu.doubles.engines import Doubles

PRINTS = """HloModule prints, num_partitions=2
ENTRY main {
  a = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
  z = f32[] constant(0)
  p = () custom-call(z), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, api_version=API_VERSION_TYPED_FFI, sharding={{maximal device=0}}
  ROOT r = f32[8,4] add(a, a)
}
"""
TOKENS = """HloModule tokens
ENTRY main {
  a = f32[4] parameter(0)
  t = token[] after-all()
  p = (token[]) custom-call(t, a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true
  u = token[] get-tuple-element(p), index=0
  q = token[] custom-call(u, a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true
  ROOT r = (f32[4], token[]) tuple(a, q)
}
"""
KEPT = """HloModule kept
ENTRY main {
  a = f32[4] parameter(0)
  c = f32[4] custom-call(a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true
  ROOT p = f32[4] custom-call(c), custom_call_target="Sharding", custom_call_has_side_effect=true
}
"""


@pytest.mark.parametrize("scheduled", [False, True])
def test_calls_that_only_order_effects_are_replaced_by_tokens(scheduled: bool) -> None:
    text = TOKENS.replace("tokens\n", "tokens, is_scheduled=true\n") if scheduled else TOKENS
    module = spmd.parse(text)
    assert leave_out_callbacks(module) == 2
    verify(module)
    assert "custom-call" not in str(module)
    x = np.arange(4, dtype=np.float32)
    assert np.array_equal(spmd.evaluate(module, x)[0], x)


def test_a_call_at_the_root() -> None:
    module = spmd.parse(
        "HloModule m\nENTRY e {\n  a = f32[] parameter(0)\n"
        '  ROOT p = () custom-call(a), custom_call_target="callback_python", custom_call_has_side_effect=true\n}'
    )
    assert leave_out_callbacks(module) == 1
    verify(module)
    assert str(module.entry.root.shape) == "()"


def test_calls_with_results_and_known_targets_stay() -> None:
    module = spmd.parse(KEPT)
    before = str(module)
    assert leave_out_callbacks(module) == 0
    assert str(module) == before


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_command_runs_what_prints(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(PRINTS)
    run = ["run", str(tmp_path / "m.hlo"), "--backend", backend]
    assert main([*run, "--without-callbacks"]) == 0
    assert (
        capsys.readouterr().err
        == "spmd: note: 1 call of Python functions removed (--without-callbacks)\n"
    )
    if backend == "reference":  # the evaluator looks at what the result needs
        return
    assert main(run) == 2
    message = capsys.readouterr().err
    assert "calls a Python function of the process that made the module" in message
    assert "--without-callbacks removes calls without results" in message


def test_custom_partitioning_says_where_its_functions_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(
        KEPT.replace("xla_ffi_python_cpu_callback", "CustomSPMDPartitioning")
    )
    assert main(["run", str(tmp_path / "m.hlo")]) == 2
    assert "custom_partitioning are in the process that made" in capsys.readouterr().err


def test_the_device_of_a_call_without_results_is_no_leafs_sharding() -> None:
    """JAX writes {{maximal device=0}} on an empty tuple."""
    sharding = spmd.parse(PRINTS).entry.instructions[2].sharding
    assert sharding is not None
    assert sharding.leaf_shardings(TupleShape(())) == ()


# ---- functions that the module's process has
CALLS = """HloModule calls, num_partitions=2
ENTRY main {
  a = f32[4,2] parameter(0), sharding={devices=[2,1]<=[2]}
  e = () custom-call(a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, sharding={{maximal device=1}}, backend_config={index = 0 : ui64}
  t = () custom-call(a), custom_call_target="xla_ffi_partitioned_python_cpu_callback", custom_call_has_side_effect=true, backend_config={index = 1 : ui64}
  p = f32[4,2] custom-call(a), custom_call_target="xla_ffi_python_cpu_callback", sharding={maximal device=0}, backend_config={index = 2 : ui64}
  ROOT r = f32[4,2] add(a, p), sharding={devices=[2,1]<=[2]}
}
"""
ORDERED = """HloModule ordered
ENTRY main {
  a = f32[2] parameter(0)
  t = token[] after-all()
  c = (token[], f32[2]) custom-call(t, a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, backend_config={index = 0 : ui64}
  u = token[] get-tuple-element(c), index=0
  d = (token[], f32[2]) custom-call(u, a), custom_call_target="xla_ffi_python_cpu_callback", custom_call_has_side_effect=true, backend_config={index = 0 : ui64}
  x = f32[2] get-tuple-element(c), index=1
  y = f32[2] get-tuple-element(d), index=1
  ROOT r = (f32[2], f32[2]) tuple(x, y)
}
"""


def with_functions(text: str, *functions: Callback) -> spmd.HloModule:
    module = spmd.parse(text)
    module.host_functions = HostFunctions(functions)
    return module


@pytest.mark.parametrize("how", ["compiled", "evaluated", "gpu double"])
def test_functions_are_called_on_the_devices_that_annotations_name(how: str) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    def note(name: str, *results: Any) -> Callback:
        def function(x: NDArray) -> tuple[Any, ...]:
            seen.append((name, x.shape))
            return tuple(2 * x for _ in results)

        return function

    module = with_functions(CALLS, note("one"), note("tiles"), note("pure", "a result"))
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    if how == "evaluated":
        (got,) = spmd.evaluate(module, x)
        tiles = [("tiles", (4, 2))]
    else:
        executable = spmd.compile(module)
        if how == "gpu double":
            executable = Doubles(ptx=True).on(executable)
        (got,) = executable.run(x)
        tiles = [("tiles", (2, 2))] * 2
    assert np.array_equal(got, 3 * x)
    assert sorted(seen) == [("one", (4, 2)), ("pure", (4, 2)), *tiles]


def test_ordered_calls_pass_tokens() -> None:
    count = iter(range(10))

    def function(token: None, x: NDArray) -> tuple[None, NDArray]:
        return token, x + np.float32(next(count))

    module = with_functions(ORDERED, function)
    x = np.zeros(2, np.float32)
    executable = spmd.compile(module)
    for first in (0, 2):
        assert [float(y[0]) for y in executable.run(x)] == [first, first + 1]
    assert [float(y[0]) for y in spmd.evaluate(module, x)] == [4, 5]


def test_what_functions_do_wrong_is_said() -> None:
    x = np.zeros((4, 2), np.float32)

    def nothing(_: NDArray) -> tuple[()]:
        return ()

    with pytest.raises(RunError, match="gave 0 arrays, not 1"):
        spmd.compile(with_functions(CALLS, nothing, nothing, nothing)).run(x)
    with pytest.raises(RunError, match=r"gave float64\[4, 2\], expected f32\[4,2\]"):
        spmd.compile(
            with_functions(CALLS, nothing, nothing, lambda x: (x.astype(np.float64),))
        ).run(x)

    def fails(_: NDArray) -> Any:
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        spmd.compile(with_functions(CALLS, nothing, nothing, fails)).run(x)


def test_a_program_from_a_file_has_no_functions() -> None:
    with pytest.raises(
        UnsupportedError, match="calls a Python function of the process that made the module"
    ):
        spmd.compile(spmd.parse(CALLS)).run(np.zeros((4, 2), np.float32))
