"""first_contact.sh and second_contact.sh run to their end on a double of a GPU, and name what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.versions import unmet_requirements
from tests.paths import ROOT


def contact(name: str, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "tests" / "gpu" / f"{name}_contact.sh"), "--double", str(out)],
        env={**os.environ, "PYTHON": sys.executable, "WHEELS": str(out / "none"), **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def states(out: Path) -> dict[str, str]:
    lines = (out / "status.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: line.split("\t")[1] for line in lines}


def older(package: str, version: str, folder: Path) -> None:
    """Make `folder` an import path on which this version of `package` is installed."""
    own = folder / f"{package}-{version}.dist-info"
    own.mkdir()
    text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    (own / "METADATA").write_text(text)


@pytest.mark.slow
def test_every_stage_runs_or_says_why_not(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "broken-1.0-py3-none-any.whl").write_text("no wheel")
    done = contact("first", tmp_path / "out", WHEELS=str(wheels))
    found = states(tmp_path / "out")
    assert found.pop("install") == "failed"  # which ends nothing
    assert found.pop("ranks_nccl") == found.pop("ranks_nccl_graphs") == "skipped"
    for optional in ("kernels", "ranks_host", "nvidia_smi"):
        state = found.pop(optional, "skipped")
        if state == "skipped":
            assert optional == "nvidia_smi" or f"STAGE {optional}: skipped" in done.stdout
        else:
            assert state == "ok", done.stdout
    assert found == dict.fromkeys(("versions", "driver", "tf32", "programs"), "ok"), done.stdout
    assert done.returncode == 1  # the wheel
    for stage in ("versions", "driver", "programs"):
        assert (tmp_path / "out" / f"{stage}.log").stat().st_size


def test_the_second_script_leaves_out_what_has_no_tool(tmp_path: Path) -> None:
    package = tmp_path / "jax"
    package.mkdir()
    (package / "__init__.py").write_text('raise ImportError("no jaxlib")\n')
    done = contact("second", tmp_path / "out", PYTHONPATH=str(tmp_path), PATH="/usr/bin:/bin")
    found = states(tmp_path / "out")
    assert found.pop("versions") == "ok", done.stdout
    assert found.pop("tf32_cases") == "ok", done.stdout
    assert len(found) == 7
    assert set(found.values()) == {"skipped"}
    assert "no jaxlib" in done.stdout
    assert done.returncode == 0


def test_an_old_package_is_named_and_ends_it(tmp_path: Path) -> None:
    older("ml_dtypes", "0.5.4", tmp_path)
    done = contact("first", tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert states(tmp_path / "out") == {"versions": "failed"}
    assert "missing for python: ml_dtypes>=0.6 is needed, found 0.5.4" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_requirement_is_met_from_its_lowest_to_below_its_excluded_version() -> None:
    def unmet(version: str | None) -> str | None:
        return unmet_requirements(
            ["llvmlite>=0.45,<0.51", "numpy>=2.0"], {"llvmlite": version, "numpy": "2.1.0"}.get
        )

    assert unmet("0.45.0") is unmet("0.50.0") is unmet("0.50.0rc1") is None
    assert unmet("0.44.1") == "llvmlite>=0.45,<0.51 is needed, found 0.44.1"
    assert unmet("0.51.0") == "llvmlite>=0.45,<0.51 is needed, found 0.51.0"
    assert unmet(None) == "llvmlite>=0.45,<0.51 is not installed"


def test_mpi4py_without_an_mpi_library_is_named(tmp_path: Path) -> None:
    package = tmp_path / "mpi4py"
    package.mkdir()
    (package / "__init__.py").write_text("class rc:\n    initialize = True\n")
    (package / "MPI.py").write_text('raise RuntimeError("cannot load MPI library")\n')
    missing = tmp_path / "missing.tsv"
    command = [sys.executable, "-m", "tests.gpu.versions", "--double", "--missing", str(missing)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reasons = dict(line.split("\t") for line in missing.read_text().splitlines())
    assert "cannot load MPI library" in reasons["mpi"] or "no mpirun" in reasons["mpi"]


def test_a_file_that_is_named_is_all_that_runs() -> None:
    chosen = ["tests/gpu/test_driver.py", "--collect-only"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--double", *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert found == {"tests/gpu/test_driver.py"}
