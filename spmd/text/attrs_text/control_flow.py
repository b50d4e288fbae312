"""while, conditional, call, fusion, domain, after-all, add-dependency."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode
from spmd.ops.attrs import CallAttrs, ConditionalAttrs, DomainAttrs, FusionAttrs
from spmd.text.alias_text import format_output_to_operand, read_output_to_operand
from spmd.text.attrs_text.opaque_values import read_domain
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter

_FUSION_KINDS = ("kLoop", "kInput", "kOutput", "kCustom")


def _read_while(values: AttrValues) -> Attrs:
    values.callee("condition")
    values.callee("body")
    return NO_ATTRS


def _write_while(out: AttrWriter, instruction: HloInstruction) -> None:
    out.callee("condition", instruction.while_condition)
    out.callee("body", instruction.while_body)


def _read_conditional(values: AttrValues) -> ConditionalAttrs:
    if "branch_computations" in values:
        values.callee_list("branch_computations")
        return ConditionalAttrs()
    values.callee("true_computation")
    values.callee("false_computation")
    return ConditionalAttrs(predicated=True)


def _write_conditional(out: AttrWriter, instruction: HloInstruction) -> None:
    if not instruction.attrs_as(ConditionalAttrs).predicated:
        out.callee_list("branch_computations", instruction.called_computations)
        return
    on_true, on_false = instruction.called_computations
    out.callee("true_computation", on_true)
    out.callee("false_computation", on_false)


def _read_call(values: AttrValues) -> CallAttrs:
    values.callee("to_apply")
    return CallAttrs(values.flag("is_composite"))


def _write_call(out: AttrWriter, instruction: HloInstruction) -> None:
    out.flag("is_composite", instruction.attrs_as(CallAttrs).is_composite)
    out.callee("to_apply", instruction.to_apply)


def _read_fusion(values: AttrValues) -> FusionAttrs:
    values.callee("calls")
    return FusionAttrs(
        values.need_word("kind", _FUSION_KINDS),
        values.read("output_to_operand_aliasing", read_output_to_operand, ()),
    )


def _write_fusion(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(FusionAttrs)
    out.add("kind", attrs.kind)
    if attrs.output_to_operand_aliasing:
        out.add(
            "output_to_operand_aliasing", format_output_to_operand(attrs.output_to_operand_aliasing)
        )
    out.callee("calls", instruction.to_apply)


def _read_domain(values: AttrValues) -> DomainAttrs:
    return DomainAttrs(values.need_read("domain", read_domain))


attrs_text(Opcode.WHILE, read=_read_while, write=_write_while)
attrs_text(Opcode.CONDITIONAL, read=_read_conditional, write=_write_conditional)
attrs_text(Opcode.CALL, read=_read_call, write=_write_call)
attrs_text(Opcode.FUSION, read=_read_fusion, write=_write_fusion)
attrs_text(
    Opcode.DOMAIN,
    read=_read_domain,
    write=lambda out, instruction: out.add("domain", instruction.attrs_as(DomainAttrs).text),
)
attrs_text(Opcode.AFTER_ALL, Opcode.ADD_DEPENDENCY)
