"""Windows that slide: convolutions and their gradients, reduce-window, select-and-scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs, WindowAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape
from tests.differential.generator.combining import may_sum, summed
from tests.differential.generator.rarer import function
from tests.differential.generator.table import operation
from tests.differential.generator.writer import F32, S32, Value, Writer


@operation(1.5, Opcode.CONVOLUTION)
def convolution(w: Writer) -> Value | None:
    """One or two spatial dimensions; strides, padding, dilation, reversal, feature or batch groups."""
    spatial = w.integer(1, 2)
    groups = w.choose((1, 1, 1, 2))
    by_batch = groups > 1 and w.chance(0.4)
    batch = w.integer(1, 4) * (groups if by_batch else 1)
    features = w.integer(1, 3) * (1 if by_batch else groups)
    out = w.integer(1, 3) * groups
    sizes = [w.integer(2, 9) for _ in range(spatial)]
    window = Window(tuple(_window(w, n) for n in sizes))
    if any(d.output_size(n) == 0 for d, n in zip(window.dims, sizes, strict=True)):
        return None
    kernel = [d.size for d in window.dims]
    lhs_place, rhs_place, out_place = (w.shuffled(range(spatial + 2)) for _ in range(3))
    inner = features if by_batch else features // groups
    x = w.of(F32, _placed(lhs_place, [batch, features, *sizes]))
    y = w.of(F32, _placed(rhs_place, [inner, out, *kernel]))
    numbers = ConvDimensionNumbers(
        lhs_place[0], lhs_place[1], tuple(lhs_place[2:]),
        rhs_place[0], rhs_place[1], tuple(rhs_place[2:]),
        out_place[0], out_place[1], tuple(out_place[2:]),
    )  # fmt: skip
    attrs = ConvolutionAttrs(window, numbers, 1 if by_batch else groups, groups if by_batch else 1)
    hlo = w.builder.create(Opcode.CONVOLUTION, (x.hlo, y.hlo), attrs, shape=ArrayShape(F32, ()))
    bound = x.bound * y.bound * inner * math.prod(kernel)
    return summed(w, Value(hlo, 0.0), [x, y], bound)


@operation(1, Opcode.CONVOLUTION)
def convolution_gradient(w: Writer) -> Value | None:
    """Write what jax.grad makes of a convolution over one dimension: the gradient of its input, or of its kernel.

    input   the output's gradient, pulled apart by the stride, under the mirrored kernel with its features exchanged
    kernel  batch and features exchanged, so that the image is summed over the output's gradient as a long kernel
    """
    batch, features, out = (w.integer(1, 4) for _ in range(3))
    image, size, stride = w.integer(3, 12), w.integer(1, 3), w.integer(1, 2)
    low, high = w.integer(0, size - 1), w.integer(0, size - 1)
    forward = WindowDimension(size, stride, low, high)
    length = forward.output_size(image)
    if length < 1:
        return None
    left_over = image + low + high - size - (length - 1) * stride
    gradient = w.of(F32, (batch, length, out))
    if w.chance(0.5):
        kernel = w.of(F32, (size, features, out))
        window = WindowDimension(
            size,
            padding_low=size - 1 - low,
            padding_high=size - 1 - high + left_over,
            base_dilation=stride,
            reversal=True,
        )
        numbers = ConvDimensionNumbers(0, 2, (1,), 2, 1, (0,), 0, 2, (1,))
        return _convolved(w, gradient, kernel, window, numbers, out * size)
    x = w.of(F32, (batch, image, features))
    window = WindowDimension(
        length, padding_low=low, padding_high=high - left_over, window_dilation=stride
    )
    numbers = ConvDimensionNumbers(2, 0, (1,), 0, 2, (1,), 1, 2, (0,))
    return _convolved(w, x, gradient, window, numbers, batch * length)


def _convolved(
    w: Writer,
    x: Value,
    kernel: Value,
    window: WindowDimension,
    numbers: ConvDimensionNumbers,
    terms: int,
) -> Value | None:
    attrs = ConvolutionAttrs(Window((window,)), numbers)
    shape = ArrayShape(F32, ())
    hlo = w.builder.create(Opcode.CONVOLUTION, (x.hlo, kernel.hlo), attrs, shape=shape)
    return summed(w, Value(hlo, 0.0), [x, kernel], x.bound * kernel.bound * terms)


def _placed(places: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    dims = [0] * len(sizes)
    for place, size in zip(places, sizes, strict=True):
        dims[place] = size
    return tuple(dims)


def _window(w: Writer, size: int, *, dilate_base: bool = True) -> WindowDimension:
    if w.chance(0.25):
        return WindowDimension()
    return WindowDimension(
        size=w.integer(1, min(4, size)),
        stride=w.integer(1, 2),
        padding_low=w.integer(-1 if w.chance(0.1) else 0, 2),
        padding_high=w.integer(0, 2),
        base_dilation=2 if dilate_base and w.chance(0.15) else 1,
        window_dilation=2 if w.chance(0.15) else 1,
        reversal=dilate_base and w.chance(0.2),
    )


@operation(1.5, Opcode.REDUCE_WINDOW)
def reduce_window(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.rank > 0 and v.dtype in (F32, S32) and 0 not in v.dims)
    if x is None:
        return None
    window = Window(
        tuple(
            WindowDimension() if w.chance(0.5) else _window(w, n, dilate_base=False) for n in x.dims
        )
    )
    count = math.prod(d.size for d in window.dims)
    if any(
        d.padding_low < 0 or d.output_size(n) == 0 for d, n in zip(window.dims, x.dims, strict=True)
    ):
        return None
    kind = w.choose((ReductionKind.SUM, ReductionKind.MAX, ReductionKind.MIN))
    if kind is not ReductionKind.SUM and x.is_float:
        # Windows that see padding alone hold the init value, which must stay finite.
        init, start = w.builder.scalar(x.dtype, -7 if kind is ReductionKind.MAX else 7), 7.0
    else:
        init, start = w.builder.identity(kind, x.dtype), 0.0
    reducer = w.builder.scope.reducer(kind, x.dtype)
    hlo = w.builder.create(
        Opcode.REDUCE_WINDOW, (x.hlo, init), WindowAttrs(window), calls=(reducer,)
    )
    if not x.is_float:
        return w.keep(Value(hlo, math.inf))
    if kind is ReductionKind.SUM:
        return summed(w, Value(hlo, 0.0), [x], x.bound * count)
    return w.keep(w.result(hlo, max(x.bound, start), x))


@operation(1, Opcode.SELECT_AND_SCATTER)
def select_and_scatter(w: Writer) -> Value | None:
    """The gradient of max pooling: each window's first largest element takes the source's value."""
    x = w.pick(lambda v: v.rank > 0 and v.dtype is F32 and v.stable and 0 not in v.dims)
    if x is None:
        return None
    window = Window(
        tuple(
            WindowDimension()
            if w.chance(0.5)
            else WindowDimension(w.integer(1, min(3, n)), w.integer(1, 2), w.integer(0, 1))
            for n in x.dims
        )
    )
    sizes = tuple(d.output_size(n) for d, n in zip(window.dims, x.dims, strict=True))
    count = math.prod(d.size for d in window.dims)
    source = w.of(F32, sizes)
    if 0 in sizes or not may_sum(source, count) or not source.whole:
        return None
    f = function(w, "greater_equal", [F32, F32])
    a, c = (v.hlo for v in f.pool)
    f.builder.computation.root = f.builder.compare(a, c, "GE")
    b = w.builder
    hlo = b.create(
        Opcode.SELECT_AND_SCATTER,
        (x.hlo, source.hlo, b.scalar(F32, 0)),
        WindowAttrs(window),
        calls=(f.builder.computation, b.scope.reducer(ReductionKind.SUM, F32)),
    )
    return summed(w, Value(hlo, 0.0), [source], source.bound * count)
