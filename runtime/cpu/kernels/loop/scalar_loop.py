"""While loops whose values are all scalars, bound to memory: one native call runs many trips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from runtime.buffers.types import ArrayView
from runtime.codegen.llvm.jit import DeferredIr, NativeLibrary, host_jit
from runtime.codegen.record import Address, Record, record
from runtime.cpu.kernels.native_call import NativeAction, native_call
from runtime.program.records.scalar_loop import ScalarLoop
from runtime.program.thunks.scalar_loop import ScalarLoopPlan
from spmd.literal import NDArray

FUNCTION = "spmd_scalar_loop"

#: Largest number of trips of one call, which returns even if the predicate is still true.
TRIPS = 4096


@record
class ScalarLoopRecord(Record):
    """Addresses of the elements that the loop reads or writes."""

    addresses: Sequence[Address]


@cache
def scalar_loop_code(loop: ScalarLoop) -> NativeLibrary:
    """Return the library of ``FUNCTION`` for ``loop``, which takes the address of a ScalarLoopRecord."""
    ir = DeferredIr("runtime.cpu.kernels.loop.scalar_loop_ir", "scalar_loop_ir", (loop,))
    return host_jit().compile(ir, (FUNCTION,))


def bind_scalar_loop(plan: ScalarLoopPlan, array: Callable[[ArrayView], NDArray]) -> NativeAction:
    """Return a call that runs at most TRIPS trips. It begins and ends with the condition.

    If the predicate is true afterwards, the call must be repeated. ``array`` returns the memory of a view.
    """
    arrays = tuple(map(array, plan.elements))
    record = ScalarLoopRecord([one.ctypes.data for one in arrays]).to_array()
    return native_call(scalar_loop_code(plan.loop), FUNCTION, record, arrays)
