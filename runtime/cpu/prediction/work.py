"""Work of one execution of a kernel: seconds of computing, loops begun, bytes accessed. One function per kind.

The modules of this package register them, one for each family of kernels; ``work_of`` looks up the kernel's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from runtime.buffers.types import ArrayView
from runtime.fusion.cost.op_weights import computed_in, operation_seconds
from runtime.program.thunks.kernel import KernelThunk
from spmd.hlo import Opcode
from spmd.machine.description import MachineDescription
from spmd.registry import Registry
from spmd.shape import PrimitiveType

#: Bytes of operands and results that products and convolutions are timed with, about: in a core's second-level cache.
NEAR = 1 << 20


class NoAllocation(IntEnum):
    """Numbers of allocations, none of them the program's, that stand for memory in no buffer."""

    PACKED = -1  # what kernels keep on their stack
    PRODUCT = -2  # a product that is read in the kernel that makes it
    PIECES = -3  # scratch of a kernel's pieces


@dataclass(frozen=True, slots=True)
class Access:
    """``size`` bytes of ``place`` are touched once, ``slowdown`` times as slowly as those that lie together.

    again: bytes that are touched another time soon, while only ``size`` bytes of this place lie between.
    """

    place: ArrayView
    size: float
    slowdown: float = 1.0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Busy:
    """Seconds of two units that work at the same time: the one that divides and takes roots, and that for all else."""

    arithmetic: float = 0.0
    divider: float = 0.0

    def __add__(self, other: Busy) -> Busy:
        return Busy(self.arithmetic + other.arithmetic, self.divider + other.divider)

    def times(self, count: float) -> Busy:
        return Busy(count * self.arithmetic, count * self.divider)


@dataclass(frozen=True, slots=True)
class Work:
    """compute: seconds of arithmetic where all that is touched lies in the nearest cache; divider: of the unit that
    divides, which hides both arithmetic and bytes. loops: loop nests that begin; rows: their
    innermost loops. packed: bytes that it writes for itself and that are in no buffer. together: bytes that ``compute``
    was measured with, which therefore cost nothing where they are as near as they were then.
    """

    accesses: tuple[Access, ...]
    compute: float = 0.0
    loops: float = 1.0
    rows: float = 0.0
    together: float = 0.0
    packed: float = 0.0
    divider: float = 0.0


WorkOf: TypeAlias = Callable[[Any, KernelThunk, MachineDescription], Work]

#: By the kernel's class.
WORK: Registry[type, WorkOf] = Registry("work of kernels")


def work_of(thunk: KernelThunk, machine: MachineDescription) -> Work:
    """Return the work of the thunk's kernel by its kind; the bytes alone if the kind has no rule."""
    known = WORK.get(type(thunk.kernel))
    return Work(all_touched(thunk)) if known is None else known(thunk.kernel, thunk, machine)


def all_touched(thunk: KernelThunk) -> tuple[Access, ...]:
    """Operands and results, each once."""
    return tuple(touched((*thunk.operands, *thunk.results)))


def touched(places: Iterable[ArrayView]) -> Iterable[Access]:
    """Each once, as far as it is stored: what a broadcast repeats is one element."""
    return (Access(place, stored_bytes(place)) for place in places)


def stored_bytes(place: ArrayView) -> float:
    size = float(place.view.element_type.byte_size)
    for dim, stride in zip(place.view.dims, place.view.strides, strict=True):
        size *= dim if stride else min(dim, 1)
    return size


#: Of floats.
_DIVIDER = frozenset({Opcode.DIVIDE, Opcode.RSQRT, Opcode.SQRT})


def element_busy(
    opcode: Opcode,
    operand: PrimitiveType,
    result: PrimitiveType,
    machine: MachineDescription,
) -> Busy:
    """One element of ``opcode``."""
    seconds = element_seconds(opcode, operand, result, machine)
    if opcode in _DIVIDER and result.is_floating:
        return Busy(divider=seconds)
    return Busy(seconds)


def element_seconds(
    opcode: Opcode,
    operand: PrimitiveType,
    result: PrimitiveType,
    machine: MachineDescription,
) -> float:
    """One element of ``opcode``, as fusion prices it."""
    kind = computed_in(opcode, operand, result)
    return operation_seconds(opcode, result, machine.rates_of(kind))
