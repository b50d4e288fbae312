"""Timed programs: each in a process of its own, which prints its figures as JSON on the last line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

#: Set on some machines by hand; they make OpenBLAS choose slow kernels.
MISLEADING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
#: Seconds that one may take.
PATIENCE = 900


def run_json(command: Sequence[str], variables: dict[str, str] | None = None) -> dict[str, Any]:
    """``variables``: of its environment, beside this process's.

    RuntimeError with the last lines that it said where it failed; subprocess.TimeoutExpired after PATIENCE.
    """
    environment = {**without_misleading(os.environ), **(variables or {})}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if any(map(str.isalnum, line))]
        raise RuntimeError(" / ".join(said[-3:])[:450] or "no output")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def without_misleading(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that is timed."""
    return {name: value for name, value in environment.items() if name not in MISLEADING}
