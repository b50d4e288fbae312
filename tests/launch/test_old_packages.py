"""A package that is too old is named by the command, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT


def test_ml_dtypes_without_uint1(tmp_path: Path) -> None:
    package = tmp_path / "ml_dtypes"
    package.mkdir()
    (package / "__init__.py").write_text('__version__ = "0.5.4"\n')
    done = subprocess.run(
        [sys.executable, "-m", "launch", "run", "module.hlo"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "spmd: error: ml_dtypes >= 0.6 is needed, found 0.5.4 without uint1: "
        'pip install "ml_dtypes>=0.6"\n'
    )
