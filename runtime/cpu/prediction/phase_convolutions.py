"""Work of convolutions with base dilation, by phases: elements multiplied, copied and written, holes left out."""

from __future__ import annotations

import math
from collections.abc import Callable

from runtime.cpu.prediction.convolutions import (
    ConvolutionSizes,
    Plan,
    convolution_work,
    parts_of,
    plan_on,
    work_of_class,
)
from runtime.cpu.prediction.work import WORK, Work, all_touched
from runtime.program.records.convolution import (
    GradientTiles,
    GroupConvolutionKernel,
    ImageTiles,
    PanelConvolutionKernel,
    PhaseConvolutionKernel,
)
from runtime.program.thunks import KernelThunk
from spmd.cost.elements import element_seconds
from spmd.hlo import Opcode
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionParts
from spmd.machine.description import MachineDescription


@WORK.register(PhaseConvolutionKernel)
def phase_work(
    kernel: PhaseConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    kind = kernel.element_type
    if isinstance(kernel.undivided, GroupConvolutionKernel):
        met = thunk.results[0].view.num_elements // max(math.prod(_spatial(thunk)), 1)
        met *= sum(math.prod(each.outputs * each.taps for each in p.axes) for p in kernel.phases)
        return Work(all_touched(thunk), 2 * met * element_seconds(Opcode.ADD, kind, kind, machine))
    plan = plan_on(kernel.undivided, machine)
    if isinstance(plan, ImageTiles | GradientTiles):
        return convolution_work(kernel.undivided, thunk, machine)
    seconds, algorithms = 0.0, []
    for parts in phase_parts(kernel, thunk, lambda each: plan_on(each, machine)):
        seconds += machine.convolution_seconds(kind, parts)
        algorithms.append(parts.algorithm)
    moved = 2.0 * kind.byte_size * copied_elements(kernel, thunk)
    known = machine.convolution_class(kind, algorithms[0]) if algorithms else None
    return work_of_class(thunk, seconds + moved * machine.byte_seconds(moved), known)


def _spatial(thunk: KernelThunk) -> tuple[int, ...]:
    return thunk.results[0].view.dims[2:-1]


def phase_parts(
    kernel: PhaseConvolutionKernel,
    thunk: KernelThunk,
    plan_of: Callable[[PanelConvolutionKernel], Plan | None],
) -> list[ConvolutionParts]:
    """Return the operation counts of each phase, which uses a part of the window. Few features need no packed input."""
    x, w = (array.view.dims for array in thunk.operands)
    out = thunk.results[0].view.dims
    found = []
    for phase in kernel.phases:
        kernel_dims = w[0], *(axis.taps for axis in phase.axes), *w[-2:]
        out_dims = *out[:2], *(axis.outputs for axis in phase.axes), out[-1]
        if phase.kernel is None:
            results = math.prod(out_dims)
            multiplied = float(results * math.prod(kernel_dims[1:-1]))
            algorithm, packed = ConvolutionAlgorithm.THIN, math.prod(kernel_dims)
            found.append(ConvolutionParts(algorithm, multiplied, 0.0, packed, results))
            continue
        assert isinstance(phase.kernel, PanelConvolutionKernel), "as the undivided convolution is"
        sizes = ConvolutionSizes(phase.kernel.window, x, kernel_dims, out_dims)
        found.append(parts_of(sizes, plan_of(phase.kernel)))
    return found


def copied_elements(kernel: PhaseConvolutionKernel, thunk: KernelThunk) -> int:
    """Return the number of elements copied to or from scratch outside of the convolutions of the phases."""
    w, out = thunk.operands[1].view.dims, thunk.results[0].view.dims
    copied = 0
    for phase in kernel.phases:
        if phase.kernel is None:
            continue
        if phase.w_order is not None:
            copied += w[0] * math.prod(axis.taps for axis in phase.axes) * w[-2] * w[-1]
        if phase.out_order is not None:
            positions = math.prod(axis.outputs for axis in phase.axes)
            copied += out[0] * out[1] * positions * out[-1]
    return copied
