"""What every op means to the partitioner. Importing this package fills the registries; the list stands here alone."""

from partitioner.ops import (
    annotation,
    collective,
    control_flow,
    convolution,
    custom_call,
    dot,
    elementwise,
    gather_scatter,
    leaf,
    linalg,
    reduce,
    reshape,
    rng,
    slicing,
    sort,
    tuple,
)

__all__ = [
    "annotation",
    "collective",
    "control_flow",
    "convolution",
    "custom_call",
    "dot",
    "elementwise",
    "gather_scatter",
    "leaf",
    "linalg",
    "reduce",
    "reshape",
    "rng",
    "slicing",
    "sort",
    "tuple",
]
