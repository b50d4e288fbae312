"""Division of gathers along a dimension of the result that numbers the index vectors."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.sharing.pieces import CUTS, Piece, spans
from runtime.program.blocks import Span
from runtime.program.kernel import KernelArrays
from runtime.program.records.gather_scatter import GatherKernel


@CUTS.register(GatherKernel)
def cut_gather(kernel: GatherKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along the first dimension that numbers index vectors and has at least ``count`` of them.

    Returns no pieces if there is no such dimension. Scatters have no such function, because their windows may overlap
    and must be written in the order of the index vectors.
    """
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
