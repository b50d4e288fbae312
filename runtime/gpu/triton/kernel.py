"""Triton kernels as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from runtime.gpu.triton.elements import pointer_type
from runtime.gpu.triton.refusal import NoTritonKernelError
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass

#: Alignment in bytes of the pointers that Triton calls divisible.
ALIGNED = 16
_MOST_PROGRAMS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """Triton kernel and its launch.

    entry: name of the kernel function. text: Python source of a module that defines it. signature: types of its
    parameters, pointers to the first elements of all operands and then of all results. aligned: which of them are
    multiples of 16 bytes. programs: size of the grid. warps, stages: options of the compiler.
    """

    entry: str
    text: str
    signature: tuple[str, ...]
    aligned: tuple[bool, ...]
    programs: int
    warps: int
    stages: int


def kernel_with_body(
    name: str,
    body: Sequence[str],
    operands: Sequence[StridedView],
    results: Sequence[StridedView],
    *,
    programs: int,
    warps: int,
    stages: int,
    functions: str = "",
) -> TritonKernel:
    """Return the kernel whose function has the lines ``body``.

    Its parameters are p0, p1, ... for operands and r0, r1, ... for results. The offsets of the views are relative to
    aligned addresses. The entry is ``name`` with a digest. programs: size of the grid. functions: source of functions
    that the body calls. Equal arguments give equal kernels. Raises NoTritonKernelError if a type or the size of the
    grid is not supported.
    """
    if programs > _MOST_PROGRAMS:
        raise NoTritonKernelError(f"a grid of {programs} programs")
    views = (*operands, *results)
    signature = tuple(pointer_type(view.element_type) for view in views)
    digest = hashlib.sha256("\n".join((*signature, *body)).encode()).hexdigest()[:6]
    entry = f"spmd_{name}_{digest}"
    parameters = [f"p{n}" for n in range(len(operands))] + [f"r{n}" for n in range(len(results))]
    return TritonKernel(
        entry,
        _module(entry, parameters, body, functions),
        signature,
        tuple(view.offset % ALIGNED == 0 for view in views),
        programs,
        warps,
        stages,
    )


def _module(entry: str, parameters: Sequence[str], body: Sequence[str], functions: str) -> str:
    lines = [
        "import triton",
        "import triton.language as tl",
        "from triton.language.extra import libdevice",
        "\n",
        *((functions, "") if functions else ()),
        "@triton.jit",
        f"def {entry}({', '.join(parameters)}):",
        *(f"    {line}" for line in body),
        "",
    ]
    return "\n".join(lines)


def decoded(number: str, indices: Sequence[tuple[str, int]]) -> list[str]:
    """Return the lines that assign ``indices``, pairs of a name and a size, whose row-major number is ``number``."""
    lines, below = [], 1
    for name, size in reversed(indices):
        block = number if below == 1 else f"{number} // {below}"
        lines.append(f"{name} = {block} % {size}")
        below *= size
    return lines
