"""Tests that the same input gives the same program: twice in one process, and in processes that hash differently."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache

import spmd
from tests.paths import ROOT
from tests.strategies import generate

SEEDS = 25


def digest() -> str:
    """Return a digest of the partitioned text of some random programs."""
    found = hashlib.sha256()
    for seed in range(SEEDS):
        program = generate(seed)
        found.update(str(spmd.partition(program.module, program.num_devices)).encode())
    return found.hexdigest()


first_digest = cache(digest)


def test_twice_in_one_process() -> None:
    assert first_digest() == digest()


def test_in_processes_that_hash_differently() -> None:
    code = "from tests.differential.test_determinism import digest; print(digest())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert found == {first_digest() + "\n"}
