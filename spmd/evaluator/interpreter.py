"""Interpreter of computations: one generator per device and computation, which waits where the device needs others.

The unpartitioned evaluation is one logical device. In a manual region, values become ``PerDevice`` (one version per
device of the manual axes), and instructions on them run on all these devices in lock step, until the program leaves the
region.
"""

from __future__ import annotations

from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.manual_mesh import differs_by_device
from spmd.evaluator.registry import ON_DEVICE
from spmd.evaluator.rendezvous import run_in_lockstep
from spmd.evaluator.value import Operands, PerDevice, Value, has_versions, version_for
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction


def run_computation(computation: HloComputation, arguments: Operands, device: Device) -> Steps:
    """Return the value of ``computation`` on ``device``."""
    order = device.session.order(computation)
    frame = list(order.frame)
    for op in order.ops:
        operands = tuple([frame[index] for index in op.operands])
        if op.parameter >= 0:
            frame[op.result] = arguments[op.parameter]
        elif op.evaluate is not None and not (device.is_logical and has_versions(operands)):
            frame[op.result] = op.evaluate(op.instruction, operands)
        else:
            frame[op.result] = yield from run_instruction(op.instruction, operands, device)
        for index in op.dead_after:
            frame[index] = ()
    return frame[order.root]


def run_instruction(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
    """Return the value of an instruction of any kind. Raises UnsupportedError if no function evaluates it."""
    if device.is_logical and (has_versions(operands) or differs_by_device(instruction)):
        return _run_on_every_device(instruction, operands, device)
    tables = device.session.tables
    evaluate = tables.plain(instruction.opcode)
    if evaluate is not None:
        return evaluate(instruction, operands)
    on_device = ON_DEVICE.get(instruction.opcode)
    if on_device is not None:
        return on_device(instruction, operands, device)
    in_steps = tables.in_steps(instruction.opcode)
    if in_steps is None:
        raise UnsupportedError(f"{instruction!r}: the evaluator does not run {instruction.opcode}")
    return (yield from in_steps(instruction, operands, device))


def run_alone(computation: HloComputation, arguments: Operands, device: Device) -> Value:
    """Return the value of a computation that may not wait for other devices: a reducer, a comparator, a function of
    map.
    """
    steps = run_computation(computation, arguments, device)
    try:
        rendezvous = next(steps)
    except StopIteration as stop:
        value: Value = stop.value
        return value
    raise RunError(
        f"{rendezvous.instruction!r} stands in {computation.name}, where no device may wait"
    )


def _run_on_every_device(instruction: HloInstruction, operands: Operands, logical: Device) -> Value:
    """Run one instruction in lock step on all devices of the manual axes."""
    manual = logical.session.manual
    steps = {
        id_: run_instruction(
            instruction,
            tuple(version_for(operand, id_) for operand in operands),
            manual.device(id_, logical.session),
        )
        for id_ in manual.ids
    }
    versions = run_in_lockstep(steps)
    axes = manual.axes_after(instruction, operands)
    return PerDevice(versions, axes) if axes else versions[manual.ids[0]]
