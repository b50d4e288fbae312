"""Instructions of GPUs that compute f32 approximately, on processors that have ``Instructions.approximates``."""

from __future__ import annotations

from runtime.codegen.elements.builder import Float


def approximate_exp2(x: Float) -> Float:
    """Compute 2^x. Denormal results become zero."""
    return _made(x, "ex2.approx.ftz.f")


def approximate_reciprocal(x: Float) -> Float:
    """Compute 1 / x. Denormal arguments and results become zero."""
    return _made(x, "rcp.approx.ftz.f")


def saturated(x: Float) -> Float:
    """Clamp x to [0, 1]; a nan becomes 0."""
    return _made(x, "saturate.f")


def _made(x: Float, name: str) -> Float:
    call = f"call float @llvm.nvvm.{name}(float {x.name})"
    return Float(x.code, x.format, x.code.append(call))
