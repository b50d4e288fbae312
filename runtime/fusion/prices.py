"""What a machine takes for elements and for bytes, and what a kernel costs in all."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.fusion.op_weights import computed_in, operation_seconds
from spmd.hlo import HloInstruction, Opcode
from spmd.machine.description import MachineDescription
from spmd.shape import PrimitiveType

#: How much longer it takes to read along another dimension than that which lies together in memory.
STRIDED = 4.0
#: An array is found at the level that holds as many like it: what else is touched between two uses of it.
NEIGHBOURS = 4.0


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One execution. evaluations: elements computed, of all instructions that compute; code: places they stand in the
    kernel's code. bytes_read, bytes_written: each touched byte once. seconds: from dispatch to end.

    reads: places in the code where elements of inputs, or numbers that count, are read. values: places of all that is
    computed or seen there.
    """

    seconds: float
    compute_seconds: float
    bytes_read: float
    bytes_written: float
    evaluations: float
    code: int
    reads: int = 0
    values: int = 0

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written


@dataclass
class Prices:
    """Of operations, each found once."""

    machine: MachineDescription
    _instructions: dict[HloInstruction, float] = field(default_factory=dict)

    def element(self, x: HloInstruction) -> float:
        """Seconds of one element of ``x``."""
        known = self._instructions.get(x)
        if known is None:
            operand = x.operand(0) if x.num_operands else x
            kind = computed_in(x.opcode, _element_type(operand), _element_type(x))
            rates = self.machine.rates_of(kind)
            known = operation_seconds(x.opcode, _element_type(x), rates)
            self._instructions[x] = known
        return known

    def combining(self, kind: PrimitiveType) -> float:
        """One element more in a sum, or in a maximum."""
        return operation_seconds(Opcode.ADD, kind, self.machine.rates_of(kind))

    def array(self, size: float) -> float:
        """So many bytes of one array, read or written, that were not touched just before."""
        return size / self.machine.level_for(NEIGHBOURS * size).bandwidth

    def again(self, size: float, among: float) -> float:
        """So many bytes that this kernel has read before, of ``among`` that it goes over again and again."""
        return size / self.machine.level_for(among, same_kernel=True).bandwidth

    def kernel(self, work: float, rows: float) -> float:
        """From dispatch to end: so many seconds of ``work`` in so many rows."""
        machine = self.machine
        return machine.thunk_seconds + machine.kernel_seconds + rows * machine.row_seconds + work


def _element_type(x: HloInstruction) -> PrimitiveType:
    return getattr(x.shape, "element_type", PrimitiveType.F32)
