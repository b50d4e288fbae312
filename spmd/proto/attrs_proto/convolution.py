"""convolution: window, dimension numbers, group counts, kind, sparsity."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvolutionAttrs
from spmd.proto.attrs_proto.precision import read_precision, write_precision
from spmd.proto.attrs_proto.registry import ProtoValues, attrs_proto
from spmd.proto.enums import CONVOLUTION_KINDS
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.sparsity_proto import sparsity_of_text, sparsity_text
from spmd.proto.window_proto import (
    read_convolution_dims,
    read_window,
    write_convolution_dims,
    write_window,
)


def _read_convolution(values: ProtoValues) -> ConvolutionAttrs:
    proto = values.proto
    precisions, algorithm = read_precision(proto)
    sparsity = proto.sparsity_config
    texts = {
        "convolution_kind": CONVOLUTION_KINDS.value(proto.conv_kind),
        "sparsity_config": "" if sparsity is None else sparsity_text(sparsity),
        "algorithm": algorithm,
    }
    return ConvolutionAttrs(
        window=read_window(proto.window),
        dimension_numbers=read_convolution_dims(proto.convolution_dimension_numbers),
        # Older versions of XLA omitted a count of one.
        feature_group_count=proto.feature_group_count or 1,
        batch_group_count=proto.batch_group_count or 1,
        operand_precision=precisions,
        extra=tuple((name, text) for name, text in texts.items() if text),
    )


def _write_convolution(proto: HloInstructionProto, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ConvolutionAttrs)
    proto.window = write_window(attrs.window)
    proto.convolution_dimension_numbers = write_convolution_dims(attrs.dimension_numbers)
    proto.feature_group_count = attrs.feature_group_count
    proto.batch_group_count = attrs.batch_group_count
    extra = dict(attrs.extra)
    proto.conv_kind = CONVOLUTION_KINDS.number(extra.pop("convolution_kind", ""))
    write_precision(proto, attrs.operand_precision, extra.pop("algorithm", ""), 2)
    if "sparsity_config" in extra:
        proto.sparsity_config = sparsity_of_text(extra["sparsity_config"])


attrs_proto(Opcode.CONVOLUTION, read=_read_convolution, write=_write_convolution)
