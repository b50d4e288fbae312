"""Input of buffer assignment: a scheduled module with tuples, calls and view operations resolved.

A module is traversed in schedule order. Instructions that only regroup, rename or re-stride values (tuple, call,
get-tuple-element, broadcast, slice, ...) become no op: their users read views of existing values. The result is a list
of ops, nested for control flow, over values that need memory. Positions are numbered through all regions, so that the
live range of a value is an interval of positions.
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
    """Sequence of ops: the entry, the condition or body of a loop, or a branch.

    end: position of the region's end, at which no op runs; neither does one at its begin. loop_end: position after the
    loop whose condition or body the region is, else None; values from outside that the loop reads are live until there.
    """

    name: str
    parent: Region | None
    end: int = -1
    loop_end: int | None = None
    ops: list[ScheduledOp] = field(default_factory=list, repr=False)

    def with_parents(self) -> list[Region]:
        """Return this region and the regions that contain it, innermost first."""
        regions = [self]
        while (parent := regions[-1].parent) is not None:
            regions.append(parent)
        return regions

    def is_inside(self, other: Region) -> bool:
        """Return whether the region is ``other`` or is contained in it."""
        return any(region is other for region in self.with_parents())


@dataclass(eq=False, slots=True)
class Value:
    """Dense array that an op writes, or a parameter or constant.

    start: position at which it is written. memory_space: that of the layout of its instruction. constant: data of a
    constant. parameter: number of a parameter leaf. order: dimension order in memory, slowest first; None if it is
    row-major. reads: all reads of the value. size: bytes.
    """

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
        """Return the view of the entire array in memory."""
        if self.order is None:
            return StridedView.dense(self.shape)
        return StridedView.dense_in_order(self.shape, self.order)

    @property
    def last_read(self) -> int:
        """Return the end of the live range. A read inside a loop of a value from outside lasts until the loop's end."""
        return max((read.until(self) for read in self.reads), default=self.start)


@dataclass(frozen=True, slots=True)
class ValueView:
    """Array that is a strided view of a value."""

    value: Value
    view: StridedView

    @property
    def is_entire(self) -> bool:
        """Return whether the view has all elements of the value in memory order. It may have other dimensions."""
        return self.view.is_dense and self.view.byte_size == self.value.size


@dataclass(frozen=True, eq=False, slots=True)
class Read:
    """Read of ``view`` by ``op`` at ``position`` in ``region``, as array operand number ``operand``."""

    op: ScheduledOp
    operand: int
    view: ValueView
    position: int
    region: Region

    def until(self, value: Value) -> int:
        """Return the position until which the read keeps ``value`` live: the end of loops inside the value's region."""
        return self.until_within(value.region)

    def until_within(self, *loop: Region) -> int:
        """Return ``until`` for a value that each trip of the loop with the regions ``loop`` writes anew.

        Only loops inside this loop extend the read.
        """
        position = self.position
        region: Region | None = self.region
        while region is not None and region not in loop:
            if region.loop_end is not None:
                position = max(position, region.loop_end)
            region = region.parent
        return position


#: Result of an instruction: a view for each array leaf, nested as the instruction's shape; None for tokens.
Tree: TypeAlias = ValueView | tuple["Tree", ...] | None


def tree_leaves(tree: Tree) -> list[ValueView]:
    """Return the array leaves of ``tree`` in order."""
    if tree is None:
        return []
    if isinstance(tree, ValueView):
        return [tree]
    return [leaf for element in tree for leaf in tree_leaves(element)]


def subtree(tree: Tree, index: ShapeIndex) -> Tree:
    """Return the part of ``tree`` at ``index``."""
    for i in index:
        assert isinstance(tree, tuple)
        tree = tree[i]
    return tree


@dataclass(eq=False, slots=True)
class ScheduledOp:
    """Execution of an instruction at a position of the schedule.

    operands: array leaves of all operands, in order. results: values that it writes. scratch: temporary values that
    only the op itself uses.
    """

    instruction: HloInstruction
    position: int
    region: Region
    operands: tuple[ValueView, ...] = ()
    results: tuple[Value, ...] = ()
    scratch: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class ScheduledCopy(ScheduledOp):
    """Copy of one operand of ``instruction`` to ``results[0]``, which has the layout or memory space that is needed."""


@dataclass(eq=False, slots=True)
class ScheduledDone(ScheduledOp):
    """Wait for the asynchronous op ``start``. It counts as a read of the start's operands and results, which are in use
    until then.
    """

    start: ScheduledOp = field(kw_only=True)


@dataclass(eq=False, slots=True)
class Carried:
    """State leaf that a loop changes.

    leaf: number of the leaf. value: its value in the loop and after it. init: its value before the first trip. root:
    its value at the end of a trip.
    """

    leaf: int
    value: Value
    init: ValueView
    root: ValueView


@dataclass(eq=False, slots=True)
class ScheduledWhile(ScheduledOp):
    """While loop.

    ``results`` are the values of ``carried``, and ``operands`` their initial values. State leaves that the loop does
    not change are views of the input. end: position after the loop.
    """

    condition: Region = field(init=False)
    body: Region = field(init=False)
    predicate: ValueView = field(init=False)
    carried: list[Carried] = field(default_factory=list)
    end: int = -1


@dataclass(eq=False, slots=True)
class Branch:
    """Branch of a conditional. ``roots[i]`` is the value of result leaf i at the end of the branch."""

    region: Region
    roots: tuple[ValueView, ...]


@dataclass(eq=False, slots=True)
class ScheduledConditional(ScheduledOp):
    """Conditional. ``operands[0]`` is the branch index or predicate."""

    branches: list[Branch] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class OutputLeaf:
    """Result leaf ``number`` of the entry. ``aliased``: parameter leaf to whose buffer it must be written, or None."""

    number: int
    view: ValueView
    aliased: int | None


@dataclass(eq=False, slots=True)
class Program:
    """Linearized module, the input of buffer assignment."""

    entry: Region
    values: list[Value]
    parameters: list[Value]
    outputs: list[OutputLeaf]
    device: Device

    @property
    def end(self) -> int:
        """Return the position of the end of the entry."""
        return self.entry.end


def all_ops(region: Region) -> Iterator[ScheduledOp]:
    """Yield the ops of ``region`` and of the regions inside, by position. A loop precedes the ops of its regions."""
    for op in region.ops:
        yield op
        for inner in inner_regions(op):
            yield from all_ops(inner)


def inner_regions(op: ScheduledOp) -> tuple[Region, ...]:
    """Return the regions of a loop or conditional; no regions for other ops."""
    if isinstance(op, ScheduledWhile):
        return (op.condition, op.body)
    if isinstance(op, ScheduledConditional):
        return tuple(branch.region for branch in op.branches)
    return ()
