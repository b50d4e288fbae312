"""Programs of 8-bit matrix products with scales, as training in fp8 has them."""

from __future__ import annotations

from tests.runtime.gpu.product_epilogues import TOLERANCES, Program

M, N, K = 32, 48, 64
#: (types of the operands, dimensions of each that are contracted)
OPERANDS = [
    ("f8e4m3fn", "f8e4m3fn", 1, 0),
    ("f8e5m2", "f8e4m3fn", 1, 1),
    ("f8e4m3fn", "f8e5m2", 0, 0),
]


def f8_program(
    operands: tuple[str, str, int, int],
    result: str = "bf16",
    *,
    scales: int = 2,
    within: str = "f32",
    bias: bool = False,
    relu: bool = False,
) -> Program:
    """Return a product of 8-bit operands that ``scales`` numbers in memory, a bias and relu follow.

    within: type in which these are computed; result: type of what is stored.
    """
    lhs, rhs, down, across = operands
    x = f"{lhs}[{K},{M}]" if down == 0 else f"{lhs}[{M},{K}]"
    w = f"{rhs}[{N},{K}]" if across == 1 else f"{rhs}[{K},{N}]"
    dims = f"[{M},{N}]"
    lines = [
        f"x = {x} parameter(0)",
        f"w = {w} parameter(1)",
        "s = f32[] parameter(2)",
        "t = f32[] parameter(3)",
        f"b = {result}[{N}] parameter(4)",
        f"v0 = {within}{dims} dot(x, w), lhs_contracting_dims={{{down}}}, rhs_contracting_dims={{{across}}}",
    ]
    value = 0

    def step(text: str, kind: str = within) -> None:
        nonlocal value
        value += 1
        lines.append(f"v{value} = {kind}{dims} {text}")

    for scale in "st"[:scales]:
        own = scale
        if within != "f32":
            lines.append(f"{scale}n = {within}[] convert({scale})")
            own = f"{scale}n"
        lines.append(f"{scale}b = {within}{dims} broadcast({own}), dimensions={{}}")
        step(f"multiply(v{value}, {scale}b)")
    if bias:
        lines.append(f"bb = {result}{dims} broadcast(b), dimensions={{1}}")
        own = "bb"
        if result != within:
            lines.append(f"bw = {within}{dims} convert(bb)")
            own = "bw"
        step(f"add(v{value}, {own})")
    if relu:
        lines += [
            f"c = {within}[] constant(0)",
            f"z = {within}{dims} broadcast(c), dimensions={{}}",
        ]
        step(f"maximum(v{value}, z)")
    if result != within:
        step(f"convert(v{value})", result)
    lines[-1] = f"ROOT {lines[-1]}"
    body = "\n  ".join(lines)
    return Program(f"HloModule product\n\nENTRY e {{\n  {body}\n}}\n", TOLERANCES[result])
