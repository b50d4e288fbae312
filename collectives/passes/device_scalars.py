"""Integer scalars that are another number on each device: read from what computes them, and written.

p = u32[] partition-id()                                   of four partitions: 0, 1, 2, 3
t = s32[4] constant({0, 0, 8, 8})
r = s32[1] dynamic-slice(t, p), dynamic_slice_sizes={1}    0, 0, 8, 8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from collectives.passes.groups import states_devices
from spmd.builder import Builder
from spmd.device_groups import DeviceGroups
from spmd.evaluator.registry import EVALUATORS
from spmd.evaluator.value import array_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.literal import Literal, NDArray
from spmd.ops import definition
from spmd.ops.attrs import DimensionsAttrs, DynamicSliceAttrs, SliceAttrs
from spmd.passes.algebraic.match import constant_array
from spmd.shape import ArrayShape, PrimitiveType

#: Largest number of instructions that compute one scalar; the offset of a slice takes about ten.
_MOST_INSTRUCTIONS: Final = 64

_S32 = PrimitiveType.S32
_U32 = PrimitiveType.U32


# ---- reading
def values_by_device(x: HloInstruction) -> NDArray | None:
    """Return, as int64[devices], the value of the integer (or pred) scalar ``x`` on each device.

    Returns None if it depends on data, or if the module's header does not state the number of devices.
    """
    assert x.parent is not None
    module = x.parent.module
    if module is None or x.dims or not states_devices(module):
        return None
    reader = _Reader(module)
    found = reader.read(x)
    if found is None:
        return None
    return np.broadcast_to(found, (device_count(module),)).astype(np.int64)


def device_count(module: HloModule) -> int:
    return module.num_partitions * module.replica_count


class _Reader:
    """Values with the devices as their first axis, of size 1 if all have the same."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self._known: dict[HloInstruction, NDArray | None] = {}

    def read(self, x: HloInstruction) -> NDArray | None:
        if x not in self._known:
            is_number = isinstance(x.shape, ArrayShape) and (
                x.shape.element_type.is_integer or x.shape.element_type is PrimitiveType.PRED
            )
            few = len(self._known) < _MOST_INSTRUCTIONS
            self._known[x] = None  # not yet known; stays None if the analysis is too large
            self._known[x] = self._compute(x) if is_number and few else None
        return self._known[x]

    def _compute(self, x: HloInstruction) -> NDArray | None:
        partitions, replicas = self.module.num_partitions, self.module.replica_count
        if x.opcode is Opcode.PARTITION_ID:
            return np.tile(np.arange(partitions, dtype=np.uint32), replicas)
        if x.opcode is Opcode.REPLICA_ID:
            return np.repeat(np.arange(replicas, dtype=np.uint32), partitions)
        if x.opcode is Opcode.CONSTANT:
            elements = constant_array(x)
            return elements[np.newaxis] if elements is not None else None
        if x.opcode is Opcode.IOTA:
            return array_of(EVALUATORS[x.opcode](x, ()))[np.newaxis]
        compute = _MOVING.get(x.opcode) or (_elementwise if _is_elementwise(x) else None)
        operands = [self.read(y) for y in x.operands] if compute is not None else []
        known = [y for y in operands if y is not None]
        if compute is None or len(known) < len(operands):
            return None
        return compute(x, known)


#: Function of an instruction and the values of its operands, whose first dimension is the device.
_Compute: TypeAlias = Callable[[HloInstruction, Sequence[NDArray]], NDArray]


def _is_elementwise(x: HloInstruction) -> bool:
    """Return whether the opcode alone determines each element of the result from the operands' elements at the same
    index.
    """
    if not definition(x.opcode).elementwise or x.called_computations or not x.operands:
        return False
    return x.opcode in EVALUATORS and all(
        isinstance(y.shape, ArrayShape) and y.dims == x.dims for y in x.operands
    )


def _elementwise(x: HloInstruction, operands: Sequence[NDArray]) -> NDArray:
    with np.errstate(all="ignore"):
        return array_of(EVALUATORS[x.opcode](x, tuple(operands)))


def _reshape(x: HloInstruction, operands: Sequence[NDArray]) -> NDArray:
    return operands[0].reshape(operands[0].shape[0], *x.dims)


def _broadcast(x: HloInstruction, operands: Sequence[NDArray]) -> NDArray:
    (value,) = operands
    dims = x.attrs_as(DimensionsAttrs).dimensions
    spread = [1] * len(x.dims)
    for d, n in zip(dims, value.shape[1:], strict=True):
        spread[d] = n
    order = (0, *(1 + i for i in sorted(range(len(dims)), key=dims.__getitem__)))
    spread_out = value.transpose(order).reshape(value.shape[0], *spread)
    return np.broadcast_to(spread_out, (value.shape[0], *x.dims))


