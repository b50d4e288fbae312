"""Attribute records, one frozen dataclass per op family (text names in hlo_text and XLA's parser).

They are in one module because readers, printers and passes need them without the op definitions. A comment gives the
text name if a record's field has another one. Those of elementwise operations are in spmd/hlo/opcode.py.
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from spmd.device import ReplicaGroups
from spmd.hlo.opcode import Attrs
from spmd.lazy_dataclass import dataclass
from spmd.literal import Literal
from spmd.ops.window import Window
from spmd.shape import Shape, ShapeIndex
from spmd.source_target_pairs import SourceTargetPairs

#: (index in the result, operand, index in the operand) of parts that share memory.
Aliasing: TypeAlias = tuple[tuple[ShapeIndex, int, ShapeIndex], ...]


# ---- leaf
@dataclass(frozen=True, slots=True)
class ParameterAttrs(Attrs):
    number: int
    #: parameter_replication={true,false}: one flag per leaf.
    replication: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class ConstantAttrs(Attrs):
    """Attributes of a constant. ``literal`` is None for an elided constant ``{...}``: it has no value."""

    literal: Literal | None


@dataclass(frozen=True, slots=True)
class IotaAttrs(Attrs):
    dimension: int  # iota_dimension


@dataclass(frozen=True, slots=True)
class DimensionsAttrs(Attrs):
    """Attribute ``dimensions={..}``: broadcast, transpose, reverse, concatenate, reduce, map, sort,
    get/set-dimension-size.

    broadcast: result dimension of each operand dimension. transpose: operand dimension of each result dimension.
    """

    dimensions: tuple[int, ...]


# ---- dot, convolution
#: Algorithms of a product by their numbers in protos; 0, no algorithm, has the empty name.
DOT_ALGORITHMS = (
    *("", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16"),
    *("dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3"),
    *("dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32"),
    *("dot_f64_f64_f64", "dot_bf16_bf16_f32_x9"),
)


@dataclass(frozen=True, slots=True)
class DotAttrs(Attrs):
    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    operand_precision: tuple[str, ...] = ()
    algorithm: str = ""
    #: sparsity, ragged and group dimensions as written, (name, text).
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class RaggedDotAttrs(Attrs):
    dot: DotAttrs
    lhs_ragged_dims: tuple[int, ...] = ()
    rhs_group_dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvDimensionNumbers:
    """Positions of batch, feature and spatial dimensions (dim_labels=b01f_01io->b01f)."""

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionAttrs(Attrs):
    window: Window
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int = 1
    batch_group_count: int = 1
    operand_precision: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


# ---- reductions and windows; reduce and map use DimensionsAttrs, their function is called_computations[0]
@dataclass(frozen=True, slots=True)
class WindowAttrs(Attrs):
    """Attributes of reduce-window (to_apply) and select-and-scatter (called_computations = [select, scatter])."""

    window: Window


# ---- slicing
@dataclass(frozen=True, slots=True)
class SliceAttrs(Attrs):
    """Attribute slice={[start:limit:stride], ...}."""

    starts: tuple[int, ...]
    limits: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DynamicSliceAttrs(Attrs):
    sizes: tuple[int, ...]  # dynamic_slice_sizes


@dataclass(frozen=True, slots=True)
class PadAttrs(Attrs):
    """Attribute padding=low_high_interior x ...; low and high may be negative."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReshapeAttrs(Attrs):
    inferred_dimension: int = -1


# ---- gather, scatter
@dataclass(frozen=True, slots=True)
class GatherAttrs(Attrs):
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    slice_sizes: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    indices_are_sorted: bool = False


