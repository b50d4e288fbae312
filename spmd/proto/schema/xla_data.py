"""Messages of xla_data.proto, by the public field numbers: shapes, literals, windows, shardings, groups.

Not declared, so stepped over: what XLA itself reads no more (a sharding's tile shape, what is left of sparse arrays).
"""

from __future__ import annotations

from spmd.proto.message import (
    Message,
    data,
    flag,
    flags,
    integer,
    integers,
    message,
    messages,
    number64,
    optional_integer,
    packed,
    text,
    texts,
)
from spmd.proto.wire import FIXED32, FIXED64


# ---- shapes
class TileProto(Message):
    dimensions = integers(1)


class SplitConfigProto(Message):
    dimension = integer(1)
    split_indices = integers(2)


class LayoutProto(Message):
    minor_to_major = integers(1)
    tiles = messages(6, lambda: TileProto)
    element_size_in_bits = integer(7)
    memory_space = integer(8)
    dim_level_types = integers(9)
    physical_shape = message(10, lambda: ShapeProto)
    index_primitive_type = integer(11)
    pointer_primitive_type = integer(12)
    dynamic_shape_metadata_prefix_bytes = integer(15)
    tail_padding_alignment_in_elements = integer(16)
    split_configs = messages(17, lambda: SplitConfigProto)


class ShapeProto(Message):
    element_type = integer(2)
    dimensions = integers(3)
    tuple_shapes = messages(4, lambda: ShapeProto)
    layout = message(5, lambda: LayoutProto)
    is_dynamic_dimension = flags(6)


class ProgramShapeProto(Message):
    parameters = messages(1, lambda: ShapeProto)
    result = message(2, lambda: ShapeProto)
    parameter_names = texts(3)


# ---- literals
class LiteralProto(Message):
    """One of the value fields holds the elements, by the shape's element type."""

    shape = message(1, lambda: ShapeProto)
    preds = packed(2)
    u8s = data(3)
    s32s = packed(4)
    s64s = packed(5)
    u32s = packed(6)
    u64s = packed(7)
    f32s = packed(8, FIXED32)
    f64s = packed(9, FIXED64)
    tuple_literals = messages(10, lambda: LiteralProto)
    f16s = data(11)
    c64s = packed(12, FIXED32)
    bf16s = data(13)
    s8s = data(15)
    u16s = data(16)
    s16s = data(17)
    c128s = packed(18, FIXED64)
    f8e5m2s = data(19)
    f8e4m3fns = data(20)
    s4s = data(21)
    u4s = data(22)
    f8e4m3b11fnuzs = data(23)
    f8e5m2fnuzs = data(24)
    f8e4m3fnuzs = data(25)
    s2s = data(26)
    u2s = data(27)
    f8e4m3s = data(28)
    f8e3m4s = data(29)
    s1s = data(30)
    u1s = data(31)
    f4e2m1fns = data(32)
    f8e8m0fnus = data(33)
    f6e3m2fns = data(35)
    f6e2m3fns = data(36)
    dynamic_sizes = integers(34)


# ---- annotations
class PayloadProto(Message):
    """Text that stands here, or the number of one in HloModuleProto.payloads."""

    value = data(1)
    id = optional_integer(2)


class OpMetadataProto(Message):
    op_type = text(1)
    op_name = text(2)
    source_file = text(3)
    source_line = integer(4)
    profile_type = integers(5)
    size_of_generated_code_in_bytes = integer(8)
    size_of_memory_working_set_in_bytes = integer(9)
    #: A message that this project does not decode.
    profile_info = data(10)
    deduplicated_name = text(12)
    stack_frame_id = integer(15)
    scheduling_name = text(16)
    source_end_line = integer(17)
    source_column = integer(18)
    source_end_column = integer(19)
    metadata_payload = message(20, lambda: PayloadProto)


class StringEntry(Message):
    """An entry of map<string, string>."""

    key = text(1)
    value = text(2)


class FrontendAttributesProto(Message):
    map = messages(1, lambda: StringEntry)


class StatisticProto(Message):
    stat_name = text(1)
    stat_val = number64(2)


class StatisticsVizProto(Message):
    stat_index_to_visualize = integer(1)
    statistics = messages(2, lambda: StatisticProto)


class OriginalArrayProto(Message):
    instruction_name = text(1)
    shape_index = integers(2)


class OriginalValueElementProto(Message):
    shape_index = integers(1)
    original_array = message(2, lambda: OriginalArrayProto)


class OriginalValueProto(Message):
    elements = messages(1, lambda: OriginalValueElementProto)
    is_synthetic_call = flag(2)


class ToleranceProto(Message):
    atol = number64(1)
    rtol = number64(2)
    ulps = integer(3)


class ResultAccuracyProto(Message):
    mode = optional_integer(1)
    tolerance = message(2, lambda: ToleranceProto)


# ---- shardings
class MeshAxisProto(Message):
    name = text(1)
    size = integer(2)


class IotaTransformProto(Message):
    reshape_dims = integers(1)
    transpose_perm = integers(2)


class MeshProto(Message):
    axes = messages(1, lambda: MeshAxisProto)
    device_ids = integers(2)
    iota_transform = message(3, lambda: IotaTransformProto)


class SubAxisProto(Message):
    pre_size = integer(1)
    size = integer(2)


