"""Permutes that are none, of constants, in a row, of broadcasts, conversions and selects, operands of one operation."""

from __future__ import annotations

from spmd.device import CollectiveGroupMode
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.shape import PrimitiveType
from tests.spmd.passes.triggers.devices import device_total, several_devices, table_by_device
from tests.spmd.passes.triggers.gathers import part
from tests.spmd.passes.triggers.permutes import exchanging_ids, full_pairs, permute, some_pairs
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_ANYHOW = (Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT, Opcode.MAXIMUM)


@trigger("collective-permute-simplifier")
def modules(rng: Rng) -> HloModule:
    p = several_devices(rng)
    form = p.choose(_FORMS)
    return p.module(p.after(form(p)), *([_never_zero(p)] if p.chance(0.3) else []))


def _selected(p: Program) -> HloInstruction:
    """By replica and partition, alike on all that send, and anyhow on the others."""
    mode, count = exchanging_ids(p)
    pairs = p.some(full_pairs(p, count), at_least=1)
    taken = p.chance()
    by_partition = mode is CollectiveGroupMode.CROSS_PARTITION
    partitions = p.result.num_partitions
    ids = [
        device % partitions if by_partition else device // partitions
        for device in range(device_total(p))
    ]
    senders = {source for source, _ in pairs}
    flags = [taken if i in senders else p.chance() for i in ids]
    chosen = p.b.compare(table_by_device(p, flags), p.b.scalar(PrimitiveType.S32, 0), "NE")
    x = part(p, p.element_type())
    choice = p.b.select(p.b.broadcast_scalar(chosen, x.dims), x, p.like(x))
    return permute(p, [choice], pairs, mode)


def _unsent(p: Program) -> HloInstruction:
    mode, _ = exchanging_ids(p)
    return permute(p, [part(p, p.element_type())], [], mode)


def _unmoved(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    pairs = [(i, i) for i in p.some(range(count), at_least=1)]
    return permute(p, [part(p, p.element_type())], pairs, mode)


def _constant(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    kind = p.element_type()
    x = p.constant(kind, (3,)) if p.chance() else p.b.iota(PrimitiveType.S32, (2, 3), 1)
    if p.chance():
        x = p.b.broadcast(x, range(len(x.dims)), (*x.dims, 2))
    return permute(p, [x], some_pairs(p, count), mode)


def _in_a_row(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    x = part(p, p.element_type())
    for _ in range(p.integer(2, 4)):
        x = permute(p, [x], some_pairs(p, count), mode)
    return x


def _broadcast(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    x = part(p, p.element_type())
    wide = p.b.broadcast(x, range(1, 1 + len(x.dims)), (2, *x.dims))
    return permute(p, [wide], some_pairs(p, count), mode)


def _converted(p: Program) -> HloInstruction:
    """Before or after, whichever is more to send."""
    mode, count = exchanging_ids(p)
    narrow, wide = p.choose(((PrimitiveType.BF16, PrimitiveType.F32), _INTEGERS))
    if p.chance():
        x = p.b.convert(part(p, narrow), wide)
        return permute(p, [x], some_pairs(p, count), mode)
    return p.b.convert(permute(p, [part(p, wide)], some_pairs(p, count), mode), narrow)


_INTEGERS = (PrimitiveType.S8, PrimitiveType.S64)


def _operands(p: Program) -> HloInstruction:
    mode, count = exchanging_ids(p)
    x = part(p, p.element_type())
    pairs = some_pairs(p, count)
    operands = [permute(p, [y], p.shuffled(pairs), mode) for y in (x, p.like(x))]
    if p.chance(0.3):
        pairs = full_pairs(p, count)
        operands = [permute(p, [y], pairs, mode) for y in (x, p.like(x))]
        if not x.array_shape.element_type.is_complex:
            return p.b.compare(*operands, p.choose(("LT", "EQ")))
    return p.b.binary(p.choose(_ANYHOW if not _is_complex(x) else _ANYHOW[:3]), *operands)


def _never_zero(p: Program) -> HloInstruction:
    """Of operands that not everybody receives: zeros give no zero."""
    mode, count = exchanging_ids(p)
    x = part(p, PrimitiveType.F32)
    pairs = full_pairs(p, count)[1:]
    return p.b.divide(*[permute(p, [y], pairs, mode) for y in (x, p.like(x))])


def _is_complex(x: HloInstruction) -> bool:
    return x.array_shape.element_type.is_complex


_FORMS = (
    _selected,
    _unsent,
    _unmoved,
    _constant,
    _in_a_row,
    _broadcast,
    _converted,
    _operands,
)
