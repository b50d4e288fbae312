"""Consecutive steps as one action."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.failures import failures_of
from runtime.gpu.step import Action, GpuProgram, Step


def bound(steps: Sequence[Step], device: GpuProgram) -> Action:
    """Bind all of ``steps``, in order, with timestamps and ranges if these are enabled."""
    actions = [_bound(step, device) for step in steps]
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _bound(step: Step, device: GpuProgram) -> Action:
    """Bind one step. Raises GpuFailedError, which names it, if the device rejects it, for example its PTX."""
    with failures_of(device.driver, step.name):
        return device.around(step, step.bind(device))
