"""Bytes that a device holds while each instruction of a scheduled module runs, in the stored order.

A loop's body returns its state, which the caller holds already. A branch's operands stay, as its caller may read them
again. Parameters that the entry donates (aliases, donors) end with their last reader, others never end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

from spmd.analysis.live_buffers import Buffer, LiveBuffers, module_buffers
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import CALLERS
from spmd.lazy_dataclass import dataclass
from spmd.ops.opdef import SizeOf, byte_size
from spmd.shape import leaves


def peak_bytes(module: HloModule, size_of: SizeOf = byte_size) -> int:
    """Return the largest number of bytes that are live at one time, parameters and constants included.

    ``size_of`` gives the bytes of a leaf.
    """
    return ModuleBytes.of(module, size_of).total


def live_bytes(
    buffers: LiveBuffers,
    order: Sequence[HloInstruction],
    inner: Mapping[HloInstruction, int],
    persistent: Sequence[Buffer],
) -> list[int]:
    """Return the bytes that are live while each instruction of ``order`` runs.

    ``inner``: bytes that instructions need while they run, besides operands and results. ``persistent``: inputs that
    stay live until the end.
    """
    size = buffers.size
    left = [0] * len(size)
    for instruction in order:
        for buffer in buffers.read[instruction]:
            left[buffer] += 1
    for buffer in dict.fromkeys((*buffers.returned, *persistent)):
        left[buffer] += 1
    live = sum(size[buffer] for buffer in buffers.inputs if left[buffer])
    found = []
    for instruction in order:
        dying = []
        for buffer in buffers.read[instruction]:
            left[buffer] -= 1
            if not left[buffer]:
                dying.append(buffer)
        written = buffers.written[instruction]
        result = sum(size[buffer] for buffer in written)
        reused = reused_bytes(buffers, written, dying)
        found.append(live + result - reused + inner.get(instruction, 0))
        live += sum(size[buffer] for buffer in written if left[buffer])
        live -= sum(size[buffer] for buffer in dying)
    return found


def reused_bytes(buffers: LiveBuffers, written: Sequence[Buffer], dying: Sequence[Buffer]) -> int:
    """Return the bytes of ``written`` that overwrite dying buffers, each of which is used once."""
    if not dying or not buffers.over:
        return 0
    free = dict.fromkeys(dying)
    reused = 0
    for result in written:
        for candidate in buffers.over.get(result, ()):
            if candidate in free:
                del free[candidate]
                reused += min(buffers.size[result], buffers.size[candidate])
                break
    return reused


@dataclass
class ModuleBytes:
    """Memory needs of a module's computations in their current orders.

    peaks[c]: the peak bytes of c, inputs included. constants: bytes of all constants.
    """

    module: HloModule
    buffers: dict[HloComputation, LiveBuffers]
    peaks: dict[HloComputation, int] = field(default_factory=dict)
    constants: int = 0

    @classmethod
    def of(cls, module: HloModule, size_of: SizeOf = byte_size) -> ModuleBytes:
        found = cls(module, module_buffers(module, size_of))
        for computation in found.buffers:
            found.look(computation)
            found.constants += sum(
                size_of(x.shape) for x in computation.with_opcode(Opcode.CONSTANT)
            )
        return found

    @property
    def total(self) -> int:
        return self.peaks[self.module.entry] + self.constants

    def look(self, computation: HloComputation) -> list[int]:
        """Return the bytes live at each instruction of ``computation`` in its current order, and store its peak.
        Callees must be done before.
        """
        needs = live_bytes(
            self.buffers[computation],
            computation.instructions,
            self.inner_of(computation),
            self.persistent(computation),
        )
        self.peaks[computation] = max(needs, default=0)
        return needs

    def budgets(self, limit: int) -> dict[HloComputation, int]:
        """Return the bytes that each computation may use, all others unchanged, so that a device needs
        ``limit`` bytes.
        """
        budgets = {self.module.entry: limit - self.constants}
        for computation in reversed(self.buffers):
            needs = self.look(computation)
            for x, need in zip(computation.instructions, needs, strict=True):
                for callee in x.called_computations if x.opcode in CALLERS else ():
                    budget = self.peaks[callee] + budgets[computation] - need
                    budgets[callee] = min(budgets.get(callee, budget), budget)
        return budgets

    def inner_of(self, computation: HloComputation) -> dict[HloInstruction, int]:
        """Return the bytes that the computation's calling instructions need while they run, besides operands and
        results."""
        return {x: self._inner(x) for x in computation.instructions if x.opcode in CALLERS}

    def _inner(self, caller: HloInstruction) -> int:
        is_loop = caller.opcode is Opcode.WHILE
        needs = [0]
        for callee in caller.called_computations:
            known = self.buffers[callee]
            there = known.input_bytes + (0 if is_loop else known.returned_bytes)
            needs.append(self.peaks[callee] - there)
        return max(needs)

    def persistent(self, computation: HloComputation) -> tuple[Buffer, ...]:
        """Return the inputs that stay until the end, read or not."""
        inputs = self.buffers[computation].inputs
        if computation is self.module.entry:
            given = self._given_away()
            return tuple(buffer for n, buffer in enumerate(inputs) if n not in given)
        return () if computation in self._bodies else inputs

    @cached_property
    def _bodies(self) -> dict[HloComputation, None]:
        return {
            x.while_body: None
            for computation in self.buffers
            for x in computation.with_opcode(Opcode.WHILE)
        }

    def _given_away(self) -> frozenset[int]:
        """Return the numbers of the entry's input leaves whose memory the program may write."""
        leaf_indices = {
            (n, index): None
            for n, parameter in enumerate(self.module.entry.parameters)
            for index, _ in leaves(parameter.shape)
        }
        number = {leaf_index: n for n, leaf_index in enumerate(leaf_indices)}
        given = [(one.parameter, one.parameter_index) for one in self.module.input_output_alias]
        given += [(one.parameter, one.parameter_index) for one in self.module.buffer_donors]
        return frozenset(number[leaf_index] for leaf_index in given if leaf_index in number)
