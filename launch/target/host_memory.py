"""Assign offloaded values to the host's memory, on machines whose devices have memory of their own.

    h = f32[8,4] custom-call(x), custom_call_target="MoveToHost"    =>    h = f32[8,4]{1,0:S(5)} custom-call(x), ...

A value that goes anywhere but to MoveToDevice (into a loop's state, a tuple, another operation) stays on the device.
"""

from __future__ import annotations

from dataclasses import replace

from spmd.hlo import HloInstruction, HloModule
from spmd.machine.description import MachineDescription
from spmd.ops.custom_call import custom_call_target
from spmd.shape import HOST_MEMORY, ArrayShape, Layout


def place_offloaded_values(module: HloModule, machine: MachineDescription) -> None:
    """Give offloaded values the host's memory space; none if there is only one memory."""
    if not machine.host_bandwidth:
        return
    for x in filter(_is_offloaded, module.all_instructions()):
        layout = x.array_shape.layout or Layout.default(x.array_shape.rank)
        x.shape = replace(x.array_shape, layout=replace(layout, suffix=f"S({HOST_MEMORY})"))


def _is_offloaded(x: HloInstruction) -> bool:
    return (
        custom_call_target(x) == "MoveToHost"
        and isinstance(x.shape, ArrayShape)
        and not x.is_root
        and bool(x.users)
        and all(custom_call_target(user) == "MoveToDevice" for user in x.users)
    )
