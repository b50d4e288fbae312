"""Calibration of convolutions: layers and their gradients are timed, and a cost class is fitted per algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

import runtime.emit  # noqa: F401 - fills the lowerings
from launch.calibration.memory import UNCACHED_BYTES, Arena
from launch.calibration.probes import CoreProbe, Seconds
from launch.calibration.timing import Action, in_turn
from runtime.buffers.types import ArrayView
from runtime.cpu.kernels.convolution.panels import plan_here
from runtime.cpu.kernels.convolution.phases import is_unphased
from runtime.cpu.prediction.alone import thunk_alone
from runtime.cpu.prediction.convolutions import ConvolutionSizes, parts_of
from runtime.cpu.prediction.phase_convolutions import phase_parts
from runtime.cpu.prediction.work import TIMED_BYTES
from runtime.lowering import Device
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from runtime.program.records.convolution import PanelConvolutionKernel, PhaseConvolutionKernel
from runtime.program.thunks import KernelThunk
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.machine.bounds import MOST_SLOWDOWN
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionClass, ConvolutionParts
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.fit import nonnegative_fit
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module


@dataclass(frozen=True)
class Layer:
    """Convolution of square images and kernels, or a gradient of one.

    what: "forward", "input" (gradient with respect to the input), or "kernel" (gradient with respect to the kernel).
    images: batch size.
    size: height and width of an image.
    inputs, outputs: numbers of input and output features.
    kernel: height and width of a kernel.
    stride: stride of the forward convolution.
    """

    what: str
    images: int
    size: int
    inputs: int
    outputs: int
    kernel: int = 3
    stride: int = 1

    def text(self, kind: PrimitiveType) -> str:
        """Return the layer's HLO as JAX writes it: features last, gradients with dilated inputs and reversed
        kernels."""
        out, total = -(-self.size // self.stride), max(self.kernel - self.stride, 0)
        low, high = total // 2, total - total // 2
        x = f"{kind.value}[{self.images},{self.size},{self.size},{self.inputs}]"
        y = f"{kind.value}[{self.images},{out},{out},{self.outputs}]"
        w = f"{kind.value}[{self.kernel},{self.kernel},{self.inputs},{self.outputs}]"
        if self.what == "forward":
            types, labels = (x, w, y), "b01f_01io->b01f"
            window = _window(self.kernel, (low, high), f"stride={self.stride}x{self.stride}")
        elif self.what == "input":
            before, behind = self.kernel - 1 - low, self.size + low - self.stride * (out - 1) - 1
            holes = f"lhs_dilate={self.stride}x{self.stride} rhs_reversal=1x1"
            types, labels = (y, w, x), "b01f_01oi->b01f"
            window = _window(self.kernel, (before, behind), holes)
        else:
            behind = self.kernel + (out - 1) * self.stride - self.size - low
            types, labels = (x, y, w), "f01b_i01o->01bf"
            window = _window(out, (low, behind), f"rhs_dilate={self.stride}x{self.stride}")
        return "\n".join(
            [
                "HloModule layer",
                "ENTRY main {",
                f"  a = {types[0]} parameter(0)",
                f"  b = {types[1]} parameter(1)",
                f"  ROOT c = {types[2]} convolution(a, b), window={window}, dim_labels={labels}",
                "}",
            ]
        )


def _window(size: int, padding: tuple[int, int], more: str) -> str:
    """Return the HLO text of a square window with equal padding along both dimensions."""
    edges = f"{padding[0]}_{padding[1]}"
    return f"{{size={size}x{size} pad={edges}x{edges} {more}}}"


_SHAPES = (
    *((4, 32, 3, 32), (4, 32, 32, 32), (8, 16, 64, 64), (8, 8, 128, 128), (4, 28, 16, 96)),
    *((16, 14, 96, 160), (12, 24, 48, 64)),
)
#: Shapes of small layers, whose times consist mostly of the work before the first and behind the last product.
_SMALL_SHAPES = (
    *((4, 8, 8, 8), (4, 8, 16, 16), (4, 16, 3, 8), (4, 16, 8, 16), (2, 8, 64, 64), (4, 32, 3, 16)),
    *((1, 16, 32, 32), (4, 16, 16, 8, 1)),
)
LAYERS = (
    *(
        Layer(what, *shape)
        for what in ("forward", "input", "kernel")
        for shape in (*_SHAPES, *_SMALL_SHAPES)
    ),
    *(Layer(what, 8, 32, 32, 64, 3, 2) for what in ("forward", "input", "kernel")),
    *(Layer(what, 8, 16, 64, 128, 1, 2) for what in ("forward", "input", "kernel")),
    *(Layer("kernel", 8, 32, 3, 32), Layer("kernel", 4, 28, 3, 64, 5)),
    *(Layer("input", 8, 32, 3, 64), Layer("input", 4, 28, 3, 64, 5), Layer("input", 8, 16, 8, 128)),
)


#: Layers with small images, and kernels that no second-level cache holds, such as the last ones of a ResNet. They are
#: timed uncached, for the time of such kernels.
LATE_LAYERS = tuple(Layer(what, 4, 4, 256, 512) for what in ("forward", "input"))

#: Number of layers of each algorithm, the first ones, that are also timed with uncached operands and results.
UNCACHED_LAYERS = 3


@dataclass(frozen=True)
class ConvolutionOptions:
    """Options of the measurement of convolutions.

    layers: layers to time. types: element types of the layers.
    uncached_bytes: bytes that are touched between two uses of an uncached array.
    budget: approximate seconds of one round of a layer.
    late: layers to time with uncached kernels.
    """

    layers: tuple[Layer, ...] = LAYERS
    types: tuple[PrimitiveType, ...] = (PrimitiveType.F32,)
    uncached_bytes: int = UNCACHED_BYTES
    budget: float = 0.0035
    late: tuple[Layer, ...] = LATE_LAYERS


@dataclass(frozen=True)
class LayerProbe(CoreProbe):
    """Probe that runs ``layer`` ``count`` times in turn, each time on its own arrays. ``kind``: element type."""

    layer: Layer
    kind: PrimitiveType
    count: int = 1

    @property
    def executions(self) -> int:
        """Return the number of convolutions in one run of the action."""
        return self.count

    def make(self, arena: Arena) -> Action:
        """Return the action for one core, with arrays from ``arena``."""
        thunk = _thunk(self.layer, self.kind)
        return in_turn([_action(thunk, arena) for _ in range(self.count)])


def layer_probes(kind: PrimitiveType, options: ConvolutionOptions) -> tuple[LayerProbe, ...]:
    """Return the probes of the layers with element type ``kind``: all of them cached, and some also uncached."""
    algorithms = _by_algorithm(kind, options)
    return (
        *(_cached(layer, kind, options) for layers in algorithms.values() for layer in layers),
        *(
            _uncached(layer, kind, options)
            for layers in algorithms.values()
            for layer in layers[:UNCACHED_LAYERS]
        ),
        *(_uncached(layer, kind, options) for layer in options.late),
    )


def _cached(layer: Layer, kind: PrimitiveType, options: ConvolutionOptions) -> LayerProbe:
    return LayerProbe(options.budget, layer, kind)


def _uncached(layer: Layer, kind: PrimitiveType, options: ConvolutionOptions) -> LayerProbe:
    count = -(-options.uncached_bytes // _moved(_thunk(layer, kind)))
    return LayerProbe(options.budget, layer, kind, count)


def _moved(thunk: KernelThunk) -> int:
    """Return the bytes of the thunk's operands and results."""
    return sum(argument.view.byte_size for argument in (*thunk.operands, *thunk.results))


