"""Collectives of a schedule become starts and dones, between which other work may stand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import ClassVar

from spmd.analysis.live_buffers import running_computations
from spmd.hlo.collective_opcodes import START_AND_DONE, SYNCHRONOUS_COLLECTIVES
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import NO_ANNOTATIONS, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import NO_ATTRS, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import AsyncAttrs, ParameterAttrs
from spmd.ops.in_place_permute import in_place
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.shape import Shape, TupleShape

#: Kinds that an async-start wraps in a computation.
WRAPPED = tuple(opcode for opcode in SYNCHRONOUS_COLLECTIVES if opcode not in START_AND_DONE)
_NUMBER = re.compile(r"(\.\d+)?$")


@register_pass
@dataclass(frozen=True)
class AsyncCreation(FueledPass):
    """Make every collective a start with its done directly behind it, where both stand for it in the order.

        g = f32[8] all-gather(x)      =>  s = (f32[4], f32[8]) all-gather-start(x)
                                          g = f32[8] all-gather-done(s)

    Kinds that have no such opcodes are wrapped (``reduce-scatter-start`` is an async-start around one). The order of
    collectives stays, so that all devices still start them in the same one.
    """

    name: ClassVar[str] = "async-creation"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.SCHEDULED,)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        changed = False
        for computation in running_computations(module):
            before = computation.instructions
            order: list[HloInstruction] = []
            for x in before:
                is_split = (x.opcode in START_AND_DONE or x.opcode in WRAPPED) and not fuel.is_spent
                order.extend(start_and_done(x, fuel) if is_split else (x,))
            if len(order) > len(before):
                computation.set_order(order)
                changed = True
        return changed


def start_and_done(x: HloInstruction, fuel: Fuel) -> tuple[HloInstruction, HloInstruction]:
    """Return the start and the done that replace ``x``; the done has its name."""
    fuel.burn()
    computation = x.parent
    assert computation is not None
    start = _start_of(x, computation)
    opcode = START_AND_DONE[x.opcode][1] if x.opcode in START_AND_DONE else Opcode.ASYNC_DONE
    attrs = NO_ATTRS if x.opcode in START_AND_DONE else AsyncAttrs(sugar=True)
    done = HloInstruction(opcode, x.shape, (start,), attrs, annotations=x.annotations)
    if opcode is Opcode.ASYNC_DONE:
        done.called_computations = list(start.called_computations)
    computation.add(done, _with_suffix(x.name, "-done"))
    done.sharding = x.sharding
    for before in x.control_predecessors:
        before.add_control_dependency_to(start)
    for after in x.control_successors:
        done.add_control_dependency_to(after)
    computation.replace(x, done)
    return start, done


def _start_of(x: HloInstruction, computation: HloComputation) -> HloInstruction:
    operands = tuple(operand.shape for operand in x.operands)
    if x.opcode not in START_AND_DONE:
        shape: Shape = TupleShape((TupleShape(operands), x.shape))
        start = HloInstruction(
            Opcode.ASYNC_START, shape, x.operands, AsyncAttrs(sugar=True), annotations=x.annotations
        )
        start.called_computations = [_wrapped(x, computation)]
        return computation.add(start, _with_suffix(x.name, "-start"))
    if x.opcode is Opcode.ALL_REDUCE:
        shape = x.shape
    elif len(operands) == 1 or (x.opcode is Opcode.COLLECTIVE_PERMUTE and in_place(x)):
        shape = TupleShape((operands[0], x.shape))
    else:
        shape = TupleShape((TupleShape(operands), x.shape))
    start = x.clone(shape, x.operands)
    start.opcode = START_AND_DONE[x.opcode][0]
    start.sharding = None
    return computation.add(start, _with_suffix(x.name, "-start"))


def _wrapped(x: HloInstruction, computation: HloComputation) -> HloComputation:
    """Return a new computation of parameters and the operation itself."""
    module = computation.module
    assert module is not None
    made = module.new_computation(f"wrapped_{x.opcode.value.replace('-', '_')}")
    parameters = [
        made.create(Opcode.PARAMETER, operand.shape, attrs=ParameterAttrs(n), name=f"param_{n}")
        for n, operand in enumerate(x.operands)
    ]
    inside = x.clone(x.shape, parameters)
    inside.sharding, inside.annotations = (
        None,
        replace(NO_ANNOTATIONS, metadata=x.annotations.metadata),
    )
    made.root = made.add(inside, x.opcode.value)
    # Callees precede their callers.
    module.computations.remove(made)
    module.computations.insert(module.computations.index(computation), made)
    return made


def _with_suffix(name: str, suffix: str) -> str:
    """Return the name with ``suffix`` before its number: ``all-gather.3`` becomes ``all-gather-start.3``."""
    return _NUMBER.sub(lambda number: suffix + number.group(), name, count=1)
