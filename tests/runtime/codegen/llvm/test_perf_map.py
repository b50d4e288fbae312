"""Tests of the names of compiled functions for Linux perf."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.codegen.llvm.jit import Jit
from runtime.codegen.llvm.perf_map import PerfMap, function_sizes
from tests.paths import CASES

IR = """define void @one(ptr %p) {
  store i64 1, ptr %p
  ret void
}
define void @two(ptr %p) {
  store i64 2, ptr %p
  store i64 2, ptr %p
  ret void
}
"""


def test_functions_are_named_with_their_size_and_caller(tmp_path: Path) -> None:
    jit = Jit()
    jit.perf_map = PerfMap(tmp_path)
    library = jit.compile(IR, ("one", "two"))
    library.caller = "add.3"
    address = library.address("two")
    lines = (tmp_path / f"perf-{os.getpid()}.map").read_text().splitlines()
    found = {name: (int(at, 16), int(size, 16)) for at, size, name in map(str.split, lines)}
    assert set(found) == {"one[add.3]", "two[add.3]"}
    assert found["two[add.3]"][0] == address
    assert all(0 < size < 64 for _, size in found.values())


def test_other_object_formats_have_no_sizes() -> None:
    assert list(function_sizes(b"\xcf\xfa\xed\xfe" + bytes(100))) == []


@pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
def test_a_program_names_its_kernels(tmp_path: Path) -> None:
    script = "import sys\nfrom launch.cli import main\nimport os\nprint(os.getpid())\nsys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "SPMD_PERF_MAP": "1", "SPMD_PROGRAM_CACHE": "off"}
    command = [sys.executable, "-c", script, "run", str(CASES / "mlp_dp2" / "module.hlo")]
    done = subprocess.run(
        [*command, "--devices", "2"], env=environment, capture_output=True, text=True, check=True
    )
    path = Path("/tmp") / f"perf-{done.stdout.split()[0]}.map"
    try:
        assert "spmd_loop[" in path.read_text()
    finally:
        path.unlink()
