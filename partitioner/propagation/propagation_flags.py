"""Header flags ``allow_spmd_sharding_propagation_to_*``: the parameters and outputs that propagation may shard.

    allow_spmd_sharding_propagation_to_parameters={true,false}   one per parameter, or per element of the only tuple
    allow_spmd_sharding_propagation_to_output={true}             one for all, or one per element of the root tuple

True: the value takes the sharding that propagation finds if that divides it evenly; else it is replicated. False: the
host expects the annotated sharding, or the entire value without an annotation.

A header without these flags (JAX's ``as_text`` writes none): parameters have their annotated sharding, and an output
without an annotation keeps its computed sharding, since no known host expects it replicated.
"""

from __future__ import annotations

import re
from enum import Enum

from spmd.errors import ShardingError
from spmd.hlo import HloModule
from spmd.ops.checks import result_elements
from spmd.shape import Shape, TupleShape, leaves

TO_PARAMETERS = "allow_spmd_sharding_propagation_to_parameters"
TO_OUTPUT = "allow_spmd_sharding_propagation_to_output"

_FLAGS = re.compile(r"\{?((?:true|false)(?:\s*,\s*(?:true|false))*)?\s*\}?")


class Allowed(Enum):
    """Permission of the header for one value."""

    YES = "yes"
    NO = "no"
    UNSTATED = "unstated"


def parameter_flags(module: HloModule) -> tuple[tuple[Allowed, ...], ...]:
    """Return the flags per parameter, per leaf. Raises ShardingError for a list that is neither one flag nor one per
    parameter (element).
    """
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
    """Return the flag of each root leaf. Raises ShardingError for a list that is neither one flag nor one per element
    of the root.
    """
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
    elements = result_elements(shape)
    if len(stated) == 1:
        stated = stated * len(elements)
    if len(stated) != len(elements):
        raise ShardingError(f"{name} has {len(stated)} flags for {len(elements)} values of {shape}")
    return tuple(f for flag, e in zip(stated, elements, strict=True) for f in _each_leaf(flag, e))


def _each_leaf(flag: Allowed, shape: Shape) -> tuple[Allowed, ...]:
    return (flag,) * sum(1 for _ in leaves(shape))
