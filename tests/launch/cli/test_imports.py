"""Tests of the packages that a command does without: a saved executable runs without what compiled it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from mpi_available import needs_mpi

from benchmarks.startup import PACKAGES
from launch.cli import main
from tests.paths import ROOT

#: Runs a command as a rank, and says whether it has imported llvmlite.
RANKS_PROGRAM = """
import sys
from launch.__main__ import main
code = main()
sys.stderr.write(f"llvmlite: {'llvmlite' in sys.modules}\\n")
sys.exit(code)
"""
CASE = ROOT / "tests" / "cases" / "mlp_dp2"
#: Modules of this project in a run of a saved executable. Python and NumPy, of which the versions decide, have the rest of
#: the 350 that `benchmarks.startup` permits: 227, or 228 in Debian's Python.
MOST_OWN_MODULES = 123

#: Runs a command, then prints the modules that it has imported.
PROGRAM = """
import sys
from launch.__main__ import main
code = main()
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""

COMPILER = (
    "partitioner",
    "collectives.cost",
    "collectives.passes",
    "collectives.simulate",
    "launch.calibration",
    "launch.checks.divergence",
    "launch.pipeline",
    "launch.report",
    "launch.source",
    "runtime.compile",
    "runtime.cpu.prediction",
    "runtime.fusion.make_fusions",
    "runtime.fusion.priority_fusion",
    "runtime.layout",
    "runtime.saved",
    "runtime.schedule",
    "spmd.evaluator",
    "spmd.library_calls",
    "spmd.machine",
    "spmd.passes",
    "spmd.proto.writer",
    "spmd.text.attrs_text",
    "spmd.text.parser",
    "spmd.text.printer",
)
OTHER_WAYS = ("cupy", "mpi4py", "launch.ranks.world", "runtime.gpu", "collectives.communicator.mpi")
#: Families of kernels and operations that the module does not have.
OTHER_FAMILIES = (
    "runtime.codegen.elements.complex_functions",
    "runtime.cpu.kernels.convolution",
    "runtime.cpu.kernels.fft",
    "runtime.cpu.kernels.linalg",
    "runtime.cpu.kernels.sort",
    "runtime.emit.convolution.convolution",
    "runtime.emit.sort",
    "spmd.proto.attrs_proto.convolution",
)


def imported_by(*arguments: str) -> set[str]:
    """Return the modules that `spmd` imports with these arguments, and the packages that hold them."""
    command = (sys.executable, "-c", PROGRAM, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stderr.split())


def some_of(imported: set[str], without: Sequence[str]) -> list[str]:
    return [name for name in without if name in imported]


def test_help_imports_no_library() -> None:
    imported = imported_by("--help")
    assert some_of(imported, ("numpy", "llvmlite", "ml_dtypes", "runtime", "partitioner")) == []
    assert some_of(imported, ("spmd.hlo", "spmd.shape", "launch.cli.run")) == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "mlp.spmdx"
    assert main(["compile", str(CASE / "module.hlo"), "-o", str(path)]) == 0
    return path


def test_a_saved_executable_runs_without_its_compiler(saved: Path) -> None:
    files = ("--inputs", f"{CASE}/inputs.npz", "--expect", f"{CASE}/expected.npz")
    imported = imported_by("run", str(saved), *files)
    assert "runtime.saved_program" in imported
    assert some_of(imported, COMPILER) == []
    assert some_of(imported, OTHER_WAYS) == []
    assert some_of(imported, OTHER_FAMILIES) == []


#: Modules that read a module and make thunks of it.
LOWERING = (
    "runtime.buffers.assign",
    "runtime.emit",
    "runtime.lower_module",
    "spmd.proto",
    "spmd.text.sharding",
    "spmd.verifier",
)


#: Modules that neither thunks nor kernels need, of a program that ran here before.
NO_PART_OF_A_RUN = (
    "collectives.communicator.kinds.all_to_all",
    "launch.checks",
    "runtime.codegen.elements",
    "runtime.codegen.ir",
    "runtime.fusion",
    "spmd.analysis",
    "spmd.hlo.instruction",
    "spmd.ops",
    "spmd.text",
    "zipfile",
)


def test_a_saved_executable_runs_as_the_thunks_that_it_is_known_as(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMD_OBJECT_CACHE", str(tmp_path / "objects"))
    monkeypatch.delenv("SPMD_PROGRAM_CACHE", raising=False)
    trusted = imported_by("run", "--trust", str(saved))
    assert some_of(trusted, LOWERING) == []
    assert some_of(imported_by("run", str(saved)), LOWERING) == list(LOWERING)
    imported = imported_by("run", str(saved))
    assert some_of(imported, LOWERING) == []
    assert some_of(imported, ("llvmlite", "concurrent.futures")) == []
    assert some_of(imported, NO_PART_OF_A_RUN) == []
    assert [name for name in imported if name.endswith("_ir")] == []
    own = [name for name in imported if name.partition(".")[0] in PACKAGES]
    assert len(own) <= MOST_OWN_MODULES
    monkeypatch.setenv("SPMD_PROGRAM_CACHE", "off")
    assert some_of(imported_by("run", str(saved)), LOWERING) == list(LOWERING)


@pytest.fixture(scope="module")
def with_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("code") / "mlp.spmdx"
    command = ("compile", "--with-code", str(CASE / "module.hlo"), "-o", str(path))
    environment = {k: v for k, v in os.environ.items() if k != "SPMD_PROGRAM_CACHE"}
    subprocess.run(
        (sys.executable, "-m", "launch", *command), check=True, cwd=ROOT, env=environment
    )
    return path


def test_code_in_a_trusted_file_needs_no_compiler(
    with_code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMD_OBJECT_CACHE", "off")
    monkeypatch.delenv("SPMD_PROGRAM_CACHE", raising=False)
    files = ("--inputs", f"{CASE}/inputs.npz", "--expect", f"{CASE}/expected.npz")
    compiler = ("llvmlite", "runtime.codegen.llvm.ir_compiler")
    code = ("runtime.codegen.ir", "runtime.codegen.elements")
    assert some_of(imported_by("run", "--trust", str(with_code)), (*compiler, *code)) == []
    assert some_of(imported_by("run", "--trust", str(with_code), *files), compiler) == []
    assert some_of(imported_by("run", str(with_code), *files), compiler) == list(compiler)


@needs_mpi
def test_ranks_of_a_trusted_file_compile_nothing(
    with_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMD_OBJECT_CACHE", "off")
    script = tmp_path / "run.py"
    script.write_text(RANKS_PROGRAM)
    for trust, compiles in (("--trust",), False), ((), True):
        arguments = (str(script), "run", *trust, str(with_code))
        command = (sys.executable, "-m", "launch.mpirun", "-n", "2", "--", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count(f"llvmlite: {compiles}") == 2
        assert "7 outputs on 2 MPI ranks" in done.stdout


def test_a_program_from_the_cache_runs_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMD_OBJECT_CACHE", str(tmp_path / "objects"))
    monkeypatch.delenv("SPMD_PROGRAM_CACHE", raising=False)
    command = ("run", str(CASE / "module.hlo"))
    assert "launch.pipeline" in imported_by(*command)
    imported = imported_by(*command)
    assert some_of(imported, ("llvmlite", "concurrent.futures")) == []
    assert some_of(imported, ("launch.pipeline", "spmd.passes", "collectives.passes")) == []
    assert some_of(imported, ("partitioner.spmd_partitioner", "runtime.schedule")) == []
