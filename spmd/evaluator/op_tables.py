"""Functions with which one evaluation runs opcodes: the registered ones, or these wrapped by an observer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spmd.evaluator.registry import EVALUATORS, IN_STEPS, Evaluate, EvaluateInSteps
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass

FindPlain: TypeAlias = Callable[[Opcode], Evaluate | None]
FindInSteps: TypeAlias = Callable[[Opcode], EvaluateInSteps | None]
OnTrip: TypeAlias = Callable[[HloInstruction, int], None]


@dataclass(frozen=True)
class OpTables:
    """Table of the functions that evaluate opcodes, from operands alone (`plain`) or as a generator.

    `on_trip` is called before every trip of every loop, with the loop and the number of completed trips; an exception
    from it ends the evaluation.
    """

    plain: FindPlain = EVALUATORS.get
    in_steps: FindInSteps = IN_STEPS.get
    on_trip: OnTrip | None = None


REGISTERED = OpTables()
