"""How long a step of a scheduled program takes on a described machine, by the sum over its thunks.

A device has a core of its own while all cores are busy; devices beyond the number of cores take turns. Kernels are
priced as fusion prices them (``runtime/fusion/kernel_kinds.py``); products by their flops, and the bytes that are
packed for them; collectives by what each device sends and a way's latency; what has no price of its own by its bytes
and flops. Views cost nothing, loops whose trips are not known count one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from runtime.buffers.view_ops import is_view
from runtime.fusion.kernel_kinds import KernelKinds
from runtime.fusion.prices import Prices
from spmd.analysis.cost import op_cost
from spmd.analysis.trip_count import trip_count
from spmd.analysis.wire import KIND, result_bytes, wire_weight
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.machine.description import Exchange, MachineDescription
from spmd.ops.opdef import OPS
from spmd.registry import Registry
from spmd.shape import ArrayShape, PrimitiveType

#: (predictor, instruction) -> seconds of one execution.
Price: TypeAlias = Callable[["StepPredictor", HloInstruction], float]

PRICES: Registry[Opcode, Price] = Registry("price of an instruction")

#: Of values that are there already, or that another instruction's price holds.
_FREE = frozenset(
    {
        Opcode.PARAMETER,
        Opcode.CONSTANT,
        Opcode.TUPLE,
        Opcode.GET_TUPLE_ELEMENT,
        Opcode.AFTER_ALL,
        Opcode.OPT_BARRIER,
        Opcode.ALL_REDUCE_DONE,
        Opcode.ALL_GATHER_DONE,
        Opcode.COLLECTIVE_PERMUTE_DONE,
        Opcode.ASYNC_DONE,
    }
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of one step, and what share of them each opcode has, the largest first."""

    seconds: float
    by_opcode: tuple[tuple[str, float], ...]


def predicted_step(module: HloModule, machine: MachineDescription, cores: int) -> Prediction:
    """Of a scheduled per-device module whose devices share ``cores`` cores."""
    predictor = StepPredictor(machine, module.num_partitions * module.replica_count)
    one = predictor.computation(module.entry)
    turns = math.ceil(predictor.devices / cores)
    shares = sorted(predictor.by_opcode.items(), key=lambda share: -share[1])
    return Prediction(one * turns, tuple((name, s * turns) for name, s in shares))


@dataclass
class StepPredictor:
    """``by_opcode``: seconds so far of one device."""

    machine: MachineDescription
    devices: int
    by_opcode: dict[str, float] = field(default_factory=dict)
    _kinds: KernelKinds = field(init=False)

    def __post_init__(self) -> None:
        self._kinds = KernelKinds(Prices(self.machine))

    def computation(self, computation: HloComputation, times: float = 1.0) -> float:
        """Seconds of ``times`` executions."""
        return sum(self._noted(x, times) for x in computation.instructions)

    def _noted(self, x: HloInstruction, times: float) -> float:
        if x.opcode in _FREE or is_view(x):
            return 0.0
        if x.opcode is Opcode.WHILE:
            trips = trip_count(x) or 1
            condition, body = x.called_computations
            return self.computation(condition, times * (trips + 1)) + self.computation(
                body, times * trips
            )
        if x.opcode in (Opcode.CALL, Opcode.ASYNC_START):
            return sum(self.computation(callee, times) for callee in x.called_computations)
        if x.opcode is Opcode.CONDITIONAL:
            return max(self.computation(callee, times) for callee in x.called_computations)
        seconds = times * self.instruction(x)
        name = x.opcode.value
        self.by_opcode[name] = self.by_opcode.get(name, 0.0) + seconds
        return seconds

    def instruction(self, x: HloInstruction) -> float:
        """One execution of an instruction that calls no computations but as a part of itself."""
        if x.opcode in KIND:
            return self._collective(x)
        if x.opcode in PRICES:
            return PRICES[x.opcode](self, x)
        return self.kernel(x)

    def kernel(self, x: HloInstruction) -> float:
        """A loop, rows or a fusion as fusion prices it; anything else by its bytes and flops."""
        if x.opcode is Opcode.FUSION:
            (fused,) = x.called_computations
            root = fused.root
            roots = tuple(root.operands) if root.opcode is Opcode.TUPLE else (root,)
            outside = (*fused.parameters, root) if root.opcode is Opcode.TUPLE else fused.parameters
            members = [one for one in fused.instructions if one not in outside]
            inputs = dict.fromkeys(fused.parameters)
        else:
            roots, members, inputs = (x,), [x], dict.fromkeys(x.operands)
            if x.opcode is not Opcode.REDUCE and not OPS[x.opcode].elementwise:
                return self.streamed(x)
        if not all(isinstance(root.shape, ArrayShape) for root in roots):
            return self.streamed(x)
        cost = self._kinds.kind(roots, dict.fromkeys(members), inputs).cost
        return self.streamed(x) if cost is None else cost.seconds

    def streamed(self, x: HloInstruction, passes: float = 1.0) -> float:
        """Bytes at the rate of a copy of as many, ``passes`` times, and flops at that of additions."""
        cost = op_cost(x)
        simple = self.machine.rates_of(_element_type(x)).simple
        work = cost.flops / simple + passes * self.moved(cost.bytes_accessed)
        return self.machine.thunk_seconds + self.machine.kernel_seconds + work

    def moved(self, size: float) -> float:
        return size / self.machine.level_for(size).bandwidth

    def _collective(self, x: HloInstruction) -> float:
        way = self.exchange
        sent = result_bytes(x) * wire_weight(x, self.devices)
        return self.machine.thunk_seconds + way.latency + sent / way.bandwidth

    @property
    def exchange(self) -> Exchange:
        """The narrowest way that joins all devices."""
        ways = self.machine.exchanges
        return next((way for way in ways if way.devices >= self.devices), ways[-1])


def _element_type(x: HloInstruction) -> PrimitiveType:
    shapes = [one.shape for one in (x, *x.operands) if isinstance(one.shape, ArrayShape)]
    return shapes[0].element_type if shapes else PrimitiveType.F32


@PRICES.register(Opcode.DOT)
def product(predictor: StepPredictor, x: HloInstruction) -> float:
    """Operands are packed, which reads and writes them once more."""
    rates = predictor.machine.rates_of(x.operand(0).array_shape.element_type)
    operands = sum(float(one.shape.byte_size) for one in x.operands)
    moved = predictor.moved(2 * operands + x.shape.byte_size)
    return predictor.machine.thunk_seconds + op_cost(x).flops / rates.matrix + moved


@PRICES.register(Opcode.CONVOLUTION)
def convolution(predictor: StepPredictor, x: HloInstruction) -> float:
    """The product that it is; operands are put into panels first."""
    rates = predictor.machine.rates_of(x.operand(0).array_shape.element_type)
    work = op_cost(x).flops / rates.matrix + predictor.moved(2 * op_cost(x).bytes_accessed)
    return predictor.machine.thunk_seconds + work


@PRICES.register(Opcode.SORT)
def sort(predictor: StepPredictor, x: HloInstruction) -> float:
    """A pass for each halving of what is sorted."""
    longest = max(x.operand(0).dims, default=1)
    return predictor.streamed(x, passes=max(1.0, math.log2(max(longest, 2))))