def _by_algorithm(
    kind: PrimitiveType, options: ConvolutionOptions
) -> dict[ConvolutionAlgorithm, list[Layer]]:
    """Return the layers that each algorithm computes. Layers of which ``_parts`` knows no counts are left out."""
    found: dict[ConvolutionAlgorithm, list[Layer]] = {}
    for layer in options.layers:
        thunk = _thunk(layer, kind)
        parts = _parts(thunk)
        if parts is not None:
            found.setdefault(parts.algorithm, []).append(layer)
    return found


def convolution_classes(
    options: ConvolutionOptions, levels: tuple[MemoryLevel, ...], seconds: Seconds
) -> tuple[ConvolutionClass, ...]:
    """Return a cost class for each algorithm and element type, fitted to the layers.

    levels: bandwidths of copies by working set. seconds: times of ``layer_probes`` of each type.
    """
    classes = []
    for kind in options.types:
        for algorithm, layers in _by_algorithm(kind, options).items():
            cached = [seconds[_cached(layer, kind, options)] for layer in layers]
            found_parts = [_parts(_thunk(layer, kind)) for layer in layers]
            parts = [one.counts for one in found_parts if one is not None]
            found = ConvolutionClass(algorithm, kind, *nonnegative_fit(parts, cached))
            uncached = _farther(layers[:UNCACHED_LAYERS], kind, options, levels, seconds)
            known = replace(found, uncached_slowdown=uncached, kernel_uncached=uncached)
            classes.append(_with_kernels(known, options, levels, seconds))
    return tuple(classes)


