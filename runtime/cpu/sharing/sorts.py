"""Division of sorts and of variadic reductions along a dimension that is neither sorted nor reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.sharing.pieces import CUTS, Piece, bytes_apart, longest, scratch_like, spans
from runtime.program.kernel import KernelArrays
from runtime.program.records.reduce import ProgramReduceKernel
from runtime.program.records.sort import SortKernel


@CUTS.register(SortKernel)
def cut_sort(kernel: SortKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along a dimension that is not sorted. Each piece has its own scratch."""
    result = arrays.results[0]
    rows = tuple(1 if d == kernel.axis else size for d, size in enumerate(result.shape))
    d = longest(rows, bytes_apart([result.strides]), count)
    if d is None:
        return ()
    return [
        (
            kernel,
            KernelArrays(
                tuple(span.of(x, d) for x in arrays.operands),
                tuple(span.of(y, d) for y in arrays.results),
                scratch_like(arrays.scratch),
            ),
        )
        for span in spans(result.shape[d], count)
    ]


@CUTS.register(ProgramReduceKernel)
def cut_program_reduce(
    kernel: ProgramReduceKernel, arrays: KernelArrays, count: int
) -> Sequence[Piece]:
    """Cut along a dimension of the results, at multiples of 64 elements if the first result is contiguous there."""
    results = arrays.results
    operands, inits = arrays.operands[: len(results)], arrays.operands[len(results) :]
    remaining = [d for d in range(operands[0].ndim) if d not in kernel.axes]
    d = longest(results[0].shape, bytes_apart([result.strides for result in results]), count)
    if d is None:
        return ()
    parts = spans(
        results[0].shape[d], count, 64 if results[0].strides[d] == results[0].itemsize else 1
    )
    return [
        (
            kernel,
            replace(
                arrays,
                operands=(*(span.of(x, remaining[d]) for x in operands), *inits),
                results=tuple(span.of(result, d) for result in results),
            ),
        )
        for span in parts
    ]
