"""slice, dynamic-slice, dynamic-update-slice, pad, concatenate."""

from __future__ import annotations

import re

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DynamicSliceAttrs, PadAttrs, SliceAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.reshape import read_dimensions, write_dimensions
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter
from spmd.text.lexer import Scanner

_RANGE = re.compile(r"\[\s*+(-?\d{1,19})\s*+:\s*+(-?\d{1,19})\s*+(?::\s*+(-?\d{1,19})\s*+)?\]")
_PADDING = re.compile(
    r"-?\d{1,19}_-?\d{1,19}(?:_\d{1,19})?(?>(?:x-?\d{1,19}_-?\d{1,19}(?:_\d{1,19})?)*)"
)


def _read_ranges(scanner: Scanner) -> SliceAttrs:
    ranges: list[tuple[int, int, int]] = []
    for _ in scanner.items():
        found = scanner.need(_RANGE, "[start:limit:stride]")
        ranges.append((int(found[1]), int(found[2]), int(found[3] or 1)))
    return SliceAttrs(
        tuple(start for start, _, _ in ranges),
        tuple(limit for _, limit, _ in ranges),
        tuple(stride for _, _, stride in ranges),
    )


def _read_slice(values: AttrValues) -> SliceAttrs:
    return values.need_read("slice", _read_ranges)


def _write_slice(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(SliceAttrs)
    # XLA writes all strides or none.
    plain = all(stride == 1 for stride in attrs.strides)
    ranges = [
        f"[{start}:{limit}]" if plain else f"[{start}:{limit}:{stride}]"
        for start, limit, stride in zip(attrs.starts, attrs.limits, attrs.strides, strict=True)
    ]
    out.add("slice", f"{{{', '.join(ranges)}}}")


def _read_padding(scanner: Scanner) -> PadAttrs:
    found = scanner.match(_PADDING)
    if found is None:
        return PadAttrs((), (), ())
    dims = [tuple(map(int, part.split("_"))) for part in found.group().split("x")]
    return PadAttrs(
        tuple(dim[0] for dim in dims),
        tuple(dim[1] for dim in dims),
        tuple(dim[2] if len(dim) > 2 else 0 for dim in dims),
    )


def _write_pad(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(PadAttrs)
    dims = [
        f"{low}_{high}_{interior}" if any(attrs.interior) else f"{low}_{high}"
        for low, high, interior in zip(attrs.low, attrs.high, attrs.interior, strict=True)
    ]
    out.add("padding", "x".join(dims))


attrs_text(Opcode.SLICE, read=_read_slice, write=_write_slice)
attrs_text(
    Opcode.PAD, read=lambda values: values.need_read("padding", _read_padding), write=_write_pad
)
attrs_text(
    Opcode.DYNAMIC_SLICE,
    read=lambda values: DynamicSliceAttrs(values.need_ints("dynamic_slice_sizes")),
    write=lambda out, instruction: out.ints(
        "dynamic_slice_sizes", instruction.attrs_as(DynamicSliceAttrs).sizes
    ),
)
attrs_text(Opcode.DYNAMIC_UPDATE_SLICE)
attrs_text(Opcode.CONCATENATE, read=read_dimensions, write=write_dimensions)
