"""Local instructions around a step: pad a dimension before it is cut, trim it after it is joined."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction


def pad_to(builder: Builder, x: HloInstruction, dims: tuple[int, ...]) -> HloInstruction:
    """Return ``x`` grown at the high end to ``dims`` (with zeros, but callers must not rely on it); ``x`` itself if it
    fits.
    """
    if x.dims == dims:
        return x
    low = (0,) * len(dims)
    high = tuple(n - have for n, have in zip(dims, x.dims, strict=True))
    return builder.pad(x, builder.scalar_like(x, 0), low, high)


def trim_to(builder: Builder, x: HloInstruction, dims: tuple[int, ...]) -> HloInstruction:
    """Return the leading ``dims`` elements of ``x``; ``x`` itself if nothing is left over."""
    if x.dims == dims:
        return x
    return builder.slice(x, (0,) * len(dims), dims)


def replaced(dims: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    """Return ``dims`` with entry ``dim`` set to ``size``."""
    return (*dims[:dim], size, *dims[dim + 1 :])
