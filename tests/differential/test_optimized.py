"""Optimization keeps what each device computes: JAX's programs, on their own inputs."""

from __future__ import annotations

import pytest

from tests.differential.optimized import measure
from tests.differential.test_cases import CASES, NAMES


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    row = measure(CASES / name)
    assert row.ok, str(row)
    assert row.after < row.before
