"""Division of gathers along a dimension of the result that numbers the index vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runtime.cpu.sharing.pieces import CUTS, Piece, spans
from runtime.program.blocks import Span
from runtime.program.kernel import KernelArrays
from runtime.program.records.gather_scatter import GatherKernel
from runtime.program.records.loop import OperandElements


@CUTS.register(GatherKernel)
def cut_gather(kernel: GatherKernel, arrays: KernelArrays, count: int) -> Sequence[Piece]:
    """Cut along the first dimension that numbers index vectors and has at least ``count`` of them.

    Returns no pieces if there is no such dimension. Scatters have no such function, because their windows may overlap
    and must be written in the order of the index vectors.
    """
    windows = kernel.windows
    source = arrays.operands[windows.array]
    (out,) = arrays.results
    batch = enumerate(windows.batch)
    known = [(k, n, f) for k, (n, f) in batch if out.shape[n] >= count]
    if not known:
        return ()
    vector_dim, result_dim, operand_dim = known[0]

    def piece(span: Span) -> Piece:
        leaves = tuple(_cut_leaf(leaf, vector_dim, span) for leaf in windows.leaves)
        operands = list(arrays.operands)
        if operand_dim is not None:
            operands[windows.array] = span.of(source, operand_dim)
        own = GatherKernel(replace(windows, leaves=leaves))
        return own, KernelArrays(tuple(operands), (span.of(out, result_dim),))

    return [piece(span) for span in spans(out.shape[result_dim], count)]


def _cut_leaf(leaf: OperandElements, dimension: int, span: Span) -> OperandElements:
    """Return the elements of ``leaf`` at the indices ``span`` of ``dimension``."""
    view = leaf.view
    starts, limits = [0] * len(view.dims), list(view.dims)
    starts[dimension], limits[dimension] = span.start, span.stop
    return replace(leaf, view=view.slice(tuple(starts), tuple(limits), (1,) * len(starts)))
