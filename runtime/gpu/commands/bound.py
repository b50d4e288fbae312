"""Binding of consecutive commands to a device, as one action."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.failures import failures_of


def bound(commands: Sequence[Command], device: GpuProgram) -> Action:
    """Bind ``commands`` to ``device`` and return an action that runs them in order.

    Each command is wrapped by ``device.around``, which adds timestamps and profiler ranges if these are enabled.
    """
    actions = [_bound(command, device) for command in commands]
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _bound(command: Command, device: GpuProgram) -> Action:
    """Bind one command. Raises GpuFailedError, with the command's name, if the device rejects it or its PTX."""
    with failures_of(device.driver, command.name):
        return device.around(command, command.bind(device))
