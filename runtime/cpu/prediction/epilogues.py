"""Work of a product or a convolution with an epilogue: the work of both, but the epilogue reads it from the cache."""

from __future__ import annotations

from dataclasses import replace

from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.prediction.products import product_work
from runtime.cpu.prediction.sliced_products import where_slices_are
from runtime.cpu.prediction.work import WORK, Access, NoAllocation, Work, stored_bytes, work_of
from runtime.program.records.convolution_call import ConvolutionCallKernel
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
    # The epilogue was not timed with its arrays in the cache, as the product was.
    cached_seconds = machine.byte_seconds(made.timed_bytes) * sum(
        one.size for one in computed.accesses if one.array != product
    )
    return Work(
        tuple(accesses),
        sum(row_block.compute for row_block in row_blocks)
        + max(computed.compute, computed.divider)
        + cached_seconds,
        loops=len(row_blocks) * computed.loops,
        rows=computed.rows,
        timed_bytes=made.timed_bytes,
        packed=made.packed,
    )


@WORK.register(ConvolutionCallKernel)
def convolution_call_work(
    kernel: ConvolutionCallKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    *operands, x, w = thunk.operands
    epilogue, made = kernel.epilogue, thunk.results
    if epilogue is not None:
        made = (_in_no_buffer(epilogue.view),)
    alone = work_of(KernelThunk(thunk.name, kernel.convolution, (x, w), made), machine)
    if epilogue is None:
        return alone
    loop = KernelThunk(thunk.name, epilogue.loop, (*operands, *made), thunk.results)
    after = work_of(loop, machine)
    accesses = [
        one for one in (*alone.accesses, *after.accesses) if one.array.slice != made[0].slice
    ]
    compute = alone.compute + max(after.compute, after.divider)
    return replace(alone, accesses=tuple(accesses), compute=compute)


def _in_no_buffer(view: StridedView) -> ArrayView:
    return ArrayView(BufferSlice(NoAllocation.PRODUCT, 0, view.byte_size), view)


def _nowhere(kernel: ProductEpilogueKernel) -> ArrayView:
    return _in_no_buffer(StridedView.dense(ArrayShape(kernel.product.result, kernel.dims)))
