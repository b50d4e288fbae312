"""Builder: writes instructions into a computation and infers their shapes.

    b = Builder(computation)
    rows = b.dynamic_slice(x, [b.multiply(b.partition_id(), b.scalar(U32, 4)), b.scalar(U32, 0)], (4, 16))
    total = b.all_reduce(b.reduce(rows, (0, 1), ReductionKind.SUM), groups, ReductionKind.SUM)

Shapes have no layout. The builder simplifies nothing; passes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spmd.device import ReductionKind, ReplicaGroups
from spmd.errors import ShapeError
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import NO_ANNOTATIONS, Annotations, HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import NO_ATTRS, Attrs, CompareAttrs, Opcode
from spmd.literal import Literal
from spmd.ops import attrs as A  # noqa: N812 - attribute records read best with one letter here
from spmd.ops.custom_call import ALLOCATE_BUFFER
from spmd.ops.inference import infer_shape
from spmd.ops.reduction import build_reducer, identity_value, on_type, reduction_kind
from spmd.shape import ArrayShape, PrimitiveType, Shape, TokenShape
from spmd.source_target_pairs import SourceTargetPairs

_UNKNOWN = TokenShape()
_CHANNELED = (A.CollectiveAttrs, A.CollectivePermuteAttrs)


class ModuleScope:
    """State that the builders of one module share: one reducer per (kind, element type), and channel ids."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._reducers: dict[tuple[ReductionKind, PrimitiveType], HloComputation] = {}
        self._next_channel: int | None = None

    def reducer(self, kind: ReductionKind, element_type: PrimitiveType) -> HloComputation:
        key = (on_type(kind, element_type), element_type)
        if key not in self._reducers:
            self._reducers[key] = self._find(*key) or build_reducer(self.module, kind, element_type)
        return self._reducers[key]

    def _find(self, kind: ReductionKind, element_type: PrimitiveType) -> HloComputation | None:
        """Return the reducer that an earlier builder of this module made, if any."""
        for computation in self.module.computations:
            if (
                computation.name == f"{kind.value}_{element_type}"
                and reduction_kind(computation) is kind
            ):
                return computation
        return None

    def channel_id(self) -> int:
        """Return a channel that no instruction of the module uses."""
        if self._next_channel is None:
            used = [
                getattr(i.attrs, "channel_id", None) or 0 for i in self.module.all_instructions()
            ]
            self._next_channel = max(used, default=0) + 1
        channel = self._next_channel
        self._next_channel += 1
        return channel


