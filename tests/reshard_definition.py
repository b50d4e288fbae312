"""The definition of a sharded value, and a machine that runs reshard steps: resharding is compared with them.

Tiles are cut here from global arrays with NumPy; nothing of the partitioner's own arithmetic is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from partitioner.devices.axes import DeviceAxes
from partitioner.partition.context import PartitionContext, ShardedValue
from partitioner.partition.shard_state import ShardState
from partitioner.reshard.emit import emit_steps
from partitioner.reshard.step import ReshardStep
from spmd.builder import ModuleScope
from spmd.device import ReductionKind
from spmd.evaluator.lockstep import evaluate_partitions
from spmd.hlo import HloModule, Stage
from spmd.shape import ArrayShape, PrimitiveType
from spmd.verifier import verify

COMBINE = {
    ReductionKind.SUM: np.add,
    ReductionKind.PRODUCT: np.multiply,
    ReductionKind.MIN: np.minimum,
    ReductionKind.MAX: np.maximum,
    ReductionKind.AND: np.bitwise_and,
    ReductionKind.OR: np.bitwise_or,
    ReductionKind.XOR: np.bitwise_xor,
}


@dataclass(frozen=True)
class Devices:
    """Devices numbered over a grid of axes, the last one fastest."""

    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.sizes)

    def coordinate(self, device: int, axis: int) -> int:
        return int(np.unravel_index(device, self.sizes)[axis])

    def index(self, device: int, axes: Iterable[int]) -> int:
        total = 0
        for axis in axes:
            total = total * self.sizes[axis] + self.coordinate(device, axis)
        return total

    def number(self, axes: Iterable[int]) -> int:
        return math.prod(self.sizes[a] for a in axes)

    def group(self, device: int, axes: Iterable[int]) -> list[int]:
        """The devices that differ from ``device`` only along ``axes``, itself included."""
        others = [a for a in range(len(self.sizes)) if a not in tuple(axes)]
        return [d for d in range(self.count) if self.index(d, others) == self.index(device, others)]


def tile_bounds(
    devices: Devices, state: ShardState, dims: tuple[int, ...], device: int
) -> list[tuple[int, int]]:
    """Per dimension (first element, tile size): n elements over s shards in tiles of ceil(n / s)."""
    bounds = []
    for n, axes in zip(dims, state.dims, strict=True):
        tile = math.ceil(n / devices.number(axes))
        bounds.append((devices.index(device, axes) * tile, tile))
    return bounds


def cut(
    devices: Devices, state: ShardState, whole: np.ndarray, device: int, padding: object
) -> np.ndarray:
    """The device's tile of ``whole``; what lies beyond it holds ``padding``."""
    bounds = tile_bounds(devices, state, whole.shape, device)
    tile = np.full([size for _, size in bounds], padding, dtype=whole.dtype)
    part = whole[tuple(slice(start, start + size) for start, size in bounds)]
    tile[tuple(slice(0, n) for n in part.shape)] = part
    return tile


def valid(
    devices: Devices, state: ShardState, dims: tuple[int, ...], device: int, tile: np.ndarray
) -> np.ndarray:
    """The elements of a tile that are elements of the array."""
    bounds = tile_bounds(devices, state, dims, device)
    assert tile.shape == tuple(size for _, size in bounds)
    return tile[
        tuple(slice(0, max(0, n - start)) for n, (start, _) in zip(dims, bounds, strict=True))
    ]


def emit_program(
    axes: DeviceAxes, shape: ArrayShape, source: ShardState, steps: tuple[ReshardStep, ...]
) -> HloModule:
    """A per-device program whose parameter is the source's tile and whose root is what the steps make of it."""
    module = HloModule("reshard")
    module.num_partitions = axes.num_devices
    entry = module.new_computation("main")
    driver = SimpleNamespace(axes=axes, reader=None, scope=ModuleScope(module))
    context = PartitionContext(driver, entry, entry)  # type: ignore[arg-type]
    local = source.local_shape(shape, axes)
    value = ShardedValue(context.builder.parameter(0, local), source, shape)
    entry.root = emit_steps(context, value, steps)
    module.entry = entry
    module.stage = Stage.PARTITIONED
    # Reducers are made on the way and must stand before their callers.
    module.computations = module.computations_post_order()
    return module


def check_reshard(
    axes: DeviceAxes,
    shape: ArrayShape,
    source: ShardState,
    target: ShardState,
    steps: tuple[ReshardStep, ...],
    scratch: tuple[int, ...] = (),
) -> None:
    """Run ``steps`` on tiles of random arrays, padding filled with nan, and compare every device's result.

    Along axes that no state names the devices work on different arrays: a step must not mix them.
    """
    devices = Devices(axes.sizes)
    rng = np.random.default_rng(7)
    named = (*source.used, *source.partial, *target.used, *scratch)
    unnamed = [a for a in range(len(axes.sizes)) if a not in named]
    terms: dict[tuple[int, int], np.ndarray] = {}
    inputs = []
    for device in range(devices.count):
        key = (devices.index(device, unnamed), devices.index(device, source.partial))
        if key not in terms:
            terms[key] = random_array(rng, shape)
        inputs.append([cut(devices, source, terms[key], device, padding_value(shape))])
    module = emit_program(axes, shape, source, steps)
    verify(module)
    outputs = [out for (out,) in evaluate_partitions(module, inputs)]
    for device in range(devices.count):
        wanted = combine(
            source.reduction,
            [
                terms[devices.index(device, unnamed), term]
                for term in range(devices.number(source.partial))
            ],
        )
        tiles = [
            valid(devices, target, shape.dims, member, outputs[member])
            for member in devices.group(device, target.partial)
        ]
        got = combine(target.reduction, tiles)
        want = valid(devices, target, shape.dims, device, cut(devices, target, wanted, device, 0))
        np.testing.assert_array_equal(got, want, err_msg=f"device {device}")


def combine(kind: ReductionKind | None, arrays: list[np.ndarray]) -> np.ndarray:
    total = arrays[0]
    for array in arrays[1:]:
        assert kind is not None
        total = COMBINE[kind](total, array)
    return total


def random_array(rng: np.random.Generator, shape: ArrayShape) -> np.ndarray:
    """Small integers: every order of summation gives the same bits."""
    return rng.integers(0, 3, shape.dims).astype(shape.element_type.numpy)


def padding_value(shape: ArrayShape) -> object:
    if shape.element_type is PrimitiveType.PRED:
        return True
    return np.nan if shape.element_type.is_floating or shape.element_type.is_complex else 77


def all_states(sizes: tuple[int, ...], rank: int, *, partial: bool) -> list[ShardState]:
    """Every state of a value of ``rank`` over these axes."""
    states = []
    axes = range(len(sizes))
    homes = [-1, *range(rank), *([rank] if partial else [])]  # -1: copies; rank: partial
    for home in itertools.product(homes, repeat=len(sizes)):
        orders = [
            list(itertools.permutations([a for a in axes if home[a] == d])) for d in range(rank)
        ]
        terms = tuple(a for a in axes if home[a] == rank)
        for dims in itertools.product(*orders):
            states.append(ShardState(dims, terms, ReductionKind.SUM if terms else None))
    return states
