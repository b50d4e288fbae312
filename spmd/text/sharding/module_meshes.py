"""The meshes that a module's shardings speak of."""

from __future__ import annotations

from spmd.errors import HloParseError
from spmd.hlo.module import HloModule
from spmd.mesh import Mesh
from spmd.text.sharding.shardy_text import parse_meshes, parse_shardings

_DECLARED = "xla.sdy.meshes"
_SHARDINGS = ("xla.sdy.sharding", "xla.sdy.in_shardings", "xla.sdy.out_shardings")
_IN_PLACE = "mesh<"


def meshes_of(module: HloModule) -> dict[str, Mesh]:
    """Return the meshes that the module declares, by name, then those that shardings write in place, by their text.

    Raises HloParseError naming the module where the declaration is no such text.
    """
    return {**declared_meshes(module), **in_place_meshes(module)}


def declared_meshes(module: HloModule) -> dict[str, Mesh]:
    """Return the meshes of the module's header, by name."""
    text = module.frontend(_DECLARED)
    if not text:
        return {}
    try:
        return parse_meshes(text)
    except HloParseError as error:
        raise HloParseError(f"module {module.name}: {error}") from error


def in_place_meshes(module: HloModule) -> dict[str, Mesh]:
    """Return the meshes that stand within shardings, by their text."""
    texts = {
        value
        for instruction in module.all_instructions()
        for key, value in instruction.annotations.frontend_attributes
        if key in _SHARDINGS and _IN_PLACE in value
    }
    found: dict[str, Mesh] = {}
    for text in sorted(texts):
        for sharding in parse_shardings(text):
            if isinstance(sharding.mesh, Mesh):
                found[str(sharding.mesh)] = sharding.mesh
    return found
