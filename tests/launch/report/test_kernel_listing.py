"""Tests of `spmd opt --until kernels`: what is listed of each kernel, once for each machine code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import spmd
from launch.cli import main
from launch.report.kernel_listing import list_kernels, listing_table
from runtime.codegen.llvm.jit import host_jit
from spmd.machine.named import machine_named

TEXT = """HloModule m

ENTRY e {
  x = f32[64,32] parameter(0)
  y = f32[16,32] parameter(1)
  a = f32[64,32] exponential(x)
  b = f32[16,32] exponential(y)
  w = f32[32,8] parameter(2)
  d = f32[64,8] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[16,32] sort(b), dimensions={1}, to_apply=less
  ROOT r = (f32[64,8], f32[16,32]) tuple(d, s)
}
"""
LESS = "less {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT c = pred[] compare(p, q), direction=LT\n}\n\n"


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT.replace("ENTRY", LESS + "ENTRY"))
    return path


def test_kernels_with_the_same_code_are_listed_once(module_file: Path) -> None:
    executable = spmd.compile(spmd.load(module_file), 1)
    kernels = list_kernels(executable.program, machine_named())
    assert not host_jit().keeps_sources
    exponentials = next(one for one in kernels if {t.name for t in one.thunks} >= {"a", "b"})
    assert [one.number for one in kernels] == list(range(len(kernels)))
    assert {one.kind for one in kernels} >= {"Dot", "Sort"}
    assert all(one.measured > 0 and one.predicted > 0 for one in kernels)
    table = listing_table(kernels).splitlines()
    assert len(table) == len(kernels) + 1
    assert "a, b" in table[1 + exponentials.number]


def test_the_command_prints_texts_or_writes_files(module_file: Path, tmp_path: Path) -> None:
    """A process of its own: code that was compiled before has no sources."""
    command = [sys.executable, "-m", "launch", "opt", str(module_file), "--until", "kernels"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "---- kernel_0000." in printed
    assert "target triple" in printed
    folder = tmp_path / "d"
    command += ["--dump-to", str(folder)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "target triple" not in table
    assert table.splitlines()[0].split()[:2] == ["kernel", "kind"]
    stems = [path.name.removesuffix(".txt") for path in folder.glob("module_0000.m.kernel_*.txt")]
    (loop,) = (s for s in stems if "define void @spmd_loop" in text_of(folder / f"{s}.ll"))
    assert "x float>" in (folder / f"{loop}.opt.ll").read_text()
    assert "spmd_loop:" in (folder / f"{loop}.s").read_text()
    assert "EXPONENTIAL" in (folder / f"{loop}.txt").read_text()


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_gpus_kernels_are_not_a_processors(
    module_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["opt", str(module_file), "--until", "kernels", "--machine", "dgx-h200"]) == 2
    assert "dgx-h200 is a GPU machine" in capsys.readouterr().err
