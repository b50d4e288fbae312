"""The tilings that a logical module's annotations demand of its parameters and outputs, read from their text.

A demand: a GSPMD sharding of a parameter or of the root, or a closed Shardy sharding of a parameter or of a
FuncResultSharding call. Shardy's wins where both stand. Everything else leaves the partitioner free.
"""

from __future__ import annotations

import math
import re

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape, leaves
from tests.differential.tiling import Tiling, TilingError, mesh_tiling, read_tiling, split_tuple

Demands = tuple[Tiling | None, ...]

_MESH = re.compile(r"(\w+) = #sdy\.mesh<\[([^\]]*)\](?:, device_ids=\[([^\]]*)\])?>")
_AXIS = re.compile(r'"(\w+)"=(\d+)')
_SHARDING = re.compile(r"<@(\w+), \[([^\]]*)\]>")
_DIMENSION = re.compile(r"\{([^}]*)\}")
_NAME = re.compile(r'"(\w+)"')


def parameter_demands(module: HloModule, num_devices: int) -> Demands:
    """One entry per parameter leaf."""
    return tuple(
        demand
        for parameter in module.entry.parameters
        for demand in _of_instruction(module, parameter, num_devices)
    )


def output_demands(module: HloModule, num_devices: int) -> Demands:
    """One entry per output leaf."""
    root = module.entry.root
    demands = list(_of_instruction(module, root, num_devices))
    producers = list(root.operands) if root.opcode is Opcode.TUPLE else [root]
    if len(producers) == len(demands):
        for i, producer in enumerate(producers):
            if _is_result_sharding(producer):
                (demands[i],) = _of_instruction(module, producer, num_devices)
    return tuple(demands)


def _is_result_sharding(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs
    return isinstance(attrs, CustomCallAttrs) and attrs.target == "xla.sdy.FuncResultSharding"


def _of_instruction(module: HloModule, instruction: HloInstruction, num_devices: int) -> Demands:
    shapes = [leaf for _, leaf in leaves(instruction.shape) if isinstance(leaf, ArrayShape)]
    text = instruction.annotations.frontend("xla.sdy.sharding")
    if text is not None:
        found = _SHARDING.findall(text)
        if len(found) != len(shapes):
            return (None,) * len(shapes)
        return tuple(_of_shardy(module, mesh, dims, num_devices) for mesh, dims in found)
    if instruction.sharding is None or "unspecified_dims" in instruction.annotations.backend_config:
        return (None,) * len(shapes)
    parts = split_tuple(str(instruction.sharding))
    if len(parts) != len(shapes):
        parts = parts * len(shapes)
    return tuple(
        _of_gspmd(part, shape.rank, num_devices) for part, shape in zip(parts, shapes, strict=True)
    )


def _of_gspmd(text: str, rank: int, num_devices: int) -> Tiling | None:
    try:
        return read_tiling(text, rank, num_devices)
    except TilingError:
        return None


def _of_shardy(module: HloModule, name: str, dims: str, num_devices: int) -> Tiling | None:
    """Return the tiling that the sharding demands; None for an open sharding and for sub-axes."""
    found = _MESH.findall(module.frontend("xla.sdy.meshes") or "")
    meshes = {mesh: (axes, ids) for mesh, axes, ids in found}
    if name not in meshes or "?" in dims or ":" in dims:
        return None
    axes, ids = meshes[name]
    mesh = {axis: int(size) for axis, size in _AXIS.findall(axes)}
    if math.prod(mesh.values()) != num_devices:
        return None
    spec = [_NAME.findall(part) for part in _DIMENSION.findall(dims)]
    order = [int(i) for i in ids.split(",")] if ids else range(num_devices)
    return mesh_tiling(mesh, spec, order)
