"""The functions that one evaluation runs opcodes with: the registered ones, or these wrapped by an observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from spmd.evaluator.registry import EVALUATORS, IN_STEPS, Evaluate, EvaluateInSteps
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

FindPlain: TypeAlias = Callable[[Opcode], Evaluate | None]
FindInSteps: TypeAlias = Callable[[Opcode], EvaluateInSteps | None]
OnTrip: TypeAlias = Callable[[HloInstruction, int], None]


@dataclass(frozen=True)
class OpTables:
    """Lookup of the function that evaluates an opcode, from operands alone (`plain`) or as a generator.

    `on_trip` is called before every trip of every loop, with the loop and the number of trips that it has done; what it
    raises ends the evaluation.
    """

    plain: FindPlain = EVALUATORS.get
    in_steps: FindInSteps = IN_STEPS.get
    on_trip: OnTrip | None = None


REGISTERED = OpTables()
