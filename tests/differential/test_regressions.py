"""Programs that once failed, shrunk by the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.fuzz import replay

FILES = sorted((Path(__file__).parent / "regressions").glob("*.hlo"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_regression(path: Path) -> None:
    assert replay(path) is None
