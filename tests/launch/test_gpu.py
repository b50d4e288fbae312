"""Asking for a GPU where there is none."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import spmd
from launch.cli import main
from runtime.gpu.errors import NoGpuError
from spmd.errors import UnsupportedError

MODULE = "tests/cases/mlp_dp2/module.hlo"


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.mark.usefixtures("no_cupy")
@pytest.mark.parametrize("command", ["run", "bench"])
def test_commands_name_the_extra(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, MODULE, "--backend", "gpu"]) == 2
    error = capsys.readouterr().err
    assert "a GPU needs CuPy" in error
    assert 'pip install "spmd-executor[gpu]"' in error


@pytest.mark.usefixtures("no_cupy")
def test_compile_names_the_extra() -> None:
    with pytest.raises(NoGpuError, match="needs CuPy"):
        spmd.compile(spmd.load(MODULE), backend="gpu")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CuPy says it where there is no NVIDIA driver."""

    class CUDARuntimeError(RuntimeError):
        pass

    def count() -> int:
        raise CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    cupy, cuda, runtime = ModuleType("cupy"), ModuleType("cuda"), ModuleType("runtime")
    vars(runtime).update(CUDARuntimeError=CUDARuntimeError, getDeviceCount=count)
    vars(cuda).update(runtime=runtime)
    vars(cupy).update(cuda=cuda, __version__="14.2.0")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    with pytest.raises(
        NoGpuError, match=r"CuPy 14\.2\.0 finds no GPU: cudaErrorInsufficientDriver"
    ):
        spmd.compile(spmd.load(MODULE), backend="gpu")


def test_other_back_ends() -> None:
    with pytest.raises(UnsupportedError, match="no 'tpu' back end; there is cpu, gpu"):
        spmd.compile(spmd.load(MODULE), backend="tpu")
