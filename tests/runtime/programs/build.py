"""Compile a small per-device program, make its inputs, compare its results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.compile import build_executable
from runtime.executable import Executable
from spmd.hlo import HloModule, Stage
from spmd.shape import ArrayShape, leaves
from spmd.text.parser import parse_module


def module_of(text: str) -> HloModule:
    """The per-device module of ``text``, ready to be scheduled."""
    module = parse_module(text)
    module.stage = Stage.OPTIMIZED
    return module


def compiled(text: str, *, keep_order: bool = False) -> Executable:
    """``keep_order``: the order of the text is the schedule."""
    module = module_of(text)
    if keep_order:
        module.stage = Stage.SCHEDULED
    return build_executable(module)


def random_inputs(module: HloModule, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in module.entry.parameters:
        for _, shape in leaves(parameter.shape):
            assert isinstance(shape, ArrayShape)
            values = rng.standard_normal(shape.dims) * 2
            arrays.append(np.asarray(values).astype(shape.element_type.numpy))
    return arrays


def assert_same(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
