"""Convolutions of inputs with holes, in phases: what these multiply, copy and write, and no holes."""

from __future__ import annotations

import math

from runtime.kernels.group_convolution import GroupConvolutionKernel
from runtime.kernels.phase_convolution import PhaseConvolutionKernel
from runtime.prediction.convolutions import convolution_work, tiles_on
from runtime.prediction.work import (
    NEAR,
    WORK,
    Access,
    Work,
    all_touched,
    element_seconds,
    stored_bytes,
)
from runtime.thunks.kernel import KernelThunk
from spmd.hlo import Opcode
from spmd.machine.convolutions import ConvolutionForm, ConvolutionParts
from spmd.machine.description import MachineDescription


@WORK.register(PhaseConvolutionKernel)
def phase_work(
    kernel: PhaseConvolutionKernel, thunk: KernelThunk, machine: MachineDescription
) -> Work:
    kind = kernel.element_type
    if isinstance(kernel.whole, GroupConvolutionKernel):
        met = thunk.results[0].view.num_elements // max(math.prod(_spatial(thunk)), 1)
        met *= sum(math.prod(each.outputs * each.taps for each in p.axes) for p in kernel.phases)
        return Work(all_touched(thunk), 2 * met * element_seconds(Opcode.ADD, kind, kind, machine))
    if tiles_on(kernel.whole, machine) is not None:
        return convolution_work(kernel.whole, thunk, machine)
    parts = phase_parts(kernel, thunk)
    known = machine.convolution_class(kind, parts.form)
    far = 1.0 if known is None else known.far
    places = (*thunk.operands, *thunk.results)
    accesses = tuple(Access(place, stored_bytes(place), far) for place in places)
    together = sum(access.size for access in accesses)
    seconds = machine.convolution_seconds(kind, parts)
    return Work(accesses, seconds, loops=0.0, together=min(NEAR, together))


def _spatial(thunk: KernelThunk) -> tuple[int, ...]:
    return thunk.results[0].view.dims[2:-1]


def phase_parts(kernel: PhaseConvolutionKernel, thunk: KernelThunk) -> ConvolutionParts:
    """Of all phases: every result needs a row of a panel, which is as long as its part of the window with its channels.

    What is copied to or from scratch beside that is counted like elements of the kernel.
    """
    _, w = (place.view.dims for place in thunk.operands)
    out = thunk.results[0].view.dims
    images = out[0] * out[1]
    rows = copied = multiplied = 0
    for phase in kernel.phases:
        positions = images * math.prod(axis.outputs for axis in phase.axes)
        taps = math.prod(axis.taps for axis in phase.axes)
        results = positions * out[-1]
        rows += 0 if phase.kernel is None else positions * taps * w[-2]
        multiplied += results * taps * w[-2]
        copied += w[0] * taps * w[-2] * w[-1] * (1 if phase.w_order is None else 2)
        copied += results if phase.out_order is not None else 0
    return ConvolutionParts(
        ConvolutionForm.PANELS, float(multiplied), float(rows), copied, math.prod(out)
    )
