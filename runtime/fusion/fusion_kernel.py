"""Kernel during fusion planning: a set of instructions of the computation, in the order of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from runtime.fusion.cost.cost_model import KernelCost
from runtime.fusion.kernel_kinds import KernelKind
from spmd.hlo import HloInstruction


class Kernel:
    """Kernel. ``members``: instructions that it computes, with views; ``inputs``: operands; ``roots``: results.

    Members and inputs are in the order in which a traversal from the roots meets them. Instruction n of ``values``,
    which are both in this order, is value n of the kind. position: its position in the computation's order. Kernels are
    compared by identity.
    """

    def __init__(self, values: tuple[HloInstruction, ...], position: int, kind: KernelKind) -> None:
        self.values, self.position, self.kind = values, position, kind
        size = len(kind.members)
        self.members, self.inputs = values[:size], values[size:]
        self.roots = tuple([values[n] for n in kind.root_indices])

    @cached_property
    def index_of(self) -> Mapping[HloInstruction, int]:
        """The index in ``values`` of each instruction."""
        return {x: n for n, x in enumerate(self.values)}

    @property
    def cost(self) -> KernelCost:
        """The cost of one execution."""
        cost = self.kind.cost
        assert cost is not None, "a kernel is made of kernels that have a cost"
        return cost

    def may_overwrite(self, root: HloInstruction, read: HloInstruction) -> bool:
        """Return whether ``root`` may be written over the memory of the input ``read``, which dies here."""
        return (self.roots.index(root), self.inputs.index(read)) in self.kind.overwrites

    @property
    def name(self) -> str:
        return self.roots[-1].name


@dataclass(frozen=True, slots=True)
class FusedKernelSpec:
    """Join of two kernels: a kernel of ``kind``; its value n is value ``chosen[n]`` of their concatenated values."""

    kind: KernelKind
    chosen: tuple[int, ...]

    def kernel(self, one: Kernel, other: Kernel, position: int) -> Kernel:
        of_both = (*one.values, *other.values)
        return Kernel(tuple(map(of_both.__getitem__, self.chosen)), position, self.kind)
