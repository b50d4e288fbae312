"""Windows in text: ``{size=3x3 stride=2x2 pad=1_1x0_-1 lhs_dilate=2x1 rhs_dilate=1x2 rhs_reversal=0x1}``."""

from __future__ import annotations

import re

from spmd.ops.window import Window, WindowDimension
from spmd.text.lexer import Scanner

_FIELD = re.compile(r"size|stride|pad|lhs_dilate|rhs_dilate|rhs_reversal")
_VALUE = re.compile(r"[\dx_\-]++")
_SIZES = re.compile(r"-?\d{1,19}(?>(?:x-?\d{1,19})*)")
_PADS = re.compile(r"-?\d{1,19}_-?\d{1,19}(?>(?:x-?\d{1,19}_-?\d{1,19})*)")


def read_window(scanner: Scanner) -> Window:
    scanner.expect("{")
    fields: dict[str, tuple[int, ...]] = {}
    pads: tuple[tuple[int, int], ...] = ()
    start = scanner.pos
    while not scanner.consume_if("}"):
        name = scanner.need(_FIELD, "a window field").group()
        scanner.expect("=")
        found = scanner.need(_VALUE, f"the window's {name}")
        value = found.group()
        if not (_PADS if name == "pad" else _SIZES).fullmatch(value):
            scanner.fail(f"window {name} cannot be {value!r}", found.start())
        if name == "pad":
            pads = tuple(
                (int(low), int(high))
                for low, high in (part.split("_") for part in value.split("x"))
            )
        else:
            fields[name] = tuple(map(int, value.split("x")))
    return _assemble(scanner, start, fields, pads)


def _assemble(
    scanner: Scanner,
    start: int,
    fields: dict[str, tuple[int, ...]],
    pads: tuple[tuple[int, int], ...],
) -> Window:
    sizes = fields.get("size", ())
    rank = len(sizes)
    for name, values in (*fields.items(), ("pad", pads)):
        if values and len(values) != rank:
            scanner.fail(f"window {name} has {len(values)} dimensions, size has {rank}", start)
    ones, none = (1,) * rank, ((0, 0),) * rank
    columns = zip(
        sizes,
        fields.get("stride", ones),
        pads or none,
        fields.get("lhs_dilate", ones),
        fields.get("rhs_dilate", ones),
        fields.get("rhs_reversal", (0,) * rank),
        strict=True,
    )
    return Window(
        tuple(
            WindowDimension(size, stride, low, high, base, window, reversal != 0)
            for size, stride, (low, high), base, window, reversal in columns
        )
    )


def format_window(window: Window) -> str:
    """Return the window's text, in XLA's order, without fields at their defaults."""
    dims = window.dims
    if not dims:
        return "{}"
    parts = ["size=" + "x".join(str(d.size) for d in dims)]
    if any(d.stride != 1 for d in dims):
        parts.append("stride=" + "x".join(str(d.stride) for d in dims))
    if any(d.padding_low or d.padding_high for d in dims):
        parts.append("pad=" + "x".join(f"{d.padding_low}_{d.padding_high}" for d in dims))
    if any(d.base_dilation != 1 for d in dims):
        parts.append("lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims))
    if any(d.window_dilation != 1 for d in dims):
        parts.append("rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims))
    if any(d.reversal for d in dims):
        parts.append("rhs_reversal=" + "x".join(str(int(d.reversal)) for d in dims))
    return "{" + " ".join(parts) + "}"
