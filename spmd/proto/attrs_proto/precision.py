"""PrecisionConfig, which dots, convolutions and custom calls share."""

from __future__ import annotations

from spmd.proto.enums import ALGORITHMS, PRECISIONS
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import PrecisionConfigProto


def read_precision(proto: HloInstructionProto) -> tuple[tuple[str, ...], str]:
    """Return (operand precisions, algorithm). Precisions that are all default are left out, as in the text."""
    config = proto.precision_config
    if config is None:
        return (), ""
    precisions = tuple(map(PRECISIONS.value, config.operand_precision))
    if all(precision == "default" for precision in precisions):
        precisions = ()
    return precisions, ALGORITHMS.value(config.algorithm)


def write_precision(
    proto: HloInstructionProto, precisions: tuple[str, ...], algorithm: str, count: int
) -> None:
    """Write precisions and algorithm. ``count``: number of operands with a precision; XLA writes one for each."""
    config = PrecisionConfigProto()
    config.operand_precision = tuple(map(PRECISIONS.number, precisions or ("default",) * count))
    config.algorithm = ALGORITHMS.number(algorithm)
    proto.precision_config = config
