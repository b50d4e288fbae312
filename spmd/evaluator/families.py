"""Imports of the op families, which register themselves. Only the driver needs to import this."""

from __future__ import annotations

from spmd.evaluator import (
    batch_norm,
    collective,
    control_flow,
    convolution,
    custom_call,
    dot,
    elementwise,
    feed,
    fused_attention,
    gather_scatter,
    lapack,
    leaf,
    library_calls,
    linalg,
    reduce,
    reduce_window,
    reshape,
    rng,
    send_recv,
    slicing,
    sort,
    tuple,  # noqa: A004 - the family of HLO's tuple ops
)

FAMILIES = (
    batch_norm,
    collective,
    control_flow,
    convolution,
    custom_call,
    dot,
    elementwise,
    feed,
    fused_attention,
    gather_scatter,
    lapack,
    leaf,
    library_calls,
    linalg,
    reduce,
    reduce_window,
    reshape,
    rng,
    send_recv,
    slicing,
    sort,
    tuple,
)
