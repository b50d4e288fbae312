"""Write each send and its recv as one collective-permute, which the runtime runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import ClassVar

from spmd.builder import ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ChannelAttrs
from spmd.ops.send_recv import source_target_pairs
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, put_in_place
from spmd.shape import ArrayShape, as_tuple
from spmd.source_target_pairs import ListedPairs, Pair


@register_pass
@dataclass(frozen=True)
class SendRecvPairing(FueledPass):
    """Replace the send and recv of a channel by a collective-permute of what is sent.

        s = (f32[4], u32[], token[]) send(x, t)          =>    p = f32[4] collective-permute(x)
        r = (f32[4], u32[], token[]) recv(t)                   s = (x, 0, t)
        d = (f32[4], token[]) recv-done(r)                     r = (p, 0, t)
                                                               d = (r.0, r.2)

    The transfer is complete where the recv stood, so its result may travel through tuples and loops to its done.
    Applies to a channel if each computation that uses it holds one send and one recv with equal pairs, and no sent
    value depends on the recv (a chain, in which one device receives before it sends, is no single permute). All else
    stays, host transfers too, and the runtime refuses it.
    """

    name: ClassVar[str] = "send-recv-pairing"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        paired = [c for c in _channels(module) if c.is_paired]
        waiting = _waiting_for_themselves(paired)
        changed = False
        for channel in paired:
            if fuel.is_spent:
                break
            if waiting.isdisjoint(recv for recvs in channel.recvs.values() for recv in recvs):
                fuel.burn()
                _replace(channel, scope)
                changed = True
        return changed


@dataclass
class _Channel:
    """All instructions of one channel: sends and recvs by computation, and their dones."""

    sends: dict[HloComputation, list[HloInstruction]] = field(
        default_factory=lambda: defaultdict(list)
    )
    recvs: dict[HloComputation, list[HloInstruction]] = field(
        default_factory=lambda: defaultdict(list)
    )
    dones: list[HloInstruction] = field(default_factory=list)

    @property
    def is_paired(self) -> bool:
        """Return whether each send has one recv in its computation, with equal pairs and an array of equal type."""
        return self.sends.keys() == self.recvs.keys() and all(
            len(sends) == len(self.recvs[where]) == 1 and _match(sends[0], self.recvs[where][0])
            for where, sends in self.sends.items()
        )


def _channels(module: HloModule) -> list[_Channel]:
    """Return the channels between devices, in the order in which the module names them."""
    found: dict[int, _Channel] = defaultdict(_Channel)
    for computation in module.computations_post_order():
        for x in computation.instructions:
            if x.opcode not in _HALVES:
                continue
            attrs = x.attrs_as(ChannelAttrs)
            if attrs.channel_id is None or attrs.is_host_transfer:
                continue
            channel = found[attrs.channel_id]
            if x.opcode is Opcode.SEND:
                channel.sends[computation].append(x)
            elif x.opcode is Opcode.RECV:
                channel.recvs[computation].append(x)
            else:
                channel.dones.append(x)
    return list(found.values())


_HALVES = (Opcode.SEND, Opcode.RECV, Opcode.SEND_DONE, Opcode.RECV_DONE)


def _match(send: HloInstruction, recv: HloInstruction) -> bool:
    sent, received = send.operand(0).shape, as_tuple(recv.shape).elements[0]
    pairs = source_target_pairs(send)
    if pairs is None or pairs != source_target_pairs(recv) or not _is_permutation(pairs):
        return False
    return (
        isinstance(sent, ArrayShape)
        and isinstance(received, ArrayShape)
        and (sent.element_type, sent.dims) == (received.element_type, received.dims)
    )


def _is_permutation(pairs: tuple[Pair, ...]) -> bool:
    """Return whether no device is source or target twice, as in a collective-permute."""
    return all(len({pair[end] for pair in pairs}) == len(pairs) for end in (0, 1))


def _waiting_for_themselves(channels: list[_Channel]) -> set[HloInstruction]:
    """Return the recvs that, waiting for the values of their sends, would wait for themselves, and all behind these."""
    sent: dict[HloInstruction, HloInstruction] = {}
    for channel in channels:
        for where, (send,) in channel.sends.items():
            sent[channel.recvs[where][0]] = send.operand(0)
    computations = dict.fromkeys(where for channel in channels for where in channel.sends)
    return {x for where in computations for x in _stuck(where, sent)}


def _stuck(
    computation: HloComputation, sent: dict[HloInstruction, HloInstruction]
) -> list[HloInstruction]:
    """Return the instructions that fit in no order with operands first and, before each recv, the
    value that is sent.
    """
    before = {
        x: [*x.operands, *x.control_predecessors, *([sent[x]] if x in sent else [])]
        for x in computation.instructions
    }
    after: dict[HloInstruction, list[HloInstruction]] = defaultdict(list)
    missing = {x: len(needed) for x, needed in before.items()}
    for x, needed in before.items():
        for y in needed:
            after[y].append(x)
    ready = [x for x, count in missing.items() if not count]
    while ready:
        for y in after[ready.pop()]:
            missing[y] -= 1
            if not missing[y]:
                ready.append(y)
    return [x for x, count in missing.items() if count]


def _replace(channel: _Channel, scope: ModuleScope) -> None:
    for x in channel.dones:
        b = builder_at(x, scope)
        token = b.get_tuple_element(x.operand(0), 2)
        if x.opcode is Opcode.RECV_DONE:
            put_in_place(x, b.tuple([b.get_tuple_element(x.operand(0), 0), token]))
        else:
            put_in_place(x, token)
    for where, (send,) in channel.sends.items():
        (recv,) = channel.recvs[where]
        pairs = source_target_pairs(send)
        assert pairs is not None
        b = builder_at(send, scope)
        received = b.collective_permute(send.operand(0), ListedPairs(pairs))
        for x, data in ((recv, received), (send, send.operand(0))):
            context = as_tuple(x.shape).elements[1]
            assert isinstance(context, ArrayShape)
            started = b.tuple([data, b.full(context, 0), x.operands[-1]])
            put_in_place(x, started)
