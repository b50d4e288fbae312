"""Convolutions for tests on doubles and on GPUs: those of training steps by name, and random ones."""

from __future__ import annotations

import random

import numpy as np

from runtime.executable import Executable
from spmd.evaluator.evaluator import evaluate
from tests.runtime.cpu.kernels.convolution.convolutions import convolution
from tests.runtime.programs import compiled, module_of, random_inputs

#: Name -> (module, the direction that cuDNN is asked for). A 3x3 convolution with strides of 2 of 13x14 images with SAME
#: padding, as JAX differentiates it, with channels last and first; a depthwise one; a transposed one.
TRAINING = {
    "forward": (
        convolution(
            "f32[2,13,14,6]", "f32[3,3,6,8]", "f32[2,7,7,8]",
            "size=3x3 stride=2x2 pad=1_1x0_1", "b01f_01io->b01f",
        ),
        "fprop",
    ),
    "input": (
        convolution(
            "f32[2,7,7,8]", "f32[3,3,6,8]", "f32[2,13,14,6]",
            "size=3x3 pad=1_1x2_1 lhs_dilate=2x2 rhs_reversal=1x1", "b01f_01oi->b01f",
        ),
        "dgrad",
    ),
    "filter": (
        convolution(
            "f32[2,13,14,6]", "f32[2,7,7,8]", "f32[3,3,6,8]",
            "size=7x7 pad=1_1x0_1 rhs_dilate=2x2", "f01b_i01o->01bf",
        ),
        "wgrad",
    ),
    "channels first": (
        convolution(
            "f32[2,6,13,14]", "f32[8,6,3,3]", "f32[2,8,7,7]",
            "size=3x3 stride=2x2 pad=1_1x0_1", "bf01_oi01->bf01",
        ),
        "fprop",
    ),
    "depthwise": (
        convolution(
            "f32[2,9,9,12]", "f32[3,3,1,12]", "f32[2,9,9,12]",
            "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", ", feature_group_count=12",
        ),
        "fprop",
    ),
    "depthwise filter": (
        convolution(
            "f32[3,9,9,4]", "f32[3,9,9,4]", "f32[3,3,1,4]",
            "size=9x9 pad=1_1x1_1", "f01b_i01o->01bf", ", batch_group_count=4",
        ),
        "wgrad",
    ),
    "transposed": (
        convolution(
            "f32[2,5,6,4]", "f32[2,3,4,5]", "f32[2,10,12,5]",
            "size=2x3 pad=1_1x1_2 lhs_dilate=2x2", "b01f_01io->b01f",
        ),
        "dgrad",
    ),
    "one dimension": (
        convolution(
            "f32[3,40,5]", "f32[4,5,7]", "f32[3,19,7]", "size=4 stride=2", "b0f_0io->b0f"
        ),
        "fprop",
    ),
    "three dimensions": (
        convolution(
            "f16[2,5,6,7,4]", "f16[2,2,3,4,8]", "f16[2,4,5,7,8]",
            "size=2x2x3 pad=0_0x0_0x1_1", "b012f_012io->b012f",
        ),
        "fprop",
    ),
    "negative padding": (
        convolution(
            "f32[2,9,9,4]", "f32[3,3,4,4]", "f32[2,5,6,4]",
            "size=3x3 pad=-1_-1x-1_0", "b01f_01io->b01f",
        ),
        "fprop",
    ),
    "no window": (
        convolution("f32[6,5]", "f32[5,7]", "f32[6,7]", "", "bf_io->bf").replace(
            ", window={}", ""
        ),
        "fprop",
    ),
}  # fmt: skip

KINDS = {"f32": 2e-5, "bf16": 2e-2, "f16": 4e-3, "f64": 1e-12, "s8": 0.0}


def random_convolution(seed: int) -> tuple[str, float]:
    """Return a module of one convolution, and the tolerance for its results relative to the largest.

    Integers have no base dilation: a copy with zeros in it does not convert.
    """
    rng = random.Random(seed)
    rank = rng.choice([1, 2, 2, 2, 3])
    kind = rng.choice(list(KINDS))
    groups = rng.choice([1, 1, 1, 2, 3])
    by_batch = groups > 1 and rng.random() < 0.3
    dilated = rng.random() < 0.3 and kind != "s8"
    c, f, n = rng.randint(1, 6), groups * rng.randint(1, 6), rng.randint(1, 3)
    spatial, sizes, results, window = [], [], [], []
    for _ in range(rank):
        while True:
            size, k = rng.randint(3, 12), rng.randint(1, 8)
            stride = rng.choice([1, 1, 2, 3])
            low, high = rng.randint(-1, 3), rng.randint(-1, 3)
            base, apart = rng.choice([1, 2, 3]) if dilated else 1, rng.choice([1, 1, 1, 2])
            stride = 1 if dilated else stride
            whole = (size - 1) * base + 1 + low + high - (k - 1) * apart - 1
            if whole >= 0 and (base == 1 or low >= 0):
                break
        spatial.append(size)
        sizes.append(k)
        results.append(whole // stride + 1)
        window.append((k, stride, low, high, base, apart, int(rng.random() < 0.2)))
    fields = {
        "size": [str(one[0]) for one in window],
        "stride": [str(one[1]) for one in window],
        "pad": [f"{one[2]}_{one[3]}" for one in window],
        "lhs_dilate": [str(one[4]) for one in window],
        "rhs_dilate": [str(one[5]) for one in window],
        "rhs_reversal": [str(one[6]) for one in window],
    }
    letters = "012"[:rank]
    x_sizes = dict(zip(letters, spatial, strict=True))
    x_sizes |= {"b": n * groups, "f": c} if by_batch else {"b": n, "f": c * groups}
    w_sizes = dict(zip(letters, sizes, strict=True)) | {"i": c, "o": f}
    y_sizes = dict(zip(letters, results, strict=True)) | {"b": n, "f": f}
    shapes, labels = [], []
    out = "s32" if kind == "s8" else kind
    for own, element in ((x_sizes, kind), (w_sizes, kind), (y_sizes, out)):
        order = list(own)
        rng.shuffle(order)
        labels.append("".join(order))
        shapes.append(f"{element}[{','.join(str(own[letter]) for letter in order)}]")
    more = ""
    if groups > 1:
        more = f", {'batch' if by_batch else 'feature'}_group_count={groups}"
    text = convolution(
        *shapes,
        " ".join(f"{name}={'x'.join(values)}" for name, values in fields.items()),
        f"{labels[0]}_{labels[1]}->{labels[2]}",
        more,
    )
    return text, KINDS[kind]


def check_convolution(executable: Executable, text: str, tolerance: float) -> None:
    """Run it twice, the second time from a graph, beside the evaluator."""
    inputs = random_inputs(module_of(text))
    (want,) = evaluate(module_of(text), *inputs)
    for _ in range(3):
        (got,) = executable.run(*inputs)
        assert got.dtype == want.dtype
        wide = want.astype(np.float64)
        bound = tolerance * max(1.0, float(np.abs(wide).max(initial=0)))
        np.testing.assert_allclose(got.astype(np.float64), wide, rtol=0, atol=bound)


def compiled_convolution(text: str) -> Executable:
    return compiled(text)
