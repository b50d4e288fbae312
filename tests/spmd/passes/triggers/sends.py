"""Collective-permutes in rows, written as sends and receives."""

from __future__ import annotations

from dataclasses import replace

from collectives.passes.collective_permute_matching import Permute, match_permute
from spmd.builder import ModuleScope
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import ChannelAttrs
from spmd.ops.send_recv import PAIRS_ATTRIBUTE
from spmd.passes.rewrite import builder_at, put_in_place
from spmd.shape import ArrayShape, PrimitiveType, TokenShape, TupleShape


def write_as_sends(module: HloModule) -> HloModule:
    """Write the permutes of the entry, whose pairs are rows of partitions, as sends and receives. Returns ``module``.

        r = collective-permute(x), {{0,1},{1,2}}       =>      t = after-all()
                                                               u = recv(t)
                                                               s = send(x, t)
                                                               r = get-tuple-element(recv-done(u)), index=0
                                                               d = send-done(s)

    A receive is posted before its send, its wait comes behind; the next one begins after the last has ended, so that no
    device waits for one that waits elsewhere.
    """
    scope = ModuleScope(module)
    earlier: list[HloInstruction] = []
    for x in module.entry.post_order():
        permute = match_permute(x)
        if permute is not None:
            earlier = _write(permute, earlier, scope)
    return module


def _write(
    permute: Permute, earlier: list[HloInstruction], scope: ModuleScope
) -> list[HloInstruction]:
    """Write send and receive after ``earlier``. Returns the instructions that must precede the next permute."""
    x = permute.instruction
    b = builder_at(x, scope)
    attrs = ChannelAttrs(channel_id=scope.channel_id())
    token = b.create(Opcode.AFTER_ALL)
    context = ArrayShape(PrimitiveType.U32, ())
    data = permute.operand.array_shape.without_layout()
    received = TupleShape((data, context, TokenShape()))
    recv = b.create(Opcode.RECV, (token,), attrs, shape=received)
    send = b.create(Opcode.SEND, (permute.operand, token), attrs)
    recv_done = b.create(Opcode.RECV_DONE, (recv,), attrs)
    send_done = b.create(Opcode.SEND_DONE, (send,), attrs)
    pairs = ",".join(f"{{{source},{target}}}" for source, target in permute.pairs)
    said = (*x.annotations.frontend_attributes, (PAIRS_ATTRIBUTE, f"{{{pairs}}}"))
    for half in (recv, send):
        half.annotations = replace(x.annotations, frontend_attributes=said)
    for done in earlier:
        done.add_control_dependency_to(recv)
    recv.add_control_dependency_to(send)
    send.add_control_dependency_to(recv_done)
    put_in_place(x, b.get_tuple_element(recv_done, 0))
    return [recv_done, send_done]
