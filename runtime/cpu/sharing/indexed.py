"""Gathers: cut along a dimension of the result that counts index vectors, else along one of the windows."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.sharing.pieces import CUTS, Piece, spans
from runtime.program.blocks import Span
from runtime.program.kernel import KernelArrays
from runtime.program.records.gather_scatter import GatherKernel


@CUTS.register(GatherKernel)
def cut_gather(kernel: GatherKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut a gather. Scatters are not cut: their windows may overlap and are written in the order of index vectors."""
    source, indices = arrays.operands
    (out,) = arrays.results
    known = [batch for batch in kernel.windows.batch if out.shape[batch[0]] >= count]
    if not known:
        return ()
    result_dim, index_dim, operand_dim = known[0]

    def piece(span: Span) -> Piece:
        where = source if operand_dim is None else span.of(source, operand_dim)
        return kernel, KernelArrays(
            (where, span.of(indices, index_dim)), (span.of(out, result_dim),)
        )

    return [piece(span) for span in spans(out.shape[result_dim], count)]
