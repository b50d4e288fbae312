"""Programs as text: most tests here evaluate a few lines of HLO and compare with a definition in plain NumPy or Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spmd.evaluator import evaluate, evaluate_partitions
from spmd.text.parser import parse_module

NDArray = np.ndarray[Any, np.dtype[Any]]

REDUCERS = """
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
max { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] maximum(x, y) }
minus { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] subtract(x, y) }
second { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] copy(y) }
ge { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = pred[] compare(x, y), direction=GE }
"""


@pytest.fixture
def run() -> Callable[..., list[NDArray]]:
    """run(entry lines, *arrays): outputs. The computations of REDUCERS may be called."""

    def run_text(body: str, *arrays: NDArray, before: str = "") -> list[NDArray]:
        return evaluate(
            parse_module(f"HloModule m\n{REDUCERS}{before}\nENTRY e {{\n{body}\n}}"), *arrays
        )

    return run_text


@pytest.fixture
def run_devices() -> Callable[..., list[list[NDArray]]]:
    """run_devices(entry lines, inputs per device): outputs per device."""

    def run_text(
        body: str, per_device: list[list[NDArray]], *, header: str = "", before: str = ""
    ) -> list[list[NDArray]]:
        text = f"HloModule m{header}\n{REDUCERS}{before}\nENTRY e {{\n{body}\n}}"
        return evaluate_partitions(parse_module(text), per_device)

    return run_text


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
