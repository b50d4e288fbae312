"""Lower a scheduled per-device module: buffers, then thunks."""

from __future__ import annotations

from runtime import emit as _emit  # noqa: F401 - the table of lowerings finds its rules there
from runtime.arrays.sharded_arrays import ArraySpec
from runtime.buffers.assign import AssignedProgram, assign_buffers
from runtime.buffers.heap.recorded_heaps import RecordedHeaps
from runtime.buffers.linearize import linearize
from runtime.buffers.types import ArrayView
from runtime.cpu import kernels as _kernels  # noqa: F401 - the kernel library finds its binders there
from runtime.device_program import DeviceProgram, ScheduledModule
from runtime.emit.program import emit_program
from runtime.executable import Executable
from runtime.program.strides import StridedView
from runtime.program.thunks import ThunkSequence
from spmd.hlo import HloModule
from spmd.shape import array_shapes


def lower(
    module: HloModule,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    *,
    check: bool,
    recorded: RecordedHeaps | None = None,
) -> Executable:
    """Assign buffers and emit thunks for a scheduled module.

    recorded: heaps of an earlier compilation, which are used again instead of a search.
    """
    assigned = assign_buffers(linearize(module), recorded)
    thunks = emit_program(assigned)
    program = _device_program(module, assigned, thunks)
    if check:
        from collectives.schedule.checker import check_schedule
        from runtime.buffers.checker.checker import check_buffers

        check_schedule(module)
        check_buffers(module, program)
    source = ScheduledModule(lambda: module)
    return Executable(source, program, inputs, outputs)


def _device_program(
    module: HloModule, assigned: AssignedProgram, thunks: ThunkSequence
) -> DeviceProgram:
    results = array_shapes(module.entry.root.shape)
    return DeviceProgram(
        module.name,
        thunks,
        assigned.assignment,
        assigned.constants,
        array_shapes(*(p.shape for p in module.entry.parameters)),
        tuple(
            ArrayView(slice_, StridedView.dense(shape))
            for slice_, shape in zip(assigned.outputs, results, strict=True)
        ),
        module.num_partitions,
        module.replica_count,
    )
