"""Text of convolutions for the tests of their kernels, and a comparison of the tile unit with the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from runtime.program.records.convolution import (
    GradientTiles,
    ImageTiles,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from spmd.evaluator.evaluator import evaluate
from spmd.literal import NDArray
from tests.runtime.programs.agreement import kernels_of
from tests.runtime.programs.build import compiled, module_of, random_inputs


def convolution(x: str, w: str, y: str, window: str, labels: str, more: str = "") -> str:
    """Return a module of one convolution of ``x`` and ``w``, of these shapes."""
    return f"""HloModule convolution
ENTRY main {{
  x = {x} parameter(0)
  w = {w} parameter(1)
  ROOT y = {y} convolution(x, w), window={{{window}}}, dim_labels={labels}{more}
}}
"""


def laid_out(labels: str, sizes: Sequence[Mapping[str, int]], kind: str = "f32") -> list[str]:
    """Return the shapes of both operands and the result, from the ``sizes`` of each by the letters of its labels."""
    operands, result = labels.split("->")
    return [
        f"{kind}[{','.join(str(size[letter]) for letter in letters)}]"
        for letters, size in zip((*operands.split("_"), result), sizes, strict=True)
    ]


def kernel_size(window: str) -> str:
    """Return the sizes of a window as a shape has them: "3,2" for "size=3x2 ..."."""
    return window.split()[0].removeprefix("size=").replace("x", ",")


@pytest.fixture(params=[24_000, 60_000, 1_000_000], autouse=True)
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run with scratch for a line or two, for an image or so, and for everything, however many products are wasted."""
    for name in ("LEAST_TILE_BYTES", "MOST_TILE_BYTES"):
        monkeypatch.setattr(f"runtime.cpu.kernels.convolution.tuning.{name}", request.param)
    for name in ("MOST_MULTIPLIED", "MOST_MULTIPLIED_GRADIENT"):
        monkeypatch.setattr(f"runtime.cpu.kernels.convolution.tuning.{name}", 1e9)
    return int(request.param)


def tiles_of(
    text: str, inputs: Sequence[NDArray] | None = None
) -> ImageTiles | GradientTiles | None:
    """Return how the tile unit computes ``text``, or None if it does not.

    The convolution runs beside the evaluator in f64: errors stay below what some roundings of the sums' terms make.
    """
    executable = compiled(text)
    if inputs is None:
        inputs = random_inputs(executable.module)
    exactly = module_of(text.replace("f32", "f64"))
    wide = [array.astype(np.float64) for array in inputs]
    with np.errstate(all="ignore"):
        (got,), (want,) = executable.run(*inputs), evaluate(exactly, *wide)
        (size,) = evaluate(exactly, *map(np.abs, wide))
        want = np.where(np.abs(want) > np.finfo(np.float32).max, np.sign(want) * np.inf, want)
        error = np.abs(got.astype(np.float64) - want)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite].astype(np.float32))
    assert (error[finite] <= 2.0**-21 * size[finite] + 2.0**-148).all()
    kernels = [
        kernel.undivided if isinstance(kernel, PhaseConvolutionKernel) else kernel
        for kernel in kernels_of(executable)
    ]
    (kernel,) = [kernel for kernel in kernels if isinstance(kernel, PanelConvolutionKernel)]
    return kernel.tiles
