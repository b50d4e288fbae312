"""Work of a product with an epilogue: the work of both, except that the epilogue reads the product from the cache."""

from __future__ import annotations

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.prediction.products import product_work
from runtime.cpu.prediction.sliced_products import where_slices_are
from runtime.cpu.prediction.work import WORK, Access, NoAllocation, Work, stored_bytes, work_of
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.machine.description import MachineDescription
from spmd.shape import ArrayShape


@WORK.register(ProductEpilogueKernel)
def epilogue_work(
    kernel: ProductEpilogueKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    results = list(thunk.results)
    product = (
        _nowhere(kernel) if kernel.product_result is None else results.pop(kernel.product_result)
    )
    operands = thunk.operands
    matrices = (operands[kernel.factors.lhs], operands[kernel.factors.rhs])
    alone = KernelThunk(thunk.name, kernel.product, matrices, (product,))
    made = product_work(kernel.product, alone, machine)
    after = KernelThunk(thunk.name, kernel.epilogue, (*operands, product), tuple(results))
    computed = work_of(after, machine)
    row_blocks = [product_work(kernel.product_of(b), alone, machine) for b in kernel.blocks]
    read = where_slices_are(made.accesses, kernel.factors, matrices)
    accesses = [one for one in (*read, *computed.accesses) if one.array != product]
    if kernel.product_result is not None:
        accesses.append(Access(product, stored_bytes(product)))
    return Work(
        tuple(accesses),
        sum(row_block.compute for row_block in row_blocks)
        + max(computed.compute, computed.divider),
        loops=len(row_blocks) * computed.loops,
        rows=computed.rows,
        timed_bytes=made.timed_bytes,
        packed=made.packed,
    )


def _nowhere(kernel: ProductEpilogueKernel) -> ArrayView:
    shape = ArrayShape(kernel.product.result, kernel.dims)
    return ArrayView(
        BufferSlice(NoAllocation.PRODUCT, 0, shape.byte_size), StridedView.dense(shape)
    )
