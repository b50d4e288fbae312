"""The search for the first wrong operation inside loops and branches: their computations as programs of their own.

A loop is evaluated trip by trip. The body, with the shardings that it has in the program, is compiled alone and
run on what the reference carries into each trip; in the first one whose results part, the search goes on in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from launch.data.inputs import Array
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.evaluator import evaluate
from spmd.evaluator.op_tables import OpTables
from spmd.evaluator.registry import IN_STEPS, EvaluateInSteps
from spmd.evaluator.value import Operands, Value, flatten
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import ConditionalAttrs

#: Number of trips whose results differ only by rounding, after which the other trips are assumed to do the same.
_MOST_TRIPS = 3

Find = Callable[[HloModule, Sequence[Array]], str | None]
"""Function that returns the first operation of a module whose result is wrong for the inputs; None if there is none."""

Parts = Callable[[HloModule, Sequence[Array], Sequence[Array]], bool]
"""Function that returns whether the compiled module computes other outputs from the inputs than the expected ones."""


def source_of(instruction: HloInstruction) -> HloInstruction:
    """Return the instruction of which `instruction` is a tuple element, or itself."""
    while instruction.opcode is Opcode.GET_TUPLE_ELEMENT:
        instruction = instruction.operand(0)
    return instruction


def has_inside(instruction: HloInstruction) -> bool:
    """Return whether `instruction` is a loop or branch without infeeds, whose values depend on what ran before."""
    is_branch = instruction.opcode in (Opcode.WHILE, Opcode.CONDITIONAL)
    return is_branch and not any(map(_is_fed, instruction.called_computations))


def _is_fed(computation: HloComputation) -> bool:
    return any(
        x.opcode is Opcode.INFEED or any(map(_is_fed, x.called_computations))
        for x in computation.instructions
    )


def find_inside(
    instruction: HloInstruction,
    logical: HloModule,
    propagated: HloModule,
    inputs: Sequence[Array],
    find: Find,
    parts: Parts,
) -> str | None:
    """Look for the first wrong operation inside a loop or branch of `logical`'s entry; None if it holds none.

    `propagated`: `logical` with all shardings. `inputs`: of the entry. Returns the operation's name, the computation
    and the trip, counted from 0.
    """
    operands = _operands_of(instruction, logical, inputs)
    if operands is None:
        return None
    if instruction.opcode is Opcode.CONDITIONAL:
        branch = _branch(instruction, operands)
        chosen = _program(propagated, instruction.called_computations[branch])
        op = find(chosen, _arrays(operands[1 + branch]))
        return op and f"{op} in {chosen.entry.name}, branch {branch} of {instruction.name}"
    condition = _program(propagated, instruction.while_condition)
    body = _program(propagated, instruction.while_body)
    state, trip, trips = _arrays(operands[0]), 0, 0
    while trips < _MOST_TRIPS and bool(evaluate(condition, *state)[0]):
        after = evaluate(body, *state)
        if parts(body, state, after):
            op = find(body, state)
            if op is not None:
                return f"{op} in {body.entry.name}, trip {trip} of {instruction.name}"
            trips += 1
        state, trip = after, trip + 1
    return None


def _program(propagated: HloModule, computation: HloComputation) -> HloModule:
    """Return a copy of ``propagated`` whose entry is ``computation``."""
    program = clone_module(propagated)
    program.entry = next(c for c in program.computations if c.name == computation.name)
    program.stage = Stage.LOGICAL
    program.entry_layout, program.input_output_alias, program.buffer_donors = None, (), ()
    program.extra_header = ()
    program.remove_unreachable_computations()
    return program


def _branch(instruction: HloInstruction, operands: Operands) -> int:
    """Return the number of the branch that is taken."""
    selector = int(np.asarray(operands[0]))
    count = len(operands) - 1
    if instruction.attrs_as(ConditionalAttrs).predicated:
        return 0 if selector else 1
    return selector if 0 <= selector < count else count - 1


def _operands_of(
    wanted: HloInstruction, logical: HloModule, inputs: Sequence[Array]
) -> Operands | None:
    """Return the reference's operands of an instruction of the entry; None if it does not run, or not
    on global arrays.
    """
    found: list[Operands] = []

    def in_steps(opcode: Opcode) -> EvaluateInSteps | None:
        evaluate_it = IN_STEPS.get(opcode)
        if evaluate_it is None or opcode is not wanted.opcode:
            return evaluate_it

        def seen(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
            if instruction is wanted:
                found.append(operands)
            return evaluate_it(instruction, operands, device)

        return seen

    evaluate(logical, *inputs, tables=OpTables(in_steps=in_steps))
    return found[0] if found else None


def _arrays(value: Value) -> list[Array]:
    return [leaf for leaf in flatten(value) if isinstance(leaf, np.ndarray)]
