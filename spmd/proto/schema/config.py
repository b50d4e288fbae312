"""Messages of xla.proto, by the public field numbers: a module with the configuration it is compiled with.

Not declared, so stepped over: the options of XLA's own compiler (debug options, efforts, fusion choices, profiles).
"""

from __future__ import annotations

from spmd.proto.message import Message, flag, flags, integer, message, text
from spmd.proto.schema.hlo import HloModuleProto
from spmd.proto.schema.xla_data import ProgramShapeProto


class HloModuleConfigProto(Message):
    entry_computation_layout = message(1, lambda: ProgramShapeProto)
    replica_count = integer(4)
    num_partitions = integer(5)
    use_spmd_partitioning = flag(7)
    device_type = text(13)
    alias_passthrough_params = flag(17)
    allow_spmd_sharding_propagation_to_output = flags(27)
    allow_spmd_sharding_propagation_to_parameters = flags(33)


class HloModuleProtoWithConfig(Message):
    hlo_module = message(1, lambda: HloModuleProto)
    config = message(2, lambda: HloModuleConfigProto)
