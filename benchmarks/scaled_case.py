"""A recorded GPT case on a larger mesh: its text with every size, sharding and mesh scaled.

The case's model_args name its sizes: B H S D F V. They must satisfy B = H and S = D / H, so that one size in the text
always means one thing to scale: B and H by the mesh axes that split them, S and the head by those of the sequence.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from partitioner.devices.axes import DeviceAxes
from spmd.sharding import HloSharding, SubgroupType
from spmd.text.sharding.sharding_text import parse_sharding

_SHAPE = re.compile(r"(\b(?:pred|[a-z]+\d+)\[)([\d,]+)\]")
_RANGES = re.compile(r"\bslice=\{[^}]*\}")
_SIZES = re.compile(r"(slice_sizes=\{)([\d,]+)\}")
_SHARDING = re.compile(r"sharding=(\{(?:[^{}]|\{[^{}]*\})*\})")
_MESH_AXIS = re.compile(r'(\\?")(\w+)(\\?")=(\d+)')


def scaled_case(case: Path, mesh: tuple[int, ...]) -> str:
    """Module text of the case (a folder with module.hlo and case.json) for ``mesh``, all dimensions divisible."""
    about = json.loads((case / "case.json").read_text())
    old = DeviceAxes(tuple(about["mesh"]["shape"]))
    new = DeviceAxes(mesh)
    factors = [b // a for a, b in zip(old.sizes, mesh, strict=True)]
    sizes = _size_map(about["model_args"], factors)
    text = (case / "module.hlo").read_text()
    text = _SHAPE.sub(lambda m: f"{m[1]}{_mapped(sizes, m[2])}]", text)
    text = _SIZES.sub(lambda m: f"{m[1]}{_mapped(sizes, m[2])}}}", text)
    text = _RANGES.sub(
        lambda m: re.sub(r":(\d+)\]", lambda r: f":{_mapped(sizes, r[1])}]", m[0]), text
    )
    text = _SHARDING.sub(lambda m: f"sharding={_rescaled(parse_sharding(m[1]), old, new)}", text)
    named = dict(zip(about["mesh"]["axes"], mesh, strict=True))
    return _MESH_AXIS.sub(lambda m: f"{m[1]}{m[2]}{m[3]}={named.get(m[2], m[4])}", text)


def _size_map(model: dict[str, str], factors: list[int]) -> dict[int, int]:
    batch, heads, sequence, width = (int(model[name]) for name in "BHSD")
    if batch != heads or sequence * heads != width:
        raise ValueError(f"sizes that cannot be told apart: {model}")
    data, fsdp, tensor = factors
    outer = data * fsdp * tensor
    wider = {width, int(model["F"]), int(model["V"])}
    return {
        batch: batch * outer,
        sequence: sequence * tensor,
        **{size: size * outer * tensor for size in wider},
    }


def _mapped(sizes: dict[int, int], dims: str) -> str:
    return ",".join(str(sizes.get(int(n), int(n))) for n in dims.split(","))


def _rescaled(sharding: HloSharding, old: DeviceAxes, new: DeviceAxes) -> HloSharding:
    """The same axes, of other sizes."""
    if sharding.is_tuple:
        return HloSharding.tuple_of(tuple(_rescaled(e, old, new) for e in sharding.elements))
    if not sharding.is_tiled:
        return sharding
    rank = len(sharding.tile_dims)
    dims, groups = old.axes_of_sharding(sharding, rank)
    return new.sharding(dims, manual=groups.get(SubgroupType.MANUAL, ()))
