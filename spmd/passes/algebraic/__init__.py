"""Identities by family; importing this package registers them all. The one list of families."""

from spmd.passes.algebraic import (
    arithmetic,
    broadcast,
    compare,
    concatenate,
    convert,
    copy,
    cut_first,
    disjoint_sum,
    dot,
    logical,
    pad,
    reduce,
    reshape,
    select,
    slice,  # noqa: A004 - named after its operation
    slice_of_pad,
    transpose,
)

FAMILIES = (
    arithmetic,
    logical,
    compare,
    select,
    convert,
    copy,
    broadcast,
    reshape,
    transpose,
    slice,
    slice_of_pad,
    cut_first,
    pad,
    concatenate,
    reduce,
    dot,
    disjoint_sum,
)

__all__ = ["FAMILIES"]
