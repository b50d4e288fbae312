"""Read the module of a saved executable, and what its header says of it, and lower it to thunks.

Neither is trusted: the module and the offsets of values are verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.arrays.sharded_arrays import ArraySpec, have_sizes
from runtime.buffers.heap.recorded_heaps import RecordedHeap, RecordedHeaps
from runtime.buffers.types import Color
from runtime.executable import Executable
from runtime.lower_module import lower
from runtime.saved_archive import SavedExecutableError
from spmd.hlo import HloModule, Stage
from spmd.proto.reader import parse_proto
from spmd.shape import ArrayShape, Shape, array_shapes, as_array
from spmd.sharding import ShardingKind
from spmd.text.shape_text import parse_shape
from spmd.text.sharding.sharding_text import parse_sharding
from spmd.verifier.verifier import verify


def read_module(stored: bytes, where: str) -> HloModule:
    """Raises SpmdError, naming ``where``, unless it is a valid module that has a schedule."""
    module = parse_proto(stored, where)
    if module.stage < Stage.SCHEDULED:
        raise SavedExecutableError(f"{where}: the module in it has no schedule")
    verify(module)
    return module


def lower_saved(
    module: HloModule, header: dict[str, Any], where: str, *, check: bool
) -> Executable:
    """Lower the module. Raises SpmdError, naming ``where``, if the header does not fit it.

    check: run the buffer and schedule checkers on the result.
    """
    parameters = [parameter.shape for parameter in module.entry.parameters]
    inputs = _array_specs(header, "inputs", parameters, module, where)
    outputs = _array_specs(header, "outputs", [module.entry.root.shape], module, where)
    _require_sizes(outputs, where)
    recorded = _recorded_heaps(header.get("memory"), where)
    return lower(module, inputs, outputs, check=check, recorded=recorded)


def _recorded_heaps(memory: Any, where: str) -> RecordedHeaps:
    if not isinstance(memory, dict):
        raise SavedExecutableError(f"{where}: memory must have heaps, places and sizes")
    heaps, offsets, sizes = memory.get("heaps"), memory.get("places"), memory.get("sizes")
    if not isinstance(heaps, list) or not all(map(_is_heap, heaps)):
        raise SavedExecutableError(f"{where}: heaps must have space, groups, size and algorithm")
    if not isinstance(offsets, list) or not all(map(_is_heap_offset, offsets)):
        raise SavedExecutableError(f"{where}: places must be pairs of a heap and an offset")
    if not isinstance(sizes, str):
        raise SavedExecutableError(f"{where}: sizes must be a digest")
    return RecordedHeaps(
        tuple(
            RecordedHeap(
                Color(heap["space"], tuple(map(tuple, heap["groups"]))),
                heap["size"],
                heap["algorithm"],
            )
            for heap in heaps
        ),
        tuple((heap, offset) for heap, offset in offsets),
        sizes,
    )


def _is_heap(heap: Any) -> bool:
    return (
        isinstance(heap, dict)
        and _are_numbers([heap.get("space"), heap.get("size")])
        and isinstance(heap.get("algorithm"), str)
        and isinstance(groups := heap.get("groups"), list)
        and all(isinstance(group, list) and _are_numbers(group) for group in groups)
    )


def _is_heap_offset(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and _are_numbers(entry)


def _are_numbers(found: list[Any]) -> bool:
    return all(type(one) is int for one in found)


def _array_specs(
    header: dict[str, Any], key: str, tiles: Sequence[Shape], module: HloModule, where: str
) -> tuple[ArraySpec, ...]:
    """Read one array spec per array leaf of ``tiles``. Raises an error if a tile's size contradicts its sharding."""
    shapes = array_shapes(*tiles)
    entries = header.get(key)
    if not isinstance(entries, list) or len(entries) != len(shapes):
        raise SavedExecutableError(f"{where}: {key} must be a list of {len(shapes)} arrays")
    found = []
    for i, (entry, tile) in enumerate(zip(entries, shapes, strict=True)):
        spec = _array_spec(entry, f"{where}: {key}[{i}]")
        if _tile_dims(spec, module.num_partitions) != tile.dims or (
            spec.shape.element_type is not tile.element_type
        ):
            raise SavedExecutableError(
                f"{where}: {key}[{i}] is {spec.shape} shared as {spec.sharding}, "
                f"but a device's tile is {tile.without_layout()}"
            )
        found.append(spec)
    return tuple(found)


def _require_sizes(outputs: Sequence[ArraySpec], where: str) -> None:
    """Raise SavedExecutableError unless the last outputs can be the sizes of the bounded ones."""
    if not have_sizes([output.shape for output in outputs]):
        raise SavedExecutableError(
            f"{where}: the last outputs must be s32[] sizes, one for each bounded dimension"
        )


def _array_spec(entry: Any, where: str) -> ArraySpec:
    shape, sharding = (
        (entry.get("shape"), entry.get("sharding")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(shape, str) or not isinstance(sharding, str | None):
        raise SavedExecutableError(f"{where} must name a shape and a sharding")
    parsed = parse_shape(shape)
    if not isinstance(parsed, ArrayShape):
        raise SavedExecutableError(f"{where}: {shape} is no array")
    return ArraySpec(parsed, None if sharding is None else parse_sharding(sharding))


def _tile_dims(spec: ArraySpec, partitions: int) -> tuple[int, ...] | None:
    """Return the dimensions of a tile; None if the sharding cannot apply to this array over the partitions."""
    sharding, shape = spec.sharding, spec.shape
    if sharding is None:
        return shape.dims
    if sharding.kind is ShardingKind.MAXIMAL and not 0 <= sharding.device < partitions:
        return None
    if sharding.kind is ShardingKind.UNREDUCED:
        return None
    if sharding.kind is not ShardingKind.TILED:
        return shape.dims
    if sharding.num_devices != partitions or len(sharding.tile_dims) != shape.rank:
        return None
    return as_array(sharding.shard_shape(shape)).dims
