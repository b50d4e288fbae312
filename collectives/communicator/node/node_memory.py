"""Shared memory of the ranks of a node, and the collectives that run over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from collectives.communicator.actions.array_actions import Copy
from collectives.communicator.actions.engine import CollectiveEngine
from collectives.communicator.actions.shared_actions import CollectiveProgram
from collectives.communicator.actions.shared_buffers import (
    MEMORY_ALIGNMENT,
    Buffers,
    addresses_of,
    private_memory,
)
from collectives.communicator.group import Array, Group, describe_group
from collectives.communicator.interface import BoundCollective
from collectives.communicator.kinds.op import Collective
from collectives.communicator.native_collective import NativeCollective
from collectives.communicator.node.barrier import NodeBarrier
from collectives.communicator.node.binding_record import (
    Binding,
    BoundRecord,
    BoundRecords,
    Protocol,
    WindowOffset,
    WindowOffsets,
    binding_digest,
)
from collectives.communicator.node.node import ByteExchange, Node
from collectives.communicator.node.shared_protocols import (
    MemberMemory,
    action_program,
    needs_staging,
)
from collectives.communicator.node.shared_window import (
    SharedMemoryProvider,
    SharedWindow,
    open_window,
)
from collectives.communicator.wait_context import WaitingWorld
from spmd.errors import RunError

_SLOT_BYTES = 1024
_SLOT_BYTES_OVERSUBSCRIBED = 4096
"""Operands of up to this many bytes use slots: a barrier costs more than a copy, especially if ranks share cores."""

_SPINS = 500
"""Number of polls of a late member's counter, about 30 us, before a rank with a core of its own yields the core."""
_SPINS_OVERSUBSCRIBED = 10

#: Function that binds a collective by messages to buffers. Each run ends with the given copies.
ByMessages: TypeAlias = Callable[[Buffers, Sequence[Copy]], BoundCollective]


