"""What `import_before_timing` imports: all modules that a compilation that finds nothing in a cache needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

COMPILED = """
import sys
from launch.imported_before import import_before_timing
import_before_timing()
from launch.cache.cache_folder import keep_objects
from launch.cache.compile_cached import compile_source
from launch.options import CompileOptions
from launch.source import source_of
keep_objects()
before = set(sys.modules)
compile_source(source_of(sys.argv[1]), int(sys.argv[2]), CompileOptions()).executable.load_devices()
packages = ("spmd", "partitioner", "collectives", "runtime", "launch", "llvmlite")
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in packages))
"""


@pytest.mark.parametrize(
    ("case", "devices"), [("mlp_dp2", 2), ("kv_decode_dp2tp2", 4), ("shmap_collectives_2x4", 8)]
)
def test_a_compilation_imports_nothing_more(case: str, devices: int, tmp_path: Path) -> None:
    environment = {**os.environ, "SPMD_OBJECT_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    module = str(ROOT / "tests" / "cases" / case / "module.hlo")
    command = [sys.executable, "-c", COMPILED, module, str(devices)]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert not found.stdout.split()