@dataclass(frozen=True, slots=True)
class ScatterAttrs(Attrs):
    """Attributes of scatter. Operands: n inputs, indices, n updates; to_apply combines."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    indices_are_sorted: bool = False
    unique_indices: bool = False


# ---- sort, rng, linear algebra
@dataclass(frozen=True, slots=True)
class SortAttrs(Attrs):
    """Attributes of sort: dimensions={d}; to_apply compares 2 scalars per operand."""

    dimension: int
    is_stable: bool = False


@dataclass(frozen=True, slots=True)
class TopKAttrs(Attrs):
    k: int
    largest: bool = True


@dataclass(frozen=True, slots=True)
class RngAttrs(Attrs):
    distribution: str  # rng_uniform, rng_normal


@dataclass(frozen=True, slots=True)
class RngBitGeneratorAttrs(Attrs):
    algorithm: str  # rng_three_fry, rng_philox, rng_default


@dataclass(frozen=True, slots=True)
class RngStateAttrs(Attrs):
    delta: int


@dataclass(frozen=True, slots=True)
class FftAttrs(Attrs):
    type: str  # FFT IFFT RFFT IRFFT
    length: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CholeskyAttrs(Attrs):
    lower: bool = False


@dataclass(frozen=True, slots=True)
class TriangularSolveAttrs(Attrs):
    left_side: bool = False
    lower: bool = False
    unit_diagonal: bool = False
    transpose_a: str = "NO_TRANSPOSE"  # TRANSPOSE, ADJOINT


@dataclass(frozen=True, slots=True)
class BatchNormAttrs(Attrs):
    epsilon: float
    feature_index: int


# ---- tuples, control flow. while: called = [condition, body]; conditional: called = branches
@dataclass(frozen=True, slots=True)
class TupleIndexAttrs(Attrs):
    index: int  # get-tuple-element


@dataclass(frozen=True, slots=True)
class ConditionalAttrs(Attrs):
    """Attributes of conditional. ``predicated``: written with true_computation/false_computation (called = [true,
    false], operand 0 a pred).
    """

    predicated: bool = False


@dataclass(frozen=True, slots=True)
class CallAttrs(Attrs):
    is_composite: bool = False


@dataclass(frozen=True, slots=True)
class FusionAttrs(Attrs):
    kind: str  # kLoop kInput kOutput kCustom
    output_to_operand_aliasing: Aliasing = ()


@dataclass(frozen=True, slots=True)
class DomainAttrs(Attrs):
    text: str


# ---- collectives
@dataclass(frozen=True, slots=True)
class CollectiveAttrs(Attrs):
    """Attributes of all-reduce, all-gather, reduce-scatter, all-to-all, collective-broadcast, ragged-all-to-all, and
    their starts.

    ``dimension``: gathered, scattered or exchanged dimension; None without one (all-reduce, tuple all-to-all). Group
    ids mean partitions if channel_id is set and use_global_device_ids is not (see ``group_mode``).
    """

    replica_groups: ReplicaGroups = field(default_factory=ReplicaGroups)
    channel_id: int | None = None
    use_global_device_ids: bool = False
    dimension: int | None = None
    constrain_layout: bool = False
    mode: str = ""


@dataclass(frozen=True, slots=True)
class CollectivePermuteAttrs(Attrs):
    source_target_pairs: SourceTargetPairs
    channel_id: int | None = None
    slice_sizes: tuple[tuple[int, ...], ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelAttrs(Attrs):
    """Attributes of send, recv and their dones."""

    channel_id: int | None = None
    is_host_transfer: bool = False


@dataclass(frozen=True, slots=True)
class AsyncAttrs(Attrs):
    """Attributes of async-start/update/done: called_computations = [wrapped]. ``sugar``: written as e.g.
    ``slice-start``.
    """

    execution_thread: str = ""
    sugar: bool = False
    #: Only start opcodes have this attribute.
    output_to_operand_aliasing: Aliasing = ()


@dataclass(frozen=True, slots=True)
class CopyStartAttrs(Attrs):
    cross_program_prefetch_index: int | None = None


@dataclass(frozen=True, slots=True)
class FeedAttrs(Attrs):
    """Attributes of infeed and outfeed."""

    config: str = ""
    outfeed_shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    dimension: int
    num_carries: int
    is_reverse: bool = False
    is_associative: bool = False


# ---- custom calls
@dataclass(frozen=True, slots=True)
class CustomCallAttrs(Attrs):
    target: str
    has_side_effect: bool = False
    api_version: str = ""
    schedule: str = ""
    operand_layout_constraints: tuple[Shape, ...] | None = None
    output_to_operand_aliasing: Aliasing = ()
    literal: Literal | None = None
    window: Window | None = None
    #: dim_labels, padding_type, feature_group_count, ... as written, (name, text).
    extra: tuple[tuple[str, str], ...] = ()