def _with_kernels(
    known: ConvolutionClass,
    options: ConvolutionOptions,
    levels: tuple[MemoryLevel, ...],
    seconds: Seconds,
) -> ConvolutionClass:
    """Return ``known`` with the slowdown of uncached kernels, if its algorithm computes one of the late layers.

    It is the ratio of the time that the layer takes in addition to that of ``known`` to that of copying the kernel.
    """
    more = byte_seconds(levels, options.uncached_bytes) - byte_seconds(levels, TIMED_BYTES)
    found = []
    for layer in options.late:
        thunk = _thunk(layer, known.kind)
        parts = _parts(thunk)
        if parts is None or parts.algorithm is not known.algorithm or more <= 0:
            continue
        taken = seconds[_uncached(layer, known.kind, options)] - known.seconds(parts)
        found.append(taken / (more * thunk.operands[1].view.byte_size))
    slowdown = min(max(found, default=known.kernel_uncached), MOST_SLOWDOWN)
    return replace(known, kernel_uncached=max(slowdown, 0.0))


def _farther(
    layers: Sequence[Layer],
    kind: PrimitiveType,
    options: ConvolutionOptions,
    levels: tuple[MemoryLevel, ...],
    seconds: Seconds,
) -> float:
    """Return the slowdown of ``layers`` on uncached arrays, relative to that of copies of as many bytes.

    It is the ratio of the additional times that uncached arrays cause: those of the layers to those of the copies.
    """
    # Additional times are divided by the layers' cached times, so that each layer has the same weight.
    wanted = found = 0.0
    for layer in layers:
        moved = _moved(_thunk(layer, kind))
        cached = seconds[_cached(layer, kind, options)]
        more = byte_seconds(levels, options.uncached_bytes) - byte_seconds(
            levels, min(TIMED_BYTES, moved)
        )
        wanted += more * moved / cached
        found += seconds[_uncached(layer, kind, options)] / cached - 1
    return min(max(found, 0.0) / wanted, MOST_SLOWDOWN) if wanted > 0 else 1.0


@cache
def _thunk(layer: Layer, kind: PrimitiveType) -> KernelThunk:
    """Return the thunk of the layer's convolution, as a program on this machine has it."""
    (instruction,) = (parse_module(layer.text(kind)).entry.root,)
    thunk = thunk_alone(instruction, Device(1, 1))
    assert isinstance(thunk, KernelThunk)
    return thunk


def _parts(thunk: KernelThunk) -> ConvolutionParts | None:
    """Return the operation counts of a convolution; None if it is computed in several phases, or not by panels."""
    kernel = thunk.kernel
    if isinstance(kernel, PhaseConvolutionKernel):
        if not is_unphased(kernel):
            found = phase_parts(kernel, thunk, plan_here)
            return found[0] if len(found) == 1 else None
        kernel = kernel.undivided
    if not isinstance(kernel, PanelConvolutionKernel):
        return None
    x, w = (argument.view.dims for argument in thunk.operands)
    sizes = ConvolutionSizes(kernel.window, x, w, thunk.results[0].view.dims)
    return parts_of(sizes, plan_here(kernel))


def _action(thunk: KernelThunk, arena: Arena) -> Action:
    """Return the action that runs the thunk on newly allocated arrays from ``arena``.

    The first operand is an activation or its gradient, of which a ReLU has made half the elements 0.
    """
    memory: dict[int, NDArray] = {}
    first = thunk.operands[0].slice.allocation
    operands = {argument.slice.allocation for argument in thunk.operands}

    def array(argument: ArrayView) -> NDArray:
        view = argument.view
        number, size = argument.slice.allocation, argument.slice.size
        if number not in memory:
            if number in operands:
                count = size // view.element_type.byte_size
                make = arena.activations if number == first else arena.numbers
                memory[number] = make((count,), view.element_type, number).view(np.uint8)
            else:
                memory[number] = arena.array((size,), np.dtype(np.uint8))
        own = memory[number]
        return np.ndarray(view.dims, view.element_type.numpy, own.data, view.offset, view.strides)

    arguments = (thunk.operands, thunk.results, thunk.scratch)
    arrays = KernelArrays(*(tuple(map(array, each)) for each in arguments))
    return CPU_KERNELS.bind(thunk.kernel, arrays)
