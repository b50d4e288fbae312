"""Registry of the functions that evaluate opcodes, of three kinds with increasing capabilities:

* ``@evaluates``: result from operands alone; also used for constant folding;
* ``@evaluates_on_device``: reads (or advances) the device's own state: partition-id, rng;
* ``@evaluates_in_steps``: a generator that runs other computations or waits for other devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spmd.evaluator.device import Device, Steps
from spmd.evaluator.value import Operands, Value
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.registry import Registry

Evaluate: TypeAlias = Callable[[HloInstruction, Operands], Value]
EvaluateOnDevice: TypeAlias = Callable[[HloInstruction, Operands, Device], Value]
EvaluateInSteps: TypeAlias = Callable[[HloInstruction, Operands, Device], Steps]

EVALUATORS: Registry[Opcode, Evaluate] = Registry("evaluator")
ON_DEVICE: Registry[Opcode, EvaluateOnDevice] = Registry("evaluator on a device")
IN_STEPS: Registry[Opcode, EvaluateInSteps] = Registry("evaluator in steps")

evaluates = EVALUATORS.register
evaluates_on_device = ON_DEVICE.register
evaluates_in_steps = IN_STEPS.register
