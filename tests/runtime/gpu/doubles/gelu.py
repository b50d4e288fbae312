"""Gelu as cuBLAS's documentation has it, and its gradient."""

from __future__ import annotations

import numpy as np

#: Step along the imaginary axis. A complex function is analytic, so the derivative has no error of cancellation.
_STEP = 1e-30


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def gelu_gradient(x: np.ndarray) -> np.ndarray:
    derivative: np.ndarray = gelu(x.astype(np.complex128) + 1j * _STEP).imag / _STEP
    return derivative.astype(x.dtype)
