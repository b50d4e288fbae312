"""Calls of Python functions on the host: operands are downloaded, results are uploaded."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.gpu.command import Action, Command, GpuProgram, HostCommand, on_host
from runtime.gpu.planning import Planner, plans
from runtime.program.thunks.callback import CallbackThunk
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class CallbackCommand(HostCommand):
    """Call of a Python function on host copies of the arrays."""

    callback: CallbackThunk

    def bind(self, device: GpuProgram) -> Action:
        operands = tuple(map(device.view, self.callback.operands))
        results = tuple(map(device.view, self.callback.results))
        mirror = device.mirror(operands, results)
        arrays = tuple(map(mirror.array, operands)), tuple(map(mirror.array, results))
        action = self.callback.on_arrays(device.host, *arrays)
        return on_host(device, mirror, action)


@plans(CallbackThunk)
def plan_callback(thunk: CallbackThunk, _: Planner) -> Iterator[Command]:
    """Yield the command of a callback."""
    yield CallbackCommand(thunk, thunk)
