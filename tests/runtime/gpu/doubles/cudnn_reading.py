"""A reading of cuDNN's convolutions with NumPy: it shares nothing with what plans them."""

from __future__ import annotations

import itertools

import numpy as np

from runtime.gpu.libraries.convolution_call import (
    ConvolutionEpilogue,
    Direction,
    LibraryConvolution,
)


def convolve(
    call: LibraryConvolution,
    first: np.ndarray,
    second: np.ndarray,
    result: np.ndarray,
    addend: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> None:
    """Write the convolution, or the gradient of one, of channels-first operands into ``result``.

    The epilogue of the call reads ``addend``, of the result's sizes, and ``bias`` [1, k, 1..]; it may write over neither.
    """
    sums = call.sums.numpy
    one, other = first.astype(sums), second.astype(sums)
    groups = call.image[1] // call.filter[1]
    assert call.filter[0] % groups == 0
    assert call.output[:2] == (call.image[0], call.filter[0])
    for n, k in enumerate(call.filter[2:]):
        padded = call.image[2 + n] + call.before[n] + call.after[n]
        assert min(call.before[n], call.after[n]) >= 0
        wanted = (padded - (k - 1) * call.dilations[n] - 1) // call.strides[n] + 1
        assert call.output[2 + n] == wanted, "sizes that cuDNN refuses"
    padded_sizes = [
        size + before + after
        for size, before, after in zip(call.image[2:], call.before, call.after, strict=True)
    ]
    inside = (..., *(slice(b, b + n) for b, n in zip(call.before, call.image[2:], strict=True)))
    image = np.zeros((*call.image[:2], *padded_sizes), sums)
    if call.direction is not Direction.INPUT:
        image[inside] = one
    made = np.zeros(result.shape, sums)
    channels, features = call.filter[1], call.filter[0] // groups
    for taps in itertools.product(*map(range, call.filter[2:])):
        seen = (
            ...,
            *(
                slice(tap * dilation, tap * dilation + (count - 1) * stride + 1, stride)
                for tap, dilation, stride, count in zip(
                    taps, call.dilations, call.strides, call.output[2:], strict=True
                )
            ),
        )
        for group in range(groups):
            c = slice(group * channels, (group + 1) * channels)
            k = slice(group * features, (group + 1) * features)
            part = image[:, c][seen]
            if call.direction is Direction.FORWARD:
                made[:, k] += np.einsum("nc...,kc->nk...", part, other[(k, slice(None), *taps)])
            elif call.direction is Direction.FILTER:
                spatial = "xyz"[: len(taps)]
                made[(k, slice(None), *taps)] = np.einsum(
                    f"nc{spatial},nk{spatial}->kc", part, other[:, k]
                )
            else:
                part += np.einsum("nk...,kc->nc...", one[:, k], other[(k, slice(None), *taps)])
    if call.direction is Direction.INPUT:
        made = image[inside]
    epilogue = call.epilogue or ConvolutionEpilogue()
    assert (epilogue.addend, epilogue.bias) == (addend is not None, bias is not None)
    for own in (addend, bias):
        if own is not None:
            assert not np.may_share_memory(own, result)
            made = made + own.astype(sums)
    if epilogue.relu:
        made = np.maximum(made, 0)
    np.copyto(result, made, casting="unsafe")
