"""Planning of the actions of one rank for a collective among GPUs, and of their scratch memory."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.communicator.actions.device_actions import (
    Block,
    DeviceActionBuilder,
    DeviceActions,
    DeviceArray,
    DeviceBuffers,
    Zero,
    copied,
)
from collectives.communicator.kinds.op import Collective


def plan_actions(
    collective: Collective,
    rank: int,
    operands: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
    version: int,
    scratch: int = 0,
) -> tuple[DeviceActions, int]:
    """Return the actions of ``rank`` and the number of bytes of scratch that they use.

    ``scratch`` is the address of the scratch memory on the GPU. ``version`` is NCCL's version; the collective's
    ``nccl_obstacle`` must be None for it.
    """
    group = collective.group
    builder = DeviceActionBuilder(group.index(rank), len(group), scratch)
    buffers = DeviceBuffers(tuple(operands), tuple(results))
    if len(group) > 1:
        collective.add_nccl_calls(builder, buffers, version)
    elif collective.copies_alone:
        _copy_alone(builder, buffers)
    else:
        builder.after += [Zero(one.pointer, one.nbytes) for one in buffers.results if one.size]
    return builder.actions(), builder.scratch_bytes


def _copy_alone(builder: DeviceActionBuilder, buffers: DeviceBuffers) -> None:
    """Add copies of the operands to the results, by scratch if a result overwrites an operand that is still needed."""
    for k, (operand, result) in enumerate(zip(buffers.operands, buffers.results, strict=True)):
        if operand.pointer != result.pointer and operand.nbytes:
            aside = buffers.is_lost(k, in_place=False)
            source = builder.packed(Block.of_array(operand), always=aside)
            builder.after += copied(Block.of_array(operand).at(source), Block.of_array(result))
