"""The least time a step can take on this machine: what its kernels must compute and move, at the best measured rates.

A kernel takes the larger of two times: its flops at the best rate of a matrix product of its shape, and its compulsory
bytes at the rate of a copy of as many. A collective takes the bytes that a device receives, at the rate at which a core
reads as many that another one has just written. Views (broadcasts, transposes, slices) are free: a kernel that reads a
view reads the array behind it.

The limit is rather too low than too high. Unless it is told where operands lie in a step (benchmarks/timing/reuse.py),
they count as lying in the smallest cache that holds them, although other kernels have evicted them; products are timed
again and again on the same matrices, which are row-major; copies of a loop's state, and the wait for a device that is
late, do not count. All rates are of cores that are busy together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.timing.kernel_bytes import kernel_bytes
from benchmarks.timing.rates import ProductShape, Rates
from launch.calibration.timing import cores
from runtime.buffers.view_ops import is_view
from spmd.analysis.cost import op_cost
from spmd.analysis.trip_count import trip_count
from spmd.analysis.wire import result_bytes, wire_weight
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import CALLERS, WEIGHTLESS
from spmd.ops.attrs import DotAttrs
from spmd.ops.opdef import byte_size, operands_and_result
from spmd.shape import PrimitiveType

_NOT_KERNELS = WEIGHTLESS | {Opcode.IOTA}
_RUN_THEIR_CALLEES = CALLERS | {Opcode.ASYNC_START}
#: The large cube whose rate counts for convolutions, which are not products of one shape.
LARGE = ProductShape(1, 1024, 1024, 1024)
_F32, _F64 = PrimitiveType.F32, PrimitiveType.F64
#: Types whose products can be timed as they are; complex ones count as products of their parts, all others as f32.
_MEASURED = frozenset({_F32, _F64, PrimitiveType.BF16, PrimitiveType.F16})
_PARTS = {PrimitiveType.C128: _F64}


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds of one device that has a core of its own while all cores are busy."""

    compute: float = 0.0
    memory: float = 0.0
    wire: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.wire

    def __add__(self, other: Limit) -> Limit:
        return Limit(
            self.compute + other.compute, self.memory + other.memory, self.wire + other.wire
        )

    def times(self, count: int) -> Limit:
        return Limit(self.compute * count, self.memory * count, self.wire * count)


@dataclass(frozen=True, slots=True)
class Limits:
    """The least time of kernels of a program for ``devices`` devices.

    ``lying`` gives by an instruction's name the seconds of a byte from where a step has what it touches. Without an
    entry a byte takes as long as in a copy of as many bytes as the kernel moves.
    """

    rates: Rates
    devices: int
    lying: Mapping[str, float] = field(default_factory=dict)

    def of_computation(self, computation: HloComputation) -> Limit:
        return sum(map(self.of, computation.instructions), Limit())

    def of(self, x: HloInstruction) -> Limit:
        """Return the limit of one execution of ``x``."""
        if x.opcode in _NOT_KERNELS or _is_free(x):
            return Limit()
        if x.opcode in KIND:
            received = result_bytes(x) * wire_weight(x, self.devices)
            return Limit(wire=received / self.rates.exchange(received))
        if x.opcode in _RUN_THEIR_CALLEES:
            inside = [self.of_computation(c) for c in x.called_computations]
            if x.opcode is Opcode.CONDITIONAL:
                return max(inside, key=lambda limit: limit.seconds)
            count = trip_count(x) if x.opcode is Opcode.WHILE else 1
            return sum(inside, Limit()).times(1 if count is None else count)
        moved = compulsory_bytes(x)
        memory = moved * self.lying.get(x.name, 1 / self.rates.bandwidth(moved))
        compute = sum(op_cost(p).flops / self.rates.flops(shape) for p, shape in _products(x))
        return Limit(compute=compute) if compute > memory else Limit(memory=memory)


def step_limit(module: HloModule, rates: Rates, lying: Mapping[str, float] | None = None) -> Limit:
    """Return the limit of one step of a per-device program; devices beyond the number of cores take turns."""
    devices = module.num_partitions * module.replica_count
    limits = Limits(rates, devices, lying or {})
    return limits.of_computation(module.entry).times(math.ceil(devices / cores()))


def compulsory_bytes(x: HloInstruction) -> float:
    """Return the bytes that the op must read and write: each operand once, a view by the bytes that it shows."""
    stated = op_cost(x).bytes_accessed
    if x.opcode is Opcode.FUSION:
        return kernel_bytes(x)
    if stated != operands_and_result(x, byte_size):
        return stated  # a gather's, a slice's: parts of operands
    return x.shape.byte_size + sum(_shown(operand) for operand in dict.fromkeys(x.operands))


def _is_free(x: HloInstruction) -> bool:
    if x.opcode is Opcode.CONVERT:
        return x.array_shape.element_type is x.operand(0).array_shape.element_type
    return is_view(x)


def _shown(operand: HloInstruction) -> float:
    """Return the bytes that a reader of ``operand`` must read."""
    if operand.opcode is Opcode.IOTA:
        return 0.0
    if operand.operands and _is_free(operand):
        return min(float(operand.shape.byte_size), _shown(operand.operands[0]))
    return operand.shape.byte_size


def _products(x: HloInstruction) -> Iterator[tuple[HloInstruction, ProductShape]]:
    """Yield the matrix products and convolutions that ``x`` is or its fusion contains, with their shapes."""
    inside = x.called_computations[0].instructions if x.opcode is Opcode.FUSION else [x]
    for one in inside:
        shape = _product_shape(one)
        if shape is not None:
            yield one, shape


def _product_shape(x: HloInstruction) -> ProductShape | None:
    if x.opcode is Opcode.CONVOLUTION:
        return LARGE
    if x.opcode is not Opcode.DOT:
        return None
    attrs = x.attrs_as(DotAttrs)
    left, right = (operand.array_shape for operand in x.operands)
    batch = math.prod(left.dims[d] for d in attrs.lhs_batch)
    k = math.prod(left.dims[d] for d in attrs.lhs_contracting)
    m, n = left.num_elements // max(batch * k, 1), right.num_elements // max(batch * k, 1)
    if not batch * m * k * n:
        return None
    return ProductShape(batch, m, k, n, _types(x))


def _types(x: HloInstruction) -> tuple[PrimitiveType, PrimitiveType, PrimitiveType]:
    """Return the types that are timed for a product: its own, or one type for all where one of them is not timed."""
    lhs, rhs = (operand.array_shape.element_type for operand in x.operands)
    types = (lhs, rhs, x.array_shape.element_type)
    return types if _MEASURED.issuperset(types) else (_PARTS.get(lhs, _F32),) * 3
