"""Matrix products with epilogues: one call of cuBLASLt, or the product and then a PTX kernel.

max(x @ w + b, 0)     one call, if x, w, b and the result have types and layouts of cuBLASLt
gelu(x @ w + b)       the same; the argument of gelu may be a second result
bf16(s * (x @ w))     the same for f8 x and w; s is a number in memory
tanh(x @ w)           the product into the workspace, and a PTX kernel that reads it
"""

from __future__ import annotations

from dataclasses import replace

from runtime.gpu.libraries.call import LibraryCall
from runtime.gpu.libraries.gemm import CallEpilogue, GemmCall, are_f8, gemm_calls
from runtime.gpu.libraries.product import add_product, f8_operands
from runtime.gpu.libraries.sequence import SequenceArray, SequenceBuilder, in_sequence
from runtime.gpu.views import DeviceView
from runtime.gpu.work import GemmWork
from runtime.program.gemm_epilogue import (
    AUX_MULTIPLE,
    GemmEpilogue,
    gemm_epilogue,
)
from runtime.program.records.dot import DotKernel
from runtime.program.records.loop import LoopKernel, LoopLeaf, OperandElements
from runtime.program.records.product_epilogue import ProductEpilogueKernel
from runtime.program.records.rows import RowKernel
from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass

#: Largest batch of cublasLtMatmul, as XLA's gemm_rewriter.cc has it.
_MOST_PRODUCTS = (1 << 16) - 1
#: Alignment in bytes of arguments of gelu: cuBLASLt writes and reads vectors of this size.
_AUX_ALIGNMENT = 16


@dataclass(frozen=True)
class GemmEpilogueCall(LibraryCall):
    """Call of cuBLASLt that computes ``product`` and ``epilogue``.

    Its arrays are lhs, rhs, the addend, the bias, the scales and the arguments of gelu, if the epilogue has them, and
    the result.
    aux: whether arguments of gelu are read or written.
    """

    product: DotKernel
    epilogue: GemmEpilogue
    aux: bool = False
    can_be_captured = True

    def on(self, arrays: tuple[DeviceView, ...]) -> GemmWork:
        lhs, rhs, *others, out = arrays
        calls = gemm_calls(self.product, lhs.view, rhs.view, out.view)
        assert calls is not None, "planned with them"
        own = self.epilogue
        addend = None if own.addend is None else others.pop(0)
        bias = None if own.bias is None else others.pop(0)
        scales = tuple(others.pop(0) for _ in own.scales)
        aux = others.pop(0) if self.aux else None
        epilogue = CallEpilogue(
            own.alpha, own.beta, bias is not None, own.activation, self.aux, len(scales)
        )
        with_epilogue = tuple(replace(call, epilogue=epilogue) for call in calls)
        return GemmWork(with_epilogue, lhs, rhs, out, addend, bias, aux, scales)


@in_sequence(ProductEpilogueKernel)
def product_with_epilogue(kernel: ProductEpilogueKernel, builder: SequenceBuilder) -> bool:
    """Add the call of cuBLASLt that computes ``kernel``, or else the stages of the product and of the epilogue.

    Returns False if a factor is a slice whose start is known at run time only, if cuBLAS does not support the product,
    or if the epilogue needs scratch.
    """
    if any(kernel.factors.shifts):
        return False
    if builder.options.epilogues and _add_call(kernel, builder):
        return True
    return _add_stages(kernel, builder)


def _add_call(kernel: ProductEpilogueKernel, builder: SequenceBuilder) -> bool:
    """Add the call of cuBLASLt that computes ``kernel``. Returns False if there is none."""
    loop, factors = kernel.epilogue, kernel.factors
    if not isinstance(loop, LoopKernel) or not is_plain(loop):
        return False
    results, saved = list(builder.results), kernel.product_result
    aux = None if saved is None else results.pop(saved)
    epilogue = gemm_epilogue(
        loop.program,
        loop.leaves,
        len(builder.operands),
        kernel.batch + kernel.rows,
        keeps_product=saved is not None,
    )
    if epilogue is None:
        return False
    if epilogue.saved is not None:
        aux = results[epilogue.saved]
    elif epilogue.aux is not None:
        aux = leaf_array(loop.leaves[epilogue.aux], builder)
    result = results[epilogue.result]
    dot = replace(kernel.product, result=result.view.element_type)
    if not epilogue.suits(dot.lhs, dot.rhs, dot.result) or not result.view.is_packed:
        return False
    out = _matrices(result, dot)
    lhs, rhs = builder.operands[factors.lhs], builder.operands[factors.rhs]
    if are_f8(dot):
        taken = f8_operands(dot, (lhs, rhs, out), builder)
        if taken is None:
            return False
        lhs, rhs = taken
    calls = gemm_calls(dot, lhs.view, rhs.view, out.view)
    if calls is None or len(calls) != 1 or not calls[0].swapped:
        return False
    if calls[0].count > _MOST_PRODUCTS or not (aux is None or _suits_aux(aux.view, calls[0])):
        return False
    read = (epilogue.addend, epilogue.bias, *epilogue.scales)
    others = [leaf_array(loop.leaves[n], builder) for n in read if n is not None]
    if aux is not None:
        others.append(aux)
    builder.call(GemmEpilogueCall(dot, epilogue, aux is not None), lhs, rhs, *others, out)
    return True


def _suits_aux(view: StridedView, call: GemmCall) -> bool:
    """Return whether gelu's arguments in an array with this layout are those of ``call`` for cuBLASLt."""
    return (
        view.is_packed
        and view.offset % _AUX_ALIGNMENT == 0
        and call.c.leading % AUX_MULTIPLE == 0
        and call.c.step % AUX_MULTIPLE == 0
    )


def is_plain(loop: LoopKernel) -> bool:
    """Return whether ``loop`` writes its results at all indices, in row-major order."""
    return all(view.is_dense for view in loop.results) and not (
        loop.starts or loop.ranges or loop.targets or any(loop.result_shifts)
    )


def leaf_array(leaf: LoopLeaf, builder: SequenceBuilder) -> SequenceArray:
    """Return the elements of an operand that ``leaf`` reads."""
    assert isinstance(leaf, OperandElements), "terms of an epilogue are operands"
    operand = builder.operands[leaf.operand]
    return replace(operand, view=replace(leaf.view, offset=operand.view.offset + leaf.view.offset))


def _matrices(array: SequenceArray, product: DotKernel) -> SequenceArray:
    """Return the packed ``array``, a result of ``product`` with all its dimensions, as matrices [batch.., m, n]."""
    dims = (*product.batch, product.m, product.n)
    view = array.view.reshape(dims)
    assert view is not None, "packed arrays can be reshaped"
    return replace(array, view=view)


def _add_stages(kernel: ProductEpilogueKernel, builder: SequenceBuilder) -> bool:
    """Add the product, into the workspace or to a result of the kernel, and the PTX kernel of the epilogue."""
    if isinstance(kernel.epilogue, RowKernel) and kernel.epilogue.fusion.scratch:
        return False
    results = list(builder.results)
    if kernel.product_result is None:
        made = builder.room(kernel.product.result, kernel.dims)
    else:
        made = results.pop(kernel.product_result)
        if not made.view.is_packed:
            return False
    lhs, rhs = builder.operands[kernel.factors.lhs], builder.operands[kernel.factors.rhs]
    if not add_product(kernel.product, (lhs, rhs, _matrices(made, kernel.product)), builder):
        return False
    builder.kernel(kernel.epilogue, (*builder.operands, made), tuple(results))
    return True
