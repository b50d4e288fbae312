"""Binding of thunks that exchange values with the host: infeeds, outfeeds, and calls of Python functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from runtime.cpu.step.prepare import prepares
from runtime.cpu.step.segment import Action
from runtime.program.thunks import InfeedThunk, OutfeedThunk
from runtime.program.thunks.callback import CallbackThunk

if TYPE_CHECKING:
    from runtime.cpu.executor import LoadedDevice


@prepares(CallbackThunk)
def prepare_callback(thunk: CallbackThunk, program: LoadedDevice) -> Action:
    operands, results = (tuple(map(program.array, x)) for x in (thunk.operands, thunk.results))
    return thunk.on_arrays(program.host, operands, results)


@prepares(InfeedThunk)
def prepare_infeed(thunk: InfeedThunk, program: LoadedDevice) -> Action:
    host, device = program.host, program.communicator.rank
    targets = tuple(map(program.array, thunk.results))

    def run() -> None:
        for target, array in zip(targets, host.next_tile(thunk.site, device), strict=True):
            np.copyto(target, array)

    return run


@prepares(OutfeedThunk)
def prepare_outfeed(thunk: OutfeedThunk, program: LoadedDevice) -> Action:
    host, device = program.host, program.communicator.rank
    arrays = tuple(map(program.array, thunk.operands))
    return lambda: host.put(thunk.site, device, arrays)
