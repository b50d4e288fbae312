"""Kernel during fusion planning: a set of instructions of the computation, in the order of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from runtime.fusion.cost.cost_model import KernelCost
from runtime.fusion.kernel_kinds import KernelKind
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


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
class Join:
    """Kind of the kernel that computes what two kernels do; its value n is value ``chosen[n]`` of their values."""

    kind: KernelKind
    chosen: tuple[int, ...]


class FusedKernelSpec:
    """Join of two kernels. Its ``cost`` is known before its kind is: most joins that are considered are never made."""

    def __init__(self, cost: KernelCost, make: Callable[[], Join]) -> None:
        self.cost, self._make = cost, make

    @cached_property
    def join(self) -> Join:
        return self._make()

    @property
    def kind(self) -> KernelKind:
        return self.join.kind

    def kernel(self, one: Kernel, other: Kernel, position: int) -> Kernel:
        """Return the kernel of these two, which are of the same kinds as those that it was specified for."""
        of_both = (*one.values, *other.values)
        values = tuple(map(of_both.__getitem__, self.join.chosen))
        return Kernel(values, position, self.kind)
