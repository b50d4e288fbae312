"""Infeeds and outfeeds between the host and the device, through pinned memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from runtime.gpu.command import Action, Command, GpuProgram, HostCommand, on_host
from runtime.gpu.planning import Planner, plans
from runtime.program.thunks import InfeedThunk, OutfeedThunk
from runtime.timeline.events import Stream
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True)
class InfeedCommand(HostCommand):
    """Infeed: takes this rank's tile of the next value from the host and uploads it to the results."""

    infeed: InfeedThunk

    def bind(self, device: GpuProgram) -> Action:
        views = tuple(map(device.view, self.infeed.results))
        mirror = device.mirror((), views)
        targets = tuple(map(mirror.array, views))
        driver, stream = device.driver, device.stream(Stream.COMPUTE)
        host, rank, site = device.host, device.communicator.rank, self.infeed.site

        def run() -> None:
            arrays = host.next_tile(site, rank)
            device.wait(stream)  # other commands use the pinned memory too
            for target, array in zip(targets, arrays, strict=True):
                np.copyto(target, array)
            mirror.send(driver, stream)

        return run


@dataclass(frozen=True)
class OutfeedCommand(HostCommand):
    """Outfeed: downloads the operands and passes them to the host's outfeed."""

    outfeed: OutfeedThunk

    def bind(self, device: GpuProgram) -> Action:
        views = tuple(map(device.view, self.outfeed.operands))
        mirror = device.mirror(views, ())
        arrays = tuple(map(mirror.array, views))
        rank, site = device.communicator.rank, self.outfeed.site
        return on_host(device, mirror, partial(device.host.put, site, rank, arrays))


@plans(InfeedThunk)
def plan_infeed(thunk: InfeedThunk, _: Planner) -> Iterator[Command]:
    """Yield the command of an infeed."""
    yield InfeedCommand(thunk, thunk)


@plans(OutfeedThunk)
def plan_outfeed(thunk: OutfeedThunk, _: Planner) -> Iterator[Command]:
    """Yield the command of an outfeed."""
    yield OutfeedCommand(thunk, thunk)
