"""Reasons, read from a module, why no two compilers need to agree on what it computes."""

from __future__ import annotations

import re

from partitioner.propagation_flags import parameter_flags
from spmd.errors import ShardingError
from spmd.evaluator.device import Device
from spmd.evaluator.interpreter import run_computation
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.session import Session
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import (
    ConstantAttrs,
    CustomCallAttrs,
    DimensionsAttrs,
    ReshapeAttrs,
    SortAttrs,
    TupleIndexAttrs,
)
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.passes.algebraic.match import splat


def unsound(module: HloModule) -> str:
    """Return why ``module`` has no defined result; empty if it has one."""
    try:
        parameter_flags(module)
    except ShardingError as error:
        return re.sub(r"\d+", "..", str(error))
    for x in module.all_instructions():
        if x.opcode is Opcode.CONSTANT and x.attrs_as(ConstantAttrs).literal is None:
            return "a constant whose value the text leaves out"
        if x.opcode is Opcode.SET_DIMENSION_SIZE and not any(x.array_shape.dynamic):
            if not _is_bound(x):
                return (
                    "a size is set that the type does not mark: StableHLO, which XLA gets, has none"
                )
        if x.opcode is Opcode.RESHAPE and x.attrs_as(ReshapeAttrs).inferred_dimension >= 0:
            if any(x.array_shape.dynamic):
                return "a reshape infers a run-time size: StableHLO, which XLA gets, does not say which"
        if x.opcode is Opcode.RNG and x.num_operands != 2:
            return "rng of other than two operands, which XLA's verifier refuses, too"
        if isinstance(x.attrs, CustomCallAttrs) and x.attrs.target == "GetRngSeed":
            return "the random seed of XLA's configuration"
        if x.opcode is Opcode.WHILE and _is_endless(x):
            return "a loop that does not end"
    return ""


def _is_endless(loop: HloInstruction) -> bool:
    """Return whether the condition reads nothing but state that the body passes on, and holds at the start.

    XLA drops such a loop where nobody reads what it changes.
    """
    if (
        loop.operand(0).opcode is not Opcode.TUPLE
        or loop.while_body.root.opcode is not Opcode.TUPLE
    ):
        return False
    condition, read = loop.while_condition, set()
    for user in condition.parameters[0].users:
        if user.opcode is not Opcode.GET_TUPLE_ELEMENT:
            return False
        read.add(user.attrs_as(TupleIndexAttrs).index)
    body, start = loop.while_body, loop.operand(0)
    if not all(_is_passed_on(body, k) and start.operand(k).opcode is Opcode.CONSTANT for k in read):
        return False
    literals = [
        x.attrs.literal if isinstance(x.attrs, ConstantAttrs) else None for x in start.operands
    ]
    state = tuple(() if one is None else one.value() for one in literals)
    steps = run_computation(condition, (state,), Device(0, 1, 1, Session(None)))
    return bool(run_in_lockstep({0: steps})[0])


def _is_passed_on(body: HloComputation, k: int) -> bool:
    x = body.root.operand(k)
    is_state = x.opcode is Opcode.GET_TUPLE_ELEMENT and x.operand(0) in body.parameters
    return is_state and x.attrs_as(TupleIndexAttrs).index == k


def _is_bound(x: HloInstruction) -> bool:
    (dimension,) = x.attrs_as(DimensionsAttrs).dimensions
    size = splat(x.operand(1))
    return size is not None and int(size) == x.dims[dimension]


def free_choice(module: HloModule) -> str:
    """Return the reason why two right compilers may give different results; empty if there is none."""
    for x in module.all_instructions():
        if x.opcode in (Opcode.RNG, Opcode.RNG_GET_AND_UPDATE_STATE):
            return "random numbers of the implementation's own"
        if x.opcode is Opcode.SORT and not x.attrs_as(SortAttrs).is_stable:
            return "equal keys of an unstable sort"
        if x.opcode is Opcode.REDUCE_WINDOW and not _starts_neutral(x):
            return "a reduction over windows that does not start from the neutral element"
    return ""


def _starts_neutral(x: HloInstruction) -> bool:
    kind, start = reduction_kind(x.to_apply), splat(x.operands[-1])
    if kind is None or start is None:
        return kind is not None and x.operands[-1].opcode is Opcode.PARAMETER
    return bool(start == identity_value(kind, x.operands[-1].array_shape.element_type))