class NodeMemory:
    """One rank's view of the shared memory of its node. All ranks of the world must make the same calls.

    Collectives of groups within the node run in place on arrays from ``allocate``; small operands may lie anywhere. The
    caller provides messages for the other collectives: those of groups that span nodes, those with large operands
    outside shared memory, and reductions for which the engine has no code.
    """

    def __init__(
        self,
        world: WaitingWorld,
        exchange: ByteExchange,
        node: Node,
        engine: CollectiveEngine | None,
        providers: Sequence[SharedMemoryProvider],
        notify: Callable[[str], None] = lambda _: None,
        slot_bytes: int | None = None,
    ) -> None:
        """Create the memory of the rank of ``world`` on ``node``. ``exchange`` gathers bytes from all ranks.

        ``engine`` runs the actions; without an engine, messages carry all collectives. ``providers`` are sources of
        shared memory in order of preference. ``notify`` receives a message for the user if the preferred provider
        failed. Operands of up to ``slot_bytes`` bytes in total go through slots; the default depends on whether ranks
        share cores.
        """
        self.node = node
        if slot_bytes is None:
            slot_bytes = _SLOT_BYTES_OVERSUBSCRIBED if node.is_oversubscribed else _SLOT_BYTES
        self._slot_bytes = slot_bytes
        self.spins = _SPINS_OVERSUBSCRIBED if node.is_oversubscribed else _SPINS
        self._world = world
        self._exchange = exchange
        self._rank = world.rank
        self._engine = engine
        self._providers = tuple(providers)
        self._notify = notify
        self._windows: list[SharedWindow] = []
        self._count = 0
        self._bindings: list[Binding] = []

    def disable_shared_memory(self) -> None:
        """Have messages carry all collectives that are bound from now on."""
        self._engine = None

    def open(self, num_bytes: int, home: int | None = None) -> tuple[SharedWindow, Array]:
        """Open a window. Every rank of the world must call it at the same time.

        Returns the window and this rank's ``num_bytes`` bytes of it, which lie in the segment of rank ``home``; by
        default the rank has its own segment. Raises RunError, on every rank, if no provider works.
        """
        self._count += 1
        window, own = open_window(
            self._exchange, self.node, self._rank, num_bytes, self._count, self._providers, home
        )
        failed = [provider.name for provider in self._providers]
        failed = failed[: failed.index(window.provider)]
        if failed:
            self._notify(
                f"shared memory is a file in {window.provider}, because {failed[0]} cannot be used"
            )
            self._providers = self._providers[len(failed) :]
        return window, own

    def allocate(self, num_bytes: int) -> Array:
        """Return ``num_bytes`` bytes of this rank that the ranks of its node can access (``Communicator.allocate``).

        Returns private memory if shared memory is disabled.
        """
        return self._allocate(num_bytes, None)

    def allocate_shared(self, num_bytes: int, group: Group) -> Array:
        """Return the memory that all members of ``group`` share (``Communicator.allocate_shared``).

        It lies in the segment of the first member. If the group spans nodes, this rank gets memory of its own.
        """
        return self._allocate(num_bytes, group[0] if set(group) <= set(self.node.ranks) else None)

    def _allocate(self, num_bytes: int, home: int | None) -> Array:
        """Return memory in a new window, in the segment of rank ``home`` (None: this rank), or private memory."""
        if self._engine is None:
            return private_memory(num_bytes)
        window, own = self.open(num_bytes, home)
        self._windows = [*filter(lambda one: one.is_alive, self._windows), window]
        return own

    def bind(
        self,
        collective: Collective,
        name: str,
        buffers: Buffers,
        by_messages: ByMessages,
    ) -> BoundCollective:
        """Bind a collective to ``buffers``: over shared memory if possible, else by ``by_messages``.

        ``by_messages`` is called with the buffers and with the copies that each run must perform at its end. The result
        is ready after ``connect``. Raises RunError if members would write different results to memory that they share,
        or if a result lies in memory that ranks outside the group share.
        """
        window_offsets = self._window_offsets(buffers)
        shared_results = self._shared_in_group(collective, name, window_offsets[1])
        protocol = self._protocol(collective, buffers, window_offsets)
        if protocol is not Protocol.IN_PLACE:
            window_offsets = [], shared_results if protocol is Protocol.SLOTS else []
        index = collective.group.index(self._rank)
        digest = binding_digest(protocol, collective, index, name, buffers, window_offsets)
        if protocol is Protocol.MESSAGES:
            self._bindings.append(Binding(name, collective.group, digest))
            return _by_messages(by_messages, collective, name, buffers, any(shared_results))
        shared = NativeCollective(self._world, collective, name, buffers, self.spins)
        slot_bytes = buffers.operand_bytes if protocol is Protocol.SLOTS else 0
        self._bindings.append(
            Binding(name, collective.group, digest, shared, slot_bytes, *map(tuple, window_offsets))
        )
        return shared

    def node_barrier(self, window: SharedWindow, offset: int = 0) -> NodeBarrier | None:
        """Return a barrier of the node's ranks; None if shared memory is disabled.

        The barrier occupies BARRIER_BYTES bytes at ``offset`` in each rank's segment of ``window``.
        """
        if self._engine is None:
            return None
        has_cores = not self.node.is_oversubscribed
        return NodeBarrier(
            self._engine,
            window,
            self._rank,
            self.node.ranks,
            offset=offset,
            has_cores=has_cores,
        )

    def connect(self) -> None:
        """Check the collectives bound since the last call against the other members', and load the shared ones.

        Every rank of the world must call it. Raises RunError, on every rank, if the members of a group have bound
        different collectives, or buffers with different layouts.
        """
        bindings, self._bindings = self._bindings, []
        own = BoundRecords.of(bindings)
        bound = [BoundRecords.decode(data) for data in self._exchange(own.encode())]
        self._require_consistency(bindings, [one.records for one in bound])
        if self._engine is None or not any(one.control_bytes for one in bound):
            return
        control, memory = self.open(own.control_bytes)
        loading, programs = [], []
        for k, binding in enumerate(bindings):
            if binding.shared is not None:
                members = [
                    _member(binding, rank, control, bound[rank].records[k])
                    for rank in binding.group
                ]
                program, staging = self._program(binding, binding.shared, members)
                programs.append(program)
                loading.append((binding.shared, (memory, staging)))
        for (shared, keep), actions in zip(loading, self._engine.load(programs), strict=True):
            shared.load(actions, keep)

    def _require_consistency(
        self, bindings: Sequence[Binding], bound: Sequence[Sequence[BoundRecord]]
    ) -> None:
        """Raise RunError, on every rank, unless all members of each group have bound equal collectives.

        ``bound`` holds the records of all ranks.
        """
        found = ""
        for k, binding in enumerate(bindings):
            others = [
                rank
                for rank in binding.group
                if k >= len(bound[rank]) or bound[rank][k].digest != binding.digest
            ]
            if others and not found:
                found = (
                    f"[rank {self._rank}/{len(bound)}] {binding.name}: ranks {describe_group(tuple(others))} bound "
                    "another collective here, or buffers at other offsets. If all ranks compiled the same program, as "
                    "spmd run and spmd.compile ensure, this is a defect of spmd-executor: please report it with the "
                    "module, the command and the number of ranks"
                )
        problems = [data.decode() for data in self._exchange(found.encode()) if data]
        if problems:
            raise RunError(problems[0])

    def _program(
        self, binding: Binding, shared: NativeCollective, members: list[MemberMemory]
    ) -> tuple[CollectiveProgram, list[Array]]:
        """Return the actions of this rank for ``binding`` and the staging arrays that they use.

        ``members`` holds the memory of all members of the group. The entry of this rank is replaced by the addresses of
        all its arrays, those in private memory included.
        """
        collective, buffers = shared.collective, shared.buffers
        index = binding.group.index(self._rank)
        operands, results = addresses_of(buffers.operands), addresses_of(buffers.results)
        members[index] = replace(members[index], operands=operands, results=results)
        staging: list[Array] = []
        if not binding.slot_bytes and needs_staging(collective, index, buffers):
            staging = [private_memory(result.nbytes) for result in buffers.results]
        addresses = addresses_of(staging) or None
        return action_program(collective, index, buffers, members, addresses), staging

    def _protocol(
        self,
        collective: Collective,
        buffers: Buffers,
        window_offsets: tuple[WindowOffsets, WindowOffsets],
    ) -> Protocol:
        """Return the protocol of ``collective``. All members of the group choose the same if they run one program."""
        if not self._can_share(collective, buffers):
            return Protocol.MESSAGES
        if len(collective.group) == 1:
            return Protocol.ALONE
        if buffers.operand_bytes <= self._slot_bytes and not collective.data_dependent:
            return Protocol.SLOTS
        arrays = (*buffers.operands, *buffers.results)
        found = (*window_offsets[0], *window_offsets[1])
        everywhere = all(p or not array.nbytes for array, p in zip(arrays, found, strict=True))
        if everywhere and collective.can_run_in_place(buffers):
            return Protocol.IN_PLACE
        return Protocol.MESSAGES

    def _shared_in_group(
        self, collective: Collective, name: str, results: WindowOffsets
    ) -> WindowOffsets:
        """Return ``results`` with None in place of those that no two members of the group share.

        Raises RunError if ranks outside the group share a result, or if shared results would differ among members.
        """
        group = collective.group
        for entry in filter(None, results):
            sharers = entry.window.sharers(self._rank)
            if not set(sharers) <= set(group):
                raise RunError(
                    f"{name}: its result is in memory that ranks {describe_group(sharers)} share, but its group "
                    f"{describe_group(group)} does not contain all of them"
                )
        shared_results = [
            entry if entry and entry.window.is_shared_in(group) else None for entry in results
        ]
        if any(shared_results) and not collective.same_results:
            raise RunError(
                f"{name}: its results differ between ranks, but are in memory that the ranks share"
            )
        return shared_results

    def _can_share(self, collective: Collective, buffers: Buffers) -> bool:
        """Return whether the group lies within the node and the engine has code for the collective."""
        engine = self._engine
        if engine is None or not set(collective.group) <= set(self.node.ranks):
            return False
        return collective.has_code(engine, buffers.operands)

    def _window_offsets(self, buffers: Buffers) -> tuple[WindowOffsets, WindowOffsets]:
        """Return the window offsets of the operands and of the results."""
        return [*map(self._find, buffers.operands)], [*map(self._find, buffers.results)]

    def _find(self, array: Array) -> WindowOffset | None:
        """Return the window that contains ``array`` and its offset; None if there is none or the array is empty."""
        for window in self._windows if array.nbytes else ():
            offset = window.offset_of(array)
            if offset is not None:
                return WindowOffset(window, offset)
        return None


