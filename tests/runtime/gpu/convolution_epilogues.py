"""Programs of a convolution and what is computed of it, which cuDNN does in one call, for tests on doubles and on GPUs."""

from __future__ import annotations

import numpy as np

from tests.runtime.gpu.product_epilogues import TOLERANCES, Program

KINDS = ("f32", "bf16", "f16")


def random_program(seed: int) -> Program:
    """Return a convolution with addend, bias and relu, each of them or not. Sizes, windows and types are random.

    Narrow floats are added in f32 or in their own type.
    """
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    rank = int(rng.integers(1, 4))
    images, channels = (int(rng.choice([1, 3, 8])) for _ in range(2))
    features = int(
        rng.choice([8, 16, 24])
    )  # multiples of 16 bytes: cuDNN's arrays are aligned to these
    sizes, windows, results, window = [], [], [], []
    for _ in range(rank):
        size, taps, stride = (
            int(rng.integers(5, 9)),
            int(rng.integers(1, 4)),
            int(rng.integers(1, 3)),
        )
        low, high = (int(rng.integers(0, 2)) for _ in range(2))
        sizes.append(size)
        windows.append(taps)
        results.append((size + low + high - taps) // stride + 1)
        window.append((taps, stride, f"{low}_{high}"))
    spatial = "012"[:rank]
    dims = ",".join(map(str, (images, *results, features)))
    fields = zip(("size", "stride", "pad"), zip(*window, strict=True), strict=True)
    shown = " ".join(f"{name}={'x'.join(map(str, values))}" for name, values in fields)
    labels = f"b{spatial}f_{spatial}io->b{spatial}f"
    lines = [
        f"x = {kind}[{','.join(map(str, (images, *sizes, channels)))}] parameter(0)",
        f"w = {kind}[{','.join(map(str, (*windows, channels, features)))}] parameter(1)",
        f"z = {kind}[{dims}] parameter(2)",
        f"b = {kind}[{features}] parameter(3)",
        f"v0 = {kind}[{dims}] convolution(x, w), window={{{shown}}}, dim_labels={labels}",
    ]
    wide = "f32" if rng.integers(2) else kind

    def step(text: str, of: str = wide) -> str:
        lines.append(f"v{len(lines)} = {of}[{dims}] {text}")
        return f"v{len(lines) - 1}"

    def widened(value: str) -> str:
        return value if wide == kind else step(f"convert({value})")

    value = widened("v0")
    chosen = [part for part in ("addend", "bias", "relu") if rng.integers(2)] or ["relu"]
    if "addend" in chosen:
        pair = [value, widened("z")]
        rng.shuffle(pair)
        value = step(f"add({', '.join(pair)})")
    if "bias" in chosen:
        bias = step(f"broadcast(b), dimensions={{{rank + 1}}}", kind)
        value = step(f"add({value}, {widened(bias)})")
    if "relu" in chosen:
        lines.append(f"zero = {wide}[] constant(0)")
        zeros = step("broadcast(zero), dimensions={}")
        value = step(f"maximum({value}, {zeros})")
    if wide != kind:
        step(f"convert({value})", kind)
    lines[-1] = f"ROOT {lines[-1]}"
    body = "\n  ".join(lines)
    return Program(f"HloModule convolution\n\nENTRY e {{\n  {body}\n}}\n", TOLERANCES[kind])


#: relu of a convolution that is nan in one image: a nan stays.
NAN = """HloModule nan

ENTRY e {
  x = f32[4,8,8,8] parameter(0)
  w = f32[3,3,8,8] parameter(1)
  y = f32[4,8,8,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  c = f32[] constant(0)
  z = f32[4,8,8,8] broadcast(c), dimensions={}
  ROOT r = f32[4,8,8,8] maximum(y, z)
}
"""
