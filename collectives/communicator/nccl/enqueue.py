"""Enqueueing of a collective's actions (``device_actions``) on a stream: copies on the GPU and calls of NCCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectives.communicator.actions.device_actions import (
    AllGatherCall,
    AllReduceCall,
    BroadcastCall,
    CopyRows,
    DeviceActions,
    LocalAction,
    NcclCall,
    NcclType,
    ReceiveCall,
    ReduceScatterCall,
    SendCall,
    Zero,
)
from collectives.communicator.nccl.api import NcclComm, NcclLibrary

if TYPE_CHECKING:
    from collectives.communicator.nccl.cuda_memory import CudaMemory


def enqueue(
    actions: DeviceActions,
    api: NcclLibrary,
    comm: NcclComm | None,
    memory: CudaMemory,
    stream: int,
) -> None:
    """Enqueue ``actions`` on ``stream``. ``comm`` may be None if the actions contain no call of NCCL."""
    for action in actions.before:
        _enqueue_local(action, memory, stream)
    if actions.calls:
        assert comm is not None, "whoever calls NCCL has a communicator"
        api.group_start()
        try:
            for call in actions.calls:
                _call(call, api, comm, stream)
        finally:
            api.group_end()
    for action in actions.after:
        _enqueue_local(action, memory, stream)


def _enqueue_local(action: LocalAction, memory: CudaMemory, stream: int) -> None:
    """Enqueue the copy or the fill ``action`` on ``stream``."""
    match action:
        case Zero(target, num_bytes):
            memory.zero(target, num_bytes, stream)
        case CopyRows(target, target_pitch, source, source_pitch, row_bytes, rows):
            if rows == 1 or row_bytes == target_pitch == source_pitch:
                memory.copy(target, source, rows * row_bytes, stream)
            else:
                memory.copy_rows(
                    target, target_pitch, source, source_pitch, row_bytes, rows, stream
                )


def _call(call: NcclCall, api: NcclLibrary, comm: NcclComm, stream: int) -> None:
    """Call one function of NCCL. Elements are sent as bytes, except in reductions."""
    match call:
        case AllReduceCall(send, receive, count, kind, operation):
            api.all_reduce(comm, send, receive, count, kind, operation, stream)
        case ReduceScatterCall(send, receive, count, kind, operation):
            api.reduce_scatter(comm, send, receive, count, kind, operation, stream)
        case AllGatherCall(send, receive, count):
            api.all_gather(comm, send, receive, count, NcclType.UINT8, stream)
        case BroadcastCall(send, receive, count):
            api.broadcast(comm, send, receive, count, NcclType.UINT8, 0, stream)
        case SendCall(source, count, peer):
            api.send(comm, source, count, NcclType.UINT8, peer, stream)
        case ReceiveCall(target, count, peer):
            api.receive(comm, target, count, NcclType.UINT8, peer, stream)
