"""Steps in a row as one action."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.gpu.step import Action, GpuProgram, Step


def bound(steps: Sequence[Step], device: GpuProgram) -> Action:
    """All of ``steps``, in order, with stamps and ranges where these are wanted."""
    actions = [device.around(step, step.bind(device)) for step in steps]
    if len(actions) == 1:
        return actions[0]

    def run() -> None:
        for action in actions:
            action()

    return run
