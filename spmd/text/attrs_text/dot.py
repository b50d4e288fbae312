"""dot, ragged-dot, scaled-dot."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.text.attrs_text.opaque_values import read_algorithm
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def _read_dot(values: AttrValues) -> DotAttrs:
    return DotAttrs(
        lhs_contracting=values.ints("lhs_contracting_dims"),
        rhs_contracting=values.ints("rhs_contracting_dims"),
        lhs_batch=values.ints("lhs_batch_dims"),
        rhs_batch=values.ints("rhs_batch_dims"),
        operand_precision=values.precisions(),
        algorithm=values.read("algorithm", read_algorithm, ""),
        extra=values.verbatim("sparsity", "sparsity_config"),
    )


def _write_dot_attrs(out: AttrWriter, attrs: DotAttrs) -> None:
    out.optional_ints("lhs_batch_dims", attrs.lhs_batch)
    out.ints("lhs_contracting_dims", attrs.lhs_contracting)
    out.optional_ints("rhs_batch_dims", attrs.rhs_batch)
    out.ints("rhs_contracting_dims", attrs.rhs_contracting)


def _write_dot_tail(out: AttrWriter, attrs: DotAttrs) -> None:
    out.tokens("operand_precision", attrs.operand_precision)
    out.optional("algorithm", attrs.algorithm)
    out.verbatim(attrs.extra)


def _write_dot(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(DotAttrs)
    _write_dot_attrs(out, attrs)
    _write_dot_tail(out, attrs)


def _read_ragged_dot(values: AttrValues) -> RaggedDotAttrs:
    return RaggedDotAttrs(
        _read_dot(values), values.ints("lhs_ragged_dims"), values.ints("rhs_group_dims")
    )


def _write_ragged_dot(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(RaggedDotAttrs)
    _write_dot_attrs(out, attrs.dot)
    out.optional_ints("lhs_ragged_dims", attrs.lhs_ragged_dims)
    out.optional_ints("rhs_group_dims", attrs.rhs_group_dims)
    _write_dot_tail(out, attrs.dot)


attrs_text(Opcode.DOT, Opcode.SCALED_DOT, read=_read_dot, write=_write_dot)
attrs_text(Opcode.RAGGED_DOT, read=_read_ragged_dot, write=_write_ragged_dot)
