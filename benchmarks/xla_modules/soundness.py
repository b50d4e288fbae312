"""Reasons, read from a module, why no two compilers need to agree on what it computes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from launch.data.inputs import Array
from launch.options import CompileOptions
from launch.pipeline import is_partitioned
from partitioner.annotations.manual_regions import GSPMD_ENTRY
from partitioner.propagation.propagation_flags import parameter_flags
from spmd.device import ReductionKind
from spmd.errors import ShapeError, ShardingError, VerificationError
from spmd.evaluator.device import Device
from spmd.evaluator.interpreter import run_computation
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.session import Session
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.library_calls.partitioner_calls import WRAP
from spmd.ops import check_instruction
from spmd.ops.attrs import (
    ConstantAttrs,
    CustomCallAttrs,
    DimensionsAttrs,
    ParameterAttrs,
    ReshapeAttrs,
    SortAttrs,
    TupleIndexAttrs,
)
from spmd.ops.reduction import identity_value, reduction_kind
from spmd.passes.algebraic.match import splat
from spmd.sharding import HloSharding

_TYPED_COLLECTIVES = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_GATHER_START,
    Opcode.ALL_GATHER_DONE,
    Opcode.ALL_REDUCE_START,
    Opcode.ALL_REDUCE_DONE,
    Opcode.COLLECTIVE_PERMUTE_START,
    Opcode.COLLECTIVE_PERMUTE_DONE,
)
_REDUCTIONS = (Opcode.REDUCE, Opcode.ALL_REDUCE, Opcode.ALL_REDUCE_START, Opcode.REDUCE_SCATTER)
_EXTREMES = (ReductionKind.MIN, ReductionKind.MAX)


def unsound(module: HloModule) -> str:
    """Return why ``module`` has no defined result; empty if it has one."""
    try:
        parameter_flags(module)
    except ShardingError as error:
        return re.sub(r"\d+", "..", str(error))
    for x in module.all_instructions():
        if x.opcode is Opcode.CONSTANT and x.attrs_as(ConstantAttrs).literal is None:
            return "a constant whose value the text elides"
        if x.opcode is Opcode.SET_DIMENSION_SIZE and not any(x.array_shape.dynamic):
            if not _is_bound(x):
                return "set-dimension-size of a static dimension: XLA is given StableHLO, which has no such op"
        if x.opcode is Opcode.RESHAPE and x.attrs_as(ReshapeAttrs).inferred_dimension >= 0:
            if any(x.array_shape.dynamic):
                return "a reshape that infers a run-time size: XLA is given StableHLO, which does not say which one"
        if x.opcode is Opcode.BITCAST and x.parent is not module.entry and _is_laid_out(x):
            return "a bitcast to another layout in a fusion: XLA is given StableHLO, which has no layouts"
        if x.opcode is Opcode.RNG and x.num_operands != 2:
            return "rng without two operands, which XLA's verifier also rejects"
        if isinstance(x.attrs, CustomCallAttrs) and x.attrs.target == "GetRngSeed":
            return "the random seed of XLA's configuration"
        if x.opcode is Opcode.WHILE and _is_endless(x):
            return "an endless loop"
        if x.opcode in _TYPED_COLLECTIVES and not _has_its_shape(x):
            return "a collective whose shape XLA's verifier rejects"
        if (
            x.opcode is Opcode.GATHER
            and x.operand(0).array_shape.num_elements == 0 != x.array_shape.num_elements
        ):
            return "a gather from an array without elements"
        if x.opcode is Opcode.SORT and not _compares_keys(x):
            return "a sort whose comparator compares different operands"
        if isinstance(x.attrs, CustomCallAttrs) and x.attrs.target == WRAP and _is_too_large(x):
            return "a Wrap with more elements than it says to wrap around"
    if _keeps_devices_apart(module):
        return "a result that differs between devices: there is no global array"
    return ""


def _has_its_shape(x: HloInstruction) -> bool:
    try:
        check_instruction(x)
    except (ShapeError, VerificationError):
        return False
    return True


def _compares_keys(sort: HloInstruction) -> bool:
    """Return False if the comparator is one comparison of parameters that are parts of different operands."""
    root = sort.to_apply.root
    if root.opcode is not Opcode.COMPARE or any(
        x.opcode is not Opcode.PARAMETER for x in root.operands
    ):
        return True
    left, right = (x.attrs_as(ParameterAttrs).number // 2 for x in root.operands)
    return left == right


def _is_too_large(wrap: HloInstruction) -> bool:
    """Return whether the result has another size than the operand and what is wrapped around have."""
    amounts = re.findall(r"(?:left|right)_amount=(\d+)", wrap.annotations.backend_config)
    return sum(wrap.dims) != sum(wrap.operand(0).dims) + sum(map(int, amounts))


def _keeps_devices_apart(module: HloModule) -> bool:
    """Return whether a program that is to be partitioned returns what it has cut into manual parts."""
    root = module.entry.root
    if root.sharding is None or is_partitioned(module, CompileOptions()):
        return False
    cuts = any(
        isinstance(x.attrs, CustomCallAttrs) and x.attrs.target == GSPMD_ENTRY
        for x in module.all_instructions()
    )
    return cuts and any(
        part == HloSharding.manual() for part in root.sharding.leaf_shardings(root.shape)
    )


def _is_endless(loop: HloInstruction) -> bool:
    """Return whether the condition reads nothing but state that the body passes on, and holds at the start.

    XLA drops such a loop where nobody reads what it changes.
    """
    if _is_true(loop.while_condition.root):
        return True
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
    while x.opcode is Opcode.ADD and _is_zero(x.operand(1)):
        x = x.operand(0)
    is_state = x.opcode is Opcode.GET_TUPLE_ELEMENT and x.operand(0) in body.parameters
    return is_state and x.attrs_as(TupleIndexAttrs).index == k


def _is_true(x: HloInstruction) -> bool:
    value = splat(x)
    return value is not None and bool(value == 1)


def _is_zero(x: HloInstruction) -> bool:
    value = splat(x)
    return value is not None and bool(value == 0)


def _is_laid_out(x: HloInstruction) -> bool:
    layouts = (x.array_shape.layout, x.operand(0).array_shape.layout)
    return any(layout is not None and not layout.is_default for layout in layouts)


def _is_bound(x: HloInstruction) -> bool:
    (dimension,) = x.attrs_as(DimensionsAttrs).dimensions
    size = splat(x.operand(1))
    return size is not None and int(size) == x.dims[dimension]


def free_choice(module: HloModule) -> str:
    """Return the reason why two right compilers may give different results; empty if there is none."""
    for x in module.all_instructions():
        if x.opcode in (Opcode.RNG, Opcode.RNG_GET_AND_UPDATE_STATE):
            return "random numbers of the implementation"
        if x.opcode is Opcode.SORT and not x.attrs_as(SortAttrs).is_stable:
            return "equal keys of an unstable sort"
        if x.opcode is Opcode.REDUCE_WINDOW and not _starts_neutral(x):
            return "a reduction over windows that does not start from the neutral element"
        if x.opcode is Opcode.REDUCE and x.num_operands == 2 and not _starts_neutral(x):
            return "a reduction that does not start from the neutral element"
    return ""


def _starts_neutral(x: HloInstruction) -> bool:
    kind, start = reduction_kind(x.to_apply), splat(x.operands[-1])
    if kind is None or start is None:
        return kind is not None and x.operands[-1].opcode is Opcode.PARAMETER
    return bool(start == identity_value(kind, x.operands[-1].array_shape.element_type))


def nan_choice(
    module: HloModule, outputs: Sequence[Array], agreeing: Sequence[NDArray[np.bool_]]
) -> str:
    """Return the reason why XLA CPU may have other numbers where ``outputs`` are NaN; empty if there is none.

    Its reductions by minimum and maximum drop NaN, of which the greatest of all NaN is what the reduction starts from;
    in HLO they keep it. ``agreeing``: where the outputs agree; where they do not, only NaN may stand.
    """
    if not any(_reduces_to_extreme(x) for x in module.all_instructions()):
        return ""
    for output, agrees in zip(outputs, agreeing, strict=True):
        if not np.all(agrees | np.isnan(output)):
            return ""
    return "a minimum or maximum over NaN, which XLA CPU's reductions drop"


def _reduces_to_extreme(x: HloInstruction) -> bool:
    return x.opcode in _REDUCTIONS and reduction_kind(x.to_apply) in _EXTREMES
