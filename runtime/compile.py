"""Compile an optimized per-device module to an executable. The file reads as a table of contents of the runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from runtime.arrays.sharded_arrays import ArraySpec, global_shape, with_devices
from runtime.device_program import require_memory
from runtime.executable import Executable
from runtime.lower_module import lower
from runtime.schedule.memory_fit import fit_memory
from runtime.schedule.memory_scheduler import schedule_for_memory
from spmd.hlo import HloInstruction, HloModule, Stage
from spmd.shape import ArrayShape, Shape, array_shapes, leaves
from spmd.sharding import HloSharding


def schedule_module(module: HloModule, memory_limit: int | None = None) -> HloModule:
    """Turn an OPTIMIZED module into a SCHEDULED one, in place: the order of each computation becomes its schedule.

    memory_limit: bytes of device memory to stay below, if recomputing values or computing them in pieces can do it.
    """
    if module.stage < Stage.SCHEDULED:
        schedule_for_memory(module)
        module.stage = Stage.SCHEDULED
    if memory_limit is not None:
        fit_memory(module, memory_limit)
    return module


def build_executable(
    module: HloModule,
    *,
    check: bool = True,
    logical: HloModule | None = None,
    memory_limit: int | None = None,
    result: Shape | None = None,
) -> Executable:
    """Compile a per-device module to an executable. The module is scheduled first if it has no schedule.

    check: run the buffer checker and the schedule checker on the result. Raises CheckFailed if they find a violation.
    logical: the unpartitioned module, whose entry has the global shapes. Without it, sharded dimensions are taken to
    have no padding.
    memory_limit: bytes of device memory that the program may use. Raises MemoryLimitError if it needs more.
    result: the shape of the module's result with its bounded dimensions. ``module`` returns these arrays at their
    bounds, followed by their sizes (bounded_arrays.py).
    """
    if module.stage < Stage.SCHEDULED:
        schedule_module(module, memory_limit)
    inputs, outputs = array_specs(module, logical)
    marks = [()] * len(outputs) if result is None else [s.dynamic for s in array_shapes(result)]
    inputs = tuple(_with_bounds(one, ()) for one in inputs)
    outputs = tuple(map(_with_bounds, outputs, marks))
    executable = lower(module, inputs, outputs, check=check)
    require_memory(executable.program, memory_limit)
    return executable


def array_specs(
    module: HloModule, logical: HloModule | None = None
) -> tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]:
    """Return the global shape and sharding of each input and output leaf of a per-device module."""
    global_inputs = [p.shape for p in logical.entry.parameters] if logical else None
    global_outputs = [logical.entry.root.shape] if logical else None
    return (
        _array_specs(module.entry.parameters, global_inputs, module.num_partitions),
        _array_specs((module.entry.root,), global_outputs, module.num_partitions),
    )


def _with_bounds(one: ArraySpec, dynamic: tuple[bool, ...]) -> ArraySpec:
    return replace(one, shape=replace(one.shape, dynamic=dynamic))


def _leaf_shardings(instructions: Iterable[HloInstruction]) -> Iterator[HloSharding | None]:
    """Yield the sharding of each array leaf."""
    for instruction in instructions:
        shapes = [leaf for _, leaf in leaves(instruction.shape)]
        shardings: Iterable[HloSharding | None] = (None,) * len(shapes)
        if instruction.sharding is not None:
            shardings = instruction.sharding.leaf_shardings(instruction.shape)
        for shape, sharding in zip(shapes, shardings, strict=True):
            if isinstance(shape, ArrayShape):
                yield sharding


def _array_specs(
    instructions: tuple[HloInstruction, ...], logical: Iterable[Shape] | None, partitions: int
) -> tuple[ArraySpec, ...]:
    shards = array_shapes(*(i.shape for i in instructions))
    shardings = tuple(
        sharding and with_devices(sharding, shape.rank, partitions)
        for shape, sharding in zip(shards, _leaf_shardings(instructions), strict=True)
    )
    if logical is None:
        shapes = tuple(map(global_shape, shards, shardings))
    else:
        shapes = array_shapes(*logical)
    return tuple(
        ArraySpec(shape.without_layout(), sharding)
        for shape, sharding in zip(shapes, shardings, strict=True)
    )
