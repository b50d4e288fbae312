"""The functions that one evaluation runs opcodes with: the registered ones, or these wrapped by an observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from spmd.evaluator.registry import EVALUATORS, IN_STEPS, Evaluate, EvaluateInSteps
from spmd.hlo.opcode import Opcode

FindPlain: TypeAlias = Callable[[Opcode], Evaluate | None]
FindInSteps: TypeAlias = Callable[[Opcode], EvaluateInSteps | None]


@dataclass(frozen=True)
class OpTables:
    """Lookup of the function that evaluates an opcode, from operands alone (`plain`) or as a generator."""

    plain: FindPlain = EVALUATORS.get
    in_steps: FindInSteps = IN_STEPS.get


REGISTERED = OpTables()
