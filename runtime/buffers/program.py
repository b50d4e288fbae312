"""Input of buffer assignment: a scheduled module with tuples, calls and view operations resolved.

A module is traversed in schedule order. Instructions that only regroup, rename or re-stride values (tuple, call,
get-tuple-element, broadcast, slice, ...) become no op: their users read views of existing values. The result is a
list of ops, nested for control flow, over values that need memory. Positions count instructions through all regions,
so that the live range of a value is an interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from runtime.lowering import Device
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.shape import ArrayShape, ShapeIndex


@dataclass(eq=False, slots=True)
class Region:
    """Steps that run in sequence: the entry, a loop's condition or body, a branch.

    ``start`` and ``end`` are positions at which no op runs. ``loop_end``: the position after the loop whose
    condition or body this is, else None. Values from outside that a loop reads are live until then.
    """

    name: str
    parent: Region | None
    start: int
    end: int = -1
    loop_end: int | None = None
    ops: list[ScheduledOp] = field(default_factory=list, repr=False)

    def with_parents(self) -> list[Region]:
        """Return this region and those that it lies in, innermost first."""
        regions = [self]
        while (parent := regions[-1].parent) is not None:
            regions.append(parent)
        return regions

    def is_inside(self, other: Region) -> bool:
        return any(region is other for region in self.with_parents())


@dataclass(eq=False, slots=True)
class Value:
    """Dense array that an op writes, or a parameter or constant.

    ``order``: its dimensions in memory, slowest first; None: row major.
    ``memory_space`` is that of the layout it was defined with. ``constant`` holds a constant's data, ``parameter`` a
    parameter leaf's number. ``start`` is the position of its write.
    """

    number: int
    name: str
    shape: ArrayShape
    region: Region
    start: int
    memory_space: int
    constant: NDArray | None = None
    parameter: int | None = None
    order: tuple[int, ...] | None = None
    reads: list[Read] = field(default_factory=list, repr=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.shape.byte_size

    @property
    def view(self) -> StridedView:
        """The view of the array in memory."""
        if self.order is None:
            return StridedView.dense(self.shape)
        return StridedView.dense_in_order(self.shape, self.order)

    @property
    def last_read(self) -> int:
        """The end of the live range. A read inside a loop of a value from outside counts until the loop's end."""
        return max((read.until(self) for read in self.reads), default=self.start)


@dataclass(frozen=True, slots=True)
class ValueView:
    """Result of an instruction: a value seen through strides."""

    value: Value
    view: StridedView

    @property
    def is_entire(self) -> bool:
        """True if the view shows the entire value in memory order (a reshape is allowed)."""
        return self.view.is_dense and self.view.byte_size == self.value.size


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """Read of ``view`` by ``op`` at ``position`` within ``region``; ``operand`` counts the op's array operands."""

    op: ScheduledOp
    operand: int
    view: ValueView
    position: int
    region: Region

    def until(self, value: Value) -> int:
        position = self.position
        region: Region | None = self.region
        while region is not None and region is not value.region:
            if region.loop_end is not None:
                position = max(position, region.loop_end)
            region = region.parent
        return position

    def until_within(self, *loop: Region) -> int:
        """Return ``until`` for a value written on each trip of a loop with these regions: only inner loops count."""
        position = self.position
        region: Region | None = self.region
        while region is not None and region not in loop:
            if region.loop_end is not None:
                position = max(position, region.loop_end)
            region = region.parent
        return position


#: Value of an instruction: a view per array leaf, nested as its shape; None for tokens.
Tree: TypeAlias = ValueView | tuple["Tree", ...] | None


def tree_leaves(tree: Tree) -> list[ValueView]:
    """Return the array leaves in order."""
    if tree is None:
        return []
    if isinstance(tree, ValueView):
        return [tree]
    return [leaf for element in tree for leaf in tree_leaves(element)]


def subtree(tree: Tree, index: ShapeIndex) -> Tree:
    for i in index:
        assert isinstance(tree, tuple)
        tree = tree[i]
    return tree


@dataclass(eq=False, slots=True)
class ScheduledOp:
    """Instruction that is executed. ``operands``: array leaves of all its operands, in order."""

    instruction: HloInstruction
    position: int
    region: Region
    operands: tuple[ValueView, ...] = ()
    results: tuple[Value, ...] = ()
    scratch: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class ScheduledCopy(ScheduledOp):
    """Copy of one operand of ``instruction`` to the layout of results[0], for an op that needs it."""


@dataclass(eq=False, slots=True)
class ScheduledDone(ScheduledOp):
    """Wait for ``start``. It reads the start's operands and results: they are in use until here."""

    start: ScheduledOp = field(kw_only=True)


@dataclass(eq=False, slots=True)
class Carried:
    """Leaf that a loop changes: ``value`` is in the loop, ``init`` before the first trip, ``root`` at a trip's end."""

    leaf: int
    value: Value
    init: ValueView
    root: ValueView


@dataclass(eq=False, slots=True)
class ScheduledWhile(ScheduledOp):
    """Loop. ``results`` are the values of ``carried``; ``operands`` their inits. Unchanged leaves are views."""

    condition: Region = field(init=False)
    body: Region = field(init=False)
    predicate: ValueView = field(init=False)
    carried: list[Carried] = field(default_factory=list)
    end: int = -1


@dataclass(eq=False, slots=True)
class Branch:
    """Branch of a conditional; ``roots[i]`` is its result leaf i."""

    region: Region
    roots: tuple[ValueView, ...]


@dataclass(eq=False, slots=True)
class ScheduledConditional(ScheduledOp):
    """Conditional; ``operands[0]`` chooses the branch."""

    branches: list[Branch] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class OutputLeaf:
    """Entry result leaf ``number``; ``aliased`` is the parameter leaf in whose buffer it must end, or None."""

    number: int
    view: ValueView
    aliased: int | None


@dataclass(eq=False, slots=True)
class Program:
    entry: Region
    values: list[Value]
    parameters: list[Value]
    outputs: list[OutputLeaf]
    device: Device

    @property
    def end(self) -> int:
        return self.entry.end


def all_ops(region: Region) -> Iterator[ScheduledOp]:
    """Yield the ops of the region and of all regions inside, in order of position (a loop before its contents)."""
    for op in region.ops:
        yield op
        for inner in inner_regions(op):
            yield from all_ops(inner)


def inner_regions(op: ScheduledOp) -> tuple[Region, ...]:
    if isinstance(op, ScheduledWhile):
        return (op.condition, op.body)
    if isinstance(op, ScheduledConditional):
        return tuple(branch.region for branch in op.branches)
    return ()
