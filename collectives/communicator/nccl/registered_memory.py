"""Memory of a GPU that is registered with NCCL, so that collectives access it without copies through NCCL's buffers.

A block is registered with each communicator whose collectives use it: as a symmetric window if the members pass the
same offsets in the block to every collective, otherwise as a user buffer. In a window NCCL's kernels compute the
addresses of peers from the own ones; the addresses of user buffers are exchanged.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from collectives.communicator.actions.device_actions import (
    AllGatherCall,
    AllReduceCall,
    BroadcastCall,
    DeviceActions,
    NcclCall,
    ReduceScatterCall,
)
from collectives.communicator.nccl.api import NcclComm, NcclError, NcclLibrary

if TYPE_CHECKING:
    from collectives.communicator.nccl.cuda_memory import CudaMemory

#: A communicator that has registered a block, the handle that it has returned, and whether it is that of a window.
_Registration: TypeAlias = tuple[NcclComm, int, bool]


class MemoryBlock(Protocol):
    """Memory of a GPU with undefined content. It is freed when the object is garbage-collected."""

    @property
    def ptr(self) -> int:
        """Return the address of the first byte, a multiple of 256."""
        ...


class RegisteredMemory:
    """Block of GPU memory from ncclMemAlloc (a MemoryBlock).

    With the object the registrations end and the memory is freed. Neither waits for other ranks.
    """

    def __init__(
        self,
        api: NcclLibrary,
        device: CudaMemory,
        ending: AbstractContextManager[object],
        num_bytes: int,
    ) -> None:
        """Allocate ``num_bytes`` bytes on the GPU of ``device``. Raises NcclError if there is not enough memory.

        ``ending`` is the lock that is held while communicators are aborted.
        """
        self._api = api
        self.num_bytes = num_bytes
        self.ptr = api.mem_alloc(num_bytes)
        self._registrations: list[_Registration] = []
        end = weakref.finalize(self, _release, api, device, ending, self.ptr, self._registrations)
        end.atexit = False

    def register(self, comm: NcclComm, *, symmetric: bool) -> bool:
        """Register the block with ``comm``, as a window if ``symmetric``. Returns whether NCCL registers it.

        All ranks of ``comm`` must call it. Raises NcclError if NCCL fails.
        """
        if symmetric:
            window = self._api.register_window(comm, self.ptr, self.num_bytes)
            if window:
                self._registrations.append((comm, window, True))
                return True
        handle = self._api.register(comm, self.ptr, self.num_bytes)
        if handle:
            self._registrations.append((comm, handle, False))
        return bool(handle)


def _release(
    api: NcclLibrary,
    device: CudaMemory,
    ending: AbstractContextManager[object],
    address: int,
    registrations: Sequence[_Registration],
) -> None:
    """End ``registrations`` with communicators that still exist, and free the memory at ``address``."""
    device.use()
    with ending:
        for comm, handle, is_window in registrations:
            if comm.address:
                with contextlib.suppress(
                    NcclError
                ):  # a communicator that has failed is aborted soon
                    (api.deregister_window if is_window else api.deregister)(comm, handle)
    with contextlib.suppress(NcclError):  # the GPU may have failed
        api.mem_free(address)


def placement_key(
    actions: DeviceActions, index: int, blocks: Sequence[RegisteredMemory]
) -> list[object]:
    """Return where the NCCL calls of member ``index`` access ``blocks``.

    If the members of a group have equal keys, the blocks may be symmetric windows of their communicator. An all-gather
    that sends the own part of its result, and a reduce-scatter that receives the own part of its operand, are in place
    in NCCL's sense: the own part may be at another offset on each member. Sends and receives count as equal.
    """
    return [_access_of_call(call, index, blocks) for call in actions.calls]


def _access_of_call(call: NcclCall, index: int, blocks: Sequence[RegisteredMemory]) -> object:
    match call:
        case AllReduceCall(send, receive) | BroadcastCall(send, receive):
            return [_offset_in_blocks(send, blocks), _offset_in_blocks(receive, blocks)]
        case AllGatherCall(send, receive, count):
            in_place = send == receive + index * count
            return [in_place or _offset_in_blocks(send, blocks), _offset_in_blocks(receive, blocks)]
        case ReduceScatterCall(send, receive, count, kind):
            in_place = receive == send + index * count * kind.num_bytes
            return [_offset_in_blocks(send, blocks), in_place or _offset_in_blocks(receive, blocks)]
        case _:
            return None


def _offset_in_blocks(address: int, blocks: Sequence[RegisteredMemory]) -> tuple[int, int] | None:
    """Return the number of the block that contains ``address``, and the offset in it; None if no block does."""
    for number, block in enumerate(blocks):
        if block.ptr <= address < block.ptr + block.num_bytes:
            return number, address - block.ptr
    return None
