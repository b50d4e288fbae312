"""Traversal of a module that creates the positions, values and ops of a Program.

Visitors in ``VISITORS`` handle opcodes that are no ordinary ops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import field
from typing import TypeAlias

from runtime.buffers.program import (
    Read,
    Region,
    ScheduledCopy,
    ScheduledOp,
    Tree,
    Value,
    ValueView,
    tree_leaves,
)
from runtime.buffers.view_ops import VIEW_RULES
from runtime.lowering import LOWERINGS, result_order
from runtime.program.strides import StridedView
from spmd.analysis.library_convolutions import is_library_convolution
from spmd.errors import UnsupportedError
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs
from spmd.registry import Registry
from spmd.shape import ArrayShape, Shape, ShapeIndex, TupleShape, subshape

Environment: TypeAlias = dict[HloInstruction, Tree]
Visitor: TypeAlias = Callable[["Linearizer", HloInstruction, tuple[Tree, ...], Region], Tree]

#: Visitors of instructions that are not ordinary ops, by opcode.
VISITORS: Registry[Opcode, Visitor] = Registry("linearizer")

_PAIRED = (
    " that it cannot pair: it runs a send and a recv of one channel between devices, in one computation and with equal "
    "_xla_send_recv_source_target_pairs, if the sent value does not depend on the recv"
)
_REASONS = {Opcode.SEND: _PAIRED, Opcode.RECV: _PAIRED}


@dataclass
class Linearizer:
    """State of one traversal of a module.

    values: all values so far. starts: ops of the start instructions so far. position: next unused position.
    shared_copies: copies of parameters that other ops may read, too, by the source, the order and the region.
    """

    values: list[Value] = field(default_factory=list)
    starts: dict[HloInstruction, ScheduledOp] = field(default_factory=dict)
    position: int = 0
    shared_copies: dict[tuple[Value, StridedView, tuple[int, ...], Region], ValueView] = field(
        default_factory=dict
    )

    # ---- positions, values, reads
    def next_position(self) -> int:
        """Return the next unused position, and use it."""
        self.position += 1
        return self.position - 1

    def new_value(
        self, name: str, shape: ArrayShape, region: Region, start: int, memory_space: int
    ) -> Value:
        """Create a value that is written at position ``start`` in ``region``."""
        value = Value(name, shape.without_layout(), region, start, memory_space)
        self.values.append(value)
        return value

    def full_view(self, value: Value) -> ValueView:
        """Return the view of the entire ``value``."""
        return ValueView(value, value.view)

    def read(
        self, op: ScheduledOp, views: tuple[ValueView, ...], position: int, region: Region
    ) -> None:
        """Record that ``op`` reads ``views``, its array operands in order, at ``position`` in ``region``."""
        for number, view in enumerate(views):
            view.value.reads.append(Read(op, number, view, position, region))

    # ---- regions
    def open_region(self, name: str, parent: Region | None) -> Region:
        """Create a region in ``parent``. It begins at the next position, which no op has."""
        self.next_position()
        return Region(name, parent)

    def close_region(self, region: Region) -> None:
        """End ``region`` at the next position."""
        region.end = self.next_position()

    def run_computation(
        self, computation: HloComputation, arguments: tuple[Tree, ...], region: Region
    ) -> Tree:
        """Linearize ``computation`` within ``region``. Returns the tree of its root."""
        env: Environment = {}
        for instruction in computation.instructions:
            if instruction.opcode is Opcode.PARAMETER:
                env[instruction] = arguments[instruction.attrs_as(ParameterAttrs).number]
            else:
                env[instruction] = self.visit(instruction, env, region)
        return env[computation.root]

    def visit(self, instruction: HloInstruction, env: Environment, region: Region) -> Tree:
        """Return the tree of ``instruction``: by its visitor, as a view of its operand, or as a new op in ``region``.

        env: trees of the earlier instructions of the computation.
        """
        operands = tuple(env[operand] for operand in instruction.operands)
        special = VISITORS.get(instruction.opcode)
        if special is not None:
            return special(self, instruction, operands, region)
        rule = VIEW_RULES.get(instruction.opcode)
        if rule is not None and isinstance(source := operands[0], ValueView):
            view = rule(instruction, source.view)
            if view is not None:
                seen = ValueView(source.value, view)
                return self.in_space(
                    instruction, instruction.name, seen, instruction.array_shape, region
                )
        return self.add_step(instruction, operands, region)

    # ---- ops
    def add_step(
        self,
        instruction: HloInstruction,
        operands: tuple[Tree, ...],
        region: Region,
        index: ShapeIndex = (),
    ) -> Tree:
        """Add an op that reads the leaves of ``operands`` and writes a value for each array leaf of its result.

        index: part of the instruction's shape that is the op's result. Operands in layouts that the op does not accept
        are copied first. Returns the tree of the result. Raises UnsupportedError if the runtime does not run the
        opcode.
        """
        lowering = LOWERINGS.get(instruction.opcode)
        if lowering is None:
            reason = _REASONS.get(instruction.opcode, "")
            raise UnsupportedError(
                f"{instruction!r}: the runtime does not run {instruction.opcode}{reason}"
            )
        views = tuple(leaf for operand in operands for leaf in tree_leaves(operand))
        layouts = lowering.layouts(instruction, tuple(v.view for v in views))
        views = tuple(
            self.operand_copy(instruction, i, view, layouts[i], region) if i in layouts else view
            for i, view in enumerate(views)
        )
        op = ScheduledOp(instruction, self.next_position(), region, views)
        region.ops.append(op)
        self.read(op, views, op.position, region)
        op.scratch = tuple(
            self.new_value(f"{instruction.name}.scratch", shape, region, op.position, 0)
            for shape in lowering.scratch(instruction, tuple(v.view for v in views))
        )
        tree = self.new_results(op, subshape(instruction.shape, index), index)
        op.results = tuple(leaf.value for leaf in tree_leaves(tree))
        return tree

    def new_results(self, op: ScheduledOp, shape: Shape, index: ShapeIndex = ()) -> Tree:
        """Return a tree of ``shape``, which is at ``index`` in the result, with new values that ``op`` writes."""
        if isinstance(shape, TupleShape):
            return tuple(
                self.new_results(op, element, (*index, i))
                for i, element in enumerate(shape.elements)
            )
        if not isinstance(shape, ArrayShape):
            return None
        name = leaf_name(op.instruction.name, index)
        value = self.new_value(name, shape, op.region, op.position, shape.memory_space)
        if not index and isinstance(op.instruction.shape, ArrayShape):
            value.order = result_order(op.instruction)
        return self.full_view(value)

    # ---- copies
    def lay_out(
        self,
        instruction: HloInstruction,
        name: str,
        view: ValueView,
        order: tuple[int, ...],
        region: Region,
        memory_space: int,
    ) -> ValueView:
        """Add a copy of ``view`` in memory space ``memory_space``, dense in dimension order ``order``."""
        op = ScheduledCopy(instruction, self.next_position(), region, (view,))
        region.ops.append(op)
        self.read(op, op.operands, op.position, region)
        shape = ArrayShape(view.view.element_type, view.view.dims)
        value = self.new_value(name, shape, region, op.position, memory_space)
        value.order = order
        op.results = (value,)
        return self.full_view(value)

    def operand_copy(
        self,
        instruction: HloInstruction,
        operand: int,
        view: ValueView,
        order: tuple[int, ...],
        region: Region,
    ) -> ValueView:
        """Return a copy of operand ``operand`` in dimension order ``order``, in the same memory space.

        A parameter that convolutions for a GPU's library read is copied once: a filter for the convolution and for its
        gradient.
        """
        key = (view.value, view.view, order, region)
        if key in self.shared_copies and is_library_convolution(instruction):
            return self.shared_copies[key]
        name = f"{instruction.name}.operand{operand}"
        copy = self.lay_out(instruction, name, view, order, region, view.value.memory_space)
        if view.value.parameter is not None and is_library_convolution(instruction):
            self.shared_copies[key] = copy
        return copy

    def in_space(
        self,
        instruction: HloInstruction,
        name: str,
        view: ValueView,
        shape: ArrayShape,
        region: Region,
    ) -> ValueView:
        """Return ``view`` if it is in the memory space of ``shape``, else a row-major copy ``name`` in that space."""
        if view.value.memory_space == shape.memory_space:
            return view
        order = tuple(range(shape.rank))
        return self.lay_out(instruction, name, view, order, region, shape.memory_space)

    def own_copy(
        self,
        instruction: HloInstruction,
        leaf: int,
        view: ValueView,
        overwritten: Collection[Value],
        region: Region,
    ) -> ValueView:
        """Return ``view``, or a copy of it if its value is one of ``overwritten``.

        Copies at the end of the region overwrite these values. The early copy ensures that none of them reads a value
        that another has overwritten, as in a loop that swaps two leaves.
        """
        if view.value not in overwritten:
            return view
        order = tuple(range(len(view.view.dims)))
        return self.operand_copy(instruction, leaf, view, order, region)


def leaf_name(name: str, index: ShapeIndex) -> str:
    """Return the name of leaf ``index`` of the result of instruction ``name``."""
    return f"{name}{{{','.join(map(str, index))}}}" if index else name


def rebuild(shape: Shape, views: Iterator[ValueView]) -> Tree:
    """Return a tree of ``shape`` with the next of ``views`` for each array leaf."""
    if isinstance(shape, TupleShape):
        return tuple(rebuild(element, views) for element in shape.elements)
    return next(views) if isinstance(shape, ArrayShape) else None
