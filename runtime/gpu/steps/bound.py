"""Steps in a row as one action."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.failures import failures_of
from runtime.gpu.step import Action, GpuProgram, Step


def bound(steps: Sequence[Step], device: GpuProgram) -> Action:
    """All of ``steps``, in order, with stamps and ranges where these are wanted."""
    actions = [_bound(step, device) for step in steps]
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _bound(step: Step, device: GpuProgram) -> Action:
    """GpuFailedError, which names the step, where the device refuses it: PTX that it does not take, say."""
    with failures_of(device.driver, step.name):
        return device.around(step, step.bind(device))
