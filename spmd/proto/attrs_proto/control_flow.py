"""while, conditional, call, fusion, domain, after-all, add-dependency."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CallAttrs, ConditionalAttrs, DomainAttrs, FusionAttrs
from spmd.proto.attrs_proto.aliasing import read_aliasing, write_aliasing
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import OpShardingProto
from spmd.proto.sharding_proto import read_sharding, write_sharding
from spmd.shape import ArrayShape, PrimitiveType
from spmd.text.lexer import Scanner
from spmd.text.sharding.sharding_text import read_sharding as read_sharding_text

_FUSION_KINDS = ("kLoop", "kInput", "kOutput", "kCustom")


def _read_conditional(values: ProtoValues) -> ConditionalAttrs:
    """Read the attributes. A pred chooses between two branches, the first of which is for true."""
    shape = values.operands[0].shape if values.operands else None
    predicated = isinstance(shape, ArrayShape) and shape.element_type is PrimitiveType.PRED
    if predicated and values.num_callees != 2:
        raise HloParseError(f"a pred chooses between 2 branches, found {values.num_callees}")
    return ConditionalAttrs(predicated)


def _write_call(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    proto.is_composite = instruction.attrs_as(CallAttrs).is_composite


def _read_fusion(values: ProtoValues) -> FusionAttrs:
    kind = values.proto.fusion_kind
    if kind not in _FUSION_KINDS:
        raise HloParseError(f"unknown fusion kind {kind!r}")
    return FusionAttrs(kind, read_aliasing(values.proto))


def _write_fusion(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FusionAttrs)
    proto.fusion_kind = attrs.kind
    write_aliasing(proto, attrs.output_to_operand_aliasing)


def _read_domain(values: ProtoValues) -> DomainAttrs:
    """Read the shardings. The proto's entry is the side where values enter the domain, the operand's; the text calls
    that side its exit.
    """
    entry, exit_ = values.proto.domain_exit_sharding, values.proto.domain_entry_sharding
    return DomainAttrs(
        f'{{kind="sharding", entry={_text(entry, values)}, exit={_text(exit_, values)}}}'
    )


def _text(proto: OpShardingProto | None, values: ProtoValues) -> str:
    return "{}" if proto is None else str(read_sharding(proto, values.implied))


def _write_domain(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    """Parse ``{kind="sharding", entry={maximal device=0}, exit={}}`` and write its shardings into the proto."""
    scanner = Scanner.of(instruction.attrs_as(DomainAttrs).text)
    scanner.expect("{")
    scanner.expect("kind")
    scanner.expect("=")
    if scanner.string() != "sharding":
        scanner.fail('the only kind of domain is "sharding"')
    for name in ("entry", "exit"):
        scanner.expect(",")
        scanner.expect(name)
        scanner.expect("=")
        start, end = scanner.balanced()
        if scanner.text[start:end] == "{}":
            continue
        sharding = write_sharding(read_sharding_text(Scanner.of(scanner.text[start:end])))
        if name == "entry":
            proto.domain_exit_sharding = sharding
        else:
            proto.domain_entry_sharding = sharding


attrs_proto(Opcode.WHILE, callees=2, swaps_callees=True)
attrs_proto(Opcode.CONDITIONAL, read=_read_conditional, callees=None)
attrs_proto(
    Opcode.CALL,
    read=lambda values: CallAttrs(values.proto.is_composite),
    write=_write_call,
    callees=1,
)
attrs_proto(Opcode.FUSION, read=_read_fusion, write=_write_fusion, callees=1)
attrs_proto(Opcode.DOMAIN, read=_read_domain, write=_write_domain)
attrs_proto(Opcode.AFTER_ALL, Opcode.ADD_DEPENDENCY)
