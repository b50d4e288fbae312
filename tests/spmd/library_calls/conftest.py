"""Run a module of one device both ways: the reference evaluator, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[..., list[Array]]


@pytest.fixture
def run() -> Run:
    def outputs(text: str, *arrays: Array) -> list[Array]:
        module = parse_module(f"HloModule library_call\n{text}")
        expected = evaluate(module, *arrays)
        executable = compile_module(module, 1, CompileOptions(partitioned=True))
        found = executable.run(*arrays)
        for x, y in zip(found, expected, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(
                x.astype(np.float64), y.astype(np.float64), rtol=1e-5, atol=1e-5
            )
        return found

    return outputs
