"""HloModuleConfigProto: what a text's header says of the compilation, which a bare HloModuleProto has no fields for.

The rest of the message are options of XLA's own compiler, which are neither read nor written.
"""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.module import EntryLayout, HloModule
from spmd.limits import MAX_COUNT
from spmd.ops.checks import set_text
from spmd.proto.schema.config import HloModuleConfigProto
from spmd.proto.schema.xla_data import ProgramShapeProto
from spmd.proto.shape_proto import read_shape
from spmd.text.lexer import Scanner
from spmd.text.module_header import OPAQUE

_ALIAS = "alias_passthrough_params"
_TO_PARAMETERS = "allow_spmd_sharding_propagation_to_parameters"
_TO_OUTPUT = "allow_spmd_sharding_propagation_to_output"


def read_config(module: HloModule, proto: HloModuleConfigProto) -> None:
    """Set what ``proto`` says on ``module``, as XLA does also where the module's own proto says otherwise."""
    replicas, partitions = proto.replica_count, proto.num_partitions
    if not (1 <= replicas <= MAX_COUNT and 1 <= partitions <= MAX_COUNT):
        raise HloParseError(f"a configuration of {replicas} replicas x {partitions} partitions")
    module.replica_count, module.num_partitions = replicas, partitions
    module.states_partitions = True
    if (program := proto.entry_computation_layout) is not None:
        parameters = tuple(map(read_shape, program.parameters))
        module.entry_layout = EntryLayout(parameters, read_shape(program.result))
    said = dict(module.extra_header)
    if proto.alias_passthrough_params:
        said[_ALIAS] = "true"
    for name, flags in (
        (_TO_PARAMETERS, proto.allow_spmd_sharding_propagation_to_parameters),
        (_TO_OUTPUT, proto.allow_spmd_sharding_propagation_to_output),
    ):
        if flags not in ((), (False,)):
            said[name] = set_text("true" if on else "false" for on in flags)
    module.extra_header = tuple((name, said[name]) for name in OPAQUE if name in said)


def write_config(module: HloModule, program: ProgramShapeProto | None) -> HloModuleConfigProto:
    """Return the configuration. ``program``: the entry's shapes with layouts, as in the module's own proto."""
    said = dict(module.extra_header)
    proto = HloModuleConfigProto()
    proto.entry_computation_layout = program
    proto.replica_count, proto.num_partitions = module.replica_count, module.num_partitions
    proto.use_spmd_partitioning = module.num_partitions > 1
    proto.device_type = module.carried.device_type
    proto.alias_passthrough_params = said.get(_ALIAS) == "true"
    proto.allow_spmd_sharding_propagation_to_parameters = _flags(said.get(_TO_PARAMETERS))
    proto.allow_spmd_sharding_propagation_to_output = _flags(said.get(_TO_OUTPUT))
    return proto


def _flags(text: str | None) -> tuple[bool, ...]:
    """Read ``{true,false}``. XLA's default is one false."""
    if text is None:
        return (False,)
    return Scanner.of(text).booleans()