def _member(
    binding: Binding, rank: int, control: SharedWindow, record: BoundRecord
) -> MemberMemory:
    """Return the memory of member ``rank``, as addresses in this process.

    ``control`` is the window of the control memory. The arrays lie at the offsets of ``record``, which the member has
    sent, in the windows in which this rank's arrays lie.
    """
    counter = control.address(rank, record.control)
    slots: tuple[int, ...] = ()
    if binding.slot_bytes:
        first = counter + MEMORY_ALIGNMENT
        slots = (first, first + binding.slot_bytes)
    entries = (*binding.operands, *binding.results)
    addresses = tuple(
        entry.window.address(rank, offset) if entry else 0
        for entry, offset in zip(entries, record.offsets, strict=True)
    )
    count = len(binding.operands)
    return MemberMemory(counter, addresses[:count], addresses[count:], slots)


def _by_messages(
    make: ByMessages,
    collective: Collective,
    name: str,
    buffers: Buffers,
    is_shared_in_group: bool,
) -> BoundCollective:
    """Bind by messages. Results that members share are written to staging first and copied at the end of each run.

    A member must not write to shared memory before all members have started, which messages alone do not guarantee.
    Raises RunError for a rooted collective with shared results.
    """
    if not is_shared_in_group:
        return make(buffers, ())
    if collective.rooted:  # the root may be done before the others start
        raise RunError(
            f"{name}: a collective that uses MPI messages cannot write to memory that the ranks share"
        )
    staging = tuple(np.empty_like(result) for result in buffers.results)
    return make(Buffers(buffers.operands, staging), tuple(map(Copy, staging, buffers.results)))
