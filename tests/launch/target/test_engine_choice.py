"""Tests of commands that ask for a GPU: where there is none, and with a double of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import spmd
from launch.cli import main
from launch.target import engine_choice
from launch.target.backends import fuses_attention
from launch.target.engine_choice import gpu_options
from runtime.gpu.engine import GpuEngine
from runtime.gpu.errors import NoGpuError
from runtime.gpu.launch_maker import launch_maker
from runtime.gpu.options import GpuOptions
from spmd.errors import UnsupportedError
from tests.runtime.gpu.doubles.host_driver import HostDriver

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
    """The error repeats what CuPy says where there is no NVIDIA driver."""

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


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands see a double of a GPU."""
    engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    monkeypatch.setattr(engine_choice, "engine_for", lambda _: engine)


CASE = "tests/cases/mlp_dp4tp2"


@pytest.mark.usefixtures("double")
def test_run_gives_what_jax_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--inputs", f"{CASE}/inputs.npz", "--expect", f"{CASE}/expected.npz"]
    profile = tmp_path / "trace.json"
    command = ["run", f"{CASE}/module.hlo", *files, "--backend", "gpu", "--profile", str(profile)]
    assert main(command) == 0
    assert "kernels in PTX" not in capsys.readouterr().out
    events = json.loads(profile.read_text())["traceEvents"]
    assert {"Kernel", "Collective"} <= {event.get("cat") for event in events}


@pytest.mark.usefixtures("double")
def test_bench_says_how_kernels_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", f"{CASE}/module.hlo", "--backend", "gpu", "--repeat", "2", "--json"]
    assert main(command) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["backend"] == "gpu"
    assert figures["predicted_for"].startswith("dgx-h200")
    assert figures["kernels"]["ptx"] > 0
    assert figures["kernels"]["library"] > 0


@pytest.mark.usefixtures("double")
def test_profile_reports_on_collectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", f"{CASE}/module.hlo", "--backend", "gpu", "--steps", "2"]) == 0
    assert "all-reduce" in capsys.readouterr().out


def test_attention_is_fused_where_its_kernels_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("launch.target.backends.find_spec", lambda _: None)
    assert not fuses_attention("gpu", {})
    assert fuses_attention("cpu", {}), "for a described machine"
    monkeypatch.setattr("launch.target.backends.find_spec", lambda _: object())
    assert fuses_attention("gpu", {})
    assert not fuses_attention("gpu", {"SPMD_GPU_ATTENTION": "off"})
    assert not fuses_attention("cpu", {"SPMD_GPU_ATTENTION": "off"})


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.target.engine_choice.find_spec", lambda _: object())
    assert gpu_options({}) == GpuOptions(graphs=True, ranges=False, cudnn=True)
    chosen = {"SPMD_GPU_GRAPHS": "off", "SPMD_GPU_RANGES": "on", "SPMD_GPU_TF32": "off"}
    assert gpu_options(chosen) == GpuOptions(graphs=False, ranges=True, tf32=False)
    assert gpu_options({"SPMD_GPU_EPILOGUES": "off"}) == GpuOptions(epilogues=False)
    monkeypatch.setattr("launch.target.engine_choice.find_spec", lambda _: None)
    assert gpu_options({}) == GpuOptions(cudnn=False, triton=False)
