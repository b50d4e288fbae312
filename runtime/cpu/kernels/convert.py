"""Conversion of arrays to another element type, for kernels that compute in that type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from runtime.cpu.kernels.copy.copy import copying
from runtime.cpu.kernels.loop.loop import bind_operation
from runtime.cpu.kernels.native_call import in_order
from runtime.program.kernel import Action, KernelArrays
from runtime.program.scalar_program import ElementSignature
from spmd.hlo.opcode import Opcode
from spmd.literal import NDArray
from spmd.shape import PrimitiveType

#: Indices of the words of a conversion's record that hold the addresses of the first elements of source and target.
SOURCE_WORD, TARGET_WORD = 0, 1


def converting(source: NDArray, target: NDArray) -> Action:
    """Return an action that stores ``source`` in ``target``, converted to its type and broadcast to its shape.

    The action is one native call if there is native code for the conversion; otherwise NumPy converts.
    """
    if source.dtype == target.dtype:
        return copying(source, target)
    # Imported here, because it loads the writers of IR, and few programs convert arrays in a kernel of their own.
    from runtime.codegen.ir.element_operations import has_operation

    types = [PrimitiveType.from_numpy(array.dtype) for array in (source, target)]
    signature = ElementSignature(Opcode.CONVERT, (types[0],), types[1])
    if not has_operation(signature):
        return partial(np.copyto, target, source, casting="unsafe")
    return bind_operation(signature, (np.broadcast_to(source, target.shape),), target)


def computed_in(
    kind: PrimitiveType,
    arrays: KernelArrays,
    scratch: Sequence[NDArray],
    bind: Callable[..., Action],
) -> Action:
    """Return the action of ``bind``(operands.., results..) in type ``kind``, between conversions of other arrays.

    Arrays of other types are converted through ``scratch``, which has an array for each of them, operands first.
    """
    spare, count = list(scratch), len(arrays.operands)
    given = (*arrays.operands, *arrays.results)
    own = [array if array.dtype == kind.numpy else spare.pop(0) for array in given]
    pairs = [*zip(given, own, strict=True)]
    before = [converting(array, mine) for array, mine in pairs[:count] if mine is not array]
    after = [converting(mine, array) for array, mine in pairs[count:] if mine is not array]
    return in_order(*before, bind(*own), *after)
