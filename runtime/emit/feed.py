"""Lowering of infeed and outfeed."""

from __future__ import annotations

from runtime.arrays.feed_sites import feed_site
from runtime.lowering import LOWERINGS, Device, Lowering, OpArrays
from runtime.program.thunks import InfeedThunk, OutfeedThunk, Thunk
from spmd.hlo import HloInstruction, Opcode


def emit_infeed(infeed: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of an infeed."""
    return InfeedThunk(infeed.name, feed_site(infeed, device.num_partitions), arrays.results)


def emit_outfeed(outfeed: HloInstruction, arrays: OpArrays, device: Device) -> Thunk:
    """Return the thunk of an outfeed."""
    return OutfeedThunk(outfeed.name, feed_site(outfeed, device.num_partitions), arrays.operands)


LOWERINGS.add(Opcode.INFEED, Lowering(emit_infeed))
LOWERINGS.add(Opcode.OUTFEED, Lowering(emit_outfeed))
