"""Kinds of kernels: what all kernels that say the same in other names have in common, found once.

Layers of a model repeat, and so do the kernels that a plan tries: a kind is priced once, and an emitter is asked for it
once. Two kernels are of one kind if their instructions, numbered as they are met from the results, say the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from runtime.fusion.emitters import Emitted, emitted_region, emitter_of
from runtime.fusion.kernel_cost import KernelCost, kernel_cost
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.structure import StructuralKeys
from spmd.hlo import HloInstruction
from spmd.machine.description import MachineDescription

#: An ordered set of instructions.
Instructions: TypeAlias = Mapping[HloInstruction, None]


@dataclass(eq=False)
class KernelKind:
    """``roots``, ``inputs``: of the first kernel of this kind that was met."""

    roots: tuple[HloInstruction, ...]
    inputs: tuple[HloInstruction, ...]
    machine: MachineDescription

    @cached_property
    def cost(self) -> KernelCost:
        """Of one execution."""
        return kernel_cost(self.roots, self.inputs, self.machine)

    @cached_property
    def emitted(self) -> Emitted | None:
        """Who makes it, and how; None if nobody does."""
        try:
            return emitted_region(self.roots, {x: n for n, x in enumerate(self.inputs)})
        except NoEmitterError:
            return None


@dataclass
class KernelKinds:
    """All kinds that were met while the kernels of one module are planned, whose instructions stay as they are."""

    machine: MachineDescription
    _keys: StructuralKeys = field(default_factory=StructuralKeys)
    _number_of: dict[Hashable, int] = field(default_factory=dict)
    _members: dict[HloInstruction, int] = field(default_factory=dict)
    _inputs: dict[HloInstruction, int] = field(default_factory=dict)
    _kinds: dict[Hashable, KernelKind] = field(default_factory=dict)
    _alone: dict[Hashable, bool] = field(default_factory=dict)

    def kind(
        self, roots: tuple[HloInstruction, ...], members: Instructions, inputs: Instructions
    ) -> KernelKind:
        """Of a kernel of ``roots``, which reach ``members`` and then ``inputs`` in this order."""
        place = {x: n for n, x in enumerate(inputs, len(members))}
        place.update(zip(members, range(len(members)), strict=True))
        says: list[int] = []
        for x in members:
            says.append(self._member(x))
            says += [place[operand] for operand in x.operands]
        form = (
            tuple(says),
            tuple(map(self._input, inputs)),
            tuple(place[root] for root in roots),
        )
        kind = self._kinds.get(form)
        if kind is None:
            kind = self._kinds[form] = KernelKind(roots, tuple(inputs), self.machine)
        return kind

    def has_emitter(self, x: HloInstruction) -> bool:
        """Of a kernel of this instruction alone."""
        operands = x.operands
        form = (self._member(x), *map(self._input, operands), *map(operands.index, operands))
        known = self._alone.get(form)
        if known is None:
            known = self._alone[form] = emitter_of(x) is not None
        return known

    def _member(self, x: HloInstruction) -> int:
        """Equal for instructions that say the same of as many operands."""
        number = self._members.get(x)
        if number is None:
            callees = tuple(map(self._keys.key, x.called_computations))
            number = self._number((x.opcode, x.shape, x.attrs, x.num_operands, callees))
            self._members[x] = number
        return number

    def _input(self, x: HloInstruction) -> int:
        number = self._inputs.get(x)
        if number is None:
            number = self._inputs[x] = self._number(x.shape)
        return number

    def _number(self, key: Hashable) -> int:
        return self._number_of.setdefault(key, len(self._number_of))
