"""Messages of hlo.proto, by the public field numbers: instructions, computations, modules.

Not declared, so skipped: the buffer assignment of a module, and the id of its compilation.
"""

from __future__ import annotations

from spmd.proto.message import (
    Message,
    data,
    datas,
    flag,
    integer,
    integers,
    message,
    messages,
    number32,
    optional_integer,
    text,
    texts,
)
from spmd.proto.schema.xla_data import (
    CholeskyOptionsProto,
    CollectiveDeviceListProto,
    ConvolutionDimensionNumbersProto,
    DeviceAssignmentProto,
    DotDimensionNumbersProto,
    FrontendAttributesProto,
    GatherDimensionNumbersProto,
    IotaReplicaGroupListProto,
    LiteralProto,
    MeshAxesReplicaGroupListProto,
    OpMetadataProto,
    OpShardingProto,
    OriginalArrayProto,
    OriginalValueProto,
    OutputOperandAliasingProto,
    PaddingConfigProto,
    ParameterReplicationProto,
    PayloadProto,
    PrecisionConfigProto,
    ProgramShapeProto,
    RaggedDotDimensionNumbersProto,
    ReplicaGroupProto,
    ResultAccuracyProto,
    ScatterDimensionNumbersProto,
    ShapeProto,
    SourceTargetProto,
    SparsityConfigProto,
    StatisticsVizProto,
    TriangularSolveOptionsProto,
    WindowProto,
)


class SliceDimensionsProto(Message):
    start = integer(1)
    limit = integer(2)
    stride = integer(3)


class HloInstructionProto(Message):
    name = text(1)
    opcode = text(2)
    shape = message(3, lambda: ShapeProto)
    metadata = message(7, lambda: OpMetadataProto)
    literal = message(8, lambda: LiteralProto)
    parameter_number = integer(9)
    fusion_kind = text(11)
    tuple_index = integer(13)
    dimensions = integers(14)
    window = message(15, lambda: WindowProto)
    convolution_dimension_numbers = message(16, lambda: ConvolutionDimensionNumbersProto)
    slice_dimensions = messages(17, lambda: SliceDimensionsProto)
    exponent_bits = integer(18)
    mantissa_bits = integer(19)
    dynamic_slice_sizes = integers(20)
    padding_config = message(21, lambda: PaddingConfigProto)
    outfeed_config = data(22)
    distribution = integer(23)
    epsilon = number32(24)
    feature_index = integer(25)
    channel_id = integer(26)
    infeed_config = data(27)
    custom_call_target = text(28)
    outfeed_shape = message(29, lambda: ShapeProto)
    dot_dimension_numbers = message(30, lambda: DotDimensionNumbersProto)
    fft_type = integer(31)
    fft_length = integers(32)
    gather_dimension_numbers = message(33, lambda: GatherDimensionNumbersProto)
    gather_slice_sizes = integers(34)
    id = integer(35)
    operand_ids = integers(36)
    control_predecessor_ids = integers(37)
    called_computation_ids = integers(38)
    sharding = message(40, lambda: OpShardingProto)
    backend_config = data(43)
    all_reduce_id = integer(45)
    is_host_transfer = flag(47)
    scatter_dimension_numbers = message(48, lambda: ScatterDimensionNumbersProto)
    #: Deprecated in favour of collective_device_list; read if that is absent.
    replica_groups = messages(49, lambda: ReplicaGroupProto)
    feature_group_count = integer(50)
    precision_config = message(51, lambda: PrecisionConfigProto)
    source_target_pairs = messages(52, lambda: SourceTargetProto)
    domain_entry_sharding = message(54, lambda: OpShardingProto)
    domain_exit_sharding = message(55, lambda: OpShardingProto)
    constrain_layout = flag(56)
    operand_shapes_with_layout = messages(57, lambda: ShapeProto)
    batch_group_count = integer(58)
    triangular_solve_options = message(59, lambda: TriangularSolveOptionsProto)
    is_stable = flag(60)
    parameter_replication = message(61, lambda: ParameterReplicationProto)
    cholesky_options = message(62, lambda: CholeskyOptionsProto)
    comparison_direction = text(63)
    custom_call_has_side_effect = flag(65)
    delta = integer(66)
    indices_are_sorted = flag(67)
    frontend_attributes = message(68, lambda: FrontendAttributesProto)
    unique_indices = flag(69)
    rng_algorithm = integer(70)
    use_global_device_ids = flag(71)
    comparison_type = text(72)
    is_cross_program_prefetch = flag(73)
    output_operand_aliasing = messages(74, lambda: OutputOperandAliasingProto)
    padding_type = integer(75)
    custom_call_schedule = integer(76)
    custom_call_api_version = integer(77)
    async_execution_thread = text(79)
    cross_program_prefetch_index = optional_integer(80)
    k = integer(81)
    statistics_viz = message(82, lambda: StatisticsVizProto)
    largest = flag(85)
    collective_device_list = message(87, lambda: CollectiveDeviceListProto)
    original_value = message(88, lambda: OriginalValueProto)
    is_composite = flag(89)
    ragged_dot_dimension_numbers = message(90, lambda: RaggedDotDimensionNumbersProto)
    result_accuracy = message(91, lambda: ResultAccuracyProto)
    iota_collective_device_list = message(92, lambda: IotaReplicaGroupListProto)
    mesh_axes_replica_group_list = message(93, lambda: MeshAxesReplicaGroupListProto)
    is_reverse = flag(94)
    num_carries = integer(95)
    is_associative = integer(96)
    conv_kind = integer(97)
    sparsity_config = message(98, lambda: SparsityConfigProto)
    backend_config_payload = message(99, lambda: PayloadProto)
    comparison_order = text(102)


