"""Work of one execution of a kernel: seconds of arithmetic, loops begun, and bytes accessed.

The modules of this package register one function per kind of kernel, by family; ``work_of`` looks up the kernel's
class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeAlias

from runtime.buffers.types import ArrayView
from runtime.program.thunks import KernelThunk
from spmd.cost.elements import element_seconds
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.registry import Registry
from spmd.shape import PrimitiveType

#: Approximate bytes of operands and results with which products and convolutions are timed. They fit a core's L2 cache.
TIMED_BYTES = 1 << 20


class NoAllocation(IntEnum):
    """Allocation numbers of memory that is in none of the program's allocations."""

    PACKED = -1  # packed operands on the stacks of kernels
    PRODUCT = -2  # a product that is read by the kernel that computes it
    PIECES = -3  # scratch of a kernel's pieces


@dataclass(frozen=True, slots=True)
class Access:
    """Access to ``size`` bytes of ``array``, which takes ``slowdown`` times as long as one to contiguous bytes.

    ``again`` is the number of bytes that are touched again soon, at a reuse distance of ``size`` bytes.
    """

    array: ArrayView
    size: float
    slowdown: float = 1.0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy seconds of two concurrent units: ``divider`` for divisions and roots, ``arithmetic`` for the rest."""

    arithmetic: float = 0.0
    divider: float = 0.0

    def __add__(self, other: Busy) -> Busy:
        return Busy(self.arithmetic + other.arithmetic, self.divider + other.divider)

    def times(self, count: float) -> Busy:
        return Busy(count * self.arithmetic, count * self.divider)


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one execution of a kernel.

    ``compute`` is the time of the arithmetic if all data is in the L1 cache. ``divider`` is the time of the divider,
    which overlaps with both arithmetic and memory time. ``loops`` is the number of loop nests that begin, and ``rows``
    that of their innermost loops. ``packed`` is the number of bytes written to memory in no buffer. ``timed_bytes`` is
    the number of bytes with which ``compute`` was measured, whose access costs nothing in addition.
    """

    accesses: tuple[Access, ...]
    compute: float = 0.0
    loops: float = 1.0
    rows: float = 0.0
    timed_bytes: float = 0.0
    packed: float = 0.0
    divider: float = 0.0


WorkOf: TypeAlias = Callable[[Any, KernelThunk, MachineDescription], Work]

#: Functions that return the work of a kernel, by the kernel's class.
WORK: Registry[type, WorkOf] = Registry("work of kernels")


def work_of(thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of the thunk's kernel. If the kernel's class has no rule, only the bytes count."""
    known = WORK.get(type(thunk.kernel))
    return Work(all_touched(thunk)) if known is None else known(thunk.kernel, thunk, machine)


def all_touched(thunk: KernelThunk) -> tuple[Access, ...]:
    """Return the accesses of a kernel that touches each operand and result once."""
    return tuple(touched((*thunk.operands, *thunk.results)))


def touched(arrays: Iterable[ArrayView]) -> Iterable[Access]:
    """Yield one access to the stored bytes of each array, in which an element that a broadcast repeats counts once."""
    return (Access(array, stored_bytes(array)) for array in arrays)


def stored_bytes(array: ArrayView) -> float:
    """Return the bytes of the elements of ``array`` that are stored, without repetitions by broadcasts."""
    return float(array.view.stored_bytes)


#: Opcodes that use the processor's divider if their result is a float.
_DIVIDER = frozenset({Opcode.DIVIDE, Opcode.RSQRT, Opcode.SQRT})


def element_busy(
    opcode: Opcode,
    operand: PrimitiveType,
    result: PrimitiveType,
    machine: MachineDescription,
) -> Busy:
    """Return the busy seconds of one element of ``opcode``."""
    seconds = element_seconds(opcode, operand, result, machine)
    if opcode in _DIVIDER and result.is_floating:
        return Busy(divider=seconds)
    return Busy(seconds)
