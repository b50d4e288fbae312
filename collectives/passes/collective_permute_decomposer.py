"""Write collective-permutes as sends and receives."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from collectives.passes.collective_permute_cycle_decomposer import closing_pairs
from collectives.passes.collective_permute_matching import Permute, match_permute
from spmd.builder import Builder, ModuleScope
from spmd.device import CollectiveGroupMode
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ChannelAttrs
from spmd.ops.send_recv import PAIRS_ATTRIBUTE
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import UNSCHEDULED, register_pass
from spmd.passes.rewrite import builder_at, put_in_place
from spmd.shape import ArrayShape, PrimitiveType, TokenShape, TupleShape


@register_pass
@dataclass(frozen=True)
class CollectivePermuteDecomposer(InstructionPass):
    """Receive, send, wait for both: what a collective-permute of one array without cycles does.

        r = collective-permute(x), {{0,1},{1,2}}       =>      t = after-all()
                                                               u = recv(t)
                                                               s = send(x, t)
                                                               r = get-tuple-element(recv-done(u)), index=0
                                                               d = send-done(s)

    To look at, and for schedulers of pipelines: before it runs, ``send-recv-pairing`` makes permutes of them again. A
    receive is posted before its send, its wait comes behind; the next one begins after the last has ended, so that no
    device waits for one that waits elsewhere. Ids must be partitions; ``min_bytes``: smaller ones stay.
    """

    name: ClassVar[str] = "collective-permute-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.COLLECTIVE_PERMUTE,)
    min_bytes: int = 0

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)
        before: dict[HloComputation, list[HloInstruction]] = {}

        def edit(x: HloInstruction) -> bool:
            permute = match_permute(x)
            if permute is None or x.shape.byte_size < self.min_bytes or not _is_a_row(permute):
                return False
            b = builder_at(x, scope)
            before[b.computation] = _decompose(permute, before.get(b.computation, []), b)
            return True

        return edit

    def traversal(self, computation: HloComputation) -> list[HloInstruction]:
        return [x for x in computation.post_order() if x.opcode in self.opcodes]


def _is_a_row(permute: Permute) -> bool:
    """Return whether the pairs have no cycle, so that no device waits, over others, for itself."""
    return (
        permute.mode is CollectiveGroupMode.CROSS_PARTITION
        and not closing_pairs(permute.pairs)
        and all(source != target for source, target in permute.pairs)
    )


def _decompose(permute: Permute, earlier: list[HloInstruction], b: Builder) -> list[HloInstruction]:
    """Write send and receive after ``earlier``. Returns the instructions that must precede the next permute."""
    x = permute.instruction
    attrs = ChannelAttrs(channel_id=b.scope.channel_id())
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