class HloComputationProto(Message):
    name = text(1)
    instructions = messages(2, lambda: HloInstructionProto)
    program_shape = message(4, lambda: ProgramShapeProto)
    id = integer(5)
    root_id = integer(6)
    is_fusion_computation = flag(7)
    execution_thread = text(8)


class InstructionSequenceProto(Message):
    instruction_ids = integers(1)


class SequenceEntry(Message):
    """An entry of map<int64, InstructionSequence>: a computation's id and its instructions in order."""

    key = integer(1)
    value = message(2, lambda: InstructionSequenceProto)


class HloScheduleProto(Message):
    sequences = messages(1, lambda: SequenceEntry)


class AliasEntryProto(Message):
    output_shape_index = integers(1)
    parameter_number = integer(2)
    parameter_shape_index = integers(3)
    kind = integer(4)


class HloInputOutputAliasProto(Message):
    entries = messages(1, lambda: AliasEntryProto)


class BufferDonorEntryProto(Message):
    parameter_number = integer(1)
    parameter_shape_index = integers(2)


class HloBufferDonorProto(Message):
    entries = messages(1, lambda: BufferDonorEntryProto)


class FileLocationProto(Message):
    file_name_id = integer(1)
    function_name_id = integer(2)
    line = integer(3)
    column = integer(4)
    end_line = integer(5)
    end_column = integer(6)


class StackFrameProto(Message):
    file_location_id = integer(1)
    parent_frame_id = integer(2)


class StackFrameIndexProto(Message):
    file_names = texts(1)
    function_names = texts(2)
    file_locations = messages(3, lambda: FileLocationProto)
    stack_frames = messages(4, lambda: StackFrameProto)


class CrossProgramPrefetchProto(Message):
    parameter = integer(1)
    index = integers(2)
    offset = integer(3)


class RecoveryEntryProto(Message):
    """OriginalValueRecoveryTableProto.Entry"""

    old_array = message(1, lambda: OriginalArrayProto)
    new_array = message(2, lambda: OriginalArrayProto)
    recovery_module = message(3, lambda: HloModuleProto)


class RecoveryTableProto(Message):
    """OriginalValueRecoveryTableProto"""

    entries = messages(1, lambda: RecoveryEntryProto)


class HloModuleProto(Message):
    name = text(1)
    entry_computation_name = text(2)
    computations = messages(3, lambda: HloComputationProto)
    host_program_shape = message(4, lambda: ProgramShapeProto)
    id = integer(5)
    entry_computation_id = integer(6)
    schedule = message(7, lambda: HloScheduleProto)
    input_output_alias = message(8, lambda: HloInputOutputAliasProto)
    cross_program_prefetches = messages(10, lambda: CrossProgramPrefetchProto)
    is_dynamic = flag(11)
    spmd_output_sharding = message(12, lambda: OpShardingProto)
    #: Messages that this project does not decode.
    profile_info = datas(13)
    spmd_parameters_shardings = messages(14, lambda: OpShardingProto)
    device_assignment = message(15, lambda: DeviceAssignmentProto)
    use_auto_spmd_partitioning = flag(16)
    stack_frame_index = message(17, lambda: StackFrameIndexProto)
    buffer_donor = message(18, lambda: HloBufferDonorProto)
    frontend_attributes = message(19, lambda: FrontendAttributesProto)
    original_value_recovery_table = message(20, lambda: RecoveryTableProto)
    device_type = text(21)
    #: Texts that instructions refer to by number (backend_config_payload, metadata_payload).
    payloads = datas(22)


class HloProto(Message):
    """A module and (not read) its buffer assignment."""

    hlo_module = message(1, lambda: HloModuleProto)
