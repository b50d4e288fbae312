"""Consecutive commands as one action."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.command import Action, Command, GpuProgram
from runtime.gpu.failures import failures_of


def bound(commands: Sequence[Command], device: GpuProgram) -> Action:
    """Bind all of ``commands``, in order, with timestamps and ranges if these are enabled."""
    actions = [_bound(command, device) for command in commands]
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run


def _bound(command: Command, device: GpuProgram) -> Action:
    """Bind one command. Raises GpuFailedError, which names it, if the device rejects it, for example its PTX."""
    with failures_of(device.driver, command.name):
        return device.around(command, command.bind(device))
