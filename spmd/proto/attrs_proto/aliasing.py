"""output_to_operand_aliasing, which fusions and custom calls share."""

from __future__ import annotations

from spmd.ops.attrs import Aliasing
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import OutputOperandAliasingProto


def read_aliasing(proto: HloInstructionProto) -> Aliasing:
    return tuple(
        (alias.output_shape_index, alias.operand_index, alias.operand_shape_index)
        for alias in proto.output_operand_aliasing
    )


def write_aliasing(proto: HloInstructionProto, aliasing: Aliasing) -> None:
    written: list[OutputOperandAliasingProto] = []
    for output, operand, index in aliasing:
        alias = OutputOperandAliasingProto()
        alias.output_shape_index = output
        alias.operand_index = operand
        alias.operand_shape_index = index
        written.append(alias)
    proto.output_operand_aliasing = written
