"""Callbacks of Python functions in a module: what is left out on request, and what is said without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import spmd
from launch.callbacks import leave_out_callbacks
from launch.cli import main
from spmd.shape import TupleShape
from spmd.verifier.verifier import verify

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
        capsys.readouterr().err == "spmd: note: 1 call of functions that no file holds left out\n"
    )
    if backend == "reference":  # the evaluator looks at what the result needs
        return
    assert main(run) == 2
    message = capsys.readouterr().err
    assert "lives in the process that made the module" in message
    assert "--without-callbacks leaves out calls that return nothing" in message


def test_custom_partitioning_says_where_its_functions_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.hlo").write_text(
        KEPT.replace("xla_ffi_python_cpu_callback", "CustomSPMDPartitioning")
    )
    assert main(["run", str(tmp_path / "m.hlo")]) == 2
    assert "custom_partitioning live in the process that made" in capsys.readouterr().err


def test_the_device_of_a_call_without_results_is_no_leafs_sharding() -> None:
    """JAX writes {{maximal device=0}} on an empty tuple."""
    sharding = spmd.parse(PRINTS).entry.instructions[2].sharding
    assert sharding is not None
    assert sharding.leaf_shardings(TupleShape(())) == ()
