"""What every test may use: `.hlo` files as tests, and where the shared cases lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hlo_fixture import HloFixture

CASES = Path(__file__).parent / "cases"
#: Shrunk programs of the fuzzer, run by test_regressions.py.
REGRESSIONS = Path(__file__).parent / "differential" / "regressions"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    own = CASES in file_path.parents or REGRESSIONS in file_path.parents
    if file_path.suffix == ".hlo" and not own:
        return HloFixture.from_parent(parent, path=file_path)
    return None


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of the copied corpus cases: NAME/{module.hlo, inputs.npz, expected.npz, case.json}."""
    return CASES
