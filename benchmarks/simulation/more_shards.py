"""A per-device program whose parameters are sharded over several times as many devices: replicas join their shards.

Of K replicas of S devices, each K / factor replicas remain, of factor S devices. Device d of the new replicas holds
part d of what S devices held in larger parts: parameters, gradients and the state of the optimizer are ``factor`` times
smaller, gathers and sums within a replica have ``factor`` times as many members, and sums over replicas as many fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.simulation.dimension_classes import Dimension, DimensionClasses
from collectives.passes.device_scalars import values_by_device
from collectives.passes.groups import named_groups
from spmd.builder import Builder
from spmd.device import IotaTile
from spmd.device_groups import DeviceGroups
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.literal import Literal, NDArray
from spmd.ops.attrs import CollectiveAttrs, ConstantAttrs, DynamicSliceAttrs, SliceAttrs
from spmd.ops.groups import participating_groups
from spmd.shape import ArrayShape, PrimitiveType, Shape, ShapeIndex, TupleShape, leaves


def with_more_shards(module: HloModule, factor: int) -> HloModule:
    """Return the per-device program ``module`` for the same devices, with ``factor`` replicas joined to one.

    The devices of a replica are those among which parameters are gathered: consecutive ones. Raises UnsupportedError if
    nothing or not everything is gathered among the same number of devices, if the number of replicas or the size of a
    shard is no multiple of ``factor``, or if an operation on shards has no rule.
    """
    program = clone_module(module)
    devices = program.num_partitions
    collectives = [x for x in program.all_instructions() if isinstance(x.attrs, CollectiveAttrs)]
    groups = {x: participating_groups(x, devices, 1) for x in collectives}
    size = _shard_count(program, groups)
    if devices // size % factor:
        raise UnsupportedError(f"{program.name} has {devices // size} replicas, not {factor} n")
    layout = _Layout(devices, size, factor)
    shards = _Shards(program, layout, groups)
    shards.shrink()
    for x, found in groups.items():
        _join(x, found, layout)
    for x in program.all_instructions():
        x.sharding = None
    for computation in program.computations:
        computation.remove_unused(lambda x: x.opcode in (Opcode.CUSTOM_CALL, Opcode.WHILE))
    program.entry_layout = None
    return program


def _shard_count(program: HloModule, groups: Mapping[HloInstruction, DeviceGroups]) -> int:
    """Return the number of devices over which parameters are sharded."""
    sizes = {found.size for x, found in groups.items() if any(_parts(x))}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        raise UnsupportedError(
            f"{program.name} gathers in groups of {len(sizes)} sizes, not of one"
        )
    return size


@dataclass(frozen=True)
class _Layout:
    """Replicas of ``size`` devices, of which ``factor`` consecutive ones are joined."""

    devices: int
    size: int
    factor: int

    def within(self, size: int) -> DeviceGroups:
        return DeviceGroups.of_lines(_lines((self.devices // size, size), transposed=False))

    def across(self, size: int) -> DeviceGroups:
        return DeviceGroups.of_lines(_lines((self.devices // size, size), transposed=True))

    @property
    def joined(self) -> int:
        return self.size * self.factor


def _lines(dims: tuple[int, int], *, transposed: bool) -> IotaTile:
    count, size = dims
    if transposed:
        return IotaTile((size, count), dims, (1, 0))
    return IotaTile(dims, (count * size,), (0,))


def _join(x: HloInstruction, groups: DeviceGroups, layout: _Layout) -> None:
    """Give the collective ``x`` the groups of larger replicas; remove one that is left with groups of one device."""
    if groups == layout.within(layout.size):
        found = layout.within(layout.joined)
    elif groups == layout.across(layout.size):
        found = layout.across(layout.joined)
    elif groups.size == layout.devices:
        return
    else:
        raise UnsupportedError(
            f"{x.name}: its groups are neither replicas nor lie across all of them"
        )
    if found.size == 1 and x.num_operands == 1 and x.opcode is Opcode.ALL_REDUCE:
        assert x.parent is not None
        x.parent.replace(x, x.operand(0))
        return
    x.attrs = replace(x.attrs_as(CollectiveAttrs), replica_groups=named_groups(found))


class _Shards:
    """The dimensions of a program along which each device has one part of ``layout.size``."""

    def __init__(
        self, program: HloModule, layout: _Layout, groups: Mapping[HloInstruction, DeviceGroups]
    ) -> None:
        self._program = program
        self._layout = layout
        self._classes = DimensionClasses(program)
        within = layout.within(layout.size)
        self._sharded = {
            self._classes.representative(one)
            for x, found in groups.items()
            if found == within
            for one in _parts(x)
        }

    def shrink(self) -> None:
        """Divide the sizes of all sharded dimensions."""
        instructions = list(self._program.all_instructions())
        sharded = {x: set(self._dimensions_of(x)) for x in instructions}
        for x in self._classes.unknown:
            if sharded[x] or any(sharded[operand] for operand in x.operands):
                raise UnsupportedError(f"{x.name}: a {x.opcode} of shards has no rule")
        starts = [x for x in instructions if x.opcode is Opcode.DYNAMIC_SLICE]
        for x in starts:
            self._move_part(x, sharded)
        for x in instructions:
            if sharded[x]:
                shape = self._smaller(x.shape, sharded[x], x.name)
                _require_no_elements(x)
                x.shape = shape
                if isinstance(x.attrs, DynamicSliceAttrs):
                    x.attrs = DynamicSliceAttrs(x.dims)
                if isinstance(x.attrs, SliceAttrs):
                    x.attrs = self._whole_slice(x, x.attrs, {d for _, d in sharded[x]})

    def _dimensions_of(self, x: HloInstruction) -> Iterator[tuple[ShapeIndex, int]]:
        for index, leaf in leaves(x.shape):
            if isinstance(leaf, ArrayShape):
                for d in range(leaf.rank):
                    if self._classes.representative((x, index, d)) in self._sharded:
                        yield index, d

    def _smaller(self, shape: Shape, sharded: set[tuple[ShapeIndex, int]], name: str) -> Shape:
        if isinstance(shape, TupleShape):
            return TupleShape(
                tuple(
                    self._smaller(one, {(i[1:], d) for i, d in sharded if i[0] == n}, name)
                    for n, one in enumerate(shape.elements)
                )
            )
        if not isinstance(shape, ArrayShape):
            return shape
        dims = list(shape.dims)
        for _, d in sharded:
            if dims[d] % self._layout.factor:
                raise UnsupportedError(f"{name}: {dims[d]} is no multiple of {self._layout.factor}")
            dims[d] //= self._layout.factor
        return replace(shape, dims=tuple(dims))

    def _move_part(
        self, x: HloInstruction, sharded: Mapping[HloInstruction, set[tuple[ShapeIndex, int]]]
    ) -> None:
        """Let the dynamic-slice ``x`` of a whole array take the smaller part of its device."""
        whole = {d for _, d in sharded[x.operand(0)]}
        for d in sorted({d for _, d in sharded[x]} - whole):
            start, part = x.operand(1 + d), x.dims[d]
            found = values_by_device(start)
            expected = np.arange(self._layout.devices) % self._layout.size * part
            if found is None or not np.array_equal(found, expected):
                raise UnsupportedError(f"{x.name}: device d does not take part d of the array")
            assert x.parent is not None
            b = Builder(x.parent)
            new = _offset(b, self._layout, part // self._layout.factor)
            x.replace_operand(1 + d, b.as_type(new, start.array_shape.element_type))

    def _whole_slice(self, x: HloInstruction, attrs: SliceAttrs, dims: set[int]) -> SliceAttrs:
        if any(attrs.starts[d] or attrs.strides[d] != 1 for d in dims):
            raise UnsupportedError(f"{x.name}: a slice of shards has no rule")
        limits = (x.dims[d] if d in dims else limit for d, limit in enumerate(attrs.limits))
        return replace(attrs, limits=tuple(limits))


def _offset(b: Builder, layout: _Layout, part: int) -> HloInstruction:
    """Return s32[]: the first element of the part of a device, from tables, as partitioners of XLA state it."""
    positions = np.arange(layout.devices, dtype=np.uint32) % layout.joined
    position = _looked_up(b, PrimitiveType.U32, positions, b.partition_id())
    offsets = np.arange(layout.joined, dtype=np.int32) * part
    return _looked_up(b, PrimitiveType.S32, offsets, position)


def _looked_up(
    b: Builder, kind: PrimitiveType, values: NDArray, index: HloInstruction
) -> HloInstruction:
    table = b.constant(Literal.of(ArrayShape(kind, values.shape), values))
    return b.reshape(b.dynamic_slice(table, [index], (1,)), ())


def _parts(x: HloInstruction) -> Iterator[Dimension]:
    """Yield the dimension of a part of an array that ``x`` gathers from or scatters to devices."""
    along = x.attrs_as(CollectiveAttrs).dimension
    if along is not None and x.opcode in (Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER):
        yield (x.operand(0) if x.opcode is Opcode.ALL_GATHER else x), (), along


def _require_no_elements(x: HloInstruction) -> None:
    """Raise UnsupportedError if ``x`` is a constant of several elements, which a part does not determine."""
    if isinstance(x.attrs, ConstantAttrs):
        raise UnsupportedError(f"{x.name}: a constant cannot have smaller shards")
