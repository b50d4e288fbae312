"""XLA CPU as a worker: compiles and runs modules on devices of one host. Needs jax.

A request names the module's text, its replicas and partitions, the inputs (arg0, arg1, ... in .npz) and where the
outputs (out0, ...) go: those of all devices, device after device, or global arrays, which are divided as the compiled
program's shardings say. Without inputs the module is run on zeros, to see whether XLA runs it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib import _hlo, _jax

from benchmarks.xla_modules.worker import serve

#: Shardy's shardings in a text: XLA is to partition with Shardy.
_SHARDY = "xla.sdy."


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with open(request["module"]) as file:  # noqa: PTH123
        text = file.read()
    module = _hlo.hlo_module_from_text(text)
    replicas, partitions = request.get("replicas", 1), request.get("partitions", 1)
    executable = compiled(module, replicas, partitions, shardy=_SHARDY in text)
    if "inputs" not in request:
        arguments = [zeros(shape, executable.local_devices()) for shape in parameters(module)]
        executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
        return {"outputs": 0}
    with np.load(request["inputs"]) as stored:
        arrays = [
            as_type(stored[f"arg{i}"], request["types"][i % len(request["types"])])
            for i in range(len(stored.files))
        ]
    outputs = run(executable, arrays, request)
    stored = {f"out{i}": x if x.dtype.isbuiltin == 1 else bits(x) for i, x in enumerate(outputs)}
    np.savez(request["outputs"], **stored)
    return {"outputs": len(outputs)}


def compiled(module: Any, replicas: int, partitions: int, *, shardy: bool) -> Any:
    count = replicas * partitions
    devices = jax.local_devices(backend="cpu")[:count]
    stablehlo = _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = replicas, partitions
    options.device_assignment = _jax.DeviceAssignment.create(
        np.arange(count).reshape(replicas, partitions)
    )
    building = options.executable_build_options
    building.num_replicas, building.num_partitions = replicas, partitions
    building.use_spmd_partitioning = partitions > 1
    building.use_shardy_partitioner = shardy and partitions > 1
    return devices[0].client.compile_and_load(stablehlo, _jax.DeviceList(tuple(devices)), options)


def run(executable: Any, arrays: Sequence[Any], request: dict[str, Any]) -> list[Any]:
    per_device = request["per_device"]
    devices = executable.local_devices()
    count = len(devices)
    if per_device:
        each = len(arrays) // count
        tiles = [[arrays[k * each + i] for k in range(count)] for i in range(each)]
    else:
        inputs = shardings(executable.get_parameter_shardings(), len(arrays))
        tiles = [divided(x, s, count) for x, s in zip(arrays, inputs, strict=True)]
    results = executable.execute_sharded([on_devices(own, devices) for own in tiles])
    outputs = [
        [np.asarray(x) for x in own] for own in results.disassemble_into_single_device_arrays()
    ]
    if per_device:
        return [own[k] for k in range(count) for own in outputs]
    layouts = shardings(executable.get_output_shardings(), len(outputs))
    return [joined(*one) for one in zip(outputs, layouts, request["shapes"], strict=True)]


def on_devices(arrays: Sequence[Any], devices: Sequence[Any]) -> Any:
    """Return one array of each device as XLA's argument."""
    whole = jax.sharding.NamedSharding(jax.sharding.Mesh(np.asarray(devices), "d"), jax.P())
    own = [jax.device_put(x, device) for x, device in zip(arrays, devices, strict=True)]
    return jax.make_array_from_single_device_arrays(arrays[0].shape, whole, own)


def shardings(protos: Sequence[Any] | None, count: int) -> list[Any]:
    if protos is None:
        return [_hlo.HloSharding.replicate()] * count
    return [_hlo.HloSharding.from_proto(proto) for proto in protos]


def tiles_of(sharding: Any, rank: int, count: int) -> list[tuple[int, ...]] | None:
    """Return the number of tiles of each dimension, then the tile's index of each device; None for entire arrays."""
    if sharding.is_replicated() or sharding.is_manual() or sharding.is_maximal():
        return None
    dims = sharding.tile_assignment_dimensions()
    ids = np.asarray(sharding.tile_assignment_devices()).reshape(dims)
    where = {int(ids[index]): index[:rank] for index in np.ndindex(*ids.shape)}
    return [tuple(dims[:rank]), *(where[k] for k in range(count))]


def partial_sums(sharding: Any, rank: int, count: int) -> list[bool | None]:
    """Return for each device whether its tile is a term of the array; None where tiles are no partial sums."""
    unreduced = _hlo.OpSharding.Type.UNREDUCED
    kinds = list(sharding.subgroup_types()) if sharding.is_tiled() else []
    if unreduced not in kinds:
        return [None] * count
    dims = sharding.tile_assignment_dimensions()
    ids = np.asarray(sharding.tile_assignment_devices()).reshape(dims)
    found: list[bool | None] = [None] * count
    for index in np.ndindex(*ids.shape):
        along = zip(index[rank:], kinds, strict=True)
        found[int(ids[index])] = all(i == 0 for i, kind in along if kind != unreduced)
    return found


def divided(array: Any, sharding: Any, count: int) -> list[Any]:
    """Return the tile of each device; tiles at the end are padded."""
    tiles = tiles_of(sharding, array.ndim, count)
    if tiles is None:
        return [array] * count
    sizes = [-(-n // t) for n, t in zip(array.shape, tiles[0], strict=True)]
    pad = [(0, s * t - n) for n, s, t in zip(array.shape, sizes, tiles[0], strict=True)]
    padded = np.pad(array, pad)
    return [
        np.ascontiguousarray(
            padded[tuple(slice(i * s, (i + 1) * s) for i, s in zip(index, sizes, strict=True))]
        )
        for index in tiles[1:]
    ]


def joined(own: Sequence[Any], sharding: Any, shape: Sequence[int]) -> Any:
    """Return the global array of the devices' tiles; XLA pads results that are not divided, too.

    Tiles of an unreduced result are partial sums.
    """
    tiles = tiles_of(sharding, own[0].ndim, len(own)) or [(1,) * own[0].ndim, (0,) * own[0].ndim]
    sizes = own[0].shape
    whole = np.zeros([s * t for s, t in zip(sizes, tiles[0], strict=True)], own[0].dtype)
    parts = partial_sums(sharding, own[0].ndim, len(own))
    for index, tile, part in zip(tiles[1:], own, parts, strict=False):
        place = tuple(slice(i * s, (i + 1) * s) for i, s in zip(index, sizes, strict=True))
        if part is None:
            whole[place] = tile
        elif part:
            whole[place] += tile
    return np.array(whole[tuple(slice(0, n) for n in shape)], order="C")


def parameters(module: Any) -> list[Any]:
    proto = module.as_serialized_hlo_module_proto()
    return list(_hlo.XlaComputation(proto).program_shape().parameter_shapes())


def zeros(shape: Any, devices: Sequence[Any]) -> Any:
    return on_devices([np.zeros(shape.dimensions(), shape.numpy_dtype())] * len(devices), devices)


def as_type(array: Any, kind: str) -> Any:
    return array.view(np.dtype(kind)) if kind else array


def bits(array: Any) -> Any:
    """Return an array of a type that NumPy lacks as unsigned integers."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


if __name__ == "__main__":
    import ml_dtypes  # noqa: F401 - so that NumPy knows the names of its types

    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    jax.config.update("jax_enable_x64", True)
    serve(answer)