def _slice(x: HloInstruction, operands: Sequence[NDArray]) -> NDArray:
    attrs = x.attrs_as(SliceAttrs)
    parts = zip(attrs.starts, attrs.limits, attrs.strides, strict=True)
    return operands[0][:, *(slice(*part) for part in parts)]


def _dynamic_slice(x: HloInstruction, operands: Sequence[NDArray]) -> NDArray:
    value, *starts = operands
    sizes = x.attrs_as(DynamicSliceAttrs).sizes
    devices = max(len(y) for y in operands)
    rank = len(sizes)
    indices = []
    for d, (start, size, n) in enumerate(zip(starts, sizes, value.shape[1:], strict=True)):
        first = np.clip(start.astype(np.int64), 0, n - size).reshape(-1, *(1,) * rank)
        indices.append(first + np.arange(size).reshape(size, *(1,) * (rank - 1 - d)))
    owner = np.arange(devices) if len(value) > 1 else np.zeros(devices, np.int64)
    return np.asarray(value[owner.reshape(-1, *(1,) * rank), *indices])


_MOVING: Final[dict[Opcode, _Compute]] = {
    Opcode.RESHAPE: _reshape,
    Opcode.BROADCAST: _broadcast,
    Opcode.SLICE: _slice,
    Opcode.DYNAMIC_SLICE: _dynamic_slice,
}


# ---- writing
def scalar_by_device(b: Builder, values: Sequence[int]) -> HloInstruction:
    """Return s32[]: ``values[device]``, by arithmetic if the numbers are evenly spaced, else from a table."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if any(later - earlier != step for earlier, later in pairwise(values)):
        table = Literal.of(ArrayShape(_S32, (len(values),)), np.asarray(values, np.int32))
        taken = b.dynamic_slice(b.constant(table), [_device_id(b)], (1,))
        return b.reshape(taken, ())
    if not step:
        return b.scalar(_S32, values[0])
    return _plus(b, _times(b, _device_id(b), step), values[0])


def flag_by_device(b: Builder, flags: Sequence[bool]) -> HloInstruction:
    """Return pred[]: ``flags[device]``."""
    return b.compare(scalar_by_device(b, [int(flag) for flag in flags]), b.scalar(_S32, 0), "NE")


def position_scalar(
    b: Builder, groups: DeviceGroups, *, shift: int = 0, times: int = 1, start: int = 0
) -> HloInstruction:
    """Return s32[]: (position in its group + ``shift``) % size * ``times`` + ``start``, for groups that cover all
    devices.

    If the groups are an iota tile, the number of instructions does not depend on the number of devices; other groups
    are looked up in a table.

        [4,2]<=[8]               position = id % 2
        [2,4]<=[2,2,2]T(1,0,2)    position = id / 4 * 2 + id % 2
    """
    devices, size = _devices_of(b), groups.size
    assert groups.covers(devices)
    assert size is not None
    if groups.member_strides is None:
        positions = (groups.positions(devices) + shift) % size * times + start
        return scalar_by_device(b, positions.tolist())
    terms, left = [], size
    for stride, n in groups.member_strides:
        left //= n
        digit = _device_id(b)
        if stride > 1:
            digit = b.divide(digit, b.scalar(_S32, stride))
        if stride * n < devices:
            digit = b.remainder(digit, b.scalar(_S32, n))
        terms.append(_times(b, digit, left))
    if not terms:
        return b.scalar(_S32, start)
    position = reduce(b.add, terms)
    if shift % size:
        position = b.remainder(_plus(b, position, shift % size), b.scalar(_S32, size))
    return _plus(b, _times(b, position, times), start)


def _times(b: Builder, x: HloInstruction, factor: int) -> HloInstruction:
    return x if factor == 1 else b.multiply(x, b.scalar(_S32, factor))


def _plus(b: Builder, x: HloInstruction, term: int) -> HloInstruction:
    return b.add(x, b.scalar(_S32, term)) if term else x


def _devices_of(b: Builder) -> int:
    assert b.computation.module is not None
    return device_count(b.computation.module)


def _device_id(b: Builder) -> HloInstruction:
    """Return s32[]: replica * partitions + partition."""
    module = b.computation.module
    assert module is not None
    if module.replica_count == 1:
        return b.convert(b.partition_id(), _S32)
    if module.num_partitions == 1:
        return b.convert(b.replica_id(), _S32)
    replica = b.multiply(b.replica_id(), b.scalar(_U32, module.num_partitions))
    return b.convert(b.add(replica, b.partition_id()), _S32)
