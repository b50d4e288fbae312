"""Time of elements and bytes on a machine, and cost of a kernel."""

from __future__ import annotations

from dataclasses import field

from spmd.cost.elements import element_seconds
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.shape import PrimitiveType

#: An array is found at the level that holds this many of its size, because other arrays are touched
#: between two uses.
NEIGHBOURS = 4.0


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Cost of one execution. seconds: from dispatch to end. bytes_read, bytes_written: each touched byte once.

    least: no kernel that also computes some of the inputs takes fewer seconds.
    evaluations: elements computed, over all computing instructions; code: number of their occurrences in the code.
    reads: occurrences in the code that read elements of inputs, or iota. values: occurrences of all values. loops: the
    most loops, one after the other, that the kernel consists of.
    """

    seconds: float
    least: float
    compute_seconds: float
    bytes_read: float
    bytes_written: float
    evaluations: float
    code: int
    reads: int = 0
    values: int = 0
    loops: int = 1

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


@dataclass
class CostModel:
    """Costs of operations on a machine: of elements of each instruction and arrays of each size, computed once."""

    machine: MachineDescription
    _instructions: dict[HloInstruction, float] = field(default_factory=dict)
    _arrays: dict[float, float] = field(default_factory=dict)

    def element(self, x: HloInstruction) -> float:
        """Return the seconds of one element of ``x``."""
        known = self._instructions.get(x)
        if known is None:
            operand = x.operand(0) if x.num_operands else x
            kinds = _element_type(operand), _element_type(x)
            known = self._instructions[x] = element_seconds(x.opcode, *kinds, self.machine)
        return known

    def combining(self, kind: PrimitiveType) -> float:
        """Return the seconds of one more element in a sum or a maximum."""
        return element_seconds(Opcode.ADD, kind, kind, self.machine)

    def array(self, size: float) -> float:
        """Return the seconds to read or write ``size`` bytes of one array that was not touched just before."""
        known = self._arrays.get(size)
        if known is None:
            known = self._arrays[size] = size / self.machine.level_for(NEIGHBOURS * size).bandwidth
        return known

    def again(self, size: float, among: float) -> float:
        """Return the seconds of rereading ``size`` bytes in a kernel that goes over ``among`` bytes again and again."""
        return size / self.machine.level_for(among, same_kernel=True).bandwidth

    def kernel(self, work: float, rows: float, loops: int = 1) -> float:
        """Return the seconds from dispatch to end of ``work`` seconds in ``rows`` rows of ``loops`` loops."""
        return self.machine.start_seconds(loops, rows) + work


def _element_type(x: HloInstruction) -> PrimitiveType:
    return getattr(x.shape, "element_type", PrimitiveType.F32)
