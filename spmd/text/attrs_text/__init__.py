"""Attributes in text, one file per op family; importing this package fills ``ATTRS_TEXT``."""

from spmd.text.attrs_text import (
    async_ops,
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
    tuple,  # noqa: A004 - the family's stem
)
from spmd.text.attrs_text.registry import ATTRS_TEXT, AttrsText
from spmd.text.attrs_text.values import AttrValues, Callee
from spmd.text.attrs_text.writer import AttrWriter

__all__ = [
    "ATTRS_TEXT",
    "AttrValues",
    "AttrWriter",
    "AttrsText",
    "Callee",
    "async_ops",
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
