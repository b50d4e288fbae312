"""Kernel during fusion planning: a set of instructions of the computation, numbered as its kind numbers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from runtime.fusion.cost.cost_model import KernelCost
from runtime.fusion.kernel_kinds import KernelKind
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass


class Kernel:
    """A kernel that a fusion plan may contain. Kernels are compared by identity.

    ``members`` are the instructions that it computes, views included; ``inputs`` are the values that it reads and
    ``roots`` its results. Members and inputs are in the order in which a traversal from the roots discovers them;
    ``values`` is their concatenation, whose element n corresponds to value n of the kind. ``position`` is the kernel's
    position in the computation's order.
    """

    def __init__(self, values: tuple[HloInstruction, ...], position: int, kind: KernelKind) -> None:
        self.values, self.position, self.kind = values, position, kind
        size = len(kind.members)
        self.members, self.inputs = values[:size], values[size:]
        self.roots = tuple([values[n] for n in kind.root_indices])

    @cached_property
    def index_of(self) -> Mapping[HloInstruction, int]:
        """Return the index of each instruction in ``values``."""
        return {x: n for n, x in enumerate(self.values)}

    @property
    def cost(self) -> KernelCost:
        """Return the cost of one execution. Every kernel of a plan has one."""
        cost = self.kind.cost
        assert cost is not None, "a kernel is made of kernels that have a cost"
        return cost

    def may_overwrite(self, root: HloInstruction, read: HloInstruction) -> bool:
        """Return whether ``root`` may be written over the memory of the input ``read``, if that is dead afterwards."""
        return (self.roots.index(root), self.inputs.index(read)) in self.kind.overwrites


@dataclass(frozen=True, slots=True)
class Join:
    """Kind of the kernel that joins two kernels.

    Value n of the joined kernel is value ``chosen[n]`` of the concatenated values of the two kernels.
    """

    kind: KernelKind
    chosen: tuple[int, ...]


class FusedKernelSpec:
    """Specification of a kernel that joins two kernels.

    The cost is known from the start. The kind is determined at its first use, because fusion carries out few of the
    joins that it considers.
    """

    def __init__(self, cost: KernelCost, make: Callable[[], Join]) -> None:
        self.cost, self._make = cost, make

    @cached_property
    def join(self) -> Join:
        """Return the join, which is made at the first use."""
        return self._make()

    @property
    def kind(self) -> KernelKind:
        """Return the kind of the joined kernel."""
        return self.join.kind

    def kernel(self, one: Kernel, other: Kernel, position: int) -> Kernel:
        """Return the kernel at ``position`` that joins ``one`` and ``other``.

        The two kernels must share the same values, and be of the same kinds, as the kernels for which this was
        specified.
        """
        of_both = (*one.values, *other.values)
        values = tuple(map(of_both.__getitem__, self.join.chosen))
        return Kernel(values, position, self.kind)
