"""Parameters and outputs that propagation may shard: the header's ``allow_spmd_sharding_propagation_to_*``.

    allow_spmd_sharding_propagation_to_parameters={true,false}   one per parameter, or per element of the only tuple
    allow_spmd_sharding_propagation_to_output={true}             one for all, or one per element of the root tuple

True: the value takes the sharding that propagation finds, where that divides it evenly, else it is whole. False: the
host expects the annotated sharding, and the whole value where there is none.

A header without them says nothing (JAX's ``as_text`` writes none): parameters are what their annotations say, and an
output without one leaves as it is computed, since no host is known that would expect it whole.
"""

from __future__ import annotations

import re
from enum import Enum

from spmd.errors import ShardingError
from spmd.hlo import HloModule
from spmd.shape import Shape, TupleShape, leaves

TO_PARAMETERS = "allow_spmd_sharding_propagation_to_parameters"
TO_OUTPUT = "allow_spmd_sharding_propagation_to_output"

_FLAGS = re.compile(r"\{?((?:true|false)(?:\s*,\s*(?:true|false))*)?\s*\}?")


class Allowed(Enum):
    """Permission that the header gives for one value."""

    YES = "yes"
    NO = "no"
    UNSTATED = "unstated"


def parameter_flags(module: HloModule) -> tuple[tuple[Allowed, ...], ...]:
    """Per parameter, per leaf. ShardingError for a list that is neither one flag nor one per parameter (element)."""
    parameters = [p.shape for p in module.entry.parameters]
    stated = _stated(module, TO_PARAMETERS)
    if len(parameters) == 1 and isinstance(parameters[0], TupleShape):
        return (_per_element(stated, parameters[0], TO_PARAMETERS),)
    if len(stated) == 1:
        stated = stated * len(parameters)
    if len(stated) != len(parameters):
        raise ShardingError(
            f"{TO_PARAMETERS} has {len(stated)} flags for {len(parameters)} parameters"
        )
    return tuple(_each_leaf(flag, shape) for flag, shape in zip(stated, parameters, strict=True))


def output_flags(module: HloModule) -> tuple[Allowed, ...]:
    """Per leaf of the root. ShardingError for a list that is neither one flag nor one per element of the root."""
    return _per_element(_stated(module, TO_OUTPUT), module.entry.root.shape, TO_OUTPUT)


def _stated(module: HloModule, name: str) -> tuple[Allowed, ...]:
    text = dict(module.extra_header).get(name)
    if text is None:
        return (Allowed.UNSTATED,)
    match = _FLAGS.fullmatch(text.strip())
    if match is None or match[1] is None:
        raise ShardingError(f"expected {name}={{true,false,...}}, found {text}")
    return tuple(
        Allowed.YES if word.strip() == "true" else Allowed.NO for word in match[1].split(",")
    )


def _per_element(stated: tuple[Allowed, ...], shape: Shape, name: str) -> tuple[Allowed, ...]:
    elements = shape.elements if isinstance(shape, TupleShape) else (shape,)
    if len(stated) == 1:
        stated = stated * len(elements)
    if len(stated) != len(elements):
        raise ShardingError(f"{name} has {len(stated)} flags for {len(elements)} values of {shape}")
    return tuple(f for flag, e in zip(stated, elements, strict=True) for f in _each_leaf(flag, e))


def _each_leaf(flag: Allowed, shape: Shape) -> tuple[Allowed, ...]:
    return (flag,) * sum(1 for _ in leaves(shape))
