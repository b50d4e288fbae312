"""Evaluation of library calls by the operations they stand for. Workspaces are uninitialized arrays."""

from __future__ import annotations

import spmd.library_calls  # noqa: F401 - fills the table
from spmd.builder import Builder
from spmd.custom_call import register_custom_call
from spmd.evaluator.device import Device
from spmd.evaluator.interpreter import run_computation
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.session import Session
from spmd.evaluator.value import Operands, Value
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.library_calls.registry import LIBRARY_CALLS, expanded
from spmd.ops.checks import result_elements
from spmd.shape import TupleShape, as_array


def evaluate_library_call(call: HloInstruction, operands: Operands) -> Value:
    """Evaluate a module of the operations that ``call`` stands for."""
    module = HloModule(call.name)
    module.entry = module.new_computation("entry")
    b = Builder(module.entry)
    parameters = [b.parameter(i, x.array_shape) for i, x in enumerate(call.operands)]
    values = list(expanded(call, parameters, b))
    workspaces = result_elements(call.shape)[len(values) :]
    values += [b.uninitialized(as_array(shape)) for shape in workspaces]
    module.entry.root = b.tuple(values) if isinstance(call.shape, TupleShape) else values[0]
    device = Device(0, 1, 1, Session(module), is_logical=True)
    return run_in_lockstep({0: run_computation(module.entry, operands, device)})[0]


for _target in LIBRARY_CALLS:
    register_custom_call(_target, evaluate=evaluate_library_call)
