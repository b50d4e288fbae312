"""Tests that `import_before_timing` imports all modules that a compilation needs which finds nothing in a cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import CASES, ROOT

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
for path, devices in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
    compile_source(source_of(path), devices, CompileOptions()).executable.load_devices()
packages = ("spmd", "partitioner", "collectives", "runtime", "launch", "llvmlite")
print(*sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in packages))
"""


def test_a_compilation_imports_nothing_more(tmp_path: Path) -> None:
    """This holds for the first of several programs, and for those that follow."""
    environment = {**os.environ, "SPMD_OBJECT_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COMPILED]
    for case, devices in (("mlp_dp2", 2), ("kv_decode_dp2tp2", 4), ("shmap_collectives_2x4", 8)):
        command += [str(CASES / case / "module.hlo"), str(devices)]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert not found.stdout.split()
