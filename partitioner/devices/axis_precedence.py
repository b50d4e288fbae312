"""Precedence of meshes and shardings in a module that cuts its devices in several ways.

The first in order gives the module its axes and its device order. Shardings that do not fit are inexpressible
(inexpressible_shardings.py). Those of manual regions cannot be inexpressible, since their collectives name devices:
their meshes and shardings come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spmd.hlo import HloInstruction, HloModule
from spmd.mesh import Mesh
from spmd.ops.custom_call import custom_call_target
from spmd.sharding import HloSharding, SubgroupType

_EDGE_SHARDINGS = ("xla.sdy.in_shardings", "xla.sdy.out_shardings")
_MESH_NAME = re.compile(r"<@(\w+)")


def by_precedence(module: HloModule, meshes: dict[str, Mesh]) -> dict[str, Mesh]:
    """Return ``meshes`` with those of manual regions first."""
    named = dict.fromkeys(
        name
        for instruction in module.all_instructions()
        for key, text in instruction.annotations.frontend_attributes
        if key in _EDGE_SHARDINGS
        for name in _MESH_NAME.findall(text)
        if name in meshes
    )
    return {name: meshes[name] for name in (*named, *meshes)}


def shardings_by_precedence(module: HloModule) -> list[HloSharding]:
    """Return every sharding of the module, those of manual regions first."""
    return [*region_shardings(module), *_shardings(module, leads=False)]


def region_shardings(module: HloModule) -> list[HloSharding]:
    """Return the shardings at the edges of manual regions and inside them."""
    return _shardings(module, leads=True)


def _shardings(module: HloModule, *, leads: bool) -> list[HloSharding]:
    instructions = module.all_instructions()
    return [s for i in instructions for s in single_shardings(i.sharding) if _leads(i, s) is leads]


def _leads(instruction: HloInstruction, sharding: HloSharding) -> bool:
    if SubgroupType.MANUAL in sharding.subgroup_types:
        return True
    return custom_call_target(instruction) == "SPMDShardToFullShape" or any(
        custom_call_target(user) == "SPMDFullToShardShape" for user in instruction.users
    )


def single_shardings(sharding: HloSharding | None) -> Iterator[HloSharding]:
    """Yield the shardings of single values in ``sharding``."""
    if sharding is None:
        return
    if not sharding.is_tuple:
        yield sharding
    for element in sharding.elements:
        yield from single_shardings(element)
