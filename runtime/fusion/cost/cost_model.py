"""Cost of a kernel, and the machine's rates for element operations and memory traffic from which it is computed."""

from __future__ import annotations

from dataclasses import field

from spmd.cost.elements import element_seconds
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.shape import PrimitiveType

#: Number of arrays of equal size that a memory level must hold for an array to be found there at its next use: other
#: arrays are touched between two uses.
NEIGHBOURS = 4.0


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Cost of one execution of a kernel.

    ``seconds`` is the time from dispatch to end. ``least`` is a lower bound on the seconds of any kernel that computes
    some of this kernel's inputs as well. ``bytes_read`` and ``bytes_written`` count each touched byte once.

    The other fields count occurrences in the generated code: ``code`` those of computing instructions, ``reads`` those
    that read an input or an iota, ``values`` those of all values. ``loops`` is an upper bound on the number of loops
    that the kernel runs one after the other.
    """

    seconds: float
    least: float
    bytes_read: float
    bytes_written: float
    code: int
    reads: int = 0
    values: int = 0
    loops: int = 1

    @property
    def bytes(self) -> float:
        """Return the bytes read and written."""
        return self.bytes_read + self.bytes_written


@dataclass
class CostModel:
    """Costs of element operations and memory traffic on one machine, cached by instruction and by array size."""

    machine: MachineDescription
    _instructions: dict[HloInstruction, float] = field(default_factory=dict)
    _arrays: dict[float, float] = field(default_factory=dict)

    def element(self, x: HloInstruction) -> float:
        """Return the seconds to compute one element of ``x``."""
        known = self._instructions.get(x)
        if known is None:
            operand = x.operand(0) if x.num_operands else x
            kinds = _element_type(operand), _element_type(x)
            known = self._instructions[x] = element_seconds(x.opcode, *kinds, self.machine)
        return known

    def combining(self, kind: PrimitiveType) -> float:
        """Return the seconds to combine one more element of type ``kind``, which are those of an addition."""
        return element_seconds(Opcode.ADD, kind, kind, self.machine)

    def array(self, size: float) -> float:
        """Return the seconds to read or write ``size`` bytes that the same kernel has not touched before."""
        known = self._arrays.get(size)
        if known is None:
            known = self._arrays[size] = size / self.machine.level_for(NEIGHBOURS * size).bandwidth
        return known

    def again(self, size: float, among: float) -> float:
        """Return the seconds to reread ``size`` bytes in a kernel that repeatedly traverses ``among`` bytes."""
        return size / self.machine.level_for(among, same_kernel=True).bandwidth

    def kernel(self, work: float, rows: float, loops: int = 1) -> float:
        """Return the seconds from dispatch to end of a kernel.

        ``work`` is the seconds spent on elements, ``rows`` the number of times that an innermost loop begins, and
        ``loops`` the number of loops that run one after the other.
        """
        return self.machine.start_seconds(loops, rows) + work


def _element_type(x: HloInstruction) -> PrimitiveType:
    """Return the element type of ``x``, or F32 if it is no array."""
    return getattr(x.shape, "element_type", PrimitiveType.F32)
