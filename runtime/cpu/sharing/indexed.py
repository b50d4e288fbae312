"""Gathers: cut along a dimension of the result that counts index vectors, else along one of the windows."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.sharing.pieces import CUTS, Piece, spans
from runtime.program.blocks import Span
from runtime.program.kernel import KernelArrays
from runtime.program.records.gather_scatter import GatherKernel


@CUTS.register(GatherKernel)
def cut_gather(kernel: GatherKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Scatters are not: windows may meet, and come in the order of their index vectors."""
    source, indices = arrays.operands
    (out,) = arrays.results
    known = [batch for batch in kernel.windows.batch if out.shape[batch[0]] >= count]
    if not known:
        return ()
    near, index, far = known[0]

    def piece(span: Span) -> Piece:
        where = source if far is None else span.of(source, far)
        return kernel, KernelArrays((where, span.of(indices, index)), (span.of(out, near),))

    return [piece(span) for span in spans(out.shape[near], count)]
