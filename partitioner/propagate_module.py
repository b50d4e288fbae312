"""Module with the sharding that propagation finds written on every instruction, for tools that show it."""

from __future__ import annotations

from partitioner.devices.axes import DeviceAxes
from partitioner.devices.device_order import rename_to_devices
from partitioner.propagation.driver import ValueSharding
from partitioner.propagation.value_graph import ValueShardings
from partitioner.spmd_partitioner import driver_of
from spmd.hlo import HloModule, Stage
from spmd.shape import ArrayShape, Shape
from spmd.sharding import HloSharding


def propagate_module(module: HloModule, num_devices: int) -> HloModule:
    """Return a prepared copy of ``module`` (stage PROPAGATED) whose instructions carry their shardings.

    Reducers, comparators and the like work on elements and carry none.
    """
    driver = driver_of(module, num_devices)
    driver.propagate()
    for instruction in driver.graph.instructions():
        instruction.sharding = instruction_sharding(
            driver.axes, driver.graph.shardings(instruction), instruction.shape
        )
    if driver.order is not None:
        rename_to_devices(driver.module, driver.order)
    driver.module.stage = Stage.PROPAGATED
    return driver.module


def instruction_sharding(axes: DeviceAxes, shardings: ValueShardings, shape: Shape) -> HloSharding:
    """Return the HloSharding of an instruction of ``shape`` from ``shardings``, one per leaf; a tuple sharding for a
    tuple.
    """
    parts = tuple(_hlo_sharding(axes, sharding) for sharding in shardings)
    return parts[0] if isinstance(shape, ArrayShape) else HloSharding.tuple_of(parts)


def _hlo_sharding(axes: DeviceAxes, sharding: ValueSharding | None) -> HloSharding:
    """Return the HloSharding of a value; tokens are replicated."""
    if sharding is None:
        return HloSharding.replicated()
    return axes.sharding(sharding.state_dims, manual=sharding.forbidden)
