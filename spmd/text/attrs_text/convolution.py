"""convolution: window, dimension labels (``b01f_01io->b01f``), group counts."""

from __future__ import annotations

import re

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs
from spmd.ops.window import Window
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter
from spmd.text.lexer import Scanner
from spmd.text.window_text import format_window, read_window

_LABELS = re.compile(r"([\dbf?]++)_([\dio?]++)->([\dbf?]++)")


def read_dim_labels(scanner: Scanner) -> ConvDimensionNumbers:
    """Read the labels, each of which names the dimension at its position; ``?`` is a dimension of size one without a
    role.
    """
    found = scanner.need(_LABELS, "dimension labels such as b01f_01io->b01f")
    lhs, rhs, out = found[1], found[2], found[3]
    spatial = len([c for c in lhs if c.isdigit()])
    for text, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        wanted = sorted(letters + "".join(map(str, range(spatial))))
        if sorted(text.replace("?", "")) != wanted:
            scanner.fail(
                f"dimension labels {text!r} must hold {''.join(wanted)!r} once each", found.start()
            )
    numbers = [str(i) for i in range(spatial)]
    return ConvDimensionNumbers(
        input_batch=lhs.index("b"),
        input_feature=lhs.index("f"),
        input_spatial=tuple(map(lhs.index, numbers)),
        kernel_input_feature=rhs.index("i"),
        kernel_output_feature=rhs.index("o"),
        kernel_spatial=tuple(map(rhs.index, numbers)),
        output_batch=out.index("b"),
        output_feature=out.index("f"),
        output_spatial=tuple(map(out.index, numbers)),
    )


def format_dim_labels(numbers: ConvDimensionNumbers) -> str:
    lhs = _labels({numbers.input_batch: "b", numbers.input_feature: "f"}, numbers.input_spatial)
    rhs = _labels(
        {numbers.kernel_input_feature: "i", numbers.kernel_output_feature: "o"},
        numbers.kernel_spatial,
    )
    out = _labels({numbers.output_batch: "b", numbers.output_feature: "f"}, numbers.output_spatial)
    return f"{lhs}_{rhs}->{out}"


def _labels(letters: dict[int, str], spatial: tuple[int, ...]) -> str:
    at = letters | {position: str(i) for i, position in enumerate(spatial)}
    return "".join(at.get(position, "?") for position in range(max(at) + 1))


def _read_convolution(values: AttrValues) -> ConvolutionAttrs:
    return ConvolutionAttrs(
        window=values.read("window", read_window, Window()),
        dimension_numbers=values.need_read("dim_labels", read_dim_labels),
        feature_group_count=values.integer("feature_group_count", 1),
        batch_group_count=values.integer("batch_group_count", 1),
        operand_precision=values.precisions(),
        extra=values.verbatim("convolution_kind", "sparsity_config", "algorithm"),
    )


def _write_convolution(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(ConvolutionAttrs)
    if attrs.window.rank:
        out.add("window", format_window(attrs.window))
    out.add("dim_labels", format_dim_labels(attrs.dimension_numbers))
    if attrs.feature_group_count != 1:
        out.add("feature_group_count", attrs.feature_group_count)
    if attrs.batch_group_count != 1:
        out.add("batch_group_count", attrs.batch_group_count)
    out.tokens("operand_precision", attrs.operand_precision)
    out.verbatim(attrs.extra)


attrs_text(Opcode.CONVOLUTION, read=_read_convolution, write=_write_convolution)