class AxisRefProto(Message):
    mesh_axis_index = integer(1)
    sub_axis_info = message(2, lambda: SubAxisProto)


class DimensionShardingProto(Message):
    axes = messages(1, lambda: AxisRefProto)
    is_closed = flag(2)


class NamedShardingProto(Message):
    mesh = message(2, lambda: MeshProto)
    dim_shardings = messages(3, lambda: DimensionShardingProto)
    replicated_axes = messages(4, lambda: AxisRefProto)
    unreduced_axes = messages(5, lambda: AxisRefProto)
    metadata = messages(6, lambda: OpMetadataProto)
    manual_axes = messages(7, lambda: AxisRefProto)


class OpShardingProto(Message):
    type = integer(1)
    tile_assignment_dimensions = integers(3)
    tile_assignment_devices = integers(4)
    tuple_shardings = messages(5, lambda: OpShardingProto)
    replicate_on_last_tile_dim = flag(6)
    metadata = messages(7, lambda: OpMetadataProto)
    last_tile_dims = integers(8)
    iota_reshape_dims = integers(9)
    iota_transpose_perm = integers(10)
    is_shard_group = flag(11)
    shard_group_id = integer(12)
    shard_group_type = integer(13)
    named_sharding = message(14, lambda: NamedShardingProto)


# ---- groups of devices
class ReplicaGroupProto(Message):
    replica_ids = integers(1)


class IotaReplicaGroupListProto(Message):
    num_replica_groups = integer(1)
    num_devices_per_group = integer(2)
    iota_reshape_dims = integers(3)
    iota_transpose_perm = integers(4)


class MeshAxesReplicaGroupListProto(Message):
    mesh = message(1, lambda: MeshProto)
    axes = messages(2, lambda: AxisRefProto)


class CollectiveDeviceListProto(Message):
    replica_groups = messages(1, lambda: ReplicaGroupProto)
    #: Reserved now; versions of XLA of 2025 wrote it.
    iota_replica_group_list = message(2, lambda: IotaReplicaGroupListProto)


class SourceTargetProto(Message):
    source = integer(1)
    target = integer(2)


class ComputationDeviceProto(Message):
    replica_device_ids = integers(1)


class DeviceAssignmentProto(Message):
    replica_count = integer(1)
    computation_count = integer(2)
    computation_devices = messages(3, lambda: ComputationDeviceProto)


# ---- attributes
class PaddingDimensionProto(Message):
    edge_padding_low = integer(1)
    edge_padding_high = integer(2)
    interior_padding = integer(3)


class PaddingConfigProto(Message):
    dimensions = messages(1, lambda: PaddingDimensionProto)


class WindowDimensionProto(Message):
    size = integer(1)
    stride = integer(2)
    padding_low = integer(3)
    padding_high = integer(4)
    window_dilation = integer(5)
    base_dilation = integer(6)
    window_reversal = flag(7)


class WindowProto(Message):
    dimensions = messages(1, lambda: WindowDimensionProto)


class GatherDimensionNumbersProto(Message):
    offset_dims = integers(1)
    collapsed_slice_dims = integers(2)
    start_index_map = integers(3)
    index_vector_dim = integer(4)
    operand_batching_dims = integers(5)
    start_indices_batching_dims = integers(6)


class ScatterDimensionNumbersProto(Message):
    update_window_dims = integers(1)
    inserted_window_dims = integers(2)
    scatter_dims_to_operand_dims = integers(3)
    index_vector_dim = integer(4)
    input_batching_dims = integers(5)
    scatter_indices_batching_dims = integers(6)


class ConvolutionDimensionNumbersProto(Message):
    kernel_input_feature_dimension = integer(3)
    kernel_output_feature_dimension = integer(4)
    kernel_spatial_dimensions = integers(6)
    input_batch_dimension = integer(7)
    input_feature_dimension = integer(8)
    output_batch_dimension = integer(9)
    output_feature_dimension = integer(10)
    input_spatial_dimensions = integers(11)
    output_spatial_dimensions = integers(12)


class DotDimensionNumbersProto(Message):
    lhs_contracting_dimensions = integers(1)
    rhs_contracting_dimensions = integers(2)
    lhs_batch_dimensions = integers(3)
    rhs_batch_dimensions = integers(4)


class RaggedDotDimensionNumbersProto(Message):
    dot_dimension_numbers = message(1, lambda: DotDimensionNumbersProto)
    lhs_ragged_dimensions = integers(2)
    rhs_group_dimensions = integers(3)


class PrecisionConfigProto(Message):
    operand_precision = integers(1)
    algorithm = integer(2)


class TensorSparsityConfigProto(Message):
    num_non_zero = integer(1)
    block_size = integer(2)
    dimension = integer(3)
    stride = integer(4)


class SparsityConfigProto(Message):
    lhs = message(1, lambda: TensorSparsityConfigProto)
    rhs = message(2, lambda: TensorSparsityConfigProto)


class TriangularSolveOptionsProto(Message):
    left_side = flag(1)
    lower = flag(2)
    unit_diagonal = flag(3)
    transpose_a = integer(4)


class CholeskyOptionsProto(Message):
    lower = flag(1)


class ParameterReplicationProto(Message):
    replicated_at_leaf_buffers = flags(1)


class OutputOperandAliasingProto(Message):
    output_shape_index = integers(1)
    operand_index = integer(2)
    operand_shape_index = integers(3)
