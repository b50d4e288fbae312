"""Matrix products by BLAS in another type than that of the arrays, which are converted a block of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.cpu.kernels.convert import SOURCE_WORD, TARGET_WORD, converting
from runtime.cpu.kernels.gemm.native_dot import blas_product
from runtime.cpu.kernels.native_call import NativeAction, NativeCall, RelocatableCall
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class _Conversion:
    """Calls of a conversion, and the addresses of the words in their records that hold its source and its target.

    A conversion between equal types has no calls.
    """

    calls: tuple[NativeCall, ...] = ()
    source: tuple[int, ...] = ()
    target: tuple[int, ...] = ()

    @staticmethod
    def between(source: NDArray, target: NDArray) -> _Conversion | None:
        """Return the conversion of ``source`` into ``target``, or None if there is no native code for it."""
        action = converting(source, target)
        if not isinstance(action, NativeAction):
            return None
        record = action.calls[0].record
        return _Conversion(action.calls, (record + 8 * SOURCE_WORD,), (record + 8 * TARGET_WORD,))


def converted_product(
    kind: PrimitiveType,
    matrices: tuple[NDArray, NDArray, NDArray],
    scratch: Sequence[NDArray],
    block_rows: int,
) -> RelocatableCall | None:
    """Bind the product of the first two matrices into the third, computed in ``kind``.

    Matrices of other types are converted in ``scratch``, which has, in this order and only where needed, ``block_rows``
    rows of the left matrix, the right matrix, and ``block_rows`` rows of the result. Returns None if there is no native
    code for the product or for a conversion.
    """
    lhs, rhs, out = matrices
    spare = list(scratch)
    left, right, total = (spare.pop(0) if x.dtype != kind.numpy else None for x in matrices)
    rhs_conversion = _Conversion() if right is None else _Conversion.between(rhs, right)

    def block(first: int, count: int) -> RelocatableCall | None:
        """Bind the product of ``count`` rows from row ``first`` on, with its conversions."""
        rows, to = lhs[first : first + count], out[first : first + count]
        here = rows if left is None else left[:count]
        there = to if total is None else total[:count]
        product = blas_product(kind, here, rhs if right is None else right, there)
        before = _Conversion() if left is None else _Conversion.between(rows, here)
        after = _Conversion() if total is None else _Conversion.between(there, to)
        if product is None or before is None or after is None:
            return None
        return RelocatableCall(
            before.calls + product.calls + after.calls,
            product.lhs if left is None else before.source,
            product.rhs if right is None else (),
            product.result if total is None else after.target,
        )

    full, rest = divmod(len(lhs), block_rows)
    blocks, tail = (
        block(0, block_rows),
        block(full * block_rows, rest) if rest else RelocatableCall(()),
    )
    if rhs_conversion is None or blocks is None or tail is None:
        return None
    steps = [block_rows * x.strides[0] for x in (lhs, out)]
    return (
        RelocatableCall(rhs_conversion.calls, rhs=rhs_conversion.source)
        .then(blocks.repeated(full, (steps[0], 0, steps[1])))
        .then(tail)
    )
