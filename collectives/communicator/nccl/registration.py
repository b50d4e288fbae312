"""Registration of the memory of programs with NCCL, which all ranks do together."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from collectives.communicator.actions.device_actions import DeviceActions, version_text
from collectives.communicator.group import Group
from collectives.communicator.interface import Communicator
from collectives.communicator.nccl.api import (
    REGISTRATION_VERSION,
    WINDOW_VERSION,
    NcclComm,
    NcclLibrary,
)
from collectives.communicator.nccl.group_communicators import Cliques
from collectives.communicator.nccl.registered_memory import (
    MemoryBlock,
    RegisteredMemory,
    placement_key,
)

if TYPE_CHECKING:
    from collectives.communicator.nccl.cuda_memory import CudaMemory


class MemoryRegistration:
    """Blocks of GPU memory of one rank, which are registered with the communicators of the collectives that use them.

    All ranks must allocate the same sizes and register them together.
    """

    def __init__(
        self,
        host: Communicator,
        api: NcclLibrary,
        device: CudaMemory,
        cliques: Cliques,
        *,
        enabled: bool,
        notify: Callable[[str], None],
    ) -> None:
        """Create the registration of this rank. ``enabled``: blocks are registered, if the version of NCCL can do it.

        ``notify`` is called on rank 0, once, with a message for the user if NCCL does not register memory.
        """
        self._host, self._api, self._device, self._cliques = host, api, device, cliques
        self._version = api.version()
        self._enabled = enabled
        self._notify = notify if host.rank == 0 else _discard
        #: Blocks that are not registered yet. A program that fails to load drops its blocks.
        self._new: list[weakref.ref[RegisteredMemory]] = []

    def allocate(self, num_bytes: int) -> MemoryBlock:
        """Allocate a block, which the next ``register`` registers. The content is undefined.

        Raises RunError if there is not enough memory.
        """
        if self._enabled and self._version < REGISTRATION_VERSION:
            self._note(f"NCCL {version_text(self._version)} does not register memory, as 2.19 does")
            self._enabled = False
        if not self._enabled:
            return self._device.allocate(num_bytes)
        block = RegisteredMemory(self._api, self._device, self._cliques.ending, num_bytes)
        self._new.append(weakref.ref(block))
        return block

    @property
    def new_sizes(self) -> list[int]:
        """Return the sizes of the blocks that ``register`` would register."""
        return [block.num_bytes for block in self._blocks()]

    def register(
        self, groups: Sequence[Group], actions: Mapping[Group, Sequence[DeviceActions]]
    ) -> None:
        """Register the new blocks with the communicators of ``groups``, which are equal on all ranks.

        ``actions`` holds the actions of this rank's collectives by group. Raises RunError on every rank if NCCL fails
        on one.
        """
        blocks = self._blocks()
        self._new.clear()
        if not groups or not blocks:
            return
        symmetric = self._symmetric_groups(groups, actions, blocks)
        is_registered: list[bool] = []

        def register(group: Group, comm: NcclComm) -> None:
            for block in blocks:
                is_registered.append(block.register(comm, symmetric=group in symmetric))

        self._cliques.run_on_each("the registration of memory with NCCL", groups, register)
        if not all(is_registered):
            self._note("NCCL does not register memory here")

    def _symmetric_groups(
        self,
        groups: Sequence[Group],
        actions: Mapping[Group, Sequence[DeviceActions]],
        blocks: Sequence[RegisteredMemory],
    ) -> set[Group]:
        """Return the groups whose members access ``blocks`` at the same offsets, if NCCL has symmetric windows."""
        if self._version < WINDOW_VERSION:
            return set()
        rank = self._host.rank
        own = [
            digest([placement_key(one, group.index(rank), blocks) for one in actions[group]])
            if group in actions
            else ""
            for group in groups
        ]
        payload = json.dumps(own).encode()
        everyone = [json.loads(data) for data in self._host.all_gather_bytes(payload)]
        return {
            group
            for number, group in enumerate(groups)
            if len({everyone[member][number] for member in group}) == 1
        }

    def _blocks(self) -> list[RegisteredMemory]:
        """Return the new blocks that still exist."""
        return [block for reference in self._new if (block := reference()) is not None]

    def _note(self, text: str) -> None:
        """Notify the user of ``text``, unless the user has been notified before."""
        self._notify(f"{text}: collectives between GPUs copy through NCCL's buffers")
        self._notify = _discard


def digest(keys: Sequence[object]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of ``keys`` in JSON."""
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]


def _discard(_: str) -> None:
    """Do nothing."""
