"""Memory that a step must leave unchanged for the next step: constants, and parameters that are not donated."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.buffers.checker.shadow import ShadowMemory
from runtime.buffers.checker.symbols import Meaning, Symbol, constant_symbol
from runtime.buffers.types import AllocationKind, BufferAllocation, BufferSlice
from runtime.device_program import DeviceProgram


class PersistentContents:
    """Contents of parameters and constants, which the buffer checker expects before and after a step.

    parameters: the meaning of each array leaf of the entry's parameters.
    """

    def __init__(self, program: DeviceProgram, parameters: Sequence[Meaning]) -> None:
        self._outputs = {output.slice.allocation for output in program.outputs}
        self._found: list[tuple[BufferAllocation, frozenset[Symbol]]] = []
        for allocation in program.assignment.allocations:
            if allocation.kind is AllocationKind.CONSTANT:
                symbols = frozenset({constant_symbol(program.constants[allocation.index])})
            elif allocation.kind is AllocationKind.PARAMETER:
                symbols = frozenset(parameters[allocation.number].symbols)
            else:
                continue
            self._found.append((allocation, symbols))

    def write(self, memory: ShadowMemory) -> None:
        """Write the contents to ``memory``, as they are at the begin of a step."""
        for allocation, symbols in self._found:
            memory.write(_full_slice(allocation), symbols)

    def first_lost(self, memory: ShadowMemory) -> str | None:
        """Return a message about the first content that the step has changed, or None if it has changed none.

        Parameters whose memory an output has taken are left out.
        """
        for allocation, symbols in self._found:
            consumed = allocation.index in self._outputs
            if not consumed and not memory.holds(_full_slice(allocation), symbols):
                return (
                    f"{allocation.kind.value} {allocation.number} is not as it was before the step, "
                    "and no output aliases it"
                )
        return None


def _full_slice(allocation: BufferAllocation) -> BufferSlice:
    """Return the slice of the entire allocation."""
    return BufferSlice(allocation.index, 0, allocation.size)