class Builder:
    """Appender of instructions to ``computation``.

    ``annotations`` (metadata) are put on every instruction made; set them while lowering one instruction into several.
    """

    def __init__(self, computation: HloComputation, scope: ModuleScope | None = None) -> None:
        if computation.module is None:
            raise ShapeError(f"computation {computation.name} belongs to no module")
        self.computation = computation
        self.scope = scope or ModuleScope(computation.module)
        self.annotations: Annotations = NO_ANNOTATIONS

    def within(self, computation: HloComputation) -> Builder:
        """Return a builder for another computation of the same module, sharing reducers and channels."""
        return Builder(computation, self.scope)

    # ---- the general forms
    def create(
        self,
        opcode: Opcode,
        operands: Iterable[HloInstruction] = (),
        attrs: Attrs = NO_ATTRS,
        *,
        shape: Shape | None = None,
        calls: Iterable[HloComputation] = (),
        name: str = "",
    ) -> HloInstruction:
        """Add any instruction. ``shape`` is needed if inference leaves it open. Raises ShapeError if operands do not
        fit.
        """
        instruction = HloInstruction(
            opcode,
            shape if shape is not None else _UNKNOWN,
            operands,
            attrs,
            name=name,
            called_computations=calls,
            annotations=self.annotations,
        )
        # The groups' sizes of collectives come from the module, so the instruction needs its
        # computation.
        instruction.parent = self.computation
        try:
            inferred = infer_shape(instruction) or shape
            if inferred is None:
                raise ShapeError(f"{opcode} needs its shape to be given")
        except ShapeError:
            instruction.drop_operands()
            raise
        instruction.shape = inferred
        return self.computation.add(instruction)

    def clone(self, x: HloInstruction, operands: Iterable[HloInstruction]) -> HloInstruction:
        """Add a copy of ``x`` with other operands of the same shapes, on a channel of its own if ``x`` has one."""
        attrs = x.attrs
        if isinstance(attrs, _CHANNELED) and attrs.channel_id is not None:
            attrs = replace(attrs, channel_id=self.scope.channel_id())
        return self.computation.add(x.clone(x.shape, operands, attrs=attrs))

    def unary(self, opcode: Opcode, x: HloInstruction) -> HloInstruction:
        return self.create(opcode, (x,))

    def binary(self, opcode: Opcode, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.create(opcode, (x, y))

    # ---- leaves
    def parameter(self, number: int, shape: Shape, name: str = "") -> HloInstruction:
        return self.create(Opcode.PARAMETER, (), A.ParameterAttrs(number), shape=shape, name=name)

    def constant(self, literal: Literal) -> HloInstruction:
        return self.create(Opcode.CONSTANT, (), A.ConstantAttrs(literal), shape=literal.shape)

    def scalar(self, element_type: PrimitiveType, value: object) -> HloInstruction:
        return self.constant(Literal.of(ArrayShape(element_type, ()), value))

    def scalar_like(self, x: HloInstruction, value: object) -> HloInstruction:
        return self.scalar(x.array_shape.element_type, value)

    def full(self, shape: ArrayShape, value: object) -> HloInstruction:
        """Return a broadcast scalar."""
        return self.broadcast_scalar(self.scalar(shape.element_type, value), shape.dims)

    def identity(self, kind: ReductionKind, element_type: PrimitiveType) -> HloInstruction:
        """Return the reduction's neutral scalar."""
        return self.scalar(element_type, identity_value(kind, element_type))

    def uninitialized(self, shape: ArrayShape) -> HloInstruction:
        """Return uninitialized memory: every element must be written before it is read."""
        return self.create(Opcode.CUSTOM_CALL, (), A.CustomCallAttrs(ALLOCATE_BUFFER), shape=shape)

    def iota(
        self, element_type: PrimitiveType, dims: Sequence[int], dimension: int
    ) -> HloInstruction:
        return self.create(
            Opcode.IOTA, (), A.IotaAttrs(dimension), shape=ArrayShape(element_type, tuple(dims))
        )

    def partition_id(self) -> HloInstruction:
        return self.create(Opcode.PARTITION_ID)

    def replica_id(self) -> HloInstruction:
        return self.create(Opcode.REPLICA_ID)

    # ---- elementwise
    def add(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.ADD, x, y)

    def subtract(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.SUBTRACT, x, y)

    def multiply(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.MULTIPLY, x, y)

    def divide(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.DIVIDE, x, y)

    def remainder(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.REMAINDER, x, y)

    def minimum(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.MINIMUM, x, y)

    def maximum(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.MAXIMUM, x, y)

    def logical_and(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        return self.binary(Opcode.AND, x, y)

    def logical_not(self, x: HloInstruction) -> HloInstruction:
        return self.unary(Opcode.NOT, x)

    def negate(self, x: HloInstruction) -> HloInstruction:
        return self.unary(Opcode.NEGATE, x)

    def compare(self, x: HloInstruction, y: HloInstruction, direction: str) -> HloInstruction:
        """Compare elementwise. ``direction``: EQ NE GE GT LE LT."""
        return self.create(Opcode.COMPARE, (x, y), CompareAttrs(direction))

    def select(
        self, predicate: HloInstruction, x: HloInstruction, y: HloInstruction
    ) -> HloInstruction:
        return self.create(Opcode.SELECT, (predicate, x, y))

    def clamp(self, low: HloInstruction, x: HloInstruction, high: HloInstruction) -> HloInstruction:
        return self.create(Opcode.CLAMP, (low, x, high))

    def convert(self, x: HloInstruction, element_type: PrimitiveType) -> HloInstruction:
        return self.create(Opcode.CONVERT, (x,), shape=ArrayShape(element_type, x.dims))

    def as_type(self, x: HloInstruction, element_type: PrimitiveType) -> HloInstruction:
        """Convert ``x`` if its type is another."""
        return x if x.array_shape.element_type is element_type else self.convert(x, element_type)

    def copy(self, x: HloInstruction) -> HloInstruction:
        return self.unary(Opcode.COPY, x)

    # ---- shapes
    def broadcast(
        self, x: HloInstruction, dims: Sequence[int], result_dims: Sequence[int]
    ) -> HloInstruction:
        """Broadcast: operand dimension i becomes result dimension ``dims[i]``."""
        shape = ArrayShape(x.array_shape.element_type, tuple(result_dims))
        return self.create(Opcode.BROADCAST, (x,), A.DimensionsAttrs(tuple(dims)), shape=shape)

    def broadcast_scalar(self, x: HloInstruction, result_dims: Sequence[int]) -> HloInstruction:
        """Broadcast a scalar to every element; return the scalar itself for rank 0."""
        return self.broadcast(x, (), result_dims) if result_dims else x

    def reshape(self, x: HloInstruction, dims: Sequence[int]) -> HloInstruction:
        shape = ArrayShape(x.array_shape.element_type, tuple(dims))
        if shape.num_elements != x.array_shape.num_elements:
            raise ShapeError(f"cannot reshape {x.shape} to {shape}")
        return self.create(Opcode.RESHAPE, (x,), A.ReshapeAttrs(), shape=shape)

    def reshape_to(self, x: HloInstruction, dims: Sequence[int]) -> HloInstruction:
        """Reshape ``x``, unless it has these dimensions already."""
        return x if x.dims == tuple(dims) else self.reshape(x, dims)

    def transpose(self, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
        """Transpose: result dimension i is operand dimension ``order[i]``."""
        return self.create(Opcode.TRANSPOSE, (x,), A.DimensionsAttrs(tuple(order)))

    def transpose_by(self, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
        """Transpose ``x``, unless the dimensions keep their order."""
        return x if list(order) == sorted(order) else self.transpose(x, order)

    def reverse(self, x: HloInstruction, dims: Sequence[int]) -> HloInstruction:
        return self.create(Opcode.REVERSE, (x,), A.DimensionsAttrs(tuple(dims)))

    def slice(
        self,
        x: HloInstruction,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> HloInstruction:
        steps = tuple(strides) if strides is not None else (1,) * len(starts)
        return self.create(Opcode.SLICE, (x,), A.SliceAttrs(tuple(starts), tuple(limits), steps))

    def slice_along(self, x: HloInstruction, dim: int, start: int, limit: int) -> HloInstruction:
        """Slice elements [start, limit) of one dimension, all of the others."""
        starts, limits = [0] * len(x.dims), list(x.dims)
        starts[dim], limits[dim] = start, limit
        return self.slice(x, starts, limits)

    def dynamic_slice(
        self, x: HloInstruction, starts: Sequence[HloInstruction], sizes: Sequence[int]
    ) -> HloInstruction:
        """Slice at run-time ``starts``: one integer scalar per dimension; out-of-range starts are clamped at
        run time.
        """
        return self.create(Opcode.DYNAMIC_SLICE, (x, *starts), A.DynamicSliceAttrs(tuple(sizes)))

    def dynamic_update_slice(
        self, x: HloInstruction, update: HloInstruction, starts: Sequence[HloInstruction]
    ) -> HloInstruction:
        return self.create(Opcode.DYNAMIC_UPDATE_SLICE, (x, update, *starts))

    def pad(
        self,
        x: HloInstruction,
        value: HloInstruction,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> HloInstruction:
        between = tuple(interior) if interior is not None else (0,) * len(low)
        return self.create(Opcode.PAD, (x, value), A.PadAttrs(tuple(low), tuple(high), between))

    def concatenate(self, parts: Sequence[HloInstruction], dimension: int) -> HloInstruction:
        return self.create(Opcode.CONCATENATE, parts, A.DimensionsAttrs((dimension,)))

    # ---- computing over elements
    def reduce(
        self,
        x: HloInstruction,
        dims: Sequence[int],
        kind: ReductionKind,
        init: HloInstruction | None = None,
    ) -> HloInstruction:
        """Reduce over ``dims``, starting from ``init`` or the neutral element."""
        element_type = x.array_shape.element_type
        start = init if init is not None else self.identity(kind, element_type)
        reducer = self.scope.reducer(kind, element_type)
        return self.create(
            Opcode.REDUCE, (x, start), A.DimensionsAttrs(tuple(dims)), calls=(reducer,)
        )

    def dot(
        self,
        lhs: HloInstruction,
        rhs: HloInstruction,
        attrs: A.DotAttrs,
        element_type: PrimitiveType | None = None,
    ) -> HloInstruction:
        """Multiply; the result has the operands' wider type, or ``element_type``."""
        stated = ArrayShape(element_type, ()) if element_type is not None else None
        return self.create(Opcode.DOT, (lhs, rhs), attrs, shape=stated)

    # ---- tuples and control flow
    def tuple(self, elements: Sequence[HloInstruction]) -> HloInstruction:
        return self.create(Opcode.TUPLE, elements)

    def get_tuple_element(self, x: HloInstruction, index: int) -> HloInstruction:
        return self.create(Opcode.GET_TUPLE_ELEMENT, (x,), A.TupleIndexAttrs(index))

    def call(self, target: HloComputation, operands: Sequence[HloInstruction]) -> HloInstruction:
        return self.create(Opcode.CALL, operands, A.CallAttrs(), calls=(target,))

    def while_loop(
        self, state: HloInstruction, condition: HloComputation, body: HloComputation
    ) -> HloInstruction:
        return self.create(Opcode.WHILE, (state,), calls=(condition, body))

    def conditional(
        self,
        selector: HloInstruction,
        branches: Sequence[HloComputation],
        operands: Sequence[HloInstruction],
    ) -> HloInstruction:
        """Select a branch: a pred selects between two branches (the first if true), an s32 among any number."""
        predicated = selector.array_shape.element_type is PrimitiveType.PRED
        return self.create(
            Opcode.CONDITIONAL,
            (selector, *operands),
            A.ConditionalAttrs(predicated),
            calls=branches,
        )

    # ---- collectives: group ids are devices (replica * partitions + partition)
    def _collective(self, groups: ReplicaGroups, dimension: int | None = None) -> A.CollectiveAttrs:
        return A.CollectiveAttrs(
            groups, self.scope.channel_id(), use_global_device_ids=True, dimension=dimension
        )

    def all_reduce(
        self, x: HloInstruction, groups: ReplicaGroups, kind: ReductionKind
    ) -> HloInstruction:
        reducer = self.scope.reducer(kind, x.array_shape.element_type)
        return self.create(Opcode.ALL_REDUCE, (x,), self._collective(groups), calls=(reducer,))

    def all_gather(
        self, x: HloInstruction, groups: ReplicaGroups, dimension: int
    ) -> HloInstruction:
        return self.create(Opcode.ALL_GATHER, (x,), self._collective(groups, dimension))

    def reduce_scatter(
        self, x: HloInstruction, groups: ReplicaGroups, dimension: int, kind: ReductionKind
    ) -> HloInstruction:
        reducer = self.scope.reducer(kind, x.array_shape.element_type)
        return self.create(
            Opcode.REDUCE_SCATTER, (x,), self._collective(groups, dimension), calls=(reducer,)
        )

    def all_to_all(
        self, x: HloInstruction, groups: ReplicaGroups, dimension: int
    ) -> HloInstruction:
        """Exchange: part i of ``dimension`` goes to member i; received parts are in member order (ids: partitions)."""
        attrs = A.CollectiveAttrs(groups, self.scope.channel_id(), dimension=dimension)
        return self.create(Opcode.ALL_TO_ALL, (x,), attrs)

    def collective_permute(self, x: HloInstruction, pairs: SourceTargetPairs) -> HloInstruction:
        """Send along pairs of partitions (source, target); a device that is no target receives zeros."""
        attrs = A.CollectivePermuteAttrs(pairs, self.scope.channel_id())
        return self.create(Opcode.COLLECTIVE_PERMUTE, (x,), attrs)
