"""Factors and triangular systems on doubles of GPUs: no kernel is the host's, and results are the evaluator's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from launch.checks.expect import read_expected
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from spmd.text.parser import parse_module
from tests.paths import SHARED
from tests.runtime.gpu.decompositions import (
    check_eigenvalues,
    check_lu,
    check_qr,
    check_singular_values,
)
from tests.runtime.gpu.doubles.engines import devices_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.runtime.gpu.linear_algebra import (
    TYPES,
    check_cholesky,
    check_potrf,
    check_triangular_solve,
)
from tests.runtime.programs import compiled

CORPUS = SHARED / "corpus"


def on_double(executable: Executable) -> Executable:
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    return executable


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", TYPES)
def test_cholesky(kind: str, *, lower: bool) -> None:
    check_cholesky(on_double, kind, lower=lower)


@pytest.mark.parametrize("kind", TYPES)
def test_potrf(kind: str) -> None:
    check_potrf(on_double, kind)


@pytest.mark.parametrize("kind", TYPES)
def test_triangular_solve(kind: str) -> None:
    check_triangular_solve(on_double, kind)


def test_more_calls_than_are_worth_it_are_left_to_the_host() -> None:
    text = """HloModule calls
    ENTRY main {
      x = f32[2000,3,3] parameter(0)
      tau = f32[2000,3] parameter(1)
      ROOT q = f32[2000,3,3] custom-call(x, tau), custom_call_target="lapack_sorgqr_ffi", backend_config={}
    }
    """
    (device,) = devices_of(on_double(compiled(text))).devices
    assert device.kernel_report.hosted == (("FactorizationKernel", "q"),)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not beside the checkout")
@pytest.mark.parametrize("name", ["linalg_dp4", "linalg_native_dp4"])
def test_programs_of_the_corpus_leave_nothing_to_the_host(name: str) -> None:
    folder = CORPUS / name
    count = json.loads((folder / "case.json").read_text())["num_partitions"]
    module = parse_module((folder / "module.hlo").read_text())
    options = CompileOptions(machine=machine_for(None, backend="gpu"))
    executable = on_double(compile_module(module, count, options))
    for device in devices_of(executable).devices:
        assert not device.kernel_report.hosted
    entry = Entry.of_module(module)
    outputs = executable.run(*read_inputs(folder / "inputs.npz", entry.inputs))
    wanted = read_expected(folder / "expected.npz", entry.outputs)
    for got, want in zip(outputs, wanted, strict=True):
        # One output is a residual: only its size is the same everywhere.
        np.testing.assert_allclose(got, want.values, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("check", [check_lu, check_qr, check_eigenvalues, check_singular_values])
def test_decompositions(check: Callable[[Any, str], None], kind: str) -> None:
    check(on_double, kind)
